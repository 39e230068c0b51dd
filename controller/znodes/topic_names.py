"""Validates topic names as Kafka's Topic.validate does, and detects names whose metric names collide."""

import re

from ottla.controller.errors import InvalidTopicName

MAX_NAME_LENGTH = 249
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic_name(name: str) -> None:
    """Raises InvalidTopicName."""
    reason = _objection(name)
    if reason is not None:
        raise InvalidTopicName(f"Topic name is invalid: {reason}")


def is_valid_topic_name(name: str) -> bool:
    """Whether a topic may have this name."""
    return _objection(name) is None


def has_collision_chars(name: str) -> bool:
    """Whether the name has a character that is replaced in metric names."""
    return "." in name or "_" in name


def metric_name(name: str) -> str:
    """The topic's form in metric names; topics with the same form collide."""
    return name.replace(".", "_")


def _objection(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if _LEGAL.fullmatch(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
