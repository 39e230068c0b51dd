"""Gives the suite a broker by pytest-ottla."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.test_suite.measured import SCOPE, making_a_topic, note_memory, pytest_sessionfinish, starting
from pytest_ottla import Broker, Kafka

__all__ = ["bootstrap", "broker", "new_topic", "pytest_sessionfinish"]


@pytest.fixture(scope=SCOPE)
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """As the fixture `ottla`, but of either scope."""
    directory: Path = tmp_path_factory.mktemp("broker")
    with starting():
        made = Broker(directory)
    yield made
    note_memory(made.pid)
    made.stop()


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    """host:port."""
    return broker.bootstrap_servers


@pytest.fixture
def new_topic(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Creates a topic of the test by the helpers of the plugin."""
    kafka = Kafka(broker, f"{abs(hash(request.node.nodeid))}-")

    def make() -> str:
        with making_a_topic():
            return kafka.topic()

    yield make
    kafka.remove()
