"""Answers with records: a search that ends with its client, live views as server-sent events, exports as files.

Steps run in threads, one at a time, and only as fast as the client takes their results.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.console.answers import error_answer, json_answer, one_line
from ottla.console.clusters import Clusters, Served
from ottla.console.decoding import FORMS
from ottla.console.exports import EXPORTS
from ottla.console.parameters import BadParameter, number
from ottla.console.record_filter import record_filter
from ottla.console.records import MAX_RECORDS, Query, Search, export, live, whole

MAX_STREAMS: Final = 16
"""Searches, live views and exports of a cluster at a time."""
_DEFAULT_RECORDS: Final = 50
_KEEP_ALIVE_SECONDS: Final = 10.0
_MOST_PARTITIONS: Final = 10_000
_TOO_MANY: Final = f"there are {MAX_STREAMS} searches, live views and exports already; end one"

Step = TypeVar("Step")


class Streams:
    """The endpoints that read records."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def _asked(self, request: Request) -> tuple[Served, Query] | Response:
        """The cluster and the records that a request asks for, or the answer if it is refused."""
        served = self._clusters.of(request)
        try:
            query = query_of(request)
        except BadParameter as error:
            return error_answer(error)
        if served.streams >= MAX_STREAMS:
            return json_answer({"error": _TOO_MANY}, HTTPStatus.SERVICE_UNAVAILABLE)
        return served, query

    async def search(self, request: Request) -> Response:
        """Records as one JSON document. The search ends when the client leaves."""
        asked = self._asked(request)
        if isinstance(asked, Response):
            return asked
        served, query = asked
        served.streams += 1
        cluster = served.connect_briefly()
        try:
            search = await served.in_thread(Search, cluster, query, served.decoder)
            steps = search.steps()
            try:
                while await served.in_thread(_has_step, steps):
                    if await request.is_disconnected():
                        break
            finally:
                await served.in_thread(steps.close)
            return json_answer(await served.in_thread(search.answer))
        except ClientError as error:
            return error_answer(error)
        finally:
            served.streams -= 1
            cluster.close()

    async def whole(self, request: Request) -> Response:
        """All bytes of the key or the value of one record, as a file."""
        part = request.query_params.get("part") or "value"
        asked = self._asked(request)
        if isinstance(asked, Response):
            return asked
        served, query = asked
        if part not in ("key", "value") or len(query.partitions) != 1 or query.offset is None:
            return error_answer(BadParameter("whole needs one partition and an offset, and part is key or value"))
        served.streams += 1
        cluster = served.connect_briefly()
        try:
            data = await served.in_thread(whole, cluster, query, part)
        except ClientError as error:
            return error_answer(error)
        finally:
            served.streams -= 1
            cluster.close()
        name = f"{_file_name(query.topic)}-{query.partitions[0]}-{query.offset}.{part}"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(data or b"", headers=headers, media_type="application/octet-stream")

    async def live(self, request: Request) -> Response:
        """Records as server-sent events `records`, and partitions that are left out as `missing`.

        `begun` precedes all records that are new. `failed` has an error, and `end` ends a view that was open for too long.
        """
        asked = self._asked(request)
        if isinstance(asked, Response):
            return asked
        served, query = asked

        async def events() -> AsyncIterator[str]:
            said_at = 0.0
            async with aclosing(self._steps(served, lambda cluster: live(cluster, query, served.decoder))) as steps:
                async for step in steps:
                    if isinstance(step, str):
                        yield _event("failed", {"error": step})
                        return
                    if not said_at:
                        said_at = time.monotonic()
                        yield _event("begun", {})
                    if step.missing:
                        yield _event("missing", {"missing": step.missing})
                    if step.records or time.monotonic() - said_at > _KEEP_ALIVE_SECONDS:
                        said_at = time.monotonic()
                        yield _event("records", {"records": step.records}) if step.records else ": nothing\n\n"
            yield _event("end", {})

        return StreamingResponse(events(), media_type="text/event-stream")

    async def export(self, request: Request) -> Response:
        """Records as the lines of a file. If the file is not complete, its last line has an error."""
        form = EXPORTS.get(request.query_params.get("format") or "json")
        if form is None:
            return error_answer(BadParameter(f"format is one of {', '.join(EXPORTS)}"))
        asked = self._asked(request)
        if isinstance(asked, Response):
            return asked
        served, query = asked

        async def lines() -> AsyncIterator[str]:
            if form.heading:
                yield form.heading
            async with aclosing(self._steps(served, lambda cluster: export(cluster, query, form.line))) as steps:
                async for found in steps:
                    text = form.error(found) if isinstance(found, str) else "".join(found)
                    if text:
                        yield text

        headers = {"content-disposition": f'attachment; filename="{_file_name(query.topic)}.{form.suffix}"'}
        return StreamingResponse(lines(), media_type=form.media_type, headers=headers)

    async def _steps(self, served: Served, begin: Callable[[Cluster], Generator[Step, None, None]]) -> AsyncGenerator[Step | str, None]:
        """The results of all steps, and the text of an error that ends them.

        It counts as a stream from the first step on, because a client may leave before.
        """
        if served.streams >= MAX_STREAMS:
            yield _TOO_MANY
            return
        served.streams += 1
        cluster = served.connect()
        steps = begin(cluster)
        try:
            while (found := await served.in_thread(_next_step, steps)) is not None:
                yield found
        except ClientError as error:
            yield one_line(error)
        finally:
            served.streams -= 1
            steps.close()
            cluster.close()


def _file_name(topic: str) -> str:
    """The name of a topic without what a header does not take: it has only letters, digits and . _ - anyway."""
    return "".join(each for each in topic if each.isascii() and (each.isalnum() or each in "._-"))


def _offsets(text: str | None, name: str) -> dict[int, int] | None:
    """Offsets by partition, as `0:120,1:88`. Raises BadParameter."""
    if not text:
        return None
    found = {}
    for each in text.split(",", _MOST_PARTITIONS):
        partition, _, offset = each.partition(":")
        at, of = number(offset, name), number(partition, name)
        if at is None or of is None:
            raise BadParameter(f"{name} is PARTITION:OFFSET, separated by commas")
        found[of] = at
    return found


def query_of(request: Request) -> Query:
    """The records that the parameters of a request ask for. Raises BadParameter."""
    query = request.query_params
    partitions = [each for text in query.getlist("partition") for each in text.split(",") if each]
    if len(partitions) > _MOST_PARTITIONS:
        raise BadParameter(f"at most {_MOST_PARTITIONS} partitions")
    chosen = tuple(dict.fromkeys(found for each in partitions if (found := number(each, "partition")) is not None))
    forms = {}
    for name in ("key_form", "value_form"):
        forms[name] = query.get(name) or "auto"
        if forms[name] not in FORMS:
            raise BadParameter(f"{name} is one of {', '.join(FORMS)}")
    isolation = query.get("isolation") or "read_uncommitted"
    if isolation not in ("read_uncommitted", "read_committed"):
        raise BadParameter("isolation is read_uncommitted or read_committed")
    limit = number(query.get("limit"), "limit")
    return Query(
        topic=request.path_params["name"],
        partitions=chosen,
        offset=number(query.get("offset"), "offset"),
        timestamp_ms=number(query.get("timestamp"), "timestamp"),
        limit=min(max(_DEFAULT_RECORDS if limit is None else limit, 1), MAX_RECORDS),
        is_committed=isolation == "read_committed",
        key_form=forms["key_form"],
        value_form=forms["value_form"],
        starts=_offsets(query.get("starts"), "starts"),
        ends=_offsets(query.get("ends"), "ends"),
        selected=record_filter(
            contains=query.get("contains") or None,
            key=query.get("key"),
            header=query.get("header") or None,
            path=query.get("path") or None,
            equals=query.get("equals"),
            before_ms=number(query.get("before"), "before"),
        ),
    )


def _event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=True, separators=(',', ':'))}\n\n"


def _has_step(steps: Iterator[None]) -> bool:
    """Take a step; whether there was one."""
    return next(steps, _END) is not _END


def _next_step(steps: Iterator[Step]) -> Step | None:
    return next(steps, None)


_END: Final = object()
