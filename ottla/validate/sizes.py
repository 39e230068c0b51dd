"""Computes the size of a run's largest record, and checks it against the limits of the topic and of Java's producer.

The topic's `max.message.bytes` limits a batch as it is sent; the smallest batch has one record. The producer's `max.request.size` and
`buffer.memory` limit the uncompressed size of one record, with the maximum assumed for all parts except key and value.
"""

from ottla.validate.plan import Plan, Unusable

_BATCH_HEADER = 61
_MOST_AROUND = 22  # a record's length, attributes, timestamp, offset and count of headers, as varints of full length
_DEFAULTS = {"max.request.size": 1 << 20, "buffer.memory": 32 << 20}


def batch_bytes(plan: Plan) -> int:
    """Size of an uncompressed batch of format v2 that contains only the largest record."""
    record = 4 + _field(plan.longest_key) + _field(plan.record_bytes)  # attributes, timestamp, offset, count of headers
    return _BATCH_HEADER + _varint(record) + record


def producer_limits(plan: Plan) -> dict[str, str]:
    """Configurations of the producer for the largest record, where the defaults are too small."""
    needed = _at_producer(plan)
    return {name: str(needed) for name, default in _DEFAULTS.items() if needed > default}


def check_producer_limits(plan: Plan) -> None:
    """Check that the largest record fits the user's limits. Raises Unusable."""
    needed = _at_producer(plan)
    for name in _DEFAULTS:
        if needed > int(plan.producer.get(name, needed)):
            raise Unusable(
                f"--producer {name}={plan.producer[name]}: {_what(plan)} takes {needed:,} bytes of that; raise it, or leave it out"
            )


def check_topic_limit(plan: Plan, limit: int) -> None:
    """Check that the largest record fits a topic's `max.message.bytes`; for compressed ones that is unknown. Raises Unusable."""
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
