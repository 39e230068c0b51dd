"""Holds the settings that all fetchers of a broker share, as plain attributes: keys of replication, broker id, quota."""

from __future__ import annotations

from ottla.config.broker import BrokerConfig
from ottla.config.keys.replication import (
    INTER_BROKER_PROTOCOL_VERSION,
    REPLICA_FETCH_BACKOFF_MS,
    REPLICA_FETCH_MAX_BYTES,
    REPLICA_FETCH_MIN_BYTES,
    REPLICA_FETCH_RESPONSE_MAX_BYTES,
    REPLICA_FETCH_WAIT_MAX_MS,
    REPLICA_SOCKET_TIMEOUT_MS,
)
from ottla.replication.follower.leader_requests import InterBrokerVersions
from ottla.replication.ports.throttle import ReplicationQuota
from ottla.replication.remote.aux_state import AuxStates


class FetcherSettings:
    """Settings of the fetchers. None of the keys changes while the broker runs; `quota` follows its own keys."""

    __slots__ = (
        "aux_states",
        "backoff_ms",
        "broker_id",
        "is_held",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "quota",
        "response_max_bytes",
        "timeout_ms",
        "versions",
    )

    def __init__(self, config: BrokerConfig, broker_id: int, quota: ReplicationQuota, aux_states: AuxStates | None = None) -> None:
        self.broker_id = broker_id
        self.quota = quota
        self.is_held = False
        """Whether more partitions will follow at once. A fetcher that gets more while it waits for an answer must begin a new session."""
        self.aux_states = aux_states
        """Begins logs behind remote records. None without tiered storage."""
        self.versions = InterBrokerVersions(config[INTER_BROKER_PROTOCOL_VERSION])
        self.max_wait_ms = config[REPLICA_FETCH_WAIT_MAX_MS]
        self.min_bytes = config[REPLICA_FETCH_MIN_BYTES]
        self.max_bytes = config[REPLICA_FETCH_MAX_BYTES]
        self.response_max_bytes = config[REPLICA_FETCH_RESPONSE_MAX_BYTES]
        self.backoff_ms = config[REPLICA_FETCH_BACKOFF_MS]
        self.timeout_ms = config[REPLICA_SOCKET_TIMEOUT_MS]
