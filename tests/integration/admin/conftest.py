"""The broker that most tests of the administration ask: alone, with the id 0, and a module's own."""

from collections.abc import Iterator

import pytest

from tests.support.in_process_broker import InProcessBroker, a_broker_in_process


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path_factory.mktemp("broker"), broker_id=0) as running:
        yield running
