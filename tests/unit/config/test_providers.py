"""Variables in values: what Apache Kafka 3.9.1 answered to the same properties, recorded by IncrementalAlterConfigs."""

from __future__ import annotations

import logging
import os
import re
import time
from pathlib import Path

import pytest

from ottla.config import providers
from ottla.config.broker import BrokerConfig
from ottla.config.client_properties import read_client_properties
from ottla.config.errors import ConfigError
from ottla.config.keys.general import BROKER_RACK, NUM_PARTITIONS
from ottla.config.keys.network import NUM_IO_THREADS
from ottla.config.loader import load_properties, remarks
from ottla.config.providers import MAX_FILE_BYTES, resolved
from ottla.config.schema.describe import ConfigEntry

PACKAGE = "org.apache.kafka.common.config.provider."
ENVIRONMENT = {"THREADS": "6", "HIDDEN": "4"}


def using(name: str, class_name: str | None = None, **parameters: str) -> dict[str, str]:
    """The properties of one provider."""
    name_of_class = {"env": "EnvVarConfigProvider", "file": "FileConfigProvider", "directory": "DirectoryConfigProvider"}[name]
    found = {"config.providers": name, f"config.providers.{name}.class": PACKAGE + name_of_class if class_name is None else class_name}
    return found | {f"config.providers.{name}.param.{key.replace('_', '.')}": text for key, text in parameters.items()}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with a file of properties, a directory of secrets, and another directory."""
    (tmp_path / "files" / "dir").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "files" / "values.properties").write_text("hours=7\nempty=\nname=a\\u00fcb\n")
    (tmp_path / "files" / "dir" / "threads").write_text("9\n")
    (tmp_path / "files" / "binary").write_bytes(b"hours=\xff")
    return tmp_path


RESOLVED: list[tuple[dict[str, str], str, str]] = [
    (using("env"), "${env:THREADS}", "6"),
    (using("env"), "${env:THREADS}${env:THREADS}", "66"),
    (using("env"), "${env:THREADS}${env:NONE}", "6${env:NONE}"),
    (using("env"), "a-${env:THREADS}-b", "a-6-b"),
    (using("env"), "${ENV:THREADS}", "${ENV:THREADS}"),
    (using("env"), "${env:THREADS", "${env:THREADS"),
    (using("env"), "${THREADS}", "${THREADS}"),
    (using("env", allowlist_pattern="THR.*"), "${env:THREADS}${env:HIDDEN}", "6${env:HIDDEN}"),
    (using("env", allowlist_pattern="HREAD"), "${env:THREADS}", "${env:THREADS}"),
    (using("env", allowlist_pattern=""), "${env:THREADS}", "${env:THREADS}"),
    (using("env") | {"config.providers": "env,env,"}, "${env:THREADS}", "6"),
    (using("env") | {"config.providers": " env"}, "${env:THREADS}", "${env:THREADS}"),
    ({"config.providers": "env"}, "${env:THREADS}", "${env:THREADS}"),
    ({}, "${env:THREADS}", "${env:THREADS}"),
    (using("file"), "${file:DIR/files/values.properties:hours}", "7"),
    (using("file"), "${file:DIR/files/values.properties:name}", "aüb"),
    (using("file"), "${file:DIR/files/values.properties:empty}", ""),
    (using("file"), "${file:DIR/files/values.properties:nope}", "${file:DIR/files/values.properties:nope}"),
    (using("file"), "${file:hours}", "${file:hours}"),
    (using("file"), "${file::hours}", "${file::hours}"),
    (using("file", allowed_paths="DIR/files"), "${file:DIR/files/values.properties:hours}", "7"),
    (using("file", allowed_paths="DIR/other,DIR/files"), "${file:DIR/files/values.properties:hours}", "7"),
    (using("file", allowed_paths="DIR/files/values.properties"), "${file:DIR/files/values.properties:hours}", "7"),
    (using("file", allowed_paths=""), "${file:DIR/files/values.properties:hours}", "7"),
    (using("file", allowed_paths="DIR/other"), "${file:DIR/files/values.properties:hours}", "${file:DIR/files/values.properties:hours}"),
    (using("file", allowed_paths="DIR/other"), "${file:DIR/other/../files/values.properties:hours}",
     "${file:DIR/other/../files/values.properties:hours}"),
    (using("directory"), "${directory:DIR/files/dir:threads}", "9\n"),
    (using("directory"), "${directory:DIR/files:dir/threads}", "${directory:DIR/files:dir/threads}"),
    (using("directory"), "${directory:DIR/files/dir:nope}", "${directory:DIR/files/dir:nope}"),
    (using("directory"), "${directory:DIR/nope:threads}", "${directory:DIR/nope:threads}"),
    (using("directory"), "${directory:DIR/files/values.properties:threads}", "${directory:DIR/files/values.properties:threads}"),
    (using("directory", allowed_paths="DIR/other"), "${directory:DIR/files/dir:threads}", "${directory:DIR/files/dir:threads}"),
]  # fmt: skip

NOT_LOADED = "Could not load config provider class or one of its dependencies"
REFUSED: list[tuple[dict[str, str], str, str]] = [
    (using("env", "com.example.Bad"), "7", f"Invalid value com.example.Bad for configuration config.providers.env.class: {NOT_LOADED}"),
    (using("env", "EnvVarConfigProvider"), "7",
     f"Invalid value EnvVarConfigProvider for configuration config.providers.env.class: {NOT_LOADED}"),
    (using("env", ""), "7", f"Invalid value  for configuration config.providers.env.class: {NOT_LOADED}"),
    (using("env", "${env:X}"), "7", f"Invalid value ${{env:X}} for configuration config.providers.env.class: {NOT_LOADED}"),
    (using("env"), "${env:p:THREADS}", "Path is not supported for EnvVarConfigProvider, invalid value 'p'"),
    (using("env"), "${env:${env:THREADS}}", "Path is not supported for EnvVarConfigProvider, invalid value '${env'"),
    (using("file"), "${file:DIR/nope:hours}", "Could not read properties from file DIR/nope"),
    (using("file"), "${file:DIR/files:hours}", "Could not read properties from file DIR/files"),
    (using("file"), "${file:DIR/files/binary:hours}", "Could not read properties from file DIR/files/binary"),
    (using("file", allowed_paths="DIR/other, DIR/files"), "7", "Path  DIR/files is not absolute"),
    (using("file", allowed_paths="files"), "7", "Path files is not absolute"),
    (using("file", allowed_paths="DIR/nope"), "7", "Path DIR/nope does not exist"),
]  # fmt: skip


def placed(properties: dict[str, str], folder: Path) -> dict[str, str]:
    return {name: text.replace("DIR", str(folder)) for name, text in properties.items()}


@pytest.mark.parametrize(("using_them", "value", "expected"), RESOLVED)
def test_a_variable_has_the_value_that_apache_kafka_gives_it(using_them: dict[str, str], value: str, expected: str, files: Path) -> None:
    found = resolved(placed(using_them | {"broker.rack": value}, files), ENVIRONMENT)
    assert found["broker.rack"] == expected.replace("DIR", str(files))


@pytest.mark.parametrize(("using_them", "value", "text"), REFUSED)
def test_what_cannot_be_resolved_is_refused_in_the_words_of_apache_kafka(
    using_them: dict[str, str], value: str, text: str, files: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(placed(using_them | {"num.io.threads": value}, files), ENVIRONMENT)
    assert str(refused.value) == text.replace("DIR", str(files))


def test_a_pattern_that_is_none_is_refused_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"^Invalid value \[ for configuration config\.providers\.env\.param\.allowlist\.pattern: "):
        BrokerConfig(using("env", allowlist_pattern="["), ENVIRONMENT)


def entry(config: BrokerConfig, name: str) -> ConfigEntry:
    (found,) = config.describe([name])
    return found


def synonyms(config: BrokerConfig, name: str) -> list[tuple[str | None, str]]:
    return [(synonym.value, synonym.source.name) for synonym in entry(config, name).synonyms]


def test_static_properties_are_described_with_their_values(files: Path) -> None:
    properties = using("env") | using("directory") | {"config.providers": "env,directory"}
    properties |= {"num.partitions": "${env:THREADS}", "num.io.threads": "${directory:DIR/files/dir:threads}", "broker.rack": "${env:NONE}"}
    config = BrokerConfig(placed(properties, files), ENVIRONMENT)
    assert (config[NUM_PARTITIONS], config[NUM_IO_THREADS], config[BROKER_RACK]) == (6, 9, "${env:NONE}")
    assert (entry(config, "num.io.threads").value, synonyms(config, "num.io.threads")) == (
        "9",
        [("9\n", "STATIC_BROKER_CONFIG"), ("8", "DEFAULT_CONFIG")],
    )
    provider = entry(config, "config.providers.env.class")
    assert (provider.value, provider.sensitive, provider.read_only) == (None, True, True)
    assert config.unknown == []
    assert remarks(config) == ["Variables that no configuration provider knows are kept as text: broker.rack"]


def test_a_dynamic_value_is_resolved_by_providers_that_are_set_with_it() -> None:
    config = BrokerConfig(using("env"), ENVIRONMENT)
    change = {"num.io.threads": "${env:THREADS}"}
    with pytest.raises(ConfigError) as refused:
        config.validate_dynamic(change, per_broker=True)
    assert str(refused.value) == "Invalid value ${env:THREADS} for configuration num.io.threads: Not a number of type INT"
    change |= using("env")
    for per_broker in (True, False):
        config.validate_dynamic(change, per_broker=per_broker)
    config.update_dynamic(change, {})
    assert config[NUM_IO_THREADS] == 6
    assert (entry(config, "num.io.threads").value, synonyms(config, "num.io.threads")) == (
        "6",
        [("${env:THREADS}", "DYNAMIC_BROKER_CONFIG"), ("8", "DEFAULT_CONFIG")],
    )
    config.update_dynamic({}, {})
    assert config[NUM_IO_THREADS] == 8


def test_a_text_that_never_ends_a_variable_costs_little() -> None:
    """With the expression of Apache Kafka it would take hours, on the event loop."""
    text = "${" + ":" * 30_000
    config = BrokerConfig(using("env") | {"broker.rack": text}, ENVIRONMENT)
    assert config[BROKER_RACK] == text
    with pytest.raises(ConfigError, match="Not a number of type INT"):
        config.validate_dynamic(using("env") | {"num.io.threads": text}, per_broker=True)


@pytest.mark.parametrize("text", ["${" * 15_000, "${" * 10_000 + "}"])
def test_a_text_that_begins_many_variables_costs_little(text: str) -> None:
    begin = time.thread_time()
    for _ in range(100):
        assert resolved(using("env") | {"broker.rack": text}, ENVIRONMENT)["broker.rack"] == text
    assert time.thread_time() - begin < 1


def test_a_resolved_dynamic_value_is_checked() -> None:
    config = BrokerConfig(using("env"), ENVIRONMENT)
    with pytest.raises(ConfigError, match="value should not be greater than double the current value 8"):
        config.validate_dynamic(using("env") | {"num.io.threads": "${env:THREADS}${env:THREADS}"}, per_broker=True)


FOREIGN: list[tuple[dict[str, str], dict[str, str], str]] = [
    ({}, using("env"), "config.providers.env.class"),
    ({}, using("env", "com.example.Bad"), "config.providers.env.class"),
    (using("env"), using("file"), "config.providers.file.class"),
    (using("env"), using("env") | {"config.providers.env.class": f"{PACKAGE}FileConfigProvider"}, "config.providers.env.class"),
    (using("env"), using("env", allowlist_pattern=".*"), "config.providers.env.param.allowlist.pattern"),
    (using("env", allowlist_pattern="T.*"), using("env", allowlist_pattern=".*"), "config.providers.env.param.allowlist.pattern"),
]


@pytest.mark.parametrize(("own", "brought", "name"), FOREIGN)
def test_a_dynamic_configuration_brings_no_provider_of_its_own(
    own: dict[str, str], brought: dict[str, str], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig(own, ENVIRONMENT)
    change = brought | {"num.io.threads": "${env:HIDDEN}", "num.network.threads": "4"}
    for per_broker in (True, False):
        with pytest.raises(ConfigError, match=rf"^{re.escape(name)} is not among the properties with which the broker started, "):
            config.validate_dynamic(change, per_broker=per_broker)
    with caplog.at_level(logging.ERROR):
        config.update_dynamic(change, {})
    assert f"dynamic configuration {name} is ignored" in caplog.text


def test_a_stored_provider_that_is_ignored_keeps_no_other_value_from_its_effect() -> None:
    config = BrokerConfig({}, ENVIRONMENT)
    change = using("env") | {"num.io.threads": "${env:HIDDEN}", "num.network.threads": "4"}
    assert "num.network.threads" in config.update_dynamic(change, {})
    assert config[NUM_IO_THREADS] == 8


def test_parameters_that_a_dynamic_configuration_omits_are_those_of_the_broker() -> None:
    config = BrokerConfig(using("env", allowlist_pattern="THREADS"), ENVIRONMENT)
    config.validate_dynamic(using("env") | {"num.io.threads": "${env:THREADS}"}, per_broker=True)
    with pytest.raises(ConfigError, match=r"^Invalid value \$\{env:HIDDEN\} "):
        config.validate_dynamic(using("env") | {"num.io.threads": "${env:HIDDEN}"}, per_broker=True)


def test_a_file_that_is_none_or_has_no_end_is_not_read(tmp_path: Path) -> None:
    """The event loop reads what a dynamic configuration names."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"a=" + bytes(MAX_FILE_BYTES))
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path / "large"):
        with pytest.raises(ConfigError, match=f"^Could not read properties from file {path}$"):
            resolved(using("file") | {"broker.rack": f"${{file:{path}:a}}"}, ENVIRONMENT)
    with pytest.raises(ConfigError, match=f"^Could not read file {tmp_path}/large for property large$"):
        resolved(using("directory") | {"broker.rack": f"${{directory:{tmp_path}:large}}"}, ENVIRONMENT)
    for path in (f"{tmp_path}:pipe", "/dev:zero"):
        text = f"${{directory:{path}}}"
        assert resolved(using("directory") | {"broker.rack": text}, ENVIRONMENT)["broker.rack"] == text


def test_the_variables_of_a_configuration_are_limited(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "MAX_VARIABLES", 2)
    same = resolved(using("env") | {"broker.rack": "${env:THREADS}" * 10}, ENVIRONMENT)
    assert same["broker.rack"] == "6" * 10
    with pytest.raises(ConfigError, match=r"^A configuration has more than 2 variables$"):
        resolved(using("env") | {"broker.rack": "${env:THREADS}", "a": "${env:HIDDEN}", "b": "${env:NONE}"}, ENVIRONMENT)
    monkeypatch.setattr(providers, "MAX_RESOLVED", 20)
    value = "${directory:DIR/files/dir:threads}"  # two bytes
    assert resolved(placed(using("directory") | {"broker.rack": value * 9}, files), ENVIRONMENT)["broker.rack"] == "9\n" * 9
    with pytest.raises(ConfigError, match=r"^The variables of a configuration have more than 20 bytes of files and values$"):
        resolved(placed(using("directory") | {"broker.rack": value * 10}, files), ENVIRONMENT)


def test_a_file_is_read_once_for_all_its_keys(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "MAX_RESOLVED", 50)  # more than the file, less than the file twice
    value = "".join(f"${{file:{files}/files/values.properties:{key}}}" for key in ("hours", "empty", "name"))
    assert resolved(using("file") | {"broker.rack": value}, ENVIRONMENT)["broker.rack"] == "7a\u00fcb"


def test_a_level_of_the_stored_dynamic_configuration_that_cannot_be_resolved_is_not_applied(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig(using("file"), ENVIRONMENT)
    with caplog.at_level(logging.ERROR):
        broker = using("file") | {"num.io.threads": "${file:/nope:hours}"}
        assert config.update_dynamic(broker, {"num.network.threads": "4"}) == {"num.network.threads"}
    assert config[NUM_IO_THREADS] == 8
    assert "is not applied: Could not read properties from file /nope" in caplog.text


def test_file_environment_and_command_line_may_have_variables_of_one_another(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("config.providers=env\nnum.partitions=${env:THREADS}\n")
    variables = {"KAFKA_CONFIG_PROVIDERS_ENV_CLASS": f"{PACKAGE}EnvVarConfigProvider", "KAFKA_BROKER_RACK": "r${env:THREADS}"}
    loaded = load_properties(tmp_path / "server.properties", variables, ["num.io.threads=1${env:THREADS}"])
    config = BrokerConfig(loaded, ENVIRONMENT)
    assert (config[NUM_PARTITIONS], config[BROKER_RACK], config[NUM_IO_THREADS]) == (6, "r6", 16)


def test_the_file_of_a_client_may_have_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PROTOCOL", "SSL")
    lines = [f"{name}={text}" for name, text in (using("env") | {"security.protocol": "${env:OTTLA_PROTOCOL}"}).items()]
    (tmp_path / "client.properties").write_text("\n".join(lines))
    assert read_client_properties(tmp_path / "client.properties").protocol.name == "SSL"
