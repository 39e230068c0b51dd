"""Lets a producer exceed its quota while the clock of its broker jumps, and measures its delays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.batches import a_batch
from tests.support.wire_client import a_wire_client

FIRST_BYTES = 20_000
RATE_SECONDS = 10.0
"""With the default windows, what was produced in the first second counts as produced in this time, seconds."""
FIRST_DELAY_MS = 1_500
BETWEEN_MS = 400, 1_800
"""The shortest and the longest throttle time. Each is shorter by what has passed of the current window, and longer by later records."""


class Delay(NamedTuple):
    """The throttle time of an answer, and the time after that answer at which the broker answered the next request, ms."""

    told_ms: int
    waited_ms: float


def delays_over_jumps(port: int, topic: str, shift: Callable[[int], None], jumps: Iterable[int]) -> list[Delay]:
    """The delays of a producer whose client id is the name of the topic. The clock is set to a jump while it waits."""
    with a_wire_client(port) as administrator:
        entity = AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=topic)
        rate = FIRST_BYTES / (RATE_SECONDS + FIRST_DELAY_MS / 1000)
        entry = AlterClientQuotasRequestEntryData(entity=[entity], ops=[OpData(key="producer_byte_rate", value=round(rate))])
        assert administrator.ask(AlterClientQuotasRequest(entries=[entry]), 1).entries[0].error_code == ErrorCode.NONE
    delays = []
    value_bytes = FIRST_BYTES
    with a_wire_client(port, client_id=topic) as client:
        for seconds in jumps:
            data = PartitionProduceData(index=0, records=bytes(a_batch(value_bytes=value_bytes)))
            request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
            answer = client.ask(request, 9)
            began = time.monotonic()
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            shift(seconds)
            client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
            delays.append(Delay(answer.throttle_time_ms, (time.monotonic() - began) * 1000))
            value_bytes = 10
    return delays


def check_delays(delays: list[Delay]) -> None:
    """Fails for a delay that a jump has changed, or that differs from the throttle time of the answer."""
    shortest, longest = BETWEEN_MS
    for told_ms, waited_ms in delays:
        assert shortest <= told_ms <= longest, delays
        assert told_ms - 300 <= waited_ms <= told_ms + 3_000, delays
