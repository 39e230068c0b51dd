"""Connects tests of share groups to the broker of their module."""

from collections.abc import Iterator

import pytest

from tests.support.in_process_broker import InProcessBroker
from tests.support.wire_client import WireClient, a_wire_client


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    """A connection to the fixture `broker`, which each module has with settings of its own."""
    with a_wire_client(broker.port) as connected:
        yield connected
