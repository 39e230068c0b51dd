"""kafka-python leaves sockets of refused connections to the garbage collector, which would warn in whatever test runs by then.

So in a process that has loaded it, such sockets are collected at the end of each test of the folders whose conftest takes this fixture,
without the warning. Our own sockets are still held to be closed everywhere else.
"""

import gc
import sys
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def collect_sockets_of_kafka_python() -> Iterator[None]:
    """Around every test."""
    yield
    if "kafka.net" in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
