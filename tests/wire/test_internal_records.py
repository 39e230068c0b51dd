"""The records that Apache Kafka wrote to its internal topics decode to what its own tools show, and encode again to the same bytes."""

import importlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.protocol.messages.group_metadata import GroupMetadataValue
from ottla.protocol.schema.fields import ArrayOf, StructOf
from ottla.protocol.schema.message import Message, Struct
from tests.support.message_table import GOLDEN, attribute

MODULES = {
    "GroupMetadata": "group_metadata",
    "OffsetCommit": "offset_commit_records",
    "TransactionLog": "transaction_log",
}


def recorded() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(where, hex value, decoded value) of every key and value of the internal topics."""
    for manifest in sorted(GOLDEN.glob("log/*/__*.json")):
        for name, file in json.loads(manifest.read_text())["files"].items():
            for batch in file.get("batches", ()):
                for record in batch.get("records", ()):
                    for side in ("key", "value"):
                        decoded = record.get(f"decoded_{side}") or {}
                        if "_message" in decoded:
                            yield f"{manifest.name} {name} {record['offset']} {side}", record[side], decoded


def message_class(name: str) -> type[Message]:
    module = importlib.import_module(f"ottla.protocol.messages.{MODULES[name.removesuffix('Key').removesuffix('Value')]}")
    found: type[Message] = getattr(module, name)
    return found


def is_shown(message: Any, shown: dict[str, Any]) -> bool:
    """Whether a message has the values of a manifest, which names fields as Kafka does and bytes as {"hex": ...}."""
    for field in message.SCHEMA.fields:
        names = [name for name in shown if attribute(name) == field.name]
        value = getattr(message, field.name)
        if not names:
            continue  # not in this version
        expected = shown[names[0]]
        if isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructOf) and expected is not None:
            if len(value) != len(expected) or not all(map(is_shown, value, expected)):
                return False
        elif isinstance(expected, dict) and "hex" in expected:
            if value.hex() != expected["hex"]:
                return False
        elif not isinstance(value, Struct) and value != expected:
            return False
    return True


def test_every_key_and_value_decodes_as_shown_and_encodes_to_the_same_bytes() -> None:
    seen = set()
    for where, raw, shown in recorded():
        data = bytes.fromhex(raw["hex"])
        version = int.from_bytes(data[:2], "big")
        cls = message_class(shown["_message"])
        message, end = cls.decode(data, version, 2)
        assert end == len(data), where
        assert version == shown["_version"], where
        assert is_shown(message, shown), (where, message, shown)
        assert message.encode(version) == data[2:], where
        seen.add((cls.__name__, version))
    assert {name for name, _ in seen} == {
        "GroupMetadataKey",
        "GroupMetadataValue",
        "OffsetCommitKey",
        "OffsetCommitValue",
        "TransactionLogKey",
        "TransactionLogValue",
    }


def member_bytes() -> Iterator[tuple[type[Message], bytes]]:
    for _, raw, shown in recorded():
        if shown["_message"] == "GroupMetadataValue" and shown.get("protocolType") == "consumer":
            group, _ = GroupMetadataValue.decode(bytes.fromhex(raw["hex"]), shown["_version"], 2)
            for member in group.members:
                yield ConsumerProtocolSubscription, member.subscription
                yield ConsumerProtocolAssignment, member.assignment


@pytest.mark.parametrize("cls", [ConsumerProtocolSubscription, ConsumerProtocolAssignment])
def test_what_members_say_of_themselves_decodes_and_encodes_to_the_same_bytes(cls: type[Message]) -> None:
    checked = 0
    for kind, data in member_bytes():
        if kind is cls and data:
            version = int.from_bytes(data[:2], "big")
            message, end = cls.decode(data, version, 2)
            assert end == len(data)
            assert message.encode(version) == data[2:]
            checked += 1
    assert checked
