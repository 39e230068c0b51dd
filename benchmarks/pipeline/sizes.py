"""How large the largest record of a run is, for those who have a limit: the topic, and Java's producer.

The topic's `max.message.bytes` is about a batch as it is sent; the smallest batch has one record. The producer's `max.request.size` and
`buffer.memory` are about what one record could take before it is compressed, where it assumes the most for everything but key and value.
"""

from benchmarks.pipeline.plan import Plan, Unusable

_BATCH_HEADER = 61
_MOST_AROUND = 22  # a record's length, attributes, timestamp, offset and count of headers, as varints of full length
_DEFAULTS = {"max.request.size": 1 << 20, "buffer.memory": 32 << 20}


def batch_bytes(plan: Plan) -> int:
    """A batch of format v2 with the largest record alone, not compressed."""
    record = 4 + _field(plan.longest_key) + _field(plan.record_bytes)  # attributes, timestamp, offset, count of headers
    return _BATCH_HEADER + _varint(record) + record


def producer_limits(plan: Plan) -> dict[str, str]:
    """Configurations of the producer with which the largest record goes through, where the defaults are too small for it."""
    needed = _at_producer(plan)
    return {name: str(needed) for name, default in _DEFAULTS.items() if needed > default}


def check_producer_limits(plan: Plan) -> None:
    """Whether the largest record goes through what the user set. Raises Unusable."""
    needed = _at_producer(plan)
    for name in _DEFAULTS:
        if needed > int(plan.producer.get(name, needed)):
            raise Unusable(
                f"--producer {name}={plan.producer[name]}: {_what(plan)} takes {needed:,} bytes of that; raise it, or leave it out"
            )


def check_topic_limit(plan: Plan, limit: int) -> None:
    """Whether the largest record can be in a topic with that `max.message.bytes`; compressed, one cannot know. Raises Unusable."""
    needed = batch_bytes(plan)
    if plan.codec == "none" and needed > limit:
        raise Unusable(f"{_what(plan)} takes {needed:,} bytes in topic {plan.topic}, whose max.message.bytes is {limit:,}")


def _what(plan: Plan) -> str:
    return f"a record of --record-bytes {plan.record_bytes}" if plan.input is None else f"{plan.input}: its largest row"


def _at_producer(plan: Plan) -> int:
    return _BATCH_HEADER + _MOST_AROUND + _field(plan.longest_key) + _field(plan.record_bytes)


def _field(size: int) -> int:
    return _varint(size) + size


def _varint(size: int) -> int:
    """Bytes of a varint in zigzag encoding."""
    return max(1, -(-(2 * size).bit_length() // 7))
