"""Logs the records of a coordinator's log that cannot be read and are left out. There may be millions of them, so only the first are named.

The number of all of them is in the line at the end of the load.
"""

from __future__ import annotations

from logging import Logger
from typing import Final

NAMED: Final = 10
"""Records of a partition that get a line each."""


def report_skipped(logger: Logger, name: str, number: int, what: str, why: object) -> None:
    """The `number`-th record of the partition `name` is left out."""
    if number <= NAMED:
        logger.error("%s: %s cannot be read (%s); left out", name, what, why)
    elif number == NAMED + 1:
        logger.error("%s: more records cannot be read; they are left out, and counted at the end of the load", name)
