"""Drives the state machine of one group by hand: events in, effects out. No clock, no log, no connections."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from ottla.coordination.groups.classic_group import ClassicGroup, GroupSettings, Protocols
from ottla.coordination.groups.effects import Completion, Effect, JoinResult, Store, SyncResult, TimerKey
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.membership import Leaving, on_heartbeat, on_leave, on_loaded, on_unloaded
from ottla.coordination.groups.metadata_bytes import MetadataBudget
from ottla.coordination.groups.rebalance import Join, on_join, on_timer
from ottla.coordination.groups.syncing import Sync, on_stored, on_sync
from ottla.coordination.partitions.effects import Arm, Disarm, Many, Reply
from ottla.protocol.errors import ErrorCode

RANGE: Protocols = (("range", b"subscription"),)
NOW = 1_700_000_000_000


class GroupDriver:
    """Carries out effects: replies are kept by waiter, timers fire as `pass_time` goes, stores are done at once or when the test says so.

    Waiters are numbers, handed out by `join` and `sync`.
    """

    def __init__(
        self, *, stores_at_once: bool = True, max_metadata_bytes: int = 2**63, max_bytes_of_all: int = 2**63, **settings: int
    ) -> None:
        self.settings = GroupSettings(**{"initial_rebalance_delay_ms": 0, **settings})
        self.group = ClassicGroup("g", self.settings, NOW)
        self.budget = MetadataBudget(max_bytes_of_all, max_metadata_bytes)
        self.group.metadata.count_in(self.budget)
        self.now_ms = NOW
        self.waiting: set[int] = set()
        self.joined: dict[int, JoinResult] = {}
        self.synced: dict[int, SyncResult] = {}
        self.timers: dict[TimerKey, int] = {}
        self.stores_at_once = stores_at_once
        self.stores: list[Store] = []
        self.stored: list[Completion] = []
        self._waiters = 0
        self._uuids = 0

    # -- events --------------------------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Protocols = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        must_know_id: bool = False,
        may_skip: bool = False,
        client_id: str = "client",
    ) -> int:
        """A JoinGroup; returns the waiter."""
        waiter = self._waiter()
        self._uuids += 1
        join = Join(
            waiter,
            member_id,
            instance,
            client_id,
            "/127.0.0.1",
            rebalance_ms,
            session_ms,
            protocol_type,
            protocols,
            requires_known_member_id=must_know_id,
            supports_skipping_assignment=may_skip,
            uuid=str(self._uuids),
        )
        self.run(on_join(self.group, join, self.now_ms))
        return waiter

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = None,
    ) -> int:
        """A SyncGroup; returns the waiter."""
        waiter = self._waiter()
        generation_id = self.group.generation_id if generation is None else generation
        self.run(on_sync(self.group, Sync(waiter, member_id, instance, generation_id, protocol_type, protocol_name, assignments or {})))
        return waiter

    def heartbeat(self, member_id: str, *, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        """A Heartbeat."""
        generation_id = self.group.generation_id if generation is None else generation
        error, effects = on_heartbeat(self.group, member_id, instance, generation_id)
        self.run(effects)
        return error

    def leave(self, *members: str | Leaving) -> list[ErrorCode]:
        """A LeaveGroup."""
        leaving = [each if isinstance(each, Leaving) else Leaving(each, None) for each in members]
        error, errors, effects = on_leave(self.group, leaving, self.now_ms)
        self.run(effects)
        return errors or [error]

    def load(self) -> None:
        """The group was read from the log."""
        self.run(on_loaded(self.group, self.now_ms))

    def unload(self) -> None:
        """The partition went to another broker."""
        self.timers.clear()
        self.run(on_unloaded(self.group, self.now_ms))

    def finish_store(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The oldest unfinished store is done."""
        self.run(on_stored(self.group, self.stores.pop(0).then, error, self.now_ms))

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass and timers fire, in order."""
        end_ms = self.now_ms + milliseconds
        while self.timers:
            due_ms, _, key = min((deadline, str(key), key) for key, deadline in self.timers.items())
            if due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            del self.timers[key]
            self.run(on_timer(self.group, key, self.now_ms))
        self.now_ms = end_ms

    # -- outcomes ------------------------------------------------------------------------------------------------------------

    def run(self, effects: Iterable[Effect]) -> None:
        """Carry out effects."""
        for effect in effects:
            if isinstance(effect, Many):
                self.run(effect.effects)
            elif isinstance(effect, Reply):
                assert isinstance(effect.waiter, int)
                assert effect.waiter in self.waiting, f"waiter {effect.waiter} was answered already"
                self.waiting.discard(effect.waiter)
                if isinstance(effect.result, JoinResult):
                    self.joined[effect.waiter] = effect.result
                else:
                    self.synced[effect.waiter] = effect.result
            elif isinstance(effect, Arm):
                self.timers[effect.key] = self.now_ms + effect.delay_ms
            elif isinstance(effect, Disarm):
                self.timers.pop(effect.key, None)
            else:
                self.stored.append(effect.then)
                self.stores.append(effect)
                if self.stores_at_once:
                    self.finish_store()

    @property
    def state(self) -> GroupState:
        """The group's state."""
        return self.group.state

    @property
    def generation(self) -> int:
        """The group's generation."""
        return self.group.generation_id

    def member_id(self, waiter: int) -> str:
        """The member id in the answer to JoinGroup."""
        return self.joined[waiter].member_id

    def _waiter(self) -> int:
        self._waiters += 1
        self.waiting.add(self._waiters)
        return self._waiters


def a_stable_group(members: int = 1, **settings: int) -> tuple[GroupDriver, list[str]]:
    """A group of dynamic members that have their assignments; and their ids, the leader's first."""
    driver = GroupDriver(**settings)
    waiters = [driver.join() for _ in range(members)]
    driver.pass_time(0)
    settle(driver, waiters)
    ids = [driver.member_id(waiter) for waiter in waiters]
    leader = driver.group.leader_id
    assert leader is not None
    ids.sort(key=lambda member_id: member_id != leader)
    return driver, ids


def settle(driver: GroupDriver, waiters: Iterable[int]) -> None:
    """All whose JoinGroup was answered ask for their assignments, the leader last."""
    ids = [driver.member_id(waiter) for waiter in waiters]
    leader = driver.group.leader_id
    for member_id in sorted(ids, key=lambda each: each == leader):
        driver.sync(member_id, {each: f"part of {each}".encode() for each in ids} if member_id == leader else None)
    assert driver.state is GroupState.STABLE


def deadlines(driver: GroupDriver) -> list[tuple[int, str]]:
    """The armed timers, the next one first: (milliseconds until it fires, name)."""
    return heapq.nsmallest(100, ((deadline - driver.now_ms, str(key)) for key, deadline in driver.timers.items()))


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps expected lines of the groups out of the log, for property tests, which make thousands."""
    log = logging.getLogger("ottla.coordination.groups")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
