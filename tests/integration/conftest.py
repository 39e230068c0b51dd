"""kafka-python leaves sockets of refused connections to the garbage collector, which would warn in whatever test runs by then.

So in a process that has loaded it, such sockets are collected at the end of each test, without the warning; the tests that use it do not
turn that one warning into an error. Our own sockets are still held to be closed: everywhere else, and in every other test.
"""

import gc
import sys
import warnings
from collections.abc import Iterator

import pytest

UNCLOSED_SOCKET = "unclosed <socket:ResourceWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests with kafka-python live with its sockets."""
    for item in items:
        if "kafka-python" in item.name or "clients" in item.path.name or "client_" in item.path.name:
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{UNCLOSED_SOCKET}"))


@pytest.fixture(autouse=True)
def _collect_sockets_of_kafka_python() -> Iterator[None]:
    yield
    if "kafka.net" in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
