"""Creates topic ids: random version 4 UUIDs that are not reserved and have no leading dash, which tools take for an
option."""

from collections.abc import Callable

from ottla.config.broker import BrokerConfig
from ottla.config.keys.replication import INTER_BROKER_PROTOCOL_VERSION
from ottla.config.schema.metadata_version import is_at_least
from ottla.protocol.uuid import ZERO_UUID, to_text

_RESERVED = frozenset({ZERO_UUID, (1).to_bytes(16, "big")})

FIRST_WITH_TOPIC_IDS = "2.8-IV0"


def uses_topic_ids(config: BrokerConfig) -> bool:
    """Whether new topics get ids: not while brokers of older releases may be in the cluster. Existing ids are kept in
    any case."""
    return is_at_least(config[INTER_BROKER_PROTOCOL_VERSION], FIRST_WITH_TOPIC_IDS)


def frees_names(config: BrokerConfig) -> bool:
    """Whether the name of a deleted topic is free while a broker with a replica of it is away. That broker needs the id to notice."""
    return config.standalone and uses_topic_ids(config)


def new_topic_id(random_bytes: Callable[[int], bytes]) -> bytes:
    """16 bytes."""
    while True:
        uuid = random_uuid(random_bytes)
        if uuid not in _RESERVED and not to_text(uuid).startswith("-"):
            return uuid


def random_uuid(random_bytes: Callable[[int], bytes]) -> bytes:
    """A version 4 UUID."""
    uuid = bytearray(random_bytes(16))
    uuid[6] = uuid[6] & 0x0F | 0x40
    uuid[8] = uuid[8] & 0x3F | 0x80
    return bytes(uuid)
