"""Fetch (api 1), versions 0-17.

KIP-227 sessions from 7, zstd topics only from 10, leader epochs from 9, consumers may read from followers, and are sent to them, from 11
(KIP-392), diverging epochs from 12, topic ids from 13 (KIP-516), the leader to ask instead from 16 (KIP-951). A fetch that finds less than
`min_bytes` waits in the purgatory up to `max_wait_ms`.

Deviation: versions 0-3 would need the records in message format 0 or 1. Ottla stores and serves format 2 only and answers
UNSUPPORTED_VERSION, as Apache Kafka does with `log.message.downconversion.enable=false`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeAlias

from broker.fetching.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    FetchSessionError,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    Partitions,
    SessionPartition,
    key_of,
)
from broker.handlers.data.cold_reads import read_when_cached
from broker.handlers.data.delayed_fetch import wait_for_more
from broker.handlers.data.fetch_reading import FIRST_VERSION_WITH_TOPIC_IDS, Fetch, portions
from broker.handlers.data.follower_fetch import begin_to_watch, may_be_watched
from broker.network.request_channel import Pending
from broker.request.context import RequestContext
from broker.request.turns import Steps
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
)
from storage.disk.clock import elapsed_ms
from storage.segment.cold_lookups import ColdRead

SESSION_ERRORS: dict[type[FetchSessionError], ErrorCode] = {
    FetchSessionIdNotFound: ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    InvalidFetchSessionEpoch: ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    FetchSessionTopicIdError: ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}


Fetched: TypeAlias = FetchResponse | Pending | Coroutine[Any, Any, FetchResponse]
_Asked: TypeAlias = tuple[str | None, bytes, FetchPartition]


def handle_fetch(request: FetchRequest, context: RequestContext) -> Fetched | Steps[Fetched]:
    """Read what the session (or the request alone) asks for; wait when it is less than the client wants."""
    if context.is_large:
        return _fetch_large(request, context)
    now_ms = elapsed_ms(context.broker.clock)
    uses_topic_ids = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    names = context.broker.cluster.names_by_id
    asked = [
        (names.get(topic.topic_id) if uses_topic_ids else topic.topic, topic.topic_id, partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        session = _session_of(request, context, now_ms)
    except FetchSessionError as error:
        return FetchResponse(error_code=SESSION_ERRORS[type(error)])
    if session is None:
        partitions = _without_session(asked)
    else:
        session.update(asked, _forgotten(request, context))
        partitions = session.partitions or _without_session(asked)
    fetch = Fetch(request, context, partitions, session)
    if fetch.is_large or may_be_watched(fetch):
        return _fetch_in_steps(fetch, now_ms)
    try:
        fetch.read(now_ms, may_wait=False)
    except ColdRead as cold:
        return read_when_cached(fetch, cold)
    if fetch.must_answer_now():
        if fetch.may_gather():
            return wait_for_more(fetch, has_enough=True)
        return fetch.response(now_ms)
    return wait_for_more(fetch)


def _session_of(request: FetchRequest, context: RequestContext, now_ms: int) -> FetchSession | None:
    """The session that a request goes on with, at its next epoch; None when it has none. Raises FetchSessionError."""
    cache = context.broker.fetch_sessions
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        cache.remove(request.session_id)
        return None
    uses_topic_ids = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    return cache.get(request.session_id, request.session_epoch, uses_topic_ids=uses_topic_ids, now_ms=now_ms)


def _forgotten(request: FetchRequest, context: RequestContext) -> list[tuple[str | None, bytes, int]]:
    uses_topic_ids = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    names = context.broker.cluster.names_by_id
    return [
        (names.get(topic.topic_id) if uses_topic_ids else topic.topic, topic.topic_id, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


def _fetch_large(request: FetchRequest, context: RequestContext) -> Steps[Fetched]:
    """`handle_fetch` in steps."""
    now_ms = elapsed_ms(context.broker.clock)
    uses_topic_ids = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    names = context.broker.cluster.names_by_id
    try:
        session = _session_of(request, context, now_ms)
    except FetchSessionError as error:
        return FetchResponse(error_code=SESSION_ERRORS[type(error)])
    own: Partitions = {}
    for topic in request.topics:
        name = names.get(topic.topic_id) if uses_topic_ids else topic.topic
        for some in portions(topic.partitions):
            asked = [(name, topic.topic_id, partition) for partition in some]
            own.update(_without_session(asked))
            if session is not None:
                session.update(asked, ())
            yield
    if session is not None:
        for forgotten in portions(_forgotten(request, context)):
            session.update((), forgotten)
            yield
    fetch = Fetch(request, context, own if session is None else session.partitions or own, session)
    return (yield from _fetch_in_steps(fetch, now_ms))


def _fetch_in_steps(fetch: Fetch, now_ms: int) -> Steps[Fetched]:
    if may_be_watched(fetch) and (pending := (yield from begin_to_watch(fetch, now_ms))) is not None:
        return pending
    try:
        yield from fetch.read_steps(now_ms, may_wait=False)
    except ColdRead as cold:
        return read_when_cached(fetch, cold)
    if not fetch.must_answer_now():
        return wait_for_more(fetch)
    if fetch.may_gather() and not fetch.is_large:
        return wait_for_more(fetch, has_enough=True)
    return (yield from fetch.response_steps(now_ms))


def _without_session(asked: list[tuple[str | None, bytes, FetchPartition]]) -> Partitions:
    """What the request itself names."""
    return {key_of(name, topic_id, p.partition): SessionPartition(name, topic_id, p) for name, topic_id, p in asked}
