"""Logs why partitions of `__remote_log_metadata` cannot be read or written: each reason once, and the end of it."""

from __future__ import annotations

from logging import Logger


class Refusals:
    """See the module. `what` is "read" or "written"."""

    __slots__ = ("_logger", "_reasons", "_what")

    def __init__(self, logger: Logger, what: str) -> None:
        self._logger = logger
        self._what = what
        self._reasons: dict[str, str] = {}

    def report(self, name: str, reason: str) -> None:
        """A partition cannot be used for this reason; it is tried again."""
        if self._reasons.get(name) != reason:
            self._reasons[name] = reason
            self._logger.warning("%s cannot be %s, and is tried again: %s", name, self._what, reason)

    def clear(self, name: str) -> None:
        """The partition can be used."""
        if self._reasons and self._reasons.pop(name, None) is not None:
            self._logger.info("%s can be %s again", name, self._what)

    def __len__(self) -> int:
        return len(self._reasons)
