"""Properties files in Java's format, the container image's variables, and which source wins."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.general import NUM_PARTITIONS
from ottla.config.loader import NOT_CONFIGURATION, from_environment, load_properties, parse_assignment, remarks
from ottla.config.properties_format import decode, parse_properties

# Each was given to java.util.Properties.
JAVA_PROPERTIES = [
    ("a=b", {"a": "b"}),
    ("a = b ", {"a": "b "}),
    ("a:b", {"a": "b"}),
    ("a b", {"a": "b"}),
    ("a\tb", {"a": "b"}),
    ("a   =   b", {"a": "b"}),
    ("a = = b", {"a": "= b"}),
    ("a=b=c:d", {"a": "b=c:d"}),
    ("a", {"a": ""}),
    ("a=", {"a": ""}),
    ("=b", {"": "b"}),
    ("\f\t a=b", {"a": "b"}),
    ("", {}),
    ("\n\r\n \t\n", {}),
    ("# a=b\n! c=d\n  # e=f\ng=h#i", {"g": "h#i"}),
    ("a=1\na=2", {"a": "2"}),
    ("a=1\rb=2\r\nc=3\nd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
    ("a=1,\\\n   2,\\\r\n\t3", {"a": "1,2,3"}),
    ("a\\\n  b=c", {"ab": "c"}),
    ("a=b\\\n", {"a": "b"}),
    ("a=b\\", {"a": "b"}),
    ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
    ("a=b\\\\\\\nc=d", {"a": "b\\c=d"}),
    ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
    ("a=b\\\n# c", {"a": "b# c"}),
    ("# a\\\nb=c", {"b": "c"}),
    ("a\\ b=c", {"a b": "c"}),
    ("a\\=b\\:c=d", {"a=b:c": "d"}),
    ('a=\\t\\n\\r\\f\\x\\\\\\"', {"a": '\t\n\r\fx\\"'}),
    ("a=\\u0041\\u00e9\\uD83D\\uDE00", {"a": "Aé😀"}),
    ("C:\\\\dir = C:\\\\tmp\\\\x", {"C": "\\dir = C:\\tmp\\x"}),
]


@pytest.mark.parametrize(("text", "properties"), JAVA_PROPERTIES)
def test_a_file_is_read_as_java_reads_it(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize("text", ["a=\\u00", "a=\\u12g4", "\\u=1"])
def test_a_broken_unicode_escape_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"Malformed \\uxxxx encoding in the property that begins in line 2: "):
        parse_properties(f"x=y\n{text}")


def escaped(text: str) -> str:
    """`text` as java.util.Properties stores it."""
    plain = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
    special = " \\=:#!"
    return "".join(plain.get(char, f"\\{char}" if char in special else char) for char in text)


TEXTS = st.text(st.sampled_from("ab=: \t\f\n\r\\#!é😀."), max_size=12)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(TEXTS, TEXTS, max_size=5),
    st.sampled_from(["=", ":", " = ", "\t:\t"]),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n# c\n"]),
)
def test_what_is_written_escaped_reads_back(properties: dict[str, str], separator: str, line_end: str) -> None:
    text = line_end.join(f"{escaped(key)}{separator}{escaped(value)}" for key, value in properties.items())
    assert parse_properties(text) == properties


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab=: \t\n\r\\#!u0"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        properties = parse_properties(text)
    except ConfigError:
        properties = {}
    assert len(properties) <= text.count("\n") + text.count("\r") + 1


def test_a_file_may_be_utf_8_or_latin_1() -> None:
    assert decode("rack=Zürich".encode()) == "rack=Zürich"
    assert decode("rack=Zürich".encode("iso-8859-1")) == "rack=Zürich"
    assert decode(b"\xef\xbb\xbfa=b") == "a=b"


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_BROKER_ID", "broker.id"),
        ("KAFKA_MY__KEY", "my_key"),
        ("KAFKA_MY___KEY", "my-key"),
        ("KAFKA_LISTENER_NAME_OUT_SCRAM___SHA___256_SASL_JAAS_CONFIG", "listener.name.out.scram-sha-256.sasl.jaas.config"),
        ("KAFKA_MY____KEY", "my-.key"),
        ("KAFKA_MY_____KEY", "my-_key"),
        ("KAFKA_KAFKA_METRICS_REPORTERS", "metrics.reporters"),
        ("KAFKA_My_Key", "my.key"),
    ],
)
def test_a_variable_names_a_property(variable: str, name: str) -> None:
    assert from_environment({variable: "x"}) == {name: "x"}


@pytest.mark.parametrize(
    ("value", "properties"),
    [
        ("a\\tb\\\\c\\", {"x": "a\tb\\c"}),
        (" in the middle ", {"x": "in the middle "}),
        ("= b", {"x": "= b"}),
        ("", {"x": ""}),
        ("first\nsecond=2", {"x": "first", "second": "2"}),
    ],
)
def test_the_value_of_a_variable_is_read_as_in_the_file_into_which_the_image_writes_it(value: str, properties: dict[str, str]) -> None:
    assert from_environment({"KAFKA_X": value}) == properties


def test_a_broken_escape_in_a_variable_is_refused_with_its_name_and_without_its_value() -> None:
    with pytest.raises(ConfigError) as caught:
        from_environment({"KAFKA_SSL_KEY_PASSWORD": "secret\\u12"})
    assert "KAFKA_SSL_KEY_PASSWORD: Malformed" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_variables_of_the_image_that_are_no_configuration_are_left_alone() -> None:
    environment = dict.fromkeys(NOT_CONFIGURATION, "x") | {"HOME": "/", "CLUSTER_ID": "y", "KAFKA_LOG_DIRS": "/data"}
    assert from_environment(environment) == {"log.dirs": "/data"}


def test_advertised_listeners_alone_make_the_broker_listen_everywhere() -> None:
    alone = from_environment({"KAFKA_ADVERTISED_LISTENERS": "IN://kafka:9092,OUT://localhost:9093"})
    both = from_environment({"KAFKA_ADVERTISED_LISTENERS": "IN://kafka:9092", "KAFKA_LISTENERS": "IN://:9092"})
    assert alone["listeners"] == "IN://0.0.0.0:9092,OUT://0.0.0.0:9093"
    assert both["listeners"] == "IN://:9092"


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("num.partitions=3", ("num.partitions", "3")),
        (" num.partitions = 3", ("num.partitions", " 3")),
        ("a=b=c", ("a", "b=c")),
        ("a=", ("a", "")),
    ],
)
def test_an_assignment_is_split_at_its_first_equals_sign(text: str, pair: tuple[str, str]) -> None:
    assert parse_assignment(text) == pair


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("num.partitions", "num.partitions"),
        ("=my-secret", "..."),
        (" =my-secret", " ..."),
        ("", ""),
        ("password.encoder.secret my-secret", "password.encoder.secret..."),
        ("password.encoder.secret: my-secret", "password.encoder.secret..."),
    ],
)
def test_an_assignment_without_key_or_equals_sign_is_refused_and_its_value_is_not_shown(text: str, shown: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_assignment(text)
    assert str(refused.value) == f"'{shown}' is not of the form key=value"


def test_the_command_line_beats_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nnum.io.threads=1\nbroker.rack=a\n")
    environment = {"KAFKA_NUM_PARTITIONS": "2", "KAFKA_NUM_IO_THREADS": "2"}
    assert load_properties(file, environment, ["num.partitions=3", "num.partitions=4"]) == {
        "num.partitions": "4",
        "num.io.threads": "2",
        "broker.rack": "a",
    }
    assert BrokerConfig(load_properties(file))[NUM_PARTITIONS] == 1
    assert load_properties() == {}


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.properties cannot be read: No such file or directory"):
        load_properties(tmp_path / "missing.properties")


@pytest.mark.parametrize("content", ["num.partitions=3\n".encode("utf-16"), b"num.partitions=3\n\0", b"a=\\u12\n"])
def test_a_file_that_is_no_text_or_malformed_is_one_line_with_its_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other.properties"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"^\S*/other\.properties: (a byte is zero, as in UTF-16|Malformed .* in line 1)") as raised:
        load_properties(file)
    assert "\n" not in str(raised.value)


def test_remarks_name_each_unknown_key_and_all_keys_without_effect() -> None:
    config = BrokerConfig(
        {"num.partition": "3", "ssl.secure.random.implementation": "x", "zookeeper.clientCnxnSocket": "x", "num.partitions": "3"}
    )
    assert remarks(config) == [
        "Unknown configuration num.partition: no key of a broker has this name (did you mean num.partitions?); "
        "it is kept but has no effect",
        "Without effect in this server: ssl.secure.random.implementation, zookeeper.clientCnxnSocket",
    ]
    assert remarks(BrokerConfig()) == []


def test_remarks_name_each_key_that_counts_for_no_listener() -> None:
    prefix = "listener.name.clients"
    config = BrokerConfig(
        {
            "listeners": "CLIENTS://127.0.0.1:9092",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,LATER:PLAINTEXT",
            "inter.broker.listener.name": "CLIENTS",
            "listener.name.client.ssl.keystore.location": "/k",
            "listener.name.CLIENTS.max.connections": "3",
            "listener.name.later.max.connections": "3",
            f"{prefix}.num.partitions": "3",
            f"{prefix}.plian.sasl.jaas.config": "x",
            f"{prefix}.max.connection": "3",
            f"{prefix}.max.connections": "3",
            f"{prefix}.connections.max.reauth.ms": "3",
            f"{prefix}.ssl.keystore.location": "/k",
            f"{prefix}.sasl.enabled.mechanisms": "PLAIN",
            f"{prefix}.scram-sha-256.sasl.jaas.config": "x",
            f"{prefix}.plain.connections.max.reauth.ms": "3",
        }
    )
    assert [remark.removesuffix("; it is kept but has no effect") for remark in remarks(config)] == [
        f"Unknown configuration {prefix}.max.connection: no key of a broker has this name",
        f"listener.name.CLIENTS.max.connections has no effect: the prefixes of the listeners are {prefix}.",
        f"listener.name.client.ssl.keystore.location has no effect: the prefixes of the listeners are {prefix}.",
        f"{prefix}.num.partitions has no effect: no listener has a key num.partitions of its own",
        f"{prefix}.plian.sasl.jaas.config has no effect: no listener has a key plian.sasl.jaas.config of its own",
        f"listener.name.later.max.connections has no effect: the prefixes of the listeners are {prefix}.",
    ]
