"""Declares the keys of consumer groups of Kafka 4: those of KIP-848 that Apache Kafka 3.9 does not have.

DescribeConfigs does not list them.
"""

from ottla.config.schema.key import MEDIUM, MINUTE, SECOND, key
from ottla.config.schema.types import Bool, Int

GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = key(
    "group.consumer.assignment.interval.ms",
    Int(0),
    default=SECOND,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="The shortest time between two target assignments of a group. Members that join meanwhile share the next one.",
)
GROUP_CONSUMER_ASSIGNOR_OFFLOAD_ENABLE = key(
    "group.consumer.assignor.offload.enable",
    Bool(),
    default=True,
    importance=MEDIUM,
    internal=True,
    doc="Whether threads of their own compute target assignments; here they always do.",
)
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = key(
    "group.consumer.max.assignment.interval.ms",
    Int(0),
    default=15 * SECOND,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="The longest time between two target assignments that a consumer group may be given.",
)
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = key(
    "group.consumer.min.assignment.interval.ms",
    Int(0),
    default=0,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="The shortest time between two target assignments that a consumer group may be given.",
)
GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS = key(
    "group.consumer.regex.refresh.interval.ms",
    Int(10 * SECOND),
    default=10 * MINUTE,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="How often the regular expressions of a group are evaluated again while no topic appears or vanishes.",
)
