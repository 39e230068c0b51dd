"""One partition, its followers, and a controller whose answers come late, are lost and repeated, or say no.

The rule: whoever the controller takes to be in sync has every record below the leader's high watermark, so that any may be elected; and the
high watermark never goes back.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.protocol.errors import ErrorCode
from ottla.replication.ports.isr_proposals import IsrProposal
from tests.support.replicas import LAG_MS, Replicas, state

FOLLOWERS = (1, 2)


class IsrMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.replicas = Replicas(min_insync_replicas="1")
        self.isr: tuple[int, ...] = (0, 1, 2)  # as the controller has written it down
        self.leader_epoch = 0
        self.partition_epoch = 0
        self.end_offsets = dict.fromkeys(FOLLOWERS, 0)
        self.alive = {0, 1, 2}
        self.high_watermark = 0

    @initialize(isr=st.sampled_from([(0,), (0, 1), (0, 1, 2), (2, 0)]))
    def begin(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        self._speak()

    def _speak(self) -> None:
        self.replicas.say(state(isr=self.isr, epoch=self.leader_epoch, partition_epoch=self.partition_epoch))

    # -- the data

    @rule(records=st.integers(1, 3))
    def append(self, records: int) -> None:
        self.replicas.append(records, acks=1)

    @rule(follower=st.sampled_from(FOLLOWERS), records=st.integers(0, 5))
    def fetch(self, follower: int, records: int) -> None:
        """It has got some more of what there is, and asks for the rest."""
        end_offset = min(self.end_offsets[follower] + records, self.replicas.partition.log.log_end_offset)
        self.end_offsets[follower] = end_offset
        self.replicas.follow(follower, end_offset)

    @rule(ms=st.sampled_from([1, LAG_MS // 2, LAG_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.replicas.clock.move(ms)

    @rule()
    def look_for_laggards(self) -> None:
        self.replicas.shrink()

    # -- the controller

    def _carry_out(self, proposal: IsrProposal) -> ErrorCode:
        """What the controller does with a proposal."""
        if proposal.leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if proposal.isr == self.isr and proposal.partition_epoch <= self.partition_epoch:
            return ErrorCode.NONE
        if proposal.partition_epoch != self.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if not set(proposal.isr) <= self.alive:
            return ErrorCode.INELIGIBLE_REPLICA
        self.isr = proposal.isr
        self.partition_epoch += 1
        return ErrorCode.NONE

    @precondition(lambda self: self.replicas.proposals.undecided)
    @rule()
    def decide(self) -> None:
        proposal, _ = self.replicas.proposals.undecided[0]
        code = self._carry_out(proposal)
        if code == ErrorCode.NONE:
            self.replicas.proposals.confirm(self.isr, partition_epoch=self.partition_epoch)
        else:
            self.replicas.proposals.refuse(code)

    @precondition(lambda self: self.replicas.proposals.undecided)
    @rule()
    def decide_and_lose_the_answer(self) -> None:
        """It is sent again, and may be decided again."""
        self._carry_out(self.replicas.proposals.undecided[0][0])

    @precondition(lambda self: self.replicas.proposals.undecided)
    @rule()
    def fail(self) -> None:
        self.replicas.proposals.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    @rule(follower=st.sampled_from(FOLLOWERS), is_told=st.booleans())
    def a_follower_dies(self, follower: int, is_told: bool) -> None:
        """The controller takes it out of the ISR in a new leader epoch; the leader may learn of that much later."""
        if follower in self.alive:
            self.alive.discard(follower)
            if follower in self.isr:
                self.isr = tuple(each for each in self.isr if each != follower)
            self.leader_epoch += 1
            self.partition_epoch += 1
            if is_told:
                self.replicas.alive(*self.alive)
                self._speak()

    @rule(follower=st.sampled_from(FOLLOWERS))
    def a_follower_comes_back(self, follower: int) -> None:
        self.alive.add(follower)
        self.replicas.alive(*self.alive)

    @rule()
    def speak(self) -> None:
        self._speak()

    # -- what is always true

    @invariant()
    def who_may_be_elected_has_all_that_is_committed(self) -> None:
        high_watermark = self.replicas.partition.log.high_watermark
        for member in self.isr:
            assert member == 0 or self.end_offsets[member] >= high_watermark, f"broker {member} lacks what is below {high_watermark}"

    @invariant()
    def the_high_watermark_never_goes_back(self) -> None:
        log = self.replicas.partition.log
        assert self.high_watermark <= log.high_watermark <= log.log_end_offset
        self.high_watermark = log.high_watermark

    @invariant()
    def the_maximal_isr_has_all_whom_the_controller_may_have_in_the_isr(self) -> None:
        partition = self.replicas.partition
        assert set(partition.isr) <= set(partition.maximal_isr)
        assert set(self.isr) <= set(partition.maximal_isr)


IsrMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestIsr = pytest.mark.slow(IsrMachine.TestCase)
