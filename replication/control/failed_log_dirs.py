"""Takes the partitions of a failed log directory offline, for `ReplicaManager`.

There may be thousands. All of them are hidden at once, so that they are no longer read or written, and the controller gets the report that
they are offline. Moves from and to the directory end at once, too. Waiting requests and followers are notified over several turns of the
event loop.
"""

from typing import TYPE_CHECKING

from ottla.storage.disk.turns import in_turns

if TYPE_CHECKING:
    from ottla.replication.control.replica_manager import ReplicaManager

FAILED_PER_TURN = 150
"""Partitions per turn of the event loop, half a millisecond."""


def on_log_dir_failure(manager: "ReplicaManager", log_dir: str, reason: str) -> None:
    """See `ReplicaManager.on_log_dir_failure`."""
    failed = [partition for partition in manager if partition.log.log_dir == log_dir]
    for partition in failed:
        partition.has_failed = True
        manager.offline.add(partition.topic_partition)
        manager.hide(partition)
    # A move that ended in one of the following turns would serve its partition from the failed disk, and delete the other log.
    manager.log_manager.moves.on_log_dir_failure(log_dir)

    def then() -> None:
        if any(partition.log.log_dir == log_dir for partition in manager):
            on_log_dir_failure(manager, log_dir, reason)  # LeaderAndIsr named them meanwhile
            return
        manager.log_manager.handle_log_dir_failure(log_dir, reason)
        if failed:
            manager.on_replicas_offline()

    in_turns(manager.log_manager.background, "log-dir-failure", failed, FAILED_PER_TURN, manager.notify_removed, then)
