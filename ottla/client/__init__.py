"""Is a small Kafka client: blocking, for one thread, for Ottla and Apache Kafka. It imports no floor but `ottla.protocol`.

    from ottla.client import Cluster, OutgoingRecord, Producer

    with Cluster("127.0.0.1:9092") as cluster, Producer(cluster, "orders") as producer:
        producer.send(OutgoingRecord(b"value", key=b"key"))

`Cluster` has the connections, and repeats what failed for a passing reason. Functions of administration take it as their first argument.
Errors are `ClientError`s, whose texts are for people. docs/first-steps.md is the guide. The names below are the library; the command
line uses the same ones, and others of the modules.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster as Cluster
    from ottla.client.config_admin import Change as Change
    from ottla.client.config_admin import ConfigOperation as ConfigOperation
    from ottla.client.config_admin import ConfigResourceType as ConfigResourceType
    from ottla.client.config_admin import alter_configs as alter_configs
    from ottla.client.config_admin import describe_configs as describe_configs
    from ottla.client.errors import ClientError as ClientError
    from ottla.client.errors import ConnectionLost as ConnectionLost
    from ottla.client.errors import NotAuthenticated as NotAuthenticated
    from ottla.client.errors import Refused as Refused
    from ottla.client.errors import Unreachable as Unreachable
    from ottla.client.errors import UnsupportedByBroker as UnsupportedByBroker
    from ottla.client.fetcher import FetchedBatch as FetchedBatch
    from ottla.client.fetcher import Fetcher as Fetcher
    from ottla.client.fetcher import FetchSettings as FetchSettings
    from ottla.client.fetcher import OffsetGone as OffsetGone
    from ottla.client.group_admin import delete_groups as delete_groups
    from ottla.client.group_admin import describe_group as describe_group
    from ottla.client.group_admin import list_groups as list_groups
    from ottla.client.group_member import GroupMember as GroupMember
    from ottla.client.group_offsets.committed import Committed as Committed
    from ottla.client.group_offsets.committed import commit_offsets as commit_offsets
    from ottla.client.group_offsets.committed import committed_offsets as committed_offsets
    from ottla.client.offsets import READ_COMMITTED as READ_COMMITTED
    from ottla.client.offsets import READ_UNCOMMITTED as READ_UNCOMMITTED
    from ottla.client.offsets import end_offsets as end_offsets
    from ottla.client.offsets import offsets_at as offsets_at
    from ottla.client.offsets import start_offsets as start_offsets
    from ottla.client.producer import Delivery as Delivery
    from ottla.client.producer import OutgoingRecord as OutgoingRecord
    from ottla.client.producer import Producer as Producer
    from ottla.client.producer import ProducerSettings as ProducerSettings
    from ottla.client.topic_admin import NewTopic as NewTopic
    from ottla.client.topic_admin import all_topics as all_topics
    from ottla.client.topic_admin import create_topics as create_topics
    from ottla.client.topic_admin import delete_records as delete_records
    from ottla.client.topic_admin import delete_topics as delete_topics
    from ottla.client.topic_admin import grow_topic as grow_topic
    from ottla.protocol.topic_partition import TopicPartition as TopicPartition

# Modules are imported at the first use of a name, so that a command pays only for those that it needs.
_MODULES = {
    "cluster": "Cluster TopicPartition",
    "group_offsets.committed": "Committed commit_offsets committed_offsets",
    "config_admin": "Change ConfigOperation ConfigResourceType alter_configs describe_configs",
    "errors": "ClientError ConnectionLost NotAuthenticated Refused Unreachable UnsupportedByBroker",
    "fetcher": "FetchSettings FetchedBatch Fetcher OffsetGone",
    "group_admin": "delete_groups describe_group list_groups",
    "group_member": "GroupMember",
    "offsets": "READ_COMMITTED READ_UNCOMMITTED end_offsets offsets_at start_offsets",
    "producer": "Delivery OutgoingRecord Producer ProducerSettings",
    "topic_admin": "NewTopic all_topics create_topics delete_records delete_topics grow_topic",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = tuple(_PLACES)  # the same names as above


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_PLACES)
