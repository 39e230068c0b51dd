"""The console reads .proto files of registries, and shows the messages that they describe; hostile ones cost little."""

import json
import random
import struct
from contextlib import suppress
from typing import Any

import pytest

from ottla.schemas import protobuf
from ottla.schemas.proto_file import MAX_DEPTH, MAX_TOKENS, NotAProtoFile, ProtoField, read_proto
from ottla.schemas.protobuf import MAX_VALUES, NotProtobuf, decode_protobuf

FILE = """
// An order, and what belongs to it.
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
option java_package = "com.example; // no comment";
option (custom) = { a: [1, 2]; b { c: "}" } };

/* Written by hand;
   message NotThis { int32 x = 1; } */
message Order {
  int64 id = 1;
  string customer = 2 [deprecated = true, (note) = { text: "a;b]" }];
  repeated int32 sizes = 3;  // packed
  repeated string tags = 0x4;
  State state = 5;
  Line first = 6;
  repeated Line lines = 7;
  map<string, Line> by_name = 8;
  oneof paid { double amount = 9; bool later = 10; }
  google.protobuf.Timestamp at = 11;
  sint32 change = 12;
  bytes raw = 13;
  fixed32 small = 14;
  sfixed64 large = 15;
  float ratio = 16;
  uint64 most = 17;
  .shop.v1.Order.Line.Part part = 18;
  map<int32, State> states = 19;
  int32 below = 20;
  reserved 100 to 199, 300;
  reserved "old";
  message Line {
    string article = 1;
    Order parent = 2;
    message Part { int32 weight = 1; }
  }
  enum State { option allow_alias = true; UNKNOWN = 0; OPEN = 1; ALSO_OPEN = 1; LOST = -1; }
}
message Second { Order.Line line = 1; }
enum Top { NOTHING = 0; }
service Orders { rpc Get (Order) returns (Order) { option (http) = { get: "/{id}" }; } }
"""


def varint(value: int) -> bytes:
    """The encoding of a number; a negative one has ten bytes."""
    value &= 2**64 - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def a_field(number: int, wire_type: int, data: bytes) -> bytes:
    return varint(number << 3 | wire_type) + data


def a_part(number: int, data: bytes) -> bytes:
    """A field with a length: a text, bytes, a message or packed numbers."""
    return a_field(number, 2, varint(len(data)) + data)


def decoded(data: bytes, file: str = FILE, indexes: bytes = b"\0") -> Any:
    return decode_protobuf(read_proto(file), indexes + data)


LINE = a_part(1, b"shoe")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", {}),
        (b"\x08\x96\x01", {"id": 150}),
        (b"\x12\x07testing", {"customer": "testing"}),
        (b"\x1a\x06\x03\x8e\x02\x9e\xa7\x05", {"sizes": [3, 270, 86942]}),
        (a_field(3, 0, b"\x01") + a_part(3, b"\x02\x03"), {"sizes": [1, 2, 3]}),
        (a_part(4, b"a") + a_part(4, b""), {"tags": ["a", ""]}),
        (a_field(5, 0, b"\x01"), {"state": "OPEN"}),
        (a_field(5, 0, varint(-1)), {"state": "LOST"}),
        (a_field(5, 0, b"\x07"), {"state": 7}),
        (a_part(6, LINE), {"first": {"article": "shoe"}}),
        (a_part(7, LINE) + a_part(7, b""), {"lines": [{"article": "shoe"}, {}]}),
        (a_part(8, a_part(1, b"k") + a_part(2, LINE)), {"by_name": {"k": {"article": "shoe"}}}),
        (a_part(19, a_field(1, 0, b"\x07") + a_field(2, 0, b"\x01")), {"states": {"7": "OPEN"}}),
        (a_field(9, 1, struct.pack("<d", 0.5)), {"amount": 0.5}),
        (a_field(9, 1, struct.pack("<d", float("inf"))), {"amount": "inf"}),
        (a_field(10, 0, b"\x01"), {"later": True}),
        (a_part(11, b"\x08\x01"), {"at": {"$bytes": "0801"}}),
        (a_field(12, 0, b"\x03"), {"change": -2}),
        (a_part(13, b"\xff"), {"raw": {"$bytes": "ff"}}),
        (a_field(14, 5, b"\x01\0\0\0"), {"small": 1}),
        (a_field(15, 1, b"\xff" * 8), {"large": -1}),
        (a_field(16, 5, struct.pack("<f", 1.5)), {"ratio": 1.5}),
        (a_field(17, 0, varint(2**64 - 1)), {"most": 2**64 - 1}),
        (a_part(18, b"\x08\x05"), {"part": {"weight": 5}}),
        (a_field(20, 0, varint(-5)), {"below": -5}),
        (a_field(1, 0, b"\x01") + a_field(1, 0, b"\x02"), {"id": 2}),
        (a_part(6, a_part(2, a_field(1, 0, b"\x09"))), {"first": {"parent": {"id": 9}}}),
        (a_field(500, 0, b"\x01") + a_part(501, b"x"), {"#500": [1], "#501": [{"$bytes": "78"}]}),
        (a_field(502, 5, b"abcd") + a_field(502, 5, b"efgh"), {"#502": [{"$bytes": "61626364"}, {"$bytes": "65666768"}]}),
        (a_part(2, b"\xff"), {"customer": "\ufffd"}),
    ],
)  # fmt: skip
def test_a_message_is_decoded_by_its_file(data: bytes, value: object) -> None:
    assert decoded(data) == value
    json.dumps(decoded(data), allow_nan=False)


@pytest.mark.parametrize(
    ("indexes", "data", "value"),
    [
        (b"\x02\x00", b"\x08\x01", {"id": 1}),
        (b"\x02\x02", a_part(1, LINE), {"line": {"article": "shoe"}}),
        (b"\x04\x00\x00", LINE, {"article": "shoe"}),
        (b"\x06\x00\x00\x00", b"\x08\x05", {"weight": 5}),
    ],
)
def test_indexes_lead_to_the_message(indexes: bytes, data: bytes, value: object) -> None:
    assert decoded(data, indexes=indexes) == value


def test_a_file_of_the_older_language_is_read() -> None:
    file = 'syntax = "proto2"; message M { required int32 a = 1 [default = -5]; optional N n = 2; extensions 100 to max; message N {} }'
    assert decoded(b"\x08\x05\x12\x00", file) == {"a": 5, "n": {}}
    assert read_proto("message M { repeated .other.T t = 3; }").messages["M"].fields == {3: ProtoField("t", "other.T", True)}


def test_the_innermost_type_of_a_name_is_meant() -> None:
    file = read_proto("package p; message T { int32 a = 1; } message M { message T { int32 b = 1; } T t = 1; p.T u = 2; Q q = 3; }")
    assert [each.type for each in file.messages["p.M"].fields.values()] == ["p.M.T", "p.T", "Q"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x08", "a number does not end"),
        (b"\x08" + b"\xff" * 11, "a number does not end"),
        (b"\x12\x05ab", "end before"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "end before"),
        (b"\x0b", "wire type 3"),
        (a_field(500, 4, b""), "the wire type 4 is not read"),
        (a_field(2, 0, b"\x01"), "customer has the wire type 0"),
        (a_field(14, 5, b"\x01"), "end before"),
        (a_part(6, a_field(500, 5, b"ab")) + b"cd", "does not end where"),
        (a_part(3, b"\x80"), "a number does not end"),
        (b"", "no message 7"),
    ],
)
def test_bytes_that_do_not_fit_are_one_line(data: bytes, reason: str) -> None:
    with pytest.raises(NotProtobuf, match=reason):
        decoded(data, indexes=b"\x02\x0e" if reason == "no message 7" else b"\0")


@pytest.mark.parametrize("indexes", [b"", b"\x01", b"\xff\xff\x03", b"\x02"])
def test_bytes_without_indexes_are_one_line(indexes: bytes) -> None:
    with pytest.raises(NotProtobuf):
        decoded(b"", indexes=indexes)


def test_hostile_messages_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    file = "message M { M m = 1; repeated int32 n = 2; }"
    data = b""
    for _ in range(200):
        data = a_part(1, data)
    with pytest.raises(NotProtobuf, match="more than 100 messages are nested"):
        decoded(data, file)
    with pytest.raises(NotProtobuf, match=f"more than {MAX_VALUES} parts"):
        decoded(a_part(2, b"\0" * (MAX_VALUES + 1)), file)
    monkeypatch.setattr(protobuf, "MAX_VALUES", 10)
    with pytest.raises(NotProtobuf, match="more than 10 parts"):
        decoded(a_field(500, 0, b"\0") * 11, file)


def test_damaged_messages_are_one_line_or_another_value() -> None:
    file = read_proto(FILE)
    whole = (
        b"\0"
        + b"\x08\x96\x01"
        + a_part(7, LINE)
        + a_part(8, a_part(1, b"k") + a_part(2, LINE))
        + a_field(9, 1, b"\x01" * 8)
        + a_part(3, b"\x01\x02")
    )
    chance = random.Random(7)
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        with suppress(NotProtobuf):
            json.dumps(decode_protobuf(file, bytes(damaged[: chance.randint(0, len(damaged))])), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message", "its end instead of more"),
        ("message M {", "its end instead of more"),
        ("message M }", "'}' instead of {"),
        ("messages M {}", "'messages' where a message"),
        ("message M { int32 a; }", "';' instead of ="),
        ("message M { int32 a = x; }", "'x' where a number is expected"),
        ("message M { int32 a = 1 }", "'}' after the number of a field"),
        ("message M { int32 a = 1 b; }", "'b' after the number of a field"),
        ("message M { int32 a = 0; }", "the number 0, which is taken or none"),
        ("message M { int32 a = 1; int32 b = 1; }", "the number 1, which is taken or none"),
        ("message M { optional group G = 1 {} }", "has a group"),
        ("message M { map<int32> a = 1; }", "'>' instead of ,"),
        ("enum E { A = B; }", "'B' where a number is expected"),
        ("message M { \x00 }", r"a sign that no \.proto file has"),
        ("/* no end", r"a sign that no \.proto file has"),
        ('option x = "no end', r"a sign that no \.proto file has"),
        ("message M {" * 1000, f"inside of more than {MAX_DEPTH} others"),
        (";" * (MAX_TOKENS + 1), f"more than {MAX_TOKENS} words and signs"),
        ("[" * 1_000_000, "where a message"),
    ],
    ids=range(19),
)
def test_a_text_that_is_no_proto_file_is_one_line(text: str, reason: str) -> None:
    with pytest.raises(NotAProtoFile, match=reason) as refused:
        read_proto(text)
    assert len(str(refused.value)) < 200
