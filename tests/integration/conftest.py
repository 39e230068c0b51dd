"""Tests with kafka-python do not turn the warning about its sockets into an error; see tests/support/kafka_python_sockets.py."""

from collections.abc import Iterator

import pytest

from tests.support.chromium import Page, a_page
from tests.support.kafka_python_sockets import collect_sockets_of_kafka_python

__all__ = ["collect_sockets_of_kafka_python"]

UNCLOSED_SOCKET = "unclosed <socket:ResourceWarning"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for the test's own topic or group."""
    return request.node.name.translate(str.maketrans("[]", ".."))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of a browser, for the tests of a module."""
    with a_page(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests with kafka-python live with its sockets."""
    for item in items:
        if "kafka-python" in item.name or "clients" in item.path.name or "client_" in item.path.name:
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{UNCLOSED_SOCKET}"))
