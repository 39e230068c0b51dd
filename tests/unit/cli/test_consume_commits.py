"""Which offsets `ottla consume -G` commits, that it leaves its group, and which offsets an error names."""

import errno
import io
import os
from collections.abc import Iterable
from typing import Any

import pytest

from ottla.cli import consume
from ottla.cli.consume import _Membership, _Sink
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, Refused, SomeRefused
from ottla.client.fetcher import FetchedBatch, FetchSettings, OffsetGone
from ottla.client.group_offsets.committed import commit_offsets
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_commit import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponsePartition, OffsetFetchResponseTopic
from ottla.protocol.records.batch import TimestampType
from ottla.protocol.records.reader import Record
from ottla.protocol.topic_partition import TopicPartition

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


class IdleMember(RefusedMember):
    """A member that gets no partition."""

    def join(self) -> list[TopicPartition]:
        return []


def test_an_offset_that_is_gone_ends_the_command_with_the_one_that_moves_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(*_: object) -> bool:
        raise OffsetGone(P0, 5)

    monkeypatch.setattr(_Membership, "_read", find_none)
    member: Any = IdleMember()
    cluster: Any = None
    membership = _Membership(cluster, "two words", member, 0, None, _Sink(io.BytesIO(), lambda _: iter(()), None), commits=True)
    with pytest.raises(ClientError) as raised:
        membership.run(FetchSettings(), "start", quiet=True)
    command = "ottla groups reset-offsets 'two words' --topic t:0 --to-earliest --execute"
    assert str(raised.value) == f"t-0: offset 5 is out of range; to go on at the first record that is left: {command}"
    assert member.has_left


class RefusingCluster(Cluster):
    """A cluster that refuses the commits of these partitions."""

    def __init__(self, *refused: int) -> None:
        super().__init__("127.0.0.1:1")
        self._refused = refused

    def ask(self, find: object, request: Any, response: type[Any], **_: object) -> Any:
        (topic,) = request.topics
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = [
            OffsetCommitResponsePartition(
                partition_index=each.partition_index, error_code=code if each.partition_index in self._refused else ErrorCode.NONE
            )
            for each in topic.partitions
        ]
        return response(topics=[OffsetCommitResponseTopic(name=topic.name, partitions=partitions)])


def test_every_partition_is_named_whose_offset_is_refused_while_others_are_committed() -> None:
    offsets = {TopicPartition("t", number): 1 for number in range(3)}
    commit_offsets(RefusingCluster(), "g", offsets)
    with pytest.raises(SomeRefused) as raised:
        commit_offsets(RefusingCluster(0, 2), "g", offsets)
    assert [line.partition(":")[0] for line in str(raised.value).splitlines()] == [f"the offset of group g for t-{n}" for n in (0, 2)]
    with pytest.raises(Refused, match="TOPIC_AUTHORIZATION_FAILED"):
        commit_offsets(RefusingCluster(0, 1, 2), "g", offsets)


class BetweenTransactions(Cluster):
    """A cluster in which a transaction has an offset of the group, for the first two questions."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1")
        self.asked: list[OffsetFetchRequest] = []

    def ask(self, find: object, request: Any, response: type[Any], **_: object) -> Any:
        self.asked.append(request)
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT if len(self.asked) < 3 else ErrorCode.NONE
        offset = OffsetFetchResponsePartition(partition_index=0, committed_offset=-1 if code else 5, error_code=code)
        return response(topics=[OffsetFetchResponseTopic(name="t", partitions=[offset])])


@pytest.mark.parametrize(("stays", "positions", "questions"), [(True, {P0: 5}, 3), (False, None, 1)])
def test_a_consumer_begins_where_a_transaction_has_committed_once_that_is_known(
    stays: bool, positions: dict[TopicPartition, int] | None, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "_UNSTABLE_SECONDS", 0.0)
    member: Any = Member()
    monkeypatch.setattr(member, "tend", lambda: stays)
    cluster = BetweenTransactions()
    membership = _Membership(cluster, "g", member, 0, None, _Sink(io.BytesIO(), lambda _: iter(()), None), commits=True)
    assert membership._positions([P0], "start") == positions
    assert [request.require_stable for request in cluster.asked] == [True] * questions
