"""Declares every kind of finding that `ottla doctor` may report: its id, its severity, and the reason why it matters.

Ids are stable: programs that read the JSON output compare them. `docs/command-line.md` lists them all.
"""

from collections.abc import Mapping
from enum import Enum
from shlex import quote
from typing import Any, Final, NamedTuple


class Severity(Enum):
    """How urgent a finding is; the value is the exit status."""

    WARNING = 1
    PROBLEM = 2


class Kind(NamedTuple):
    """One kind of finding."""

    id: str
    severity: Severity
    why: str


class Finding(NamedTuple):
    """One finding: its subject, and the command or the change that removes the cause.

    Paths, and names that clients chose, are quoted in the command, because an operator copies it.
    """

    kind: Kind
    what: str
    command: str


_WARNINGS: Final = {
    "key-unknown": "no key of a broker has this name, so the value has no effect; most often it is a typing error",
    "key-of-no-listener": "the key counts for no listener; most often the name of a listener or mechanism is misspelt or in upper case",
    "key-without-effect": "the key is accepted for Apache Kafka's sake, and this server does not use it",
    "certificate-expires": "clients and other brokers refuse the listener once its certificate has expired",
    "name-not-reversible": "clients with Kerberos, and logs, look the name of an address up; it should lead back to the address",
    "name-loopback": "clients on other hosts are sent to themselves, as the listener accepts them and advertises a loopback address",
    "open-files-limit": "a broker needs a file for each segment in use and for each connection; beyond the limit connections wait",
    "memory-maps-limit": "the indexes of segments are mapped into memory; beyond the limit lookups fail",
    "mount-atime": "every read of a segment also writes its access time",
    "mount-synchronous": "every write waits for the disk, although Kafka relies on replicas instead",
    "mount-network": "locks and the metadata file need a local file system",
    "disk-nearly-full": "a full disk takes the log directory offline",
    "fsync-slow": "elections, topic creations and rolls of segments wait for flushes",
    "clock-unsynchronised": "retention, timestamps of records and the expiry of tokens follow the clock",
    "clock-behind": "files were changed later than now: the clock went back, so retention and timestamps are wrong",
    "stray-replica": "the replica was moved to other brokers, or its topic was deleted; its directory only takes space",
    "leftover-files": "files of an unfinished cleaning or deletion take space; a start removes them",
    "zookeeper-slow": "elections and changes of the ISR wait for ZooKeeper",
    "zookeeper-server-down": "ZooKeeper needs a majority of its servers, so fewer of the others may fail",
    "partition-under-replicated": "fewer brokers than planned can take over without loss",
    "leader-not-preferred": "some brokers lead more than their share",
    "replicas-in-one-rack": "the failure of one rack takes all replicas of a partition",
    "replicas-uneven": "the brokers with most replicas fill up first, and do most of the work",
    "directories-uneven": "one log directory of the broker fills up while others have room",
    "topic-single-replica": "the records exist once: they are unavailable while their broker is down, and lost with its disk",
    "min-isr-too-high": "producers with acks=all stop as soon as one broker is down",
    "internal-topic-replicas": "offsets of groups and states of transactions are unavailable while one broker is down, or lost with it",
    "internal-topic-partitions": "with more partitions than before, most groups or transactional ids may not find their stored state",
    "group-without-commits": "the members read, and begin anew after each rebalance or restart, as no offset is committed",
    "transaction-long": "consumers of committed records do not get beyond the beginning of an open transaction",
    "versions-mixed": "features of the newer release are not available everywhere; a rolling upgrade may be unfinished",
    "remote-copies-unowned": "no broker reads or removes them, and the store is paid for",
    "throttle-left": "the limit was for a reassignment that has ended, and slows the replication of new records",
}
_PROBLEMS: Final = {
    "configuration-invalid": "a broker does not start with this configuration",
    "certificate-expired": "clients and other brokers refuse the listener",
    "certificate-unusable": "the listener cannot be opened, so the broker does not start",
    "name-unresolved": "clients are sent to an address that they cannot find",
    "directory-unusable": "a broker does not use this log directory, or does not start",
    "directory-identity": "a broker refuses directories that are not its own, or do not say whose they are",
    "directory-foreign-content": "a broker does not start on a log directory that holds anything but partitions",
    "partition-twice": "a broker does not start when two log directories hold the same partition",
    "metadata-missing": "the log directory belongs to a cluster whose metadata cannot be found",
    "mount-read-only": "nothing can be written",
    "mount-in-memory": "everything is lost when the host restarts",
    "disk-full": "the log directory goes offline with the next refused write",
    "batch-unreadable": "consumers stop at a batch of malformed records, which every replica has, and compaction does, too",
    "segment-damaged": "records cannot be read, or are found slowly or not at all",
    "zookeeper-unreachable": "brokers do not start, and the controller cannot decide anything",
    "cluster-unreachable": "no client can use the cluster",
    "broker-dead": "its replicas fall behind, and the records in them exist once less",
    "broker-unreachable": "clients are sent to this address for the partitions that the broker leads",
    "controller-missing": "no leader is elected, and no topic is created",
    "partition-offline": "its records can be neither written nor read",
    "partition-below-min-isr": "producers with acks=all are refused",
    "directory-offline": "its partitions are not served by this broker",
    "internal-topic-policy": "only compaction keeps the last state of each group and transaction; deletion loses them",
    "remote-store-unusable": "the broker does not start; while it runs, disks fill and old records cannot be read",
    "remote-store-degraded": "consumers of old records wait, and disks fill, since nothing is copied",
    "remote-copies-behind": "local segments stay until they are copied, so the disks fill; the records are lost with their replicas",
    "remote-records-missing": "consumers stop at these offsets; the records are lost, unless the store still has their objects",
    "remote-storage-lost": "nothing is copied, nothing expires in the store, and local segments that it does not have stay forever",
    "transaction-hanging": "no coordinator will ever end the transaction, so consumers of committed records make no progress",
}
KINDS: Final = {
    **{name: Kind(name, Severity.WARNING, why) for name, why in _WARNINGS.items()},
    **{name: Kind(name, Severity.PROBLEM, why) for name, why in _PROBLEMS.items()},
}
"""Every kind by its id."""

_SHOWN: Final = 5


def found(kind: str, what: str, command: str) -> Finding:
    """A finding of this kind."""
    return Finding(KINDS[kind], what, command)


def call(command: str, name: str, options: str = "") -> str:
    """A command line with a name that a client chose; `--` precedes a name that looks like an option."""
    words = (command, options, "--", quote(name)) if name.startswith("-") else (command, quote(name), options)
    return " ".join(filter(None, words))


def some(names: list[str]) -> str:
    """The first few of many names, and the number of the others."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def reasons(errors: Mapping[Any, Exception]) -> list[str]:
    """A line for each different error: its subjects, such as partitions or brokers, and its text."""
    subjects: dict[str, list[str]] = {}
    for subject, error in errors.items():
        subjects.setdefault(" ".join(str(error).removeprefix(f"{subject}: ").split()), []).append(str(subject))
    return [f"{some(names)}: {text}" for text, names in subjects.items()]
