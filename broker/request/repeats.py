"""Refuses names that a request repeats too often.

A name takes a few bytes of the request, but its description in the answer may take kilobytes, such as the configuration of a topic or the
members of a group. So the answer to a request with half a million repetitions of a name would exceed the memory of a machine.
"""

from collections.abc import Hashable
from typing import Final

from ottla.broker.request.context import RequestContext

MAX_REPEATS: Final = 10
"""Names that a request may give again. No client gives one, but Apache Kafka answers to each."""


class Repeats:
    """The names of one request."""

    __slots__ = ("_left", "_seen")

    def __init__(self, context: RequestContext) -> None:
        self._seen: dict[Hashable, None] = context.scratch({})
        self._left = MAX_REPEATS

    def are_too_many(self, name: Hashable) -> bool:
        """Whether the request has given this name before, and has given names again too often."""
        if name not in self._seen:
            self._seen[name] = None
            return False
        self._left -= 1
        return self._left < 0
