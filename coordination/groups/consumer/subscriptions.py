"""Decides what follows from a changed subscription: the next epoch of the group, and the evaluation of regular expressions.

Part of the state machine of a consumer group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Mapping
from functools import partial
from typing import Final, NamedTuple

from ottla.coordination.groups.consumer.effects import CheckRegex, Compute, ConsumerEffect, Decision, ResolveRegexes, Write
from ottla.coordination.groups.consumer.group import AssignedGroup
from ottla.coordination.groups.consumer.members import Member
from ottla.coordination.groups.consumer.records import GroupEpoch, Record, Resolved, ResolvedRegex
from ottla.coordination.groups.consumer.settings import Context
from ottla.coordination.groups.consumer.topics import hash_of
from ottla.coordination.groups.metadata_bytes import MEMBER_BYTES

logger = logging.getLogger(__name__)

LEAST_PAUSE_MS: Final = 10_000
"""Shortest time between two evaluations of regular expressions that were evaluated already, as in Apache Kafka."""


HASHED_AT_ONCE: Final = 500
"""Names of topics that are hashed on the event loop, a millisecond. A group may have 200,000."""

FIRST_EPOCH: Final = 1
"""The epoch of a group without subscriptions."""


class Sender(NamedTuple):
    """The member that an event is about, before the event."""

    member: Member
    old: Member | None
    """The same member in the group, or the static member whose place it takes; None for a new member."""


def check_regex(regex: str) -> Generator[CheckRegex, str | None, str | None]:
    """The reason why a regular expression is not valid; None if it is."""
    return (yield CheckRegex(regex))


def is_refused(group: AssignedGroup, old: Member | None, new: Member) -> bool:
    """Whether there is no room for the names and the subscription of a member, which is logged. One that does not grow has room always."""
    if old is None:
        more, objects = new.metadata_bytes, MEMBER_BYTES
    elif old.topics is new.topics and old.regex == new.regex and old.classic is new.classic and _same_names(old, new):
        return False
    else:
        more, objects = new.metadata_bytes - old.metadata_bytes, 0
    return group.metadata.refuse(more, group.group_id, f"{new.client_id} ({new.client_host})", objects=objects)


def _same_names(old: Member, new: Member) -> bool:
    return (old.client_id, old.member_id, old.instance_id, old.rack_id) == (new.client_id, new.member_id, new.instance_id, new.rack_id)


def change_subscription(
    group: AssignedGroup, old: Member | None, new: Member, context: Context, records: list[Record]
) -> Generator[Compute, int, int]:
    """Add the records of a subscription that may have changed, and return the epoch of the group, which they may raise."""
    if old is not None and group.known_topics is context.topics and _same_subscription(old, new):
        return group.epoch
    before: tuple[tuple[str, ...], str | None] = ((), None) if old is None else (old.topics, old.regex or None)
    is_other = before != (new.topics, new.regex or None)
    assignor_counts = counts_after(group.assignors, _one(old and old.assignor), _one(new.assignor))
    default = context.settings.assignors[0]
    is_other = is_other or preferred(assignor_counts, default) != preferred(group.assignors, default)
    if not is_other and group.epoch and group.known_topics is context.topics:
        return group.epoch
    left = old.regex if old is not None and old.regex and old.regex != new.regex else None
    if left and group.regex_users.get(left) == 1 and left in group.regexes:
        records.append(ResolvedRegex(left, None))
    return (yield from raise_epoch(group, topics_after(group, old, new), context, records, is_other=is_other))


def _same_subscription(old: Member, new: Member) -> bool:
    return old.topics is new.topics and old.regex == new.regex and old.assignor == new.assignor


def raise_epoch(
    group: AssignedGroup, names: Collection[str], context: Context, records: list[Record], *, is_other: bool
) -> Generator[Compute, int, int]:
    """Add the next epoch if members are others, or if the subscribed topics have changed. Returns the epoch of the group."""
    if len(names) > HASHED_AT_ONCE:
        metadata_hash = yield Compute(partial(hash_of, names, context.topics))
    else:
        metadata_hash = hash_of(names, context.topics)
    is_other = is_other or metadata_hash != group.metadata_hash
    if not is_other and group.epoch:
        group.known_topics = context.topics
        return group.epoch
    epoch = (group.epoch or FIRST_EPOCH) + is_other
    logger.info("group %s: epoch %d begins", group.group_id, epoch)
    records.append(GroupEpoch(epoch, metadata_hash))
    return epoch


def topics_after(group: AssignedGroup, old: Member | None, new: Member | None) -> Collection[str]:
    """The topics that members subscribe to after one of them has changed."""
    if old is not None and new is not None and (old.topics, old.regex) == (new.topics, new.regex):
        return group.subscribed_topics()
    names = counts_after(group.names, () if old is None else old.topics, () if new is None else new.topics)
    regexes = counts_after(group.regex_users, _one(old and old.regex), _one(new and new.regex))
    found = set(names)
    for regex in regexes:
        if regex in group.regexes:
            found |= group.regexes[regex].topics
    return found


def counts_after(counts: Mapping[str, int], gone: Collection[str], added: Collection[str]) -> dict[str, int]:
    """Counts without some and with others."""
    after = dict(counts)
    for key in gone:
        if after.get(key, 0) <= 1:
            after.pop(key, None)
        else:
            after[key] -= 1
    for key in added:
        after[key] = after.get(key, 0) + 1
    return after


def preferred(assignors: Mapping[str, int], default: str) -> str:
    """The assignor that most members ask for; of several, the first by name, so that every coordinator chooses the same."""
    return min(assignors, key=lambda name: (-assignors[name], name), default=default)


def _one(name: str | None) -> tuple[str, ...]:
    return (name,) if name else ()


# -- regular expressions ---------------------------------------------------------------------------------------------------------


def resolution(
    group: AssignedGroup, old: Member | None, new: Member, may_describe: Callable[[str], bool], context: Context
) -> list[ConsumerEffect]:
    """Evaluate the regular expressions of the group, if one is new, if topics appeared or vanished, or if the result is old."""
    if group.is_resolving or not (new.regex or group.regex_users):
        return []
    regexes = frozenset(counts_after(group.regex_users, _one(old and old.regex), _one(new.regex)))
    if not regexes:
        return []
    if regexes <= group.regexes.keys():
        has_other_topics = group.resolved_topics is None or group.resolved_topics.keys() != context.topics.keys()
        interval_ms = LEAST_PAUSE_MS if has_other_topics else max(LEAST_PAUSE_MS, context.settings.regex_refresh_interval_ms)
        if context.is_recent(group.resolved_ms, interval_ms):
            return []
    return [ResolveRegexes(regexes, may_describe)]


def on_resolved(group: AssignedGroup, found: Mapping[str, frozenset[str]], context: Context) -> Decision:
    """The topics of regular expressions are known; they were evaluated for `context.topics`."""
    group.resolved_ms, group.resolved_topics = context.now_ms, context.topics
    records: list[Record] = []
    is_other = False
    known = dict(group.regexes)
    for regex, topics in found.items():
        if regex not in group.regex_users:
            continue  # its last member left meanwhile
        old = group.regexes.get(regex)
        is_other = is_other or topics != (frozenset() if old is None else old.topics)
        known[regex] = Resolved(topics, context.now_ms, context.now_ms)
        if old is None or topics != old.topics:
            records.append(ResolvedRegex(regex, known[regex]))
    if not records:
        return []
    names = set(group.names)
    for regex in group.regex_users:
        if regex in known:
            names |= known[regex].topics
    yield from raise_epoch(group, names, context, records, is_other=is_other)
    return [Write(tuple(records))]
