"""Declares the fixtures `ottla`, `kafka` and `ottla_cluster`.

With pytest-xdist each worker has brokers of its own, or all share the one of `ottla` (`ottla_shared`). Brokers end with the process that
started them, whatever happens to it, and their directories are removed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ottla.broker import Broker, OttlaError
from pytest_ottla.cluster import Cluster
from pytest_ottla.guard import started_in
from pytest_ottla.namespace import Kafka

if TYPE_CHECKING:
    from pytest_ottla.shared import Lender, SharedBroker

_NUMBERS = itertools.count(1)
_LENT = "ottla_lent"
"""Key under which the controller of pytest-xdist gives its workers the port and the key of the lender."""
_LENDER: pytest.StashKey[Lender] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of the configuration."""
    parser.addini("ottla_config", "Settings of the broker of the fixture ottla, key=value, one a line.", type="linelist")
    parser.addini("ottla_shared", "Let all workers of pytest-xdist share the broker of the fixture ottla.", type="bool", default=False)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker of pytest-xdist where the shared broker is. Called in the controller, before the worker starts."""
    config: pytest.Config = node.config
    if config.getini("ottla_shared"):
        if _LENDER not in config.stash:
            from pytest_ottla.shared import Lender

            config.stash[_LENDER] = Lender()
        node.workerinput[_LENT] = config.stash[_LENDER].terms


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the shared broker."""
    lender = config.stash.get(_LENDER, None)
    if lender is not None:
        lender.close()


@pytest.fixture(scope="session")
def ottla_config(request: pytest.FixtureRequest) -> dict[str, str]:
    """Settings of the broker of `ottla`; a project may override the fixture, or set `ottla_config` in its configuration of pytest."""
    pairs = (line.partition("=") for line in request.config.getini("ottla_config"))
    return {name.strip(): value.strip() for name, _, value in pairs}


@pytest.fixture(scope="session")
def ottla(
    request: pytest.FixtureRequest, ottla_config: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker | SharedBroker]:
    """A broker for the whole session: `ottla.bootstrap_servers`."""
    lent = getattr(request.config, "workerinput", {}).get(_LENT)
    if lent is not None:
        from pytest_ottla.shared import SharedBroker

        with SharedBroker(lent, tmp_path_factory.getbasetemp().parent / "ottla-shared", ottla_config) as shared:
            yield shared
        return
    with started_in(tmp_path_factory.mktemp("ottla"), lambda directory: Broker(directory, **ottla_config)) as broker:
        yield broker


@pytest.fixture
def kafka(ottla: Broker | SharedBroker) -> Iterator[Kafka]:
    """Topics and groups for one test on the broker of the session. The end of the test ends all faults."""
    ottla.heal()
    namespace = Kafka(ottla, f"t{os.getpid()}-{next(_NUMBERS)}-")
    yield namespace
    namespace.remove()


@pytest.fixture
def ottla_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cluster]]:
    """Starts clusters for one test: `ottla_cluster(3, num_partitions=6)`."""
    with ExitStack() as held:

        def start(size: int = 3, **config: object) -> Cluster:
            __tracebackhide__ = True
            directory = tmp_path_factory.mktemp("ottla-cluster")
            try:
                return held.enter_context(started_in(directory, lambda directory: Cluster(directory, size, **config)))
            except OttlaError as error:
                raise error.with_traceback(None) from None  # without the frames of the context managers

        yield start
