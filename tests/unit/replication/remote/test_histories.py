"""No history of copies, removals, elections, faults and crashes loses a committed record, or leaves an object behind for good."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.storage.remote.ports import RemoteStoreError
from tests.support.tiered_histories import HOUR_MS, Crash, History

faults = st.sampled_from([RemoteStoreError, Crash])
steps = st.integers(-1, 12)
"""The step of the work that fails; -1 for none."""
ages = st.sampled_from([0, 0, 3 * HOUR_MS, 100 * HOUR_MS])


class Histories(RuleBasedStateMachine):
    """Random histories of two brokers."""

    @initialize()
    def begin(self) -> None:
        self.history = History()

    @rule(records=st.integers(1, 5), age_ms=ages, replicated=st.booleans())
    def produce(self, records: int, age_ms: int, replicated: bool) -> None:
        self.history.produce(records, age_ms)
        if replicated:
            self.history.replicate()

    @rule()
    def replicate(self) -> None:
        self.history.replicate()

    @rule(fail_at=steps, fault=faults)
    def copy(self, fail_at: int, fault: type[Exception]) -> None:
        self._fail(fail_at, fault)
        if not self.history.copy():
            self.history.restart(self.history.leader)

    @rule(fail_at=steps, fault=faults)
    def expire(self, fail_at: int, fault: type[Exception]) -> None:
        self._fail(fail_at, fault)
        if not self.history.expire():
            self.history.restart(self.history.leader)

    @rule()
    def retain(self) -> None:
        self.history.retain()

    @rule(offset=st.integers(0, 40))
    def delete_records(self, offset: int) -> None:
        self.history.delete_records(offset)

    @rule(number=st.integers(0, 8))
    def lose_copy(self, number: int) -> None:
        self.history.lose_copy(number)

    @rule()
    def checkpoint(self) -> None:
        self.history.checkpoint()

    @rule()
    def elect(self) -> None:
        self.history.elect()

    @rule(of_leader=st.booleans())
    def restart(self, of_leader: bool) -> None:
        self.history.restart(self.history.leader if of_leader else self.history.follower)

    @rule()
    def wait(self) -> None:
        self.history.wait()

    def _fail(self, fail_at: int, fault: type[Exception]) -> None:
        self.history.leader.fail_at = fail_at
        self.history.leader.fault = fault

    @invariant()
    def readable(self) -> None:
        self.history.check()

    def teardown(self) -> None:
        if hasattr(self, "history"):
            try:
                self.history.settle()
                self.history.check_settled()
            finally:
                self.history.close()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
