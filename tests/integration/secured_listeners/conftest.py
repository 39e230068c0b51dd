"""Gives the tests of a module one broker with secured listeners, and looks at what each test leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.certificates import Identity
from tests.support.in_process_broker import InProcessBroker
from tests.support.secured_listeners import a_broker_with_secured_listeners, nothing_is_left_and_no_secret_is_logged


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("CN=authority")


@pytest.fixture(scope="module")
def server() -> Identity:
    return Identity("CN=localhost", Identity("CN=authority of the broker"))


@pytest.fixture(scope="module")
def broker(authority: Identity, server: Identity, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with a_broker_with_secured_listeners(tmp_path_factory.mktemp("secured"), authority, server) as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_is_left_and_no_secret_is_logged(broker: InProcessBroker, server: Identity, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with nothing_is_left_and_no_secret_is_logged(broker, server, caplog):
        yield
