"""Commits, fetches, deletes and expires the offsets of groups.

`coordinator.GroupCoordinator`, the other half of the coordinator, owns the only instance; handlers call both. A simple consumer, with
generation -1 and no member id, may commit to any group without members. Such a group exists only for its offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from ottla.coordination.groups.commits import Commit, Transaction, Verifier
from ottla.coordination.groups.committed import read_stored
from ottla.coordination.groups.coordinated import CoordinatedGroups
from ottla.coordination.groups.group import Committer, Group, GroupState
from ottla.coordination.groups.offset_records import VALUE_VERSION, offset_keys
from ottla.coordination.groups.offsets import GroupOffsets
from ottla.coordination.groups.record_encoding import encode_commits
from ottla.coordination.groups.records import is_too_long
from ottla.coordination.internal_topics import GROUP_METADATA_TOPIC
from ottla.coordination.partitions.runner import EffectRunner
from ottla.coordination.partitions.topic_log import NOT_APPENDED, TOMBSTONE_OVERHEAD, UNAVAILABLE, TopicLog
from ottla.coordination.supported_operation import SupportedOperation
from ottla.pauses import is_over, pause
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_fetch import OffsetFetchResponsePartitions
from ottla.protocol.schema.wire import MAX_STRING_BYTES
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)

COMMIT_ERRORS = {
    **UNAVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,  # old clients retry after this error code
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""The error code for the client, by the error of a verification or of an append of offsets."""

NO_OFFSET = -1
NO_LEADER_EPOCH = -1
OFFSETS_TOGETHER = 500
"""Most offsets of a group that are removed, and get tombstones, between two pauses: a millisecond."""

TOMBSTONE_BYTES = 256 * 1024
"""Size of the records in one batch of tombstones, bytes; less if the topic does not accept such batches."""

NO_OFFSETS = GroupOffsets()
"""The offsets of a group that does not exist: always empty."""

CommitReply: TypeAlias = Callable[[ErrorCode, ErrorCode], None]
"""Called once with the error of the offsets that can be committed, and the error of those whose metadata is too large."""


class OffsetCommits:
    """See the module."""

    __slots__ = ("_clock", "_forget_state", "_groups", "_level", "_log", "_max_metadata_size", "_retention_ms", "_runner", "_verifier")

    def __init__(
        self,
        groups: CoordinatedGroups,
        runner: EffectRunner[Group, Any],
        log: TopicLog,
        clock: Clock,
        max_metadata_size: int,
        retention_ms: int,
        verifier: Verifier,
        level: Callable[[], int],
        forget_state: Callable[[Group], Awaitable[ErrorCode]],
    ) -> None:
        """`level` returns the level of the feature `group.version`. `forget_state` deletes what other coordinators have of a group."""
        self._level = level
        self._forget_state = forget_state
        self._groups = groups
        self._runner = runner
        self._log = log
        self._clock = clock
        self._max_metadata_size = max_metadata_size
        self._retention_ms = retention_ms
        self._verifier = verifier

    # -- commit ------------------------------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        committer: Committer,
        transaction: Transaction | None,
        commit: Commit,
        reply: CommitReply,
    ) -> None:
        """OffsetCommit and TxnOffsetCommit: append the offsets, and reply when they are replicated. Offsets in a transaction are committed
        by its marker (`on_transaction_completed`). They are appended when the group's partition is verified as a part of the transaction,
        or was added to it (KIP-890). As in Apache Kafka the member is checked after that.
        """
        if transaction is None:
            if self._groups.settings.refuses(committer.group_instance_id):
                reply(ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION)
                return
            self._commit(group_id, committer, None, None, commit, reply)
            return

        def on_verified(error: ErrorCode, guard: object) -> None:
            if error:
                code = COMMIT_ERRORS.get(error, error)
                reply(code, code)
            else:
                self._commit(group_id, committer, transaction, guard, commit, reply)

        self._verify(group_id, transaction, on_verified)

    def _verify(self, group_id: str, transaction: Transaction, then: Callable[[ErrorCode, object], None]) -> None:
        """Call `then` with (error, guard of the append) when the group's partition is verified as a part of the transaction, or is not."""
        error = self._groups.check(group_id)
        guard: object = None
        index = self._groups.partition_for(group_id)
        transactional_id, producer_id, producer_epoch, operation = transaction
        if not error:
            error, guard = self._log.begin_verification(index, producer_id, producer_epoch, operation is SupportedOperation.ADD_PARTITION)
        if error or guard is None:
            then(error, guard)
            return
        partition = TopicPartition(GROUP_METADATA_TOPIC, index)

        def on_answer(errors: dict[TopicPartition, ErrorCode]) -> None:
            code = errors.get(partition, ErrorCode.NONE)
            if code:
                logger.info(
                    "group %s: offsets of %r, producer %d, epoch %d, are refused: %s",
                    group_id, transactional_id, producer_id, producer_epoch, code.name,
                )  # fmt: skip
            then(code, guard)

        self._verifier.verify(transactional_id, producer_id, producer_epoch, [partition], on_answer, operation)

    def _error_without_group(self, committer: Committer) -> ErrorCode:
        """The error of a member whose group has been removed. It has not noticed that yet."""
        if not self._level():  # as the coordinator of 3.9
            return ErrorCode.UNKNOWN_MEMBER_ID if committer.is_transactional else ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.GROUP_ID_NOT_FOUND if committer.knows_new_errors else ErrorCode.ILLEGAL_GENERATION

    def _commit(
        self,
        group_id: str,
        committer: Committer,
        transaction: Transaction | None,
        guard: object,
        commit: Commit,
        reply: CommitReply,
    ) -> None:
        is_transactional = transaction is not None
        error, group = self._groups.find(group_id, may_be_empty=not is_transactional)
        if not error and group is None:
            if is_too_long(group_id):
                error = ErrorCode.INVALID_GROUP_ID
            elif committer.generation_id < 0:
                group = self._groups.get_or_create(group_id, self._clock.now_ms())
            else:
                error = self._error_without_group(committer)
        if not error:
            assert group is not None
            error, effects = group.on_commit(committer._replace(partitions=lambda: self._by_topic_id(commit)))
            self._runner.run(group, effects)
        if error:
            reply(error, error)
            return
        assert group is not None
        if self._groups.settings.offset_value_version < VALUE_VERSION:
            commit.write_in(self._groups.settings.offset_value_version)
        records, count = encode_commits(group_id, commit)
        if count and group.metadata.of_group:
            group.metadata.change_group(0)
        if not count:
            reply(ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        elif transaction is None or transaction.producer_id < 0:  # without a producer id no marker would ever commit the offsets
            self._store(group, records, count, commit, reply)
        else:
            self._store_in_transaction(group, records, count, transaction, guard, commit, reply)
        if group.offsets.is_mixed:
            logger.warning("group %s: both consumers and transactional producers commit offsets, and may undo each other's", group_id)

    def _by_topic_id(self, commit: Commit) -> Iterator[tuple[bytes, Iterable[int]]]:
        """The partitions of a commit."""
        for topic in commit.topics:
            yield self._groups.topic_id(topic.name), topic.values

    def _store(self, group: Group, records: bytes, count: int, commit: Commit, reply: CommitReply) -> None:
        """Write the records. Offsets are pending until they are replicated, which may be at once."""
        is_prepared = is_stored = False

        def stored(error: ErrorCode, base_offset: int) -> None:
            nonlocal is_stored
            is_stored = True
            # The group may have changed its protocol meanwhile, and keeps its offsets. Those of a deleted group are not pending any more.
            if not is_prepared:
                if not error:
                    group.offsets.on_appended_at_once(commit, base_offset)
            elif error:
                group.offsets.on_append_failed(commit)
            else:
                group.offsets.on_appended(commit, base_offset)
            reply(COMMIT_ERRORS.get(error, error), ErrorCode.OFFSET_METADATA_TOO_LARGE)

        self._log.append(self._groups.partition_for(group.group_id), records, count, stored, base_sequence=0)
        if not is_stored:
            group.offsets.prepare(commit)
            is_prepared = True

    def _store_in_transaction(
        self, group: Group, records: bytes, count: int, transaction: Transaction, guard: object, commit: Commit, reply: CommitReply
    ) -> None:
        """Write the records as part of the transaction, whose marker commits or drops them."""

        def stored(error: ErrorCode, _: int) -> None:
            reply(COMMIT_ERRORS.get(error, error), ErrorCode.OFFSET_METADATA_TOO_LARGE)

        producer_id = transaction.producer_id
        base_offset = self._log.append(
            self._groups.partition_for(group.group_id),
            records,
            count,
            stored,
            producer_id=producer_id,
            producer_epoch=transaction.producer_epoch,
            base_sequence=0,
            guard=guard,
        )
        if base_offset != NOT_APPENDED and not group.is_dead:
            self._groups.enter_transaction(producer_id, group)
            group.offsets.on_appended_in_transaction(producer_id, commit, base_offset)

    def on_transaction_completed(self, producer_id: int, partition_index: int, *, is_commit: bool) -> None:
        """The marker of a transaction is replicated in a partition of `__consumer_offsets`: the offsets are committed or dropped. While the
        partition loads, the marker waits, because the load may have stopped before it.
        """
        owned = self._groups.partitions.get(partition_index)
        if owned is not None:
            owned.once_loaded(partial(self._complete_transaction, producer_id, partition_index, is_commit))

    def _complete_transaction(self, producer_id: int, partition_index: int, is_commit: bool) -> None:
        for group in self._groups.end_transaction(producer_id, partition_index):
            group.offsets.complete_transaction(producer_id, is_commit=is_commit)

    def fits(self, metadata: bytes) -> bool:
        """Whether metadata in UTF-8 may be committed. The limits are offset.metadata.max.bytes, which Kafka counts in UTF-16 units, and the
        largest string of a record."""
        limit = self._max_metadata_size
        if len(metadata) > MAX_STRING_BYTES:
            return False
        return len(metadata) <= limit or (not metadata.isascii() and len(metadata.decode().encode("utf-16-le")) <= 2 * limit)

    # -- fetch -------------------------------------------------------------------------------------------------------------

    def committed(self, group_id: str) -> dict[str, list[int]]:
        """By topic, the partitions for which a group has committed offsets; none if the group does not exist here."""
        error, group = self._groups.find(group_id, may_be_empty=True)
        if error or group is None or group.is_dead:
            return {}
        return {topic: list(known) for topic, known in group.offsets.committed.by_topic.items()}

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether a member may fetch the offsets of its group."""
        error, group = self._groups.find(group_id, may_be_empty=True)
        return error if error or group is None or group.is_dead else group.check_fetch(member_id, member_epoch)

    def fetch(
        self, group_id: str, partitions: Mapping[str, Iterable[int]], *, require_stable: bool
    ) -> tuple[ErrorCode, dict[str, list[OffsetFetchResponsePartitions]]]:
        """OffsetFetch: by topic, the committed offsets of these partitions; -1 for a partition without one."""
        error, group = self._groups.find(group_id, may_be_empty=True)
        if error:
            return error, {}
        offsets = NO_OFFSETS if group is None or group.is_dead else group.offsets
        by_topic = offsets.committed.by_topic
        require_stable = require_stable and not offsets.is_all_stable
        found: dict[str, list[OffsetFetchResponsePartitions]] = {}
        for topic, indexes in partitions.items():
            known = by_topic.get(topic, {})
            answers: list[OffsetFetchResponsePartitions] = []
            for index in indexes:
                stored = known.get(index)
                if require_stable and offsets.is_unstable(TopicPartition(topic, index)):
                    answers.append(_nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                elif stored is None:
                    answers.append(_nothing(index))
                else:
                    offset, leader_epoch, metadata = read_stored(stored)
                    answers.append(
                        OffsetFetchResponsePartitions(
                            partition_index=index, committed_offset=offset, committed_leader_epoch=leader_epoch, metadata=metadata
                        )
                    )
            if answers:
                found[topic] = answers
        return ErrorCode.NONE, found

    # -- delete ------------------------------------------------------------------------------------------------------------

    async def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups: delete a group without members, with its offsets. It stays if its state elsewhere cannot be deleted."""
        error, group = self._deletable(group_id)
        if group is None:
            return error
        error = await self._forget_state(group)
        if error:
            return error
        error, same = self._deletable(group_id)  # it may have members again
        if same is not group:
            return error or ErrorCode.GROUP_ID_NOT_FOUND
        group.end(self._clock.now_ms())
        self._groups.leave_transactions(group)
        return await self._bury(group)

    def _deletable(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        """(error, group): the group, if it has no members."""
        error, group = self._groups.find(group_id, may_be_empty=True)
        if error:
            return error, None
        if group is None or group.is_dead:  # a dead one is being deleted by another request
            return ErrorCode.GROUP_ID_NOT_FOUND, None
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP, None
        return ErrorCode.NONE, group

    async def _bury(self, group: Group) -> ErrorCode:
        """Write the tombstones of a dead group, those of some offsets at once. Until the end the dead group keeps its place, and
        clients have to retry: its tombstones would also delete the offsets of a new group with the same id."""
        group_id = group.group_id
        while self._groups.owner_of(group_id, group) is not None:
            removed = group.offsets.remove_some(OFFSETS_TOGETHER)
            if len(removed) < OFFSETS_TOGETHER:
                self._end(group, removed)
                logger.info("group %s was deleted", group_id)
                return ErrorCode.NONE
            self._write_tombstones(group_id, offset_keys(group_id, removed))
            await pause()
        return ErrorCode.NOT_COORDINATOR  # another broker has loaded the rest of the group

    async def read_subscriptions(self, group_id: str) -> Group | None:
        """Learn the topics of the members before `delete_offsets`. In a large group they take many turns of the event loop. The caller has
        the group that is returned forget them."""
        group = self._groups.served(group_id)
        if group is not None:
            for _ in group.read_subscriptions():
                await pause()
        return group

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> tuple[ErrorCode, list[ErrorCode]]:
        """OffsetDelete: delete offsets of topics that no member subscribes to; (error of all, error of each)."""
        error, group = self._groups.find(group_id)
        if error:
            return error, []
        if group is None or group.is_dead:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        error = group.check_offset_deletion()
        if error:
            return error, []
        topics = group.subscribed_topics()
        subscribed = [topics is None or partition.topic in topics for partition in partitions]
        free = [partition for partition, is_subscribed in zip(partitions, subscribed, strict=True) if not is_subscribed]
        if free:
            removed = group.offsets.remove(free)
            self._forget(group, removed)
            logger.info("group %s: %d offsets were deleted", group_id, len(removed))
        return ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE for is_subscribed in subscribed]

    def delete_of_partitions(self, deleted: Sequence[TopicPartition]) -> Iterator[None]:
        """Topics were deleted: delete their offsets, with a step between two pauses. The metadata of this broker must not have the topics
        again before the last step, or clients could commit offsets that are deleted, too. Groups that are being loaded follow before they
        are served."""
        by_topic: dict[str, set[int]] = {}
        for topic, index in deleted:
            by_topic.setdefault(topic, set()).add(index)
            yield
        for owned in self._groups.partitions.values():
            if owned.is_loading:
                owned.before_served(partial(self._delete_of_topics, by_topic))
        yield from self._delete_of_topics(by_topic, self._groups)

    def _delete_of_topics(self, by_topic: Mapping[str, Container[int]], groups: Iterable[Group]) -> Iterator[None]:
        """Delete the offsets of these partitions in these groups."""
        count = 0
        for found in groups:
            group = found
            known = [] if group.is_dead else group.offsets.known_of(by_topic)
            for begin in range(0, len(known) or 1, OFFSETS_TOGETHER):
                if group.is_dead:  # if it has changed its protocol, the next one has the same offsets
                    group = self._groups.get(group.group_id) or group
                if group.is_dead:
                    break
                removed = group.offsets.remove(known[begin : begin + OFFSETS_TOGETHER])
                self._forget(group, removed)
                count += len(removed)
                yield
        if count:
            logger.info("%d offsets of %d deleted topics were removed", count, len(by_topic))

    # -- expiry ------------------------------------------------------------------------------------------------------------

    async def expire(self) -> None:
        """Delete expired offsets, and groups without remaining offsets."""
        now_ms = self._clock.now_ms()
        count = 0
        for group in self._groups:
            if group.offsets.committed:
                for _ in group.read_subscriptions():
                    await pause()
            topics = list(reversed(group.offsets.committed.by_topic))
            while True:
                removed: list[TopicPartition] = []
                expiry = group.expiry() if group.offsets.committed and not group.is_dead else None
                while topics and len(removed) < OFFSETS_TOGETHER:
                    topic = topics.pop()
                    if expiry is not None and topic not in expiry.subscribed_topics:
                        most = OFFSETS_TOGETHER - len(removed)
                        expired = group.offsets.remove_expired(topic, expiry.since_ms, now_ms, self._retention_ms, most)
                        removed += expired
                        if len(expired) == most:  # there may be more
                            topics.append(topic)
                        if is_over():
                            break
                self._forget(group, removed)  # in the same turn, or a client might commit one of them again before its tombstone
                count += len(removed)
                await pause()
                if not topics:
                    break
            group.forget_subscriptions()
        if count:
            logger.info("%d offsets had not been used for offsets.retention.minutes and were removed", count)

    def _forget(self, group: Group, removed: Sequence[TopicPartition]) -> None:
        """Write tombstones for removed offsets, and for the group if it is empty now, unless it is of a type that stays."""
        if group.state is GroupState.EMPTY and not group.offsets and group.expiry() is not None:
            logger.info("group %s has no members and no offsets and is removed, generation %d", group.group_id, group.generation_id)
            group.end(self._clock.now_ms())
            self._end(group, removed)
        elif removed:
            self._write_tombstones(group.group_id, offset_keys(group.group_id, removed))

    def _end(self, group: Group, removed: Sequence[TopicPartition]) -> None:
        """Forget a dead group, and write tombstones for its last offsets and for itself."""
        keys = offset_keys(group.group_id, removed)
        if self._groups.forget(group.group_id, group):
            self._groups.leave_transactions(group)
            self._runner.cancel_timers(group)
            keys += group.tombstones()
        self._write_tombstones(group.group_id, keys)

    def _write_tombstones(self, group_id: str, keys: Sequence[bytes]) -> None:
        index = self._groups.partition_for(group_id)
        for some in _in_batches(keys, self._log.room_for_records(index, TOMBSTONE_BYTES)):
            self._log.append_tombstones(index, some)


def _in_batches(keys: Iterable[bytes], limit: int) -> Iterator[list[bytes]]:
    """The keys, some at a time, whose tombstones have at most `limit` bytes."""
    some: list[bytes] = []
    size = 0
    for key in keys:
        record_bytes = len(key) + TOMBSTONE_OVERHEAD
        if some and size + record_bytes > limit:
            yield some
            some, size = [], 0
        some.append(key)
        size += record_bytes
    if some:
        yield some


def _nothing(index: int, error: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, committed_leader_epoch=NO_LEADER_EPOCH, metadata="", error_code=error
    )
