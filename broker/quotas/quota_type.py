"""Names the resources that quotas of users and client ids limit."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class QuotaType(IntEnum):
    """ClientQuotaType: the limited resource, and the unit in which it is counted."""

    PRODUCE = 0  # bytes of Produce requests
    FETCH = 1  # bytes of answers to the fetches of consumers
    REQUEST = 2  # nanoseconds of work in a handler
    CONTROLLER_MUTATION = 3  # partitions created or deleted


QUOTA_KEYS: Final = {
    QuotaType.PRODUCE: "producer_byte_rate",
    QuotaType.FETCH: "consumer_byte_rate",
    QuotaType.REQUEST: "request_percentage",
    QuotaType.CONTROLLER_MUTATION: "controller_mutation_rate",
}
"""The configuration key of each quota."""

RESOURCES: Final = {
    QuotaType.PRODUCE: "Produce",
    QuotaType.FETCH: "Fetch",
    QuotaType.REQUEST: "Request",
    QuotaType.CONTROLLER_MUTATION: "ControllerMutation",
}
"""The names in Kafka's metrics."""

PRODUCE: Final = int(QuotaType.PRODUCE)
FETCH: Final = int(QuotaType.FETCH)
REQUEST: Final = int(QuotaType.REQUEST)
CONTROLLER_MUTATION: Final = int(QuotaType.CONTROLLER_MUTATION)

PERCENT_OF_SECOND: Final = 100.0 / 1_000_000_000
"""The share of a second that a nanosecond is, percent; the unit of request_percentage."""

NS_PER_MS: Final = 1_000_000
