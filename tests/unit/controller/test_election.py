"""Who leads: tables of states and what comes of them."""

import pytest

from ottla.controller.state.election import elect_for_controlled_shutdown, elect_offline, elect_preferred, first_state, without_replica
from ottla.controller.znodes.layout import RECOVERED, RECOVERING, PartitionState

STATE = PartitionState(leader=1, isr=(2, 1, 0), leader_epoch=5, controller_epoch=1)


def among(*live: int):
    return lambda broker: broker in live


@pytest.mark.parametrize(
    ("replicas", "live", "expected"),
    [((2, 0, 1), (0, 1, 2), (2, (2, 0, 1))), ((2, 0, 1), (1, 0), (0, (0, 1))), ((2, 0), (1,), None), ((), (0,), None)],
)
def test_a_new_partition_is_led_by_its_first_live_replica(
    replicas: tuple[int, ...], live: tuple[int, ...], expected: tuple[int, tuple[int, ...]] | None
) -> None:
    state = first_state(replicas, among(*live), 7)
    assert (None if state is None else (state.leader, state.isr)) == expected
    assert state is None or (state.leader_epoch, state.controller_epoch) == (0, 7)


@pytest.mark.parametrize(
    ("isr", "live", "unclean", "expected"),
    [
        ((1, 0), (0, 2), False, (0, (0,), RECOVERED)),
        ((1,), (0, 2), False, None),
        ((1,), (0, 2), True, (0, (0,), RECOVERING)),
        ((1,), (), True, None),
        ((1, 2), (0, 2), True, (2, (2,), RECOVERED)),
    ],
)
def test_an_offline_partition_goes_to_a_live_member_of_its_isr_or_uncleanly_to_any(
    isr: tuple[int, ...], live: tuple[int, ...], unclean: bool, expected: tuple[int, tuple[int, ...], int] | None
) -> None:
    state = elect_offline(PartitionState(1, isr, 5, 1), (0, 1, 2), among(*live), unclean=unclean)
    assert (None if state is None else (state.leader, state.isr, state.leader_recovery_state)) == expected
    assert state is None or state.leader_epoch == 6


def test_the_preferred_replica_leads_again_only_when_it_is_in_sync_and_alive() -> None:
    assert elect_preferred(STATE, (0, 1, 2), among(0, 1, 2)) == PartitionState(0, (2, 1, 0), 6, 1)
    assert elect_preferred(STATE, (0, 1, 2), among(1, 2)) is None
    assert elect_preferred(PartitionState(1, (1, 2), 5, 1), (0, 1, 2), among(0, 1, 2)) is None


def test_a_broker_that_leaves_hands_over_and_is_out_of_the_isr_in_one_step() -> None:
    assert elect_for_controlled_shutdown(STATE, (1, 0, 2), among(0, 1, 2), {1}) == PartitionState(0, (2, 0), 6, 1)
    assert elect_for_controlled_shutdown(PartitionState(1, (1,), 5, 1), (1, 0), among(0, 1), {1}) is None


def test_a_replica_that_is_gone_leaves_the_isr_unless_it_is_the_last() -> None:
    assert without_replica(STATE, 0) == PartitionState(1, (2, 1), 6, 1)
    assert without_replica(STATE, 1) == PartitionState(-1, (2, 0), 6, 1)
    assert without_replica(PartitionState(1, (1,), 5, 1), 1) == PartitionState(-1, (1,), 6, 1)
    assert without_replica(STATE, 9) is None
