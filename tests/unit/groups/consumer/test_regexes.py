"""Regular expressions of consumer groups: checked once, evaluated by the broker, and shared by the members that subscribe to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from ottla.coordination.groups.consumer import regexes
from ottla.coordination.groups.consumer.members import LEAVING
from ottla.coordination.groups.consumer.regexes import MOST_THREADS, RegexThreads
from ottla.protocol.errors import ErrorCode
from tests.support.consumer_groups import ConsumerDriver, partitions_of, state_of

needs_re2 = pytest.mark.skipif(find_spec("re2") is None, reason="the package google-re2 is not installed")


class HeldWork(Executor):
    """Keeps the work that it gets."""

    def __init__(self) -> None:
        self.held: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See Executor."""
        future: Future[Any] = Future()
        self.held.append((future, fn))
        return future

    def finish(self, index: int) -> None:
        """Does the work of this number."""
        future, work = self.held[index]
        future.set_running_or_notify_cancel()
        future.set_result(work())


def a_driver() -> ConsumerDriver:
    driver = ConsumerDriver({"a1": 2, "a2": 1, "b1": 1})
    driver.regex_topics = {"a.*": frozenset({"a1", "a2", "a3"}), ".1": frozenset({"a1", "b1"})}
    return driver


def join(driver: ConsumerDriver, member_id: str, regex: str) -> int:
    answer = driver.beat(member_id, 0, rebalance_timeout_ms=30_000, topics=None, regex=regex, held={})
    assert answer.error == ErrorCode.NONE
    return answer.epoch


def test_a_member_gets_the_topics_when_the_expression_is_evaluated() -> None:
    driver = a_driver()
    epoch = join(driver, "m", "a.*")
    assert driver.group.subscribed_topics() == frozenset()
    driver.resolve()
    answer = driver.beat("m", epoch, held={})
    assert partitions_of(answer) == {"a1": [0, 1], "a2": [0]}
    assert state_of(driver.loaded()) == state_of(driver.group)


def test_an_expression_that_is_not_valid_is_refused_and_leaves_nothing() -> None:
    driver = a_driver()
    answer = driver.beat("m", 0, rebalance_timeout_ms=30_000, topics=None, regex="x" * 5_000, held={})
    assert answer.error == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (answer.message or "").endswith("` is not a valid regular expression: no such expression.")
    assert len(answer.message or "") < 1_200
    assert not driver.written


def test_only_topics_that_the_subscriber_may_describe_are_matched() -> None:
    driver = a_driver()
    driver.beat("m", 0, rebalance_timeout_ms=30_000, regex="a.*", held={}, may_describe=lambda topic: topic != "a1")
    driver.resolve()
    assert driver.group.subscribed_topics() == {"a2"}


def test_new_topics_are_found_after_ten_seconds_at_most() -> None:
    driver = a_driver()
    epoch = join(driver, "m", "a.*")
    driver.resolve()
    driver.grow("a3", 1)
    epoch = driver.beat("m", epoch, held={}).epoch
    assert not driver.resolutions, "it was evaluated just now"
    driver.pass_time(10_000)
    epoch = driver.beat("m", epoch, held={}).epoch
    driver.resolve()
    assert driver.group.subscribed_topics() == {"a1", "a2", "a3"}
    driver.pass_time(15_000)
    driver.beat("m", epoch, held={})
    assert not driver.resolutions, "no topic appeared"
    driver.pass_time(20_000)
    driver.now_ms += 600_000
    driver.beat("m", epoch, held={})
    assert driver.resolutions, "the rights of the subscriber may have changed"


def test_members_share_the_result_and_the_last_removes_it() -> None:
    driver = a_driver()
    one = join(driver, "m", "a.*")
    driver.resolve()
    join(driver, "n", "a.*")
    assert not driver.resolutions, "the expression is known"
    driver.beat("m", one, regex=".1", held={})
    driver.resolve()
    assert driver.group.regexes.keys() == {"a.*", ".1"}
    driver.beat("n", LEAVING)
    assert driver.group.regexes.keys() == {".1"}
    assert driver.group.subscribed_topics() == {"a1", "b1"}
    assert state_of(driver.loaded()) == state_of(driver.group)


def test_a_member_may_name_topics_besides_and_stop_matching() -> None:
    driver = a_driver()
    driver.beat("m", 0, rebalance_timeout_ms=30_000, topics=("b1",), regex="a.*", held={})
    driver.resolve()
    assert driver.group.subscribed_topics() == {"a1", "a2", "b1"}
    epoch = driver.group.members["m"].epoch
    driver.beat("m", epoch, regex="", held={})
    assert driver.group.subscribed_topics() == {"b1"}
    assert not driver.group.regexes


@needs_re2
def test_re2_matches_whole_names_and_says_why_not() -> None:
    names = ["orders", "orders-2", "reorders"]
    found = regexes.matches_of(["orders.*", "rders", "(", "[äö]+"], names)
    assert found == {"orders.*": ["orders", "orders-2"], "rders": [], "(": [], "[äö]+": []}
    assert regexes.reason_against("orders.*") is None
    assert "missing" in (regexes.reason_against("(") or "")
    assert regexes.reason_against("(a+)+$") is None, "no expression takes long"


@needs_re2
def test_an_expression_with_a_large_program_is_refused() -> None:
    hostile = "(?:[!-}]?){1000}" * 160
    assert "too large" in (regexes.reason_against(hostile) or "")
    assert regexes.full_match(hostile) is None
    assert regexes.matching_of(hostile, ["a"]) is None
    assert regexes.matches_of([hostile, "a"], ["a"]) == {hostile: [], "a": ["a"]}
    topics = [f"a.topic.of.some.team.number-{number}" for number in range(200)]
    assert regexes.matching_of("|".join(topics), topics) == topics, "an ordinary list of topics has room"


@needs_re2
def test_the_library_keeps_no_expression() -> None:
    assert regexes.reason_against("kept") is None
    assert import_module("re2")._Regexp._make.cache_info().currsize == 0


def test_expressions_have_a_few_threads_even_if_those_who_wait_for_them_leave() -> None:
    async def scenario() -> None:
        workers = HeldWork()
        threads = RegexThreads(workers)
        tasks = [asyncio.create_task(threads.run(str.upper, text)) for text in "abcd"]
        await asyncio.sleep(0)
        assert len(workers.held) == MOST_THREADS == 2
        tasks[0].cancel()
        tasks[2].cancel()
        await asyncio.wait([tasks[0], tasks[2]])
        assert len(workers.held) == MOST_THREADS, "the thread of the one that left is still busy"
        workers.finish(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(workers.held) == MOST_THREADS + 1
        workers.finish(1)
        workers.finish(2)
        assert await asyncio.wait_for(asyncio.gather(tasks[1], tasks[3]), 10) == ["B", "D"]

    asyncio.run(scenario())


def test_without_the_library_every_expression_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regexes, "_library", lambda: None)
    assert regexes.reason_against("a") == regexes.NOT_INSTALLED
    assert regexes.matches_of(["a"], ["a"]) == {"a": []}
