"""Collects sockets that kafka-python leaves to the garbage collector after refused connections, and which would warn in a later test.

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
