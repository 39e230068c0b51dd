"""Elects leaders as pure functions from a partition's state and the live replicas to its next state, None when no
replica can lead.

Kafka's PartitionLeaderElectionAlgorithms. Callers write the state to the store before they send it to brokers.
"""

from collections.abc import Callable

from ottla.controller.znodes.layout import INITIAL_LEADER_EPOCH, NO_LEADER, RECOVERING, PartitionState

Online = Callable[[int], bool]


def first_state(replicas: tuple[int, ...], online: Online, controller_epoch: int) -> PartitionState | None:
    """For a new partition: the first live replica leads, all live ones are in sync."""
    live = tuple(replica for replica in replicas if online(replica))
    return PartitionState(live[0], live, INITIAL_LEADER_EPOCH, controller_epoch) if live else None


def elect_offline(state: PartitionState, replicas: tuple[int, ...], online: Online, *, unclean: bool) -> PartitionState | None:
    """For a partition without a live leader: the first live replica in sync; with `unclean`, else any live one, which
    is then alone in sync."""
    for replica in replicas:
        if replica in state.isr and online(replica):
            return _led_by(state, replica, tuple(each for each in state.isr if online(each)))
    if unclean:
        for replica in replicas:
            if online(replica):
                return _led_by(state, replica, (replica,))._replace(leader_recovery_state=RECOVERING)
    return None


def elect_preferred(state: PartitionState, replicas: tuple[int, ...], online: Online) -> PartitionState | None:
    """The preferred (first) replica, if it is in sync and alive."""
    preferred = replicas[0]
    return _led_by(state, preferred, state.isr) if preferred in state.isr and online(preferred) else None


def elect_reassigned(state: PartitionState, replicas: tuple[int, ...], online: Online) -> PartitionState | None:
    """For a partition whose leader is gone or is no longer a replica: the first replica in sync and alive. The ISR does
    not change."""
    for replica in replicas:
        if replica in state.isr and online(replica):
            return _led_by(state, replica, state.isr)
    return None


def with_next_epoch(state: PartitionState) -> PartitionState:
    """Raises only the leader epoch, so that all replicas apply a new list of replicas and old ISR proposals are fenced."""
    return state._replace(leader_epoch=state.leader_epoch + 1)


def elect_for_controlled_shutdown(
    state: PartitionState, replicas: tuple[int, ...], online: Online, shutting_down: set[int]
) -> PartitionState | None:
    """The first live replica in sync that does not shut down; those that do leave the ISR in the same step. `online`
    includes them."""
    for replica in replicas:
        if replica in state.isr and online(replica) and replica not in shutting_down:
            return _led_by(state, replica, tuple(each for each in state.isr if each not in shutting_down))
    return None


def without_replica(state: PartitionState, replica: int) -> PartitionState | None:
    """The state without `replica`: not in the ISR, unless it is the last member, and not leading. None when it is not
    in the ISR."""
    if replica not in state.isr:
        return None
    isr = state.isr if len(state.isr) == 1 else tuple(each for each in state.isr if each != replica)
    return _led_by(state, NO_LEADER if state.leader == replica else state.leader, isr)


def _led_by(state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
    return state._replace(leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1)
