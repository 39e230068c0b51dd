"""Values of JSON become bytes of Avro and Protobuf that are read as the same values; what does not fit the schema is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.schemas.avro import AvroSchema, NotAvro, decode_avro
from ottla.schemas.avro_encoding import encode_avro
from ottla.schemas.proto_file import read_proto
from ottla.schemas.protobuf import NotProtobuf, decode_protobuf
from ottla.schemas.protobuf_encoding import encode_protobuf
from tests.unit.cli.test_console_protobuf import FILE
from tests.unit.cli.test_console_records import DECODED, ENCODED, USER

LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BYTES = st.binary(max_size=20).map(lambda data: {"$bytes": data.hex()})
PAIRED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", INTS),
    ("long", LONGS),
    ("double", st.floats(allow_nan=False, allow_infinity=False)),
    ("bytes", BYTES),
    ("string", TEXTS),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, st.sampled_from("AB")),
    ({"type": "fixed", "name": "F", "size": 3}, st.binary(min_size=3, max_size=3).map(lambda data: {"$bytes": data.hex()})),
    ({"type": "array", "items": "long"}, st.lists(LONGS, max_size=5)),
    ({"type": "map", "values": ["null", "string"]}, st.dictionaries(TEXTS, st.none() | TEXTS, max_size=5)),
]
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"], "default": None}],
}


@pytest.mark.parametrize(("schema", "values"), PAIRED, ids=lambda each: str(each)[:30] if not isinstance(each, st.SearchStrategy) else "")
def test_a_value_of_avro_is_read_as_it_was_written(schema: Any, values: st.SearchStrategy[Any]) -> None:
    parsed = AvroSchema(schema)

    @given(values)
    def judge(value: Any) -> None:
        assert decode_avro(parsed, encode_avro(parsed, value)) == value

    judge()


def test_a_record_of_avro_has_the_bytes_of_the_specification() -> None:
    without_size = ENCODED.replace(b"\x01\x14\x02k", b"\x02\x02k")  # a block of a map may also give its size
    assert encode_avro(AvroSchema(USER), DECODED) == without_size


def test_defaults_and_named_types_of_avro() -> None:
    schema = AvroSchema(NODE)
    assert encode_avro(schema, {"v": 1, "next": {"v": -1}}) == b"\x02\x02\x01\x00"


def test_a_boolean_is_no_number_in_a_union_of_avro() -> None:
    schema = AvroSchema(["double", "boolean"])
    assert decode_avro(schema, encode_avro(schema, True)) is True


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        ("int", 2**31, "no integer of 32 bits"),
        ("int", True, "no integer"),
        ("long", 1.5, "no integer of 64 bits"),
        ("string", 1, "value is no text"),
        ("boolean", 0, "neither true nor false"),
        ("float", "x", "no number"),
        ("double", True, "value is no number"),
        ("float", 1e300, "no number, or too large"),
        ("bytes", {"$bytes": "0"}, r'is not \{"\$bytes": HEX\}'),
        (["null", "int"], "x", "fits no branch"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "C", "no symbol of E"),
        ({"type": "fixed", "name": "F", "size": 3}, {"$bytes": "00"}, "has 1 bytes instead of 3"),
        ({"type": "array", "items": "int"}, [1, "x"], r"value\[1\] is no integer"),
        (NODE, {}, "has no 'v', and the schema has no default"),
        (NODE, {"v": 1, "w": 2}, "has 'w', which is no field of Node"),
        (NODE, [], "is no object"),
        ({"type": "enum"}, "A", "not one of Avro"),
        ("Unknown", 1, "does not define the type"),
    ],
)
def test_what_does_not_fit_a_schema_of_avro_is_refused(schema: Any, value: Any, why: str) -> None:
    with pytest.raises(NotAvro, match=why):
        encode_avro(AvroSchema(schema), value)


ORDER = {
    "id": -5, "customer": "Ada", "sizes": [1, -2], "tags": ["a", ""], "state": "LOST",
    "first": {"article": "x", "parent": {"id": 2**63 - 1}},
    "lines": [{}, {"article": "y"}], "by_name": {"k": {"article": "z"}}, "amount": 0.5, "change": -7, "raw": {"$bytes": "00ff"},
    "small": 2**32 - 1, "large": -(2**63), "ratio": 1.5, "most": 2**64 - 1, "part": {"weight": 3}, "states": {"-4": "UNKNOWN"},
    "later": True,
}  # fmt: skip


def test_a_message_of_protobuf_is_read_as_it_was_written() -> None:
    file = read_proto(FILE)
    assert decode_protobuf(file, encode_protobuf(file, ORDER)) == ORDER
    assert encode_protobuf(file, {"id": "7", "customer": None}) == b"\0\x08\x07"


@given(LONGS, st.integers(0, 2**64 - 1), INTS, TEXTS, st.lists(INTS, max_size=4))
def test_numbers_and_texts_of_protobuf_are_read_as_they_were_written(one: int, most: int, change: int, text: str, sizes: list[int]) -> None:
    file = read_proto(FILE)
    value = {"id": one, "most": most, "change": change, "customer": text} | ({"sizes": sizes} if sizes else {})
    assert decode_protobuf(file, encode_protobuf(file, value)) == value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "value is no object"),
        ({"unknown": 1}, "has 'unknown', which is no field of"),
        ({"below": 2**31}, "value.below is no int32"),
        ({"most": -1}, "value.most is no uint64"),
        ({"customer": 1}, "value.customer is no text"),
        ({"tags": "a"}, "value.tags is no array"),
        ({"by_name": []}, "value.by_name is no object"),
        ({"state": "MISSING"}, "value.state is no int32"),
        ({"later": 2}, "value.later is neither true nor false"),
        ({"raw": "x"}, 'value.raw is not {"\\$bytes": HEX}'),
        ({"ratio": "x"}, "value.ratio is no float"),
        ({"ratio": True}, "value.ratio is no float"),
        ({"small": -1}, "value.small is no fixed32"),
    ],
)
def test_what_does_not_fit_a_message_is_refused(value: Any, why: str) -> None:
    with pytest.raises(NotProtobuf, match=why):
        encode_protobuf(read_proto(FILE), value)


def test_values_that_are_nested_too_deeply_are_refused() -> None:
    deep: Any = {"v": 1}
    for _ in range(200):
        deep = {"v": 1, "next": deep}
    with pytest.raises(NotAvro, match="fits no branch"):
        encode_avro(AvroSchema(NODE), deep)
    order: Any = {}
    for _ in range(200):
        order = {"first": {"parent": order}}
    with pytest.raises(NotProtobuf, match="nested more than 100 times"):
        encode_protobuf(read_proto(FILE), order)
