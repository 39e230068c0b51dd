"""Gives whole test modules to the processes of pytest-xdist, in the order in which they are collected.

So the shared parts of a module (a broker, Apache Kafka beside it) start once. By default pytest-xdist would give the first process a share
of all tests, which here are the slowest. In this order the many quick tests of `unit` and `wire` come last, and all processes end together.
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
