"""Gives whole test modules to the processes of pytest-xdist, in the order in which they are collected.

What a module has in common (a broker, Apache Kafka beside it) is then started once. By itself pytest-xdist gives the first process a share
of all tests, which here are the slowest; in this order the many quick ones of `unit` and `wire` come last, and all processes end together.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/integration/spark/"


class ModuleScheduling(LoadScopeScheduling):
    """One module, or the tests that share a Spark session, after the other."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return SPARK if module.startswith(SPARK) else module
