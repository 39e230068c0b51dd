"""A schema registry whose schemas are in topics of Ottla: they survive it and the broker, and `ottla console` decodes records by them."""

from __future__ import annotations

import json
from pathlib import Path

from ottla.console.decoding import Decoder
from ottla.schemas.schema_registry import SchemaRegistry
from tests.support.cluster import Cluster, a_cluster
from tests.support.neighbours.artifacts import REGISTRY, whole
from tests.support.neighbours.records import Row, records_of, write
from tests.support.neighbours.registry import Registry, a_registry, needs_its_java

pytestmark = [*REGISTRY.marks, needs_its_java]

SUBJECT = "orders-value"
FIELDS = [{"name": "number", "type": "long"}, {"name": "item", "type": "string"}]
FIRST = {"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS}
SECOND = {**FIRST, "fields": [*FIELDS, {"name": "note", "type": ["null", "string"], "default": None}]}
INCOMPATIBLE = {**FIRST, "fields": [{"name": "number", "type": "string"}]}
ORDERS = 50


def long(number: int) -> bytes:
    """A number as Avro writes it."""
    left, found = number << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def string(text: str) -> bytes:
    return long(len(text.encode())) + text.encode()


def order(schema_id: int, number: int, note: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + long(number) + string(f"item {number}") + note


def check_records(cluster: Cluster, registry: Registry, first: int, second: int) -> None:
    """Write records of both schemas; the console must show what they say."""
    values = [order(first, number) for number in range(ORDERS)] + [order(second, ORDERS, b"\2" + string("quick"))]
    write(cluster.bootstrap, "orders", [Row(0, b"", value, 1, []) for value in values])
    decoder = Decoder(SchemaRegistry(registry.url))
    shown = [decoder.show(each.value, "auto") for each in records_of(cluster.bootstrap, "orders", 0)]
    assert {each["form"] for each in shown} == {"avro"}
    expected = [{"number": number, "item": f"item {number}"} for number in range(ORDERS)]
    assert [json.loads(each["text"]) for each in shown] == [*expected, {"number": ORDERS, "item": f"item {ORDERS}", "note": "quick"}]


@whole
def test_the_console_shows_records_by_their_schemas(tmp_path: Path) -> None:
    with a_cluster(tmp_path / "cluster", 1) as cluster, a_registry(cluster.bootstrap, tmp_path / "registry") as registry:
        cluster.create_topic("orders")
        first, second = (registry.register(SUBJECT, schema) for schema in (FIRST, SECOND))
        assert first != second
        assert registry.versions(SUBJECT) == [1, 2]
        check_records(cluster, registry, first, second)


@whole
def test_schemas_survive_the_registry_and_the_broker(tmp_path: Path) -> None:
    with a_cluster(tmp_path / "cluster", 1) as cluster, a_registry(cluster.bootstrap, tmp_path / "registry") as registry:
        cluster.create_topic("orders")
        first = registry.register(SUBJECT, FIRST)
        registry.require_compatibility(SUBJECT, "BACKWARD")
        registry.kill()
        cluster.broker(0).kill()
        cluster.broker(0).start()
        registry.start()

        assert registry.register(SUBJECT, FIRST) == first
        assert registry.refuses(SUBJECT, INCOMPATIBLE)
        second = registry.register(SUBJECT, SECOND)
        assert second != first
        assert registry.versions(SUBJECT) == [1, 2]
        check_records(cluster, registry, first, second)
