"""The console shows every byte of a record safely, in any form, and selects records without running code of a user."""

import json
import random
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, ClassVar

import pytest

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, Refused
from ottla.console import records
from ottla.console.decoding import MAX_DECODED_BYTES, SHOWN_BYTES, SHOWN_HEADERS, Decoder, shown_bytes
from ottla.console.message_pack import NotMessagePack, decode_message_pack
from ottla.console.parameters import BadParameter
from ottla.console.record_filter import record_filter
from ottla.console.records import Found, Query, whole
from ottla.protocol.records.batch import TimestampType
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.topic_partition import TopicPartition
from ottla.schemas.avro import MAX_VALUES, AvroSchema, NotAvro, decode_avro
from tests.support.played_leaders import ALIVE, ClusterOfTest

USER = {
    "type": "record", "name": "User", "namespace": "a.b",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "int"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 2}},
        {"name": "friend", "type": ["null", "User"]},
        {"name": "born", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "ok", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "small", "type": "float"},
    ],
}  # fmt: skip
ENCODED = (
    b"\x06Bob" + b"\x02\x54" + b"\x04\x02x\x02y\x00" + b"\x01\x14\x02k" + struct.pack("<d", 0.5) + b"\x00" + b"\x02" + b"\x01\x02" + b"\x00"
    + b"\xff\x01" + b"\x01" + b"\x02\xff" + struct.pack("<f", 1.5)
)  # fmt: skip
DECODED = {
    "name": "Bob", "age": 42, "tags": ["x", "y"], "more": {"k": 0.5}, "kind": "B", "id": {"$bytes": "0102"}, "friend": None, "born": -128,
    "ok": True, "raw": {"$bytes": "ff"}, "small": 1.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (None, "null", None),
        (b"", "text", ""),
        ("<b>\0\u202e".encode(), "text", "<b>\0\u202e"),
        (b"\xff\x00", "hex", "ff 00"),
        (b"x" * 20_000, "text", "x" * SHOWN_BYTES),
        ("é".encode() * 20_000, "text", "é" * (SHOWN_BYTES // 2)),
        (b"x" + "é".encode() * 20_000, "text", "x" + "é" * (SHOWN_BYTES // 2 - 1)),
        (b"xy" + "𝄞".encode() * 20_000, "text", "xy" + "𝄞" * ((SHOWN_BYTES - 2) // 4)),
    ],
)
def test_bytes_are_shown_as_text_or_as_digits_and_cut_between_characters(data: bytes | None, form: str, text: str | None) -> None:
    shown = shown_bytes(data)
    assert (shown["form"], shown["text"], shown["bytes"]) == (form, text, len(data or b""))


@pytest.mark.parametrize(
    ("data", "form", "shown", "error"),
    [
        (b'{"a": 12345678901234567890, "a": 1}', "json", ("json", '{"a": 12345678901234567890, "a": 1}'), None),
        (b"{", "json", ("text", "{"), "this is not json"),
        (b"[" * 1_000_000, "json", ("text", "[" * SHOWN_BYTES), "this is not json"),
        (b" " * (MAX_DECODED_BYTES + 1), "json", ("text", " " * SHOWN_BYTES), f"more than {MAX_DECODED_BYTES} bytes are not decoded"),
        (b"text", "hex", ("hex", "74 65 78 74"), None),
        (b"\x82\xa1a\x01\xa1b\x92\xc3\xc0", "msgpack", ("msgpack", '{"a":1,"b":[true,null]}'), None),
        (b"\x92", "msgpack", ("hex", "92"), "the bytes end before the value of MessagePack"),
        (b"\0\0\0\0\1x", "avro", ("text", "\0\0\0\0\1x"), "start the console with --schema-registry to decode Avro"),
        (None, "msgpack", ("null", None), None),
    ],
)
def test_a_form_that_does_not_fit_is_said_and_the_bytes_are_shown(
    data: bytes | None, form: str, shown: tuple[str, str], error: str | None
) -> None:
    found = Decoder().show(data, form)
    assert ((found["form"], found["text"]), found.get("error")) == (shown, error)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("7f", 127), ("e0", -32), ("cc ff", 255), ("cd 0100", 256), ("ce 00010000", 65536), ("cf ffffffffffffffff", 2**64 - 1),
        ("d0 80", -128), ("d1 8000", -32768), ("d2 80000000", -(2**31)), ("d3 8000000000000000", -(2**63)),
        ("ca 3fc00000", 1.5), ("cb 7ff0000000000000", "inf"), ("a1 78", "x"), ("d9 01 78", "x"), ("da 0001 78", "x"),
        ("db 00000001 78", "x"), ("a1 ff", {"$bytes": "ff"}), ("c4 01 ff", {"$bytes": "ff"}), ("c0", None), ("c2", False),
        ("91 01", [1]), ("dc 0001 01", [1]), ("dd 00000001 01", [1]), ("81 01 02", {"1": 2}), ("de 0001 a0 02", {"": 2}),
        ("df 00000001 a0 02", {"": 2}), ("d4 05 ff", {"$type": 5, "$bytes": "ff"}), ("c7 02 ff 0102", {"$type": -1, "$bytes": "0102"}),
    ],
)  # fmt: skip
def test_message_pack_is_decoded(data: str, value: object) -> None:
    assert decode_message_pack(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "end before"),
        (b"\x01\x01", "1 bytes more"),
        (b"\xc1", "0xc1 begins no value"),
        (b"\xdd\xff\xff\xff\xff", "end before"),
        (b"\xdf\x7f\xff\xff\xff", "end before"),
        (b"\xdb\xff\xff\xff\xff", "end before"),
        (b"\x91" * 1_000_000, "more than 100 arrays and maps are nested"),
    ],
)
def test_hostile_message_pack_costs_nothing(data: bytes, reason: str) -> None:
    with pytest.raises(NotMessagePack, match=reason):
        decode_message_pack(data)


def test_avro_is_decoded_by_its_schema() -> None:
    assert decode_avro(AvroSchema(USER), ENCODED) == DECODED


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", f"more than {MAX_VALUES} parts"),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}, b"", "nested more than 100 times"),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}, b"\x02" * 1_000_000, "nested more than 100"),
        ("long", b"\xff" * 11, "more than 64 bits"),
        ("string", b"\x01", "end before"),
        ("string", b"\xfe\xff\xff\xff\x0f", "end before"),
        (["null"], b"\x04", "no branch 2"),
        ({"type": "enum", "name": "E", "symbols": []}, b"\x00", "no symbol 0"),
        ("missing", b"", "does not define the type missing"),
        ({"type": "record"}, b"", "is not one of Avro"),
        (17, b"", "is not one of Avro"),
        ("null", b"x", "1 bytes more"),
    ],
)
def test_hostile_avro_costs_little(schema: Any, data: bytes, reason: str) -> None:
    with pytest.raises(NotAvro, match=reason):
        decode_avro(AvroSchema(schema), data)


def test_damaged_records_are_one_line_or_another_value() -> None:
    chance = random.Random(7)
    for _ in range(3000):
        damaged = bytearray(ENCODED)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        for decode in (decode_message_pack, lambda data: decode_avro(AvroSchema(USER), data)):
            with suppress(NotAvro, NotMessagePack):
                json.dumps(decode(bytes(damaged[: chance.randint(0, len(damaged))])))


RECORD = Record(7, 1000, b"Key", b'{"a": {"b": [1, true, "x"]}, "n": null}', ((b"h", b"v"), (b"empty", None)))


@pytest.mark.parametrize(
    ("conditions", "is_taken"),
    [
        ({}, True),
        ({"contains": "KEY"}, True),
        ({"contains": '"B"'}, True),
        ({"contains": "none"}, False),
        ({"key": "Key"}, True),
        ({"key": "key"}, False),
        ({"header": "h"}, True),
        ({"header": "h=v"}, True),
        ({"header": "h=w"}, False),
        ({"header": "v"}, False),
        ({"before_ms": 1000}, False),
        ({"before_ms": 1001}, True),
        ({"path": "a.b[0]", "equals": "1"}, True),
        ({"path": "a.b[1]", "equals": "1"}, False),
        ({"path": "a.b[1]", "equals": "true"}, True),
        ({"path": "a.b[2]", "equals": "x"}, True),
        ({"path": "a.b[2]", "equals": '"x"'}, True),
        ({"path": "a.b[3]", "equals": "x"}, False),
        ({"path": "a.c", "equals": "null"}, False),
        ({"path": "n", "equals": "null"}, True),
        ({"path": "a[0]", "equals": "1"}, False),
        ({"contains": "key", "path": "n", "equals": "1"}, False),
    ],
)
def test_a_filter_takes_what_meets_all_conditions(conditions: dict[str, Any], is_taken: bool) -> None:
    assert record_filter(**conditions).takes(RECORD) is is_taken


@pytest.mark.parametrize("value", [None, b"[" * 1_000_000, b"\xff", b"{", b" " * (5 * 1024 * 1024)])
def test_a_path_takes_no_value_that_is_not_json(value: bytes | None) -> None:
    assert not record_filter(path="a", equals="1").takes(RECORD._replace(value=value))


@pytest.mark.parametrize(
    "conditions",
    [{"path": "a"}, {"equals": "1"}, {"path": "a..b", "equals": "1"}, {"path": "a[x]", "equals": "1"}, {"contains": "x" * 1001}],
)
def test_conditions_that_are_none_are_refused(conditions: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        record_filter(**conditions)


@pytest.mark.parametrize(
    ("headers", "names", "sizes"),
    [
        ((), [], []),
        (((b"", None),) * 300_000, [""] * SHOWN_HEADERS, [0] * SHOWN_HEADERS),
        (((b"a", b"x" * SHOWN_BYTES), (b"b", b"y")), ["a"], [SHOWN_BYTES]),
        (((b"n" * 1_000_000, b"y"), (b"b", b"y")), ["n" * SHOWN_BYTES], [1]),
        (((b"\xff<b>", b"y"), (b"b", None)), ["\ufffd<b>", "b"], [1, 0]),
    ],
    ids=["none", "many", "a large value", "a large name", "hostile"],
)
def test_headers_are_shown_up_to_a_number_and_a_size(headers: tuple[Header, ...], names: list[str], sizes: list[int]) -> None:
    shown = Decoder().record(RECORD._replace(headers=headers))["headers"]
    assert ([each["name"] for each in shown], [each["bytes"] for each in shown]) == (names, sizes)
    assert sum(len(each["name"]) + len(each["text"] or "") for each in shown) <= SHOWN_BYTES


def a_search_of(scanned: Iterable[Record], monkeypatch: pytest.MonkeyPatch) -> records.Search:
    """A search whose only step finds these records. Each look at its clock is a second later."""
    where = TopicPartition("t", 0)
    found = [Found(where, each, TimestampType.CREATE_TIME, len(each.headers)) for each in scanned]

    class Scanned:
        starts, first, ends, positions = {where: 0}, {where: 0}, {where: len(found)}, {where: len(found)}
        missing: ClassVar[dict[TopicPartition, ClientError]] = {}
        records, bytes = len(found), 2 * len(found)

        def __init__(self, *_: object) -> None:
            """See Scan."""

        def to_the_end(self) -> Iterator[list[Found]]:
            yield found

    monkeypatch.setattr(records, "Scan", Scanned)
    seconds = count()
    with Cluster("127.0.0.1:1") as cluster:
        return records.Search(cluster, Query("t"), Decoder(), lambda: float(next(seconds)))


def test_a_search_can_be_cancelled_while_its_records_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    search = a_search_of([Record(offset, 0, None, b"{}", ()) for offset in range(3)], monkeypatch)
    assert len(list(search.steps())) == 1 + 3
    assert [each["offset"] for each in search.answer()["records"]] == [0, 1, 2]


def test_a_search_keeps_no_more_headers_than_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    search = a_search_of([Record(0, 0, None, b"", ((b"h", b""),) * 300_000)], monkeypatch)
    assert len(list(search.steps())) == 1 + 1
    assert [len(each.record.headers) for each in search._found] == [SHOWN_HEADERS]
    assert [(len(each["headers"]), each["header_count"]) for each in search.answer()["records"]] == [(SHOWN_HEADERS, 300_000)]


def test_a_whole_record_is_read_without_the_filter_of_the_page_and_nothing_behind_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[object] = []

    class Watched(records.Scan):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            ends.append((self.first, self.ends))

    monkeypatch.setattr(records, "Scan", Watched)
    query = Query("t", partitions=(0,), offset=0, selected=record_filter(contains="nowhere"))
    assert whole(ClusterOfTest(ALIVE), query, "value") is not None
    with pytest.raises(Refused, match="offset 7 of t-0"):
        whole(ClusterOfTest(ALIVE), query._replace(offset=7), "value")
    where = TopicPartition("t", 0)
    assert ends == [({where: 0}, {where: 1}), ({where: 2}, {where: 2})]
