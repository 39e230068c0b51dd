"""Names the log lines that docs/operations.md explains: each has an id that later versions keep, even if the text of the line changes.

Alerts and searches should use the id, the field `event` of JSON lines, instead of the text. The page lists the same ids beside the same
texts; a test compares the two.
"""

from typing import Final

EVENTS: Final = {
    "config.no-effect": ("Without effect in this server",),
    "config.unknown": ("Unknown configuration",),
    "start.directory-in-use": ("its .lock is held",),
    "start.address-in-use": ("cannot be bound",),
    "coordinator.no-topic": ("cannot be created, so clients find no coordinator",),
    "start.other-cluster": ("The directory belongs to another cluster",),
    "start.other-broker": ("If the data was moved, set broker.id=",),
    "start.foreign-file": ("A log directory may hold nothing else",),
    "start.replica-in-two-directories": ("is in ", "and in ", "A log directory failed while the replica moved"),
    "recovery.began": ("after a crash: checking the unflushed part",),
    "recovery.torn-end": ("are torn", "nothing acknowledged after a flush is lost"),
    "recovery.damaged": ("are torn", "what was on the disk and was damaged there is lost"),
    "recovery.missing-offsets": ("are missing between its segments",),
    "recovery.indexes-rebuilt": ("the indexes are rebuilt from the log file",),
    "recovery.changed-outside": ("it does not end with a batch although the log was closed properly",),
    "recovery.segments-removed": ("segment files were removed; what is left is deleted",),
    "disk.directory-offline": ("is offline", "its partitions are not served until the broker starts with it again"),
    "cleaner.stopped": ("it cannot be cleaned and will grow",),
    "disk.no-directory-left": ("none of the log directories",),
    "log.other-topic": ("belongs to another topic of that name",),
    "client.tls-on-plaintext": ("this looks like TLS on a plaintext listener",),
    "client.http": ("this looks like HTTP",),
    "client.too-large": ("is larger than socket.request.max.bytes",),
    "client.unsupported": ("is not supported here",),
    "limits.open-files-reached": ("raise the limit of open files or lower max.connections",),
    "limits.no-descriptor": ("this operation alone has failed",),
    "limits.connections-per-address": ("the address already has the configured maximum",),
    "metadata.unavailable": ("cannot be read or written", "trying again"),
    "metadata.malformed": ("repair or remove the node",),
    "cluster.cut-off": ("neither ZooKeeper nor followers in sync",),
    "cluster.session-lost": ("was ended by another process",),
    "cluster.id-in-use": ("is held by another session",),
    "replica.truncated-below-high-watermark": ("is truncated to offset", "below its high watermark"),
    "replica.stopped": ("not fetched until the controller's next request for it",),
    "replica.not-truncated": ("the log is not used before it is truncated",),
    "coordinator.not-loaded": ("in it could not be loaded",),
    "replica.stray": ("know this replica; it is not served",),
    "config.override-ignored": ("this override is ignored",),
    "stop.uncontrolled": ("stops without controlled shutdown",),
    "supervisor.given-up": ("given up: repair the cause, then",),
    "limits.open-files": ("files can be open, partitions and connections together",),
    "group.member-silent": ("nothing was heard of member",),
    "bug.background-task": ("background task ", " failed"),
    "request.slow": ("slower than ottla.slow.request.ms",),
    "log.lines-dropped": ("log lines were dropped: they came faster",),
}
"""Event id -> the parts of its message, in their order."""


def event_of(message: str) -> str | None:
    """The id of the first event whose parts the message has, in their order."""
    for event, parts in EVENTS.items():
        at = 0
        for part in parts:
            at = message.find(part, at)
            if at < 0:
                break
            at += len(part)
        else:
            return event
    return None
