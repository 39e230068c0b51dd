"""Every field of every request is looked at by its handler, or the page says why not."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import broker
from ottla.broker.handlers.table import SERVED, module_of
from ottla.broker.handlers.unread_fields import UNREAD_FIELDS
from ottla.broker.request.listed_apis import newest_accepted
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.fields import ArrayOf, StructOf, WireType
from ottla.protocol.schema.message import Message, Struct
from ottla.protocol.schema.registry import api

FLOORS = Path(broker.__file__).parents[1]
"""The sources that are imported: those of the checkout, or of an installed package."""

CONTROL_REQUESTS = (
    "broker/cluster/control_requests.py",
    "replication/ports/cluster.py",
    "replication/control/controller_requests.py",
    "replication/leader/partition.py",
    "replication/control/replica_manager.py",
)
SHARE_STATE_REQUESTS = {
    key: ("broker/handlers/shares/state_requests.py",)
    for key in ApiKey
    if ApiKey.INITIALIZE_SHARE_GROUP_STATE <= key <= ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
}
SHARES = ("broker/handlers/shares/share_requests.py", "coordination/shares/acknowledgements.py")
READ_ELSEWHERE = SHARE_STATE_REQUESTS | {
    ApiKey.SHARE_FETCH: (*SHARES, "broker/handlers/shares/waiting_fetch.py"),
    ApiKey.SHARE_ACKNOWLEDGE: SHARES,
    ApiKey.FETCH: (
        "broker/fetching/fetch_session.py",
        "broker/handlers/data/fetch_reading.py",
        "protocol/cursors/fetch.py",
    ),
    ApiKey.DESCRIBE_ACLS: ("broker/handlers/security/acl_codes.py",),
    ApiKey.DELETE_ACLS: ("broker/handlers/security/acl_codes.py",),
    ApiKey.LEADER_AND_ISR: CONTROL_REQUESTS,
    ApiKey.OFFSET_COMMIT: ("protocol/cursors/offset_commit.py", "protocol/cursors/request_reader.py"),
    ApiKey.TXN_OFFSET_COMMIT: (
        "broker/handlers/groups/offset_commit.py",
        "protocol/cursors/offset_commit.py",
        "protocol/cursors/request_reader.py",
    ),
    ApiKey.PRODUCE: ("protocol/cursors/produce.py", "protocol/cursors/request_reader.py"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("broker/handlers/groups/described_groups.py",),
    ApiKey.SHARE_GROUP_DESCRIBE: ("broker/handlers/groups/described_groups.py",),
    ApiKey.PUSH_TELEMETRY: ("broker/telemetry/client_telemetry.py",),
    ApiKey.OFFSET_DELETE: ("broker/handlers/groups/group_topics.py",),
    ApiKey.STOP_REPLICA: CONTROL_REQUESTS,
    ApiKey.UPDATE_METADATA: (*CONTROL_REQUESTS, "broker/handlers/topics/metadata.py"),
}
"""Who is handed the request, or parts of it, beside the handler."""

NAMES_OF_CURSORS = {
    ApiKey.OFFSET_COMMIT: {
        "topics": "topics_left",
        "partitions": "partitions_left",
        "name": "topic",
        "topic_id": "topic",
        "partition_index": "index",
        "generation_id_or_member_epoch": "generation_id",
    },
    ApiKey.TXN_OFFSET_COMMIT: {
        "topics": "topics_left",
        "partitions": "partitions_left",
        "name": "topic",
        "topic_id": "topic",
        "partition_index": "index",
        "generation_id_or_member_epoch": "generation_id",
    },
    ApiKey.PRODUCE: {
        "topic_data": "topics_left",
        "partition_data": "partitions_left",
        "name": "topic",
        "topic_id": "topic",
        "records": "start",
    },
}
"""What a cursor that reads the frame calls a field."""
WALKED = {ApiKey.FETCH: {"topics", "forgotten_topics_data", "replica_state"}}
"""Structures through which a cursor goes without naming them."""


def fields_of(cls: type[Struct | Message], newest: int) -> Iterator[str]:
    """The names of all fields up to the version `newest`, those of nested structures too."""
    for field in cls.SCHEMA.fields:
        if field.versions.first > newest:
            continue
        yield field.name
        inner: WireType = field.type
        while isinstance(inner, ArrayOf):
            inner = inner.element
        if isinstance(inner, StructOf):
            yield from fields_of(inner.cls, newest)


def names_read(key: ApiKey) -> set[str]:
    """What stands behind a dot in the handler, and in those to whom it hands the request."""
    files = (f"{module_of(key).replace('.', '/')}.py", *READ_ELSEWHERE.get(key, ()))
    found = {name for file in files for name in re.findall(r"\.(\w+)", (FLOORS / file).read_text(encoding="utf-8"))}
    return found | {name for name, called in NAMES_OF_CURSORS.get(key, {}).items() if called in found}


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: key.name)
def test_a_field_is_read_or_the_page_says_why_not(key: ApiKey) -> None:
    unread = UNREAD_FIELDS.get(key, ())
    fields = set(fields_of(api(key).request, newest_accepted(key)))
    named = {name for each in unread for name in each.names}
    assert named <= fields
    if not all(each.names for each in unread):
        assert (import_module(module_of(key)).__doc__ or "").startswith("Refuses ")
    else:
        assert fields - names_read(key) - WALKED.get(key, set()) <= named
