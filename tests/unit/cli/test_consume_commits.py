"""Which offsets `ottla consume -G` commits, and that it leaves its group."""

import errno
import io
import os
from collections.abc import Iterable
from typing import Any

import pytest

from broker.cli.consume import _Membership, _Sink
from broker.client.cluster import TopicPartition
from broker.client.errors import Refused
from broker.client.fetcher import FetchedBatch, FetchSettings
from protocol.errors import ErrorCode
from protocol.records.batch import TimestampType
from protocol.records.reader import Record

P0 = TopicPartition("t", 0)
BATCH = FetchedBatch(P0, TimestampType.CREATE_TIME, [Record(7, 0, None, b"v", ())], 8)


class FullDisk:
    """A file whose buffer cannot be written to the disk."""

    def writelines(self, _: Iterable[bytes]) -> None:
        """The buffer has room."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Member:
    """A member whose group rebalances after the first read."""

    def __init__(self) -> None:
        self.committed: list[dict[TopicPartition, int]] = []

    def tend(self) -> bool:
        return False

    def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self.committed.append(offsets)


class Fetcher:
    """Has one batch."""

    def __init__(self) -> None:
        self.positions = {P0: 7}

    def poll(self, _: float) -> list[FetchedBatch]:
        return [BATCH]


def read_into(out: Any) -> tuple[_Membership, Member]:
    member: Any = Member()
    cluster: Any = None
    sink = _Sink(out, lambda batch: iter([record.value or b"" for record in batch.records]), None)
    return _Membership(cluster, "g", member, 0, None, sink, commits=True), member


def test_printed_records_are_committed() -> None:
    fetcher: Any = Fetcher()
    membership, member = read_into(io.BytesIO())
    assert not membership._read(fetcher)
    assert member.committed == [{P0: 8}]


def test_records_that_a_full_disk_did_not_take_are_not_committed() -> None:
    fetcher: Any = Fetcher()
    membership, member = read_into(FullDisk())
    with pytest.raises(OSError, match="No space left on device"):
        membership._read(fetcher)
    membership._commit()
    assert member.committed == []


class RefusedMember(Member):
    """A member that is interrupted, and whose commits are refused."""

    def __init__(self) -> None:
        super().__init__()
        self.has_left = False

    def join(self) -> list[TopicPartition]:
        raise KeyboardInterrupt

    def commit(self, offsets: dict[TopicPartition, int]) -> None:
        raise Refused("group g", ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def leave(self) -> None:
        self.has_left = True


def test_the_group_is_left_although_the_last_commit_is_refused() -> None:
    member: Any = RefusedMember()
    cluster: Any = None
    membership = _Membership(cluster, "g", member, 0, None, _Sink(io.BytesIO(), lambda _: iter(()), None), commits=True)
    membership._handled = {P0: 8}
    with pytest.raises(Refused, match="GROUP_AUTHORIZATION_FAILED"):
        membership.run(FetchSettings(), "start", quiet=True)
    assert member.has_left
