"""Takes the partitions of a failed log directory offline, for `ReplicaManager`.

There may be thousands. All of them are hidden at once, so that they are no longer read or written, and the controller gets the report that
they are offline. Moves from and to the directory end at once, too. Waiting requests and followers are notified with pauses.
"""

from typing import TYPE_CHECKING

from ottla.pauses import begin
from ottla.storage.disk.rounds import visit_all

if TYPE_CHECKING:
    from ottla.replication.control.replica_manager import ReplicaManager


def on_log_dir_failure(manager: "ReplicaManager", log_dir: str, reason: str) -> None:
    """See `ReplicaManager.on_log_dir_failure`."""
    begin(_take_offline(manager, log_dir, reason))


async def _take_offline(manager: "ReplicaManager", log_dir: str, reason: str) -> None:
    failed = [partition for partition in manager if partition.log.log_dir == log_dir]
    for partition in failed:
        partition.has_failed = True
        manager.offline[partition.topic_partition] = partition.topic_id
        manager.hide(partition)
    # A move that ended after a pause would serve its partition from the failed disk, and delete the other log.
    manager.log_manager.moves.on_log_dir_failure(log_dir)

    await visit_all("log-dir-failure", failed, manager.notify_removed)
    if manager.log_manager.background.is_closed:  # the broker stops, and a thread closes the logs
        return
    if any(partition.log.log_dir == log_dir for partition in manager):
        await _take_offline(manager, log_dir, reason)  # LeaderAndIsr named them meanwhile
        return
    manager.log_manager.handle_log_dir_failure(log_dir, reason)
    if failed:
        manager.on_replicas_offline()
