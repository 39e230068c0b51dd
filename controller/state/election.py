"""Which replica shall lead. Pure: a partition's state and what lives, in; its next state, or None when nobody can lead, out.

Kafka's PartitionLeaderElectionAlgorithms. Callers write the state to the store before they tell anyone.
"""

from collections.abc import Callable

from controller.znodes.layout import INITIAL_LEADER_EPOCH, NO_LEADER, RECOVERING, PartitionState

Online = Callable[[int], bool]


def first_state(replicas: tuple[int, ...], online: Online, controller_epoch: int) -> PartitionState | None:
    """Of a new partition: the first live replica leads, all live ones are in sync."""
    live = tuple(replica for replica in replicas if online(replica))
    return PartitionState(live[0], live, INITIAL_LEADER_EPOCH, controller_epoch) if live else None


def elect_offline(state: PartitionState, replicas: tuple[int, ...], online: Online, *, unclean: bool) -> PartitionState | None:
    """Of a partition whose leader is gone: the first live replica in sync; with `unclean`, else any live one, then alone in sync."""
    for replica in replicas:
        if replica in state.isr and online(replica):
            return _led_by(state, replica, tuple(each for each in state.isr if online(each)))
    if unclean:
        for replica in replicas:
            if online(replica):
                return _led_by(state, replica, (replica,))._replace(leader_recovery_state=RECOVERING)
    return None


def elect_preferred(state: PartitionState, replicas: tuple[int, ...], online: Online) -> PartitionState | None:
    """The first of the replicas, if it is in sync and lives."""
    preferred = replicas[0]
    return _led_by(state, preferred, state.isr) if preferred in state.isr and online(preferred) else None


def elect_reassigned(state: PartitionState, replicas: tuple[int, ...], online: Online) -> PartitionState | None:
    """Of a partition whose leader is not among its replicas any more, or gone: the first of them in sync and alive; the ISR stays."""
    for replica in replicas:
        if replica in state.isr and online(replica):
            return _led_by(state, replica, state.isr)
    return None


def with_next_epoch(state: PartitionState) -> PartitionState:
    """Nothing changes but the epoch, so that everybody takes in a new list of replicas and old ISR proposals are fenced."""
    return state._replace(leader_epoch=state.leader_epoch + 1)


def elect_for_controlled_shutdown(
    state: PartitionState, replicas: tuple[int, ...], online: Online, shutting_down: set[int]
) -> PartitionState | None:
    """The first live replica in sync that stays; those that leave are out of the ISR in the same step. `online` counts the leaving ones."""
    for replica in replicas:
        if replica in state.isr and online(replica) and replica not in shutting_down:
            return _led_by(state, replica, tuple(each for each in state.isr if each not in shutting_down))
    return None


def without_replica(state: PartitionState, replica: int) -> PartitionState | None:
    """The state when `replica` is gone: out of the ISR, unless it is the last there, and not leading. None when it is not in the ISR."""
    if replica not in state.isr:
        return None
    isr = state.isr if len(state.isr) == 1 else tuple(each for each in state.isr if each != replica)
    return _led_by(state, NO_LEADER if state.leader == replica else state.leader, isr)


def _led_by(state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
    return state._replace(leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1)
