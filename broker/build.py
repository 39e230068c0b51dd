"""Identifies this Ottla: its version, and the version of Apache Kafka that it emulates. `--version` and the metric `ottla_build_info` show
it."""

from functools import cache
from typing import Final

EMULATES: Final = "Apache Kafka 3.9 in ZooKeeper mode"
_UNKNOWN: Final = "(not installed)"


@cache
def version() -> str:
    """The version of the installed distribution; a checkout that is not installed has none."""
    from importlib.metadata import PackageNotFoundError  # takes longer than other imports of a command
    from importlib.metadata import version as version_of

    try:
        return version_of("ottla")
    except PackageNotFoundError:
        return _UNKNOWN
