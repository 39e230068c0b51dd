"""`ottla produce` and `ottla consume` with a schema registry: Avro, Protobuf and JSON in, JSON out; logins; what does not fit."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import a_broker
from tests.support.command_line import CommandLine
from tests.unit.cli.test_console_protobuf import FILE
from tests.unit.cli.test_console_records import DECODED, USER
from tests.unit.cli.test_console_registry import PASSWORD, Registry, a_registry

ANSWERS: dict[str, bytes | int] = {
    "/schemas/ids/1": json.dumps({"schema": json.dumps(USER)}).encode(),
    "/schemas/ids/2": json.dumps({"schema": FILE, "schemaType": "PROTOBUF"}).encode(),
    "/schemas/ids/3": json.dumps({"schema": "{}", "schemaType": "JSON"}).encode(),
}
VALUE = json.dumps(DECODED, separators=(",", ":"))


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with a_broker(tmp_path_factory.mktemp("schemas")) as broker:
        yield CommandLine(broker.bootstrap)


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with a_registry(ANSWERS, f"me:{PASSWORD}") as found:
        yield found


@pytest.fixture
def options(registry: Registry, tmp_path: Path) -> tuple[str, ...]:
    """The address of the registry, and a login."""
    login = tmp_path / "login"
    login.write_text(f"me:{PASSWORD}\n")
    return ("--schema-registry", registry.url, "--schema-registry-login", str(login))


@pytest.mark.parametrize(("schema", "value"), [("1", VALUE), ("2", '{"id":-5,"customer":"Ada"}'), ("3", '{"any": 1.50}')])
def test_what_is_written_by_a_schema_is_read_by_it(ottla: CommandLine, options: tuple[str, ...], schema: str, value: str) -> None:
    topic = f"of-{schema}"
    ottla("topics", "create", topic)
    ottla("produce", topic, *options, "--value-schema", schema, input=f"{value}\n{value}\n")
    assert ottla("consume", "-e", topic, *options).lines == [value, value]
    raw = ottla("consume", "-e", "--json", "--base64", topic).json_lines
    assert len(raw) == 2
    assert all(record["value"].startswith("AAAAA") for record in raw)  # magic 0, and an id of four bytes


def test_keys_have_schemas_too_and_other_records_stay_as_they_are(ottla: CommandLine, options: tuple[str, ...]) -> None:
    ottla("topics", "create", "mixed")
    ottla("produce", "mixed", *options, "-K", ";", "--key-schema", "3", "--value-schema", "1", input=f'"k";{VALUE}\n')
    ottla("produce", "mixed", input="plain\n")
    found = ottla("consume", "-e", "--json", "mixed", *options).json_lines
    assert [(record["key"], record["value"]) for record in found] == [('"k"', VALUE), (None, "plain")]


def test_a_record_that_does_not_fit_is_named_and_the_ones_before_are_written(ottla: CommandLine, options: tuple[str, ...]) -> None:
    ottla("topics", "create", "refused")
    refused = ottla("produce", "refused", *options, "--value-schema", "2", input='{"id":1}\n{"id":"x"}\n{"id":2}\n', status=1)
    assert "ottla: the value does not fit schema 2: value.id is no int64" in refused.err
    assert ottla("consume", "-e", "refused", *options).lines == ['{"id":1}']
    unknown = ottla("produce", "refused", *options, "--value-schema", "9", input="{}\n", status=1)
    assert "ottla: the value is not written: the schema registry answers 404 to schema 9" in unknown.err
    assert "require --schema-registry" in ottla("produce", "refused", "--value-schema", "1", input="{}\n", status=2).err


def test_a_record_whose_schema_cannot_be_had_is_printed_as_it_is(ottla: CommandLine, registry: Registry, options: tuple[str, ...]) -> None:
    ottla("topics", "create", "printed")
    ottla("produce", "printed", *options, "--value-schema", "3", input='{"a":1}\n{"b":1}\n')
    ended = ottla("consume", "-e", "printed", "--schema-registry", registry.url)
    assert ended.out.endswith('{"b":1}\n')
    assert ended.out.startswith("\0\0\0\0\x03{")
    assert ended.err.count("printed as it is: the schema registry refuses the login with 401; give one by --schema-registry-login") == 1
    quiet = ottla("consume", "-e", "-q", "printed", "--schema-registry", registry.url)
    assert (quiet.out, quiet.err) == (ended.out, "")


def test_a_profile_has_the_registry_and_its_login_goes_nowhere_else(
    ottla: CommandLine, registry: Registry, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_PROFILES", str(tmp_path / "profiles.toml"))
    ottla("profiles", "create", "here", "-b", ottla.bootstrap, *options)
    ottla("topics", "create", "profiled")
    ottla("produce", "profiled", "--profile", "here", "--value-schema", "1", input=f"{VALUE}\n")
    assert ottla("consume", "-e", "profiled", "--profile", "here").lines == [VALUE]
    with a_registry(ANSWERS) as other:
        assert ottla("consume", "-e", "profiled", "--profile", "here", "--schema-registry", other.url).lines == [VALUE]
        assert other.logins == [None]
