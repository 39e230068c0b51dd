"""The file with the properties of all brokers of a host: its placeholders, its environment, and the file that each broker gets."""

from pathlib import Path

import pytest

from ottla.config.errors import ConfigError
from ottla.config.properties_format import parse_properties
from ottla.supervisor.layout import Layout
from ottla.supervisor.processes import environment_of_broker
from ottla.supervisor.template import Template, fill, properties_text

PLACES = {"id": "3", "port": "9095", "host": "10.0.0.2", "dir": "/data/broker-3"}


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ("PLAINTEXT://{host}:{port}", "PLAINTEXT://10.0.0.2:9095"),
        ("{dir}/a,/disk2/broker-{id}", "/data/broker-3/a,/disk2/broker-3"),
        (r"RULE:^CN=(\p{alpha}{1,3}).*$/$1/", r"RULE:^CN=(\p{alpha}{1,3}).*$/$1/"),
        ("${file:/etc/secrets:password}", "${file:/etc/secrets:password}"),
        ("${id}", "${id}"),
    ],
)
def test_placeholders_are_filled_and_other_braces_stay(value: str, filled: str) -> None:
    assert fill("listeners", value, PLACES) == filled


def test_an_unknown_placeholder_names_file_key_and_value() -> None:
    with pytest.raises(ConfigError) as refused:
        fill("broker.rack", "rack-{zone}", PLACES, "/etc/c.properties: ")
    assert (
        str(refused.value) == "/etc/c.properties: broker.rack=rack-{zone}: {zone} is no placeholder; those are {id}, {port}, {host}, {dir}"
    )


def test_a_password_may_have_braces_and_an_unknown_key_keeps_its_value_to_itself() -> None:
    assert fill("ssl.keystore.password", "a{b}-secret", PLACES) == "a{b}-secret"
    with pytest.raises(ConfigError, match=r"^my\.own\.password=\[hidden\]: \{b\} is no placeholder"):
        fill("my.own.password", "a{b}-secret", PLACES)


def test_the_environment_overrides_the_keys_of_the_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "c.properties"
    file.write_text("num.partitions=2\n")
    template = Template.load(file, {"KAFKA_NUM_PARTITIONS": "7", "KAFKA_LISTENERS": "PLAINTEXT://:1", "KAFKA_LOG_RETENTION_MS": "5"})
    properties = Layout(tmp_path, (9092,), template=template).properties(0)
    assert properties["num.partitions"] == "7"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert properties["log.retention.ms"] == "5"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "c.properties"
    with pytest.raises(ConfigError) as refused:
        Template.load(missing, {})
    assert str(refused.value) == f"{missing} cannot be read: No such file or directory"
    missing.write_text("a=\\u12\n")
    with pytest.raises(ConfigError) as refused:
        Template.load(missing, {})
    assert str(refused.value).startswith(f"{missing}: Malformed")


def test_a_broker_reads_the_properties_that_were_written_for_it() -> None:
    properties = {"a": " b\\c\n\td=e: f ", "key with: all=": "#!", "umlaut": "ä", "empty": ""}
    assert parse_properties(properties_text(properties.items())) == properties


def test_the_command_line_of_a_broker_shows_no_property(tmp_path: Path) -> None:
    layout = Layout(tmp_path, (9092,), settings=("ssl.key.password=of-the-key-secret",))
    command = layout.command(0, 1)
    assert not any("of-the-key-secret" in word for word in command)
    file = layout.properties_file(0)
    assert str(file) in command
    assert file.stat().st_mode & 0o777 == 0o600
    assert parse_properties(file.read_text()) == layout.properties(0)


def test_brokers_do_not_talk_to_the_service_manager_of_their_supervisor_and_take_no_setting_twice() -> None:
    given = {"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "1", "KAFKA_NUM_PARTITIONS": "7", "KAFKA_LOG4J_ROOT_LOGLEVEL": "DEBUG", "PATH": "/bin"}
    assert environment_of_broker(given) == {"KAFKA_LOG4J_ROOT_LOGLEVEL": "DEBUG", "PATH": "/bin"}
