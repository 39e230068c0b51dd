"""The copiers of `ottla validate --exactly-once` without Spark: how a run learns that one of them, or all, cannot go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.validate.copying.copiers import Copiers
from ottla.validate.plan import Copies, DidNotFinish, Plan
from ottla.validate.topic import Topic, prepare
from tests.support.broker_process import BrokerProcess, a_broker, eventually

ROOT = Path(__file__).parents[2]
SECONDS = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("copiers") / "broker", offsets_topic_num_partitions=1) as running:
        yield running


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> str:
    """A copier that ends with an error."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("FAULT", "Fails")
    return "tests.support.faulty_copiers"


def prepared(broker: BrokerProcess, topic: str, copies: Copies) -> tuple[Plan, Topic]:
    plan = Plan(broker.bootstrap, topic, 100, Path("report"), partitions=2, copies=copies, stall_s=2)
    return plan, prepare(plan)


def test_a_copier_that_fails_ends_the_run_with_its_error(broker: BrokerProcess, failing: str) -> None:
    copies = Copies(copiers=2, module=failing)
    plan, topic = prepared(broker, "fails", copies)
    copiers = Copiers(plan, copies, topic)
    copiers.start()
    try:
        with pytest.raises(DidNotFinish, match=r"copier \d ended with status 1; the last error of a copier: .*_STATE"):
            copiers.wait_for({0: 1, 1: 1})
    finally:
        copiers.close()


def test_with_faults_a_copier_that_fails_is_started_again_until_nothing_moves_for_too_long(broker: BrokerProcess, failing: str) -> None:
    copies = Copies(copiers=1, module=failing, faults=True)
    plan, topic = prepared(broker, "starts", copies)
    copiers = Copiers(plan, copies, topic)
    copiers.start()
    try:
        eventually(lambda: copiers.restarts >= 2, SECONDS, "the second start")
        copiers.check()
        with pytest.raises(DidNotFinish, match=r"^the copiers stand still since 2 s: partitions 0 at 0 of 1, 1 at 0 of 0; the last error"):
            copiers.wait_for({0: 1, 1: 0})
    finally:
        copiers.close()


def test_copiers_begin_at_the_offsets_of_the_run_and_not_at_those_of_an_earlier_one(broker: BrokerProcess, failing: str) -> None:
    """Their group has the offsets before the first copier reads; so without copiers, all below these offsets is copied."""
    copies = Copies(copiers=1, module=failing, faults=True)
    plan, topic = prepared(broker, "begins", copies)
    later = Topic(topic.name, topic.partitions, {0: 17, 1: 5}, False, False)
    copiers = Copiers(plan, copies, later)
    copiers.start()
    try:
        copiers.wait_for(later.first)
    finally:
        copiers.close()
