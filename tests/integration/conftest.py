"""Tests with kafka-python do not turn the warning about its sockets into an error; see tests/support/kafka_python_sockets.py."""

import pytest

from tests.support.kafka_python_sockets import collect_sockets_of_kafka_python

__all__ = ["collect_sockets_of_kafka_python"]

UNCLOSED_SOCKET = "unclosed <socket:ResourceWarning"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for the test's own topic or group."""
    return request.node.name.translate(str.maketrans("[]", ".."))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests with kafka-python live with its sockets."""
    for item in items:
        if "kafka-python" in item.name or "clients" in item.path.name or "client_" in item.path.name:
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{UNCLOSED_SOCKET}"))
