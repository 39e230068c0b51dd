"""Takes the partitions of a failed log directory offline: a method of `ReplicaManager`.

There may be thousands. All of them are hidden at once, so that they are no longer read or written, and the controller gets the report that
they are offline. Moves from and to the directory end at once, too. Waiting requests and followers are notified over several turns of the
event loop.
"""

from typing import TYPE_CHECKING

from storage.disk.turns import in_turns

if TYPE_CHECKING:
    from replication.control.replica_manager import ReplicaManager

FAILED_PER_TURN = 150
"""Partitions per turn of the event loop, half a millisecond."""


def on_log_dir_failure(self: "ReplicaManager", log_dir: str, reason: str = "a disk error") -> None:
    """Take the partitions of a failed directory offline. The others are served on. A repeated call does nothing."""
    failed = [partition for partition in self if partition.log.log_dir == log_dir]
    for partition in failed:
        partition.has_failed = True
        self.offline.add(partition.topic_partition)
        self.hide(partition)
    # A move that ended in one of the following turns would serve its partition from the failed disk, and delete the other log.
    self.log_manager.moves.on_log_dir_failure(log_dir)

    def then() -> None:
        if any(partition.log.log_dir == log_dir for partition in self):
            on_log_dir_failure(self, log_dir, reason)  # LeaderAndIsr named them meanwhile
            return
        self.log_manager.handle_log_dir_failure(log_dir, reason)
        if failed:
            self.on_replicas_offline()

    in_turns(self.log_manager.background, "log-dir-failure", failed, FAILED_PER_TURN, self.notify_removed, then)
