"""The declarations say what Kafka's own table says, field by field; the generated codecs do what a slow interpreter of it does."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import ottla.protocol.messages
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.api_versions import DECLARED_APIS
from ottla.protocol.schema.fields import ArrayOf, Field, Fixed, StructOf, Variable, WireType
from ottla.protocol.schema.message import Message, Struct
from ottla.protocol.schema.registry import ZOOKEEPER_MODE_APIS
from tests.support.examples import number_of
from tests.support.message_table import (
    RandomMessages,
    SlowEncoder,
    Table,
    attribute,
    covers,
    default_of,
    is_flexible,
    is_struct,
    struct_fields,
    tables,
    tables_of,
    valid_versions,
)

NOT_OF_A_BROKER = (
    "AbortedTxn",
    "ControlRecordType",
    "DefaultPrincipal",
    "EndTxnMarker",
    "KRaftVersion",
    "LeaderChange",
    "LegacyOffsetCommit",
    "QuorumState",
    "ShareGroupPartitionMetadata",
    "Snapshot",
    "Streams",
    "Voters",
)
"""Beginnings of the names of records: those of KRaft and of Streams groups, and those that are no messages here."""
APIS_OF_LATER_BROKERS = {
    key
    for key in ApiKey
    if ApiKey.SHARE_GROUP_HEARTBEAT <= key <= ApiKey.SHARE_ACKNOWLEDGE
    or ApiKey.INITIALIZE_SHARE_GROUP_STATE <= key <= ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
    or ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS <= key <= ApiKey.DELETE_SHARE_GROUP_OFFSETS
} | {
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
}


def declared_messages() -> dict[str, type[Message]]:
    found = {}
    for module_info in pkgutil.iter_modules(ottla.protocol.messages.__path__):
        module = importlib.import_module(f"ottla.protocol.messages.{module_info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                found[value.__name__] = value
    return found


MESSAGES = declared_messages()


def wire_type_name(wire_type: WireType) -> str:
    match wire_type:
        case Fixed(name=name) | Variable(name=name):
            return name
        case ArrayOf(element=element):
            return "[]" + wire_type_name(element)
        case StructOf():
            return "struct"


def declared_default(field: Field) -> Any:
    value = field.make_default()
    if isinstance(field.type, ArrayOf) and field.type.is_tuple:
        return list(value)
    return as_dict(value, field.type.fields) if isinstance(value, Struct) and isinstance(field.type, StructOf) else value


def as_dict(value: Any, fields: tuple[Field, ...]) -> Any:
    """A message as a dict by attribute names, to compare with values made from the table."""
    made = {}
    for field in fields:
        mine = getattr(value, field.name)
        if isinstance(field.type, StructOf) and mine is not None:
            mine = as_dict(mine, field.type.fields)
        elif isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructOf) and mine is not None:
            mine = [as_dict(item, field.type.element.fields) for item in mine]
        elif isinstance(field.type, ArrayOf) and field.type.is_tuple:
            assert isinstance(mine, tuple)
            mine = list(mine)
        made[field.name] = bytes(mine) if isinstance(mine, memoryview) else mine
    if value.unknown_tagged_fields:
        made["_tags"] = value.unknown_tagged_fields
    return made


def from_table(table: Table, fields: list[Table], value: dict[str, Any]) -> dict[str, Any]:
    """A value made from the table, by attribute names."""
    made = {}
    for field in fields:
        mine = value[field["name"]]
        if is_struct(field["type"]) and mine is not None:
            nested = struct_fields(table, field)
            mine = [from_table(table, nested, item) for item in mine] if isinstance(mine, list) else from_table(table, nested, mine)
        made[attribute(field["name"])] = mine
    if value.get("_tags"):
        made["_tags"] = value["_tags"]
    return made


def flat(table: Table, fields: list[Table], version: int, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field that a version reaches, with all that the table says of it."""
    for field in fields:
        if not covers(field["versions"], version):
            continue
        kind = field["type"]
        name = f"{path}.{attribute(field['name'])}"
        nullable = kind == "records" or covers(field.get("nullableVersions"), version)
        shown = kind if not is_struct(kind) else "[]struct" if kind.startswith("[]") else "struct"
        default = from_default(table, field)
        tag = int(field["tag"]) if covers(field.get("taggedVersions"), version) else None
        yield name, (shown, nullable, default, tag, field.get("flexibleVersions") != "none")
        if is_struct(kind):
            yield from flat(table, struct_fields(table, field), version, name)


def from_default(table: Table, field: Table) -> Any:
    value = default_of(table, field)
    return from_table(table, struct_fields(table, field), value) if isinstance(value, dict) else value


def flat_declared(fields: tuple[Field, ...], version: int, path: str = "") -> Iterator[tuple[str, Any]]:
    for field in fields:
        if not field.versions.cover(version):
            continue
        name = f"{path}.{field.name}"
        yield name, (wire_type_name(field.type), field.nullable.cover(version), declared_default(field), field.tag, field.flexible)
        inner = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if isinstance(inner, StructOf):
            yield from flat_declared(inner.fields, version, name)


def ignorable(table: Table, fields: list[Table]) -> dict[str, Any]:
    return {
        attribute(field["name"]): (
            field.get("ignorable", False),
            ignorable(table, struct_fields(table, field)) if is_struct(field["type"]) else None,
        )
        for field in fields
    }


def ignorable_declared(fields: tuple[Field, ...]) -> dict[str, Any]:
    made = {}
    for field in fields:
        inner = field.type.element if isinstance(field.type, ArrayOf) else field.type
        made[field.name] = (field.ignorable, ignorable_declared(inner.fields) if isinstance(inner, StructOf) else None)
    return made


def test_what_a_broker_serves_is_declared_and_what_is_declared_is_in_the_tables() -> None:
    requests = {name: table["apiKey"] for name, table in tables().items() if table["type"] in ("request", "response")}
    undeclared = {name for name, key in requests.items() if key not in DECLARED_APIS}
    records = {name for name, table in tables().items() if table["type"] == "data" and name.startswith(NOT_OF_A_BROKER)}
    assert set(tables()) - set(MESSAGES) == undeclared | records
    assert not set(MESSAGES) - set(tables())
    assert ZOOKEEPER_MODE_APIS | APIS_OF_LATER_BROKERS == DECLARED_APIS


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_a_declaration_says_what_the_tables_say(name: str) -> None:
    table, schema = tables()[name], MESSAGES[name].SCHEMA
    assert list(range(schema.versions.first, schema.versions.last + 1)) == list(valid_versions(table))
    assert (schema.kind, schema.api_key) == (table["type"], table.get("apiKey"))
    assert ignorable_declared(schema.fields) == ignorable(table, table["fields"])


RELEASED = [(release, name) for release in ("3.9", "4.4") for name in sorted(MESSAGES) if name in tables_of(release)]


@pytest.mark.parametrize(("release", "name"), [(release, name) for release, name in RELEASED if release != "3.9" or "Share" not in name])
def test_every_version_of_a_declaration_is_that_of_each_release_which_has_it(release: str, name: str) -> None:
    table, schema = tables_of(release)[name], MESSAGES[name].SCHEMA
    for version in valid_versions(table):
        assert schema.flexible.cover(version) == is_flexible(table, version)
        said = dict(flat(table, table["fields"], version))
        declared = list(flat_declared(schema.fields, version))
        added_later = {path for path, (*_, tag, _) in declared if tag is not None and path not in said and release == "3.9"}
        assert [each for each in declared if each[0] not in added_later] == list(said.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_the_generated_codec_does_what_the_slow_one_does(name: str) -> None:
    table, cls = tables()[name], MESSAGES[name]
    for version in valid_versions(table):
        made = RandomMessages(table, version, "codec")
        for _ in range(number_of(8)):
            value = made.make()
            data = SlowEncoder(table, version).encode(value)
            message, end = cls.decode(data, version)
            assert end == len(data)
            assert as_dict(message, cls.SCHEMA.fields) == from_table(table, table["fields"], value)
            assert message.encode(version) == data
            assert b"".join(message.encode_parts(version)) == data
