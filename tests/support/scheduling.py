"""Gives whole test modules to the processes of pytest-xdist, in the order in which they are collected.

So the shared parts of a module (a broker, Apache Kafka beside it) start once. By default pytest-xdist would give the first process a share
of all tests, which here are the slowest. In this order the many quick tests of `unit` and `wire` come last, and all processes end together.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SHARING = ("tests/integration/apache_kafka/one_pair/", "tests/integration/spark/")
"""Folders whose modules share something that starts once in each process."""


class ModuleScheduling(LoadScopeScheduling):
    """One module, or one folder that shares something, after the other."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return next((folder for folder in SHARING if module.startswith(folder)), module)
