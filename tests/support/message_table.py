"""Interprets Kafka's own tables of messages (tests/golden/kafka-messages*.json) with a slow codec: the oracle of the generated codecs.

Values have built-in types: a message is a dict by Kafka's field names, an array a list, an id 16 bytes. It shares no code with `protocol`.
"""

import json
import re
import struct
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

GOLDEN = Path(__file__).parent.parent / "golden"

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}

Table = dict[str, Any]


@cache
def tables_of(release: str) -> dict[str, Table]:
    """All messages of a release of Apache Kafka by name, "3.9" or "4.4"."""
    if release == "3.9":
        found: dict[str, Table] = json.loads((GOLDEN / "kafka-messages.json").read_text())
        found |= json.loads((GOLDEN / "remote" / "messages.json").read_text())
        for field in found["TxnOffsetCommitRequest"]["fields"]:
            if field["name"] == "GenerationId":
                field["name"] = "GenerationIdOrMemberEpoch"  # its name in 4.4
        return found
    return {name: _newer(table) for name, table in json.loads((GOLDEN / "kafka-messages-4.4.json").read_text()).items()}


def _newer(table: Table) -> Table:
    """A table of 4.4 in the terms of 3.9's: the kind of a record key is its version, and every field gives its versions."""
    kind = {"coordinator-key": "data", "coordinator-value": "data"}.get(table["type"], table["type"])
    if kind == "data":
        number = table.pop("apiKey", None)
        if table["type"] == "coordinator-key":
            table |= {"validVersions": str(number), "fields": [field | {"versions": "0+"} for field in table["fields"]]}
    for field in table["fields"]:
        field.setdefault("versions", field.get("taggedVersions"))
    return table | {"type": kind}


@cache
def tables() -> dict[str, Table]:
    """All messages by name: those of 3.9 with the fields and versions of 4.4. A later release only adds fields or limits their versions."""
    older, newer = tables_of("3.9"), tables_of("4.4")
    renamed = {"ListClientMetricsResourcesRequest", "ListClientMetricsResourcesResponse"}  # ListConfigResources
    return {name: _united(older.get(name), newer.get(name)) for name in sorted((older | newer).keys() - renamed)}


def _united(older: Table | None, newer: Table | None) -> Table:
    if newer is None or older is None or "Share" in newer["name"]:  # the messages of share groups in 3.9 were a preview
        only = newer or older
        assert only is not None
        return only | {"fields": _reached(only["fields"], valid_versions(only))}
    versions = [*valid_versions(older), *valid_versions(newer)]
    valid = f"{min(versions)}-{max(versions)}"
    structs = {each["name"]: each for each in older.get("commonStructs", [])}
    common = [
        each | {"fields": _all_fields(structs[each["name"]]["fields"], each["fields"]) if each["name"] in structs else each["fields"]}
        for each in newer.get("commonStructs", [])
    ]
    return older | {"validVersions": valid, "fields": _all_fields(older["fields"], newer["fields"]), "commonStructs": common}


def _all_fields(older: list[Table], newer: list[Table]) -> list[Table]:
    """The fields of both releases, in the order of the newer. One that the newer lacks stands behind its predecessor in the older."""
    before = {field["name"]: field for field in older}
    found = [_both(before[field["name"]], field) if field["name"] in before else field for field in newer]
    names = [field["name"] for field in found]
    for position, field in enumerate(older):
        if field["name"] not in names:
            at = names.index(older[position - 1]["name"]) + 1 if position else 0
            found.insert(at, field)
            names.insert(at, field["name"])
    return found


def _both(older: Table, newer: Table) -> Table:
    made = newer | {"ignorable": bool(older.get("ignorable") or newer.get("ignorable"))}
    return made | {"fields": _all_fields(older["fields"], newer["fields"])} if "fields" in older else made


def _reached(fields: list[Table], versions: range) -> list[Table]:
    """The fields that some of the versions have."""
    return [
        field | ({"fields": _reached(field["fields"], versions)} if "fields" in field else {})
        for field in fields
        if any(covers(field["versions"], version) for version in versions)
    ]


def covers(versions: str | None, version: int) -> bool:
    """Whether a range as Kafka writes it ("0+", "2-4", "7", "none") holds a version."""
    if versions in (None, "none", ""):
        return False
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    first, _, last = versions.partition("-")
    return int(first) <= version <= int(last or first)


def valid_versions(table: Table) -> range:
    first, _, last = table["validVersions"].partition("-")
    return range(int(first), int(last or first) + 1)


def is_flexible(table: Table, version: int) -> bool:
    return covers(table["flexibleVersions"], version)


def struct_fields(table: Table, field: Table) -> list[Table]:
    """The fields of the structure that a field holds one or many of."""
    if "fields" in field:
        nested: list[Table] = field["fields"]
        return nested
    name = field["type"].removeprefix("[]")
    return next(struct["fields"] for struct in table["commonStructs"] if struct["name"] == name)


def is_struct(kind: str) -> bool:
    return kind.removeprefix("[]")[0].isupper()


def attribute(name: str) -> str:
    """The name of a field in Python: V3AndBelowTopics is v3_and_below_topics."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name.replace("KRaft", "Kraft")).lower()


def default_of(table: Table, field: Table) -> Any:
    """Kafka's default: what is declared, else zero or empty; records are null."""
    kind = field["type"]
    declared = field.get("default")  # an unquoted null is none, as in Kafka's generator
    if declared == "null" or kind == "records":
        return None
    if kind.startswith("[]"):
        return []
    if is_struct(kind):
        return {inner["name"]: default_of(table, inner) for inner in struct_fields(table, field)}
    if kind == "string":
        return declared or ""
    if kind == "bytes":
        return b""
    if kind == "uuid":
        return bytes(16)
    if kind == "bool":
        return str(declared).lower() == "true"
    return int(str(declared or 0), 0)


def uvarint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


class SlowEncoder:
    """Encodes dicts of one message and version."""

    def __init__(self, table: Table, version: int) -> None:
        self.table = table
        self.version = version

    def encode(self, value: dict[str, Any]) -> bytes:
        return self._struct(self.table["fields"], value, is_flexible(self.table, self.version))

    def _struct(self, fields: list[Table], value: dict[str, Any], flexible: bool) -> bytes:
        out = b""
        tagged = {int(tag): data for tag, data in value.get("_tags", {}).items()}
        for field in fields:
            if not covers(field["versions"], self.version):
                continue
            mine = value[field["name"]]
            if not covers(field.get("taggedVersions"), self.version):
                compact = flexible and field.get("flexibleVersions") != "none"
                out += self._value(field, field["type"], mine, compact)
            elif mine != default_of(self.table, field):
                tagged[int(field["tag"])] = self._value(field, field["type"], mine, flexible)
        if flexible:
            out += uvarint(len(tagged))
            for tag, data in sorted(tagged.items()):
                out += uvarint(tag) + uvarint(len(data)) + data
        return out

    def _value(self, field: Table, kind: str, value: Any, flexible: bool) -> bytes:
        if kind in FIXED:
            return struct.pack(">" + FIXED[kind], value)
        if kind == "uuid":
            return bytes(value)
        if kind.startswith("[]"):
            if value is None:
                return self._length(-1, 4, flexible)
            return self._length(len(value), 4, flexible) + b"".join(self._value(field, kind[2:], item, flexible) for item in value)
        if kind in ("string", "bytes", "records"):
            width = 2 if kind == "string" else 4
            if value is None:
                return self._length(-1, width, flexible)
            data = value.encode() if kind == "string" else bytes(value)
            return self._length(len(data), width, flexible) + data
        body = self._struct(struct_fields(self.table, field), value, flexible) if value is not None else b""
        if covers(field.get("nullableVersions"), self.version) and not field["type"].startswith("[]"):
            # In a tagged field the mark of null is another one than elsewhere.
            null = b"\x00" if "tag" in field else b"\xff"
            return null if value is None else b"\x01" + body
        return body

    @staticmethod
    def _length(length: int, width: int, flexible: bool) -> bytes:
        return uvarint(length + 1) if flexible else length.to_bytes(width, "big", signed=True)


class RandomMessages:
    """Makes values of one message and version. Fields that the version does not have get their default."""

    def __init__(self, table: Table, version: int, seed: str, unknown_tags: bool = True) -> None:
        self.table = table
        self.version = version
        self.unknown_tags = unknown_tags
        self.random = Random(f"{table['name']} {version} {seed}")

    def make(self) -> dict[str, Any]:
        return self._struct(self.table["fields"], is_flexible(self.table, self.version))

    def _struct(self, fields: list[Table], flexible: bool) -> dict[str, Any]:
        made = {field["name"]: self._field(field, flexible) for field in fields}
        if flexible and self.unknown_tags and self.random.random() < 0.2:
            made["_tags"] = {tag: self.random.randbytes(self.random.choice((0, 3, 130))) for tag in (77, 100_000, 2**31 - 2)}
        return made

    def _field(self, field: Table, flexible: bool) -> Any:
        present = covers(field["versions"], self.version)
        tagged = covers(field.get("taggedVersions"), self.version)
        if not present or (tagged and self.random.random() < 0.4):
            return default_of(self.table, field)
        if covers(field.get("nullableVersions"), self.version) and self.random.random() < 0.3:
            return None
        return self._value(field, field["type"], flexible)

    def _value(self, field: Table, kind: str, flexible: bool) -> Any:
        random = self.random
        if kind.startswith("[]"):
            count = random.choice((0, 1, 1, 2, 3)) if is_struct(kind) else random.choice((0, 1, 3, 130))
            return [self._value(field, kind[2:], flexible) for _ in range(count)]
        if kind == "bool":
            return random.random() < 0.5
        if kind == "float64":
            return random.random()
        if kind in FIXED:
            return self._number(field, kind)
        if kind == "uuid":
            return random.randbytes(16)
        if kind == "string":
            return random.choice(("", "a", "orders", "grün-Δ-𝄞", "n" * 126, "n" * 127, "n" * 300))
        if kind in ("bytes", "records"):
            return random.randbytes(random.choice((0, 1, 126, 127, 200)))
        return self._struct(struct_fields(self.table, field), flexible)

    def _number(self, field: Table, kind: str) -> int:
        bits = struct.calcsize(">" + FIXED[kind]) * 8
        low = 0 if kind.startswith("u") else -(1 << bits - 1)
        return self.random.choice((low, 0, 1, self.random.getrandbits(7), low + (1 << bits) - 1))
