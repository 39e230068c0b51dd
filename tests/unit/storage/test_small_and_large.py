"""A batch gets the same answer whether the event loop checks it, or leaves it to a worker because it is large."""

import pytest

from ottla.protocol.records.batch import TimestampType
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import StorageError
from ottla.storage.validation import batch as batches
from ottla.storage.validation.batch import complete_validation
from ottla.storage.validation.rules import ValidationRules
from tests.support.batches import judged
from tests.support.odd_batches import TIME, kinds

ORDERS = TopicPartition("orders", 0)
HOUR_MS = 3_600_000
RULES = {
    "plain": ValidationRules(ORDERS),
    "compacted": ValidationRules(ORDERS, compact=True),
    "log append time": ValidationRules(ORDERS, timestamp_type=TimestampType.LOG_APPEND_TIME),
    "limited": ValidationRules(ORDERS, timestamp_before_max_ms=HOUR_MS, timestamp_after_max_ms=HOUR_MS),
}


def outcome(batch: bytes, rules: ValidationRules) -> tuple[object, ...]:
    """The stored bytes, or the error."""
    try:
        run = judged(bytearray(batch), rules, TIME)
        if run.needs_worker:
            run = complete_validation(run.detached(), rules, TIME)
    except StorageError as error:
        return type(error), getattr(error, "reason", None), list(getattr(error, "record_errors", ()))
    run.stamp(0, 0)
    return bytes(run.batch()), run.log_append_time_ms


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_each_odd_batch_has_one_outcome(rules: ValidationRules, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the limits are constants of C, all batches are small both times."""
    odd = kinds()
    small = {name: outcome(batch, rules) for name, batch in odd.items()}
    for limit in ("INLINE_CHECK_MAX_BYTES", "INLINE_EXPANDED_MAX_BYTES"):
        monkeypatch.setattr(batches, limit, 0)
    large = {name: outcome(batch, rules) for name, batch in odd.items()}
    assert {name: found for name, found in large.items() if found != small[name]} == {}
    assert any(isinstance(first, bytes) for first, *_ in small.values())
