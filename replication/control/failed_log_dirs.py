"""What a failed log directory takes with it: a method of `ReplicaManager`, kept in a file of its own.

It may hold thousands of partitions. All are hidden at once, so nobody reads or writes them any more, and the controller is told of all that
they are offline; who waits for them, or follows them, learns it in several turns of the event loop.
"""

from typing import TYPE_CHECKING

from storage.disk.turns import in_turns

if TYPE_CHECKING:
    from replication.control.replica_manager import ReplicaManager

FAILED_PER_TURN = 150
"""Half a millisecond."""


def on_log_dir_failure(self: "ReplicaManager", log_dir: str, reason: str = "a disk error") -> None:
    """A directory failed: its partitions go offline here, the rest serves on. Harmless when told twice."""
    failed = [partition for partition in self if partition.log.log_dir == log_dir]
    for partition in failed:
        partition.has_failed = True
        self.offline.add(partition.topic_partition)
        self.hide(partition)

    def then() -> None:
        self.log_manager.handle_log_dir_failure(log_dir, reason)
        if failed:
            self.on_replicas_offline()

    in_turns(self.log_manager.background, "log-dir-failure", failed, FAILED_PER_TURN, self.let_go, then)
