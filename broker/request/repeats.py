"""Refuses names that a request repeats too often.

A name takes a few bytes of the request, and what is said of it may take kilobytes of the answer, such as the configuration of a topic or
the members of a group. So an answer to half a million times the same name would take more memory than a machine has.
"""

from collections.abc import Hashable
from typing import Final

MAX_REPEATS: Final = 10
"""Names that a request may give again. No client gives one, but Apache Kafka answers to each."""


class Repeats:
    """The names of one request."""

    __slots__ = ("_left", "_seen")

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._left = MAX_REPEATS

    def are_too_many(self, name: Hashable) -> bool:
        """Whether the request has given this name before, and has given names again too often."""
        if name not in self._seen:
            self._seen.add(name)
            return False
        self._left -= 1
        return self._left < 0
