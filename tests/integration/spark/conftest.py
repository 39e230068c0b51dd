"""One Spark session for the tests of this folder, since it takes longer to start than most tests to run, and one Spark at a time.

A JVM wants both cores, so the processes of pytest-xdist take turns: who needs Spark holds a lock until its next test is in another folder.
Tests whose commands start a JVM of their own come first, before there is the shared one.
"""

from __future__ import annotations

import fcntl
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark import a_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [at for at, item in enumerate(items) if item.path.parent == HERE]
    in_order = sorted((items[at] for at in ours), key=_when)
    for at, item in zip(ours, in_order, strict=True):
        items[at] = item


def _when(item: pytest.Item) -> int:
    """Commands, then what asks for the session when its own command has ended, then the session's tests."""
    assert isinstance(item, pytest.Function)
    return 2 if "spark" in item.fixturenames else int("request" in inspect.signature(item.function).parameters)


@pytest.fixture(scope="package")
def only_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No other test process runs Spark meanwhile."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / "spark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="package")
def spark(only_spark: None) -> Iterator[SparkSession]:
    with a_session() as session:
        yield session
