"""Declares the families of kafka.coordinator.transaction, of the coordinator in kafka.server, and Ottla's own for transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.metrics.families import Family, Kind, counter, gauge, labelled, load_times
from ottla.coordination.transactions.metadata import TransactionState

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View
    from ottla.coordination.transactions.coordinator import TransactionCoordinator

MEASURED_STATES = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
"""The states in which a transaction holds readers of committed records back."""


def _coordinator(view: View) -> TransactionCoordinator:
    return view.services.coordinators.transactions


def _queue(mbean: str, doc: str, read: Callable[[TransactionCoordinator], int]) -> Family:
    pattern = f"kafka.coordinator.transaction:name={mbean},type=TransactionMarkerChannelManager"
    name = f"kafka_coordinator_transaction_transactionmarkerchannelmanager_{mbean.lower()}"
    return gauge(name, pattern, doc, lambda view: read(_coordinator(view)))


def _channel(attribute: str, doc: str, read: Callable[[TransactionCoordinator], int]) -> Family:
    name = f"kafka_server_txn_marker_channel_metrics_{attribute}_total"
    return counter(name, "kafka.server:type=txn-marker-channel-metrics", doc, lambda view: read(_coordinator(view)))


TRANSACTION_FAMILIES: tuple[Family, ...] = (
    _queue(
        "UnknownDestinationQueueSize",
        "Transactions that wait for a partition to get a leader, to write a marker to it.",
        lambda coordinator: coordinator.markers.unknown_destination_queue_size,
    ),
    _queue(
        "LogAppendRetryQueueSize",
        "Transactions with all markers whose end could not be stored yet.",
        lambda coordinator: coordinator.log_append_retry_queue_size,
    ),
    *load_times("transaction-coordinator-metrics", "__transaction_state", lambda view: _coordinator(view).load_times.recent()),
    _channel(
        "request",
        "WriteTxnMarkers that were sent to other brokers, and turns in which this broker wrote markers to its own partitions.",
        lambda coordinator: coordinator.markers.requests,
    ),
    _channel("response", "Answers to those, and the same turns.", lambda coordinator: coordinator.markers.responses),
    labelled(
        "ottla_transactional_ids",
        Kind.GAUGE,
        ("state",),
        "",
        "Transactional ids that this broker coordinates, by their state.",
        lambda view: (((state.label,), count) for state, count in view.transaction_states.items()),
    ),
    counter(
        "ottla_transaction_commits_total",
        "",
        "Transactions that this broker committed, with all markers.",
        lambda view: _coordinator(view).stats.commits,
    ),
    counter(
        "ottla_transaction_aborts_total",
        "",
        "Transactions that this broker aborted, with all markers, for whichever reason.",
        lambda view: _coordinator(view).stats.aborts,
    ),
    counter(
        "ottla_transaction_timeouts_total",
        "",
        "Aborts of this broker for transactions that were open for longer than their producers allowed.",
        lambda view: _coordinator(view).expiration.timeouts,
    ),
    labelled(
        "ottla_transaction_state_seconds",
        Kind.SUMMARY,
        ("state",),
        "",
        "Time that a transaction was in a state: open (Ongoing), or waiting for its markers (PrepareCommit, PrepareAbort).",
        lambda view: (((state.label,), histogram.look()) for state, histogram in view.transaction_times.items()),
        0.001,
    ),
)
