"""The 236 odd and bad requests that a real Apache Kafka was sent, sent to Ottla: the same answers, field by field.

What may differ stands in DIFFERENCES, which is the section "Bad input" of docs/differences.md.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.broker.handlers.table import IMPLEMENTED
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.records.batch import CURRENT_MAGIC, LOG_OVERHEAD
from tests.support.golden_replay import (
    RECORDED_TOPIC_ID,
    Case,
    Outcome,
    Rewrite,
    ask,
    bad_input,
    comparable,
    correlation_id,
    decode,
)
from tests.support.replaying_broker import OTHER_BROKER, OTHER_EPOCH, ReplayingBroker, batches_of

DOCUMENTED = Path(__file__).parents[2] / "docs" / "differences.md"

QUIET_SECONDS = 0.3
"""How long a broker must be silent where the recording has no answer."""

BROKER_1_WITH_EPOCH_1, BROKER_0_WITH_EPOCH_1 = (struct.pack(">iq", broker_id, 1) for broker_id in (1, 0))

ELSEWHERE = {ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_CONTROLLER}
_MEMBER_ID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class Difference(NamedTuple):
    """What Ottla answers instead, as fields of the answer by name, and where it stands in docs/differences.md."""

    row: str
    fields: dict[str, Any]
    kind: str = "response"


DIFFERENCES = {
    "null records": Difference("null instead of records", {}),
}
"""By the name of the case."""

ANYWHERE = {
    "answers that clients do not read",
    "limits of a Fetch",
    "large requests, without `queued.max.request.bytes`",
    "requests of up to 256 KiB that are unfinished, or wait behind one that waits for an event or for its client to read",
}
"""Rows that are not about one case: see `whole_batches`."""


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ReplayingBroker, dict[str, Outcome]]]:
    """Everything sent once: first what is asked of the right broker, then, once another broker is that, the rest."""
    broker = ReplayingBroker(tmp_path_factory.mktemp("bad-input"))
    try:
        outcomes = {}
        for case in sorted(bad_input(), key=is_elsewhere):
            if is_elsewhere(case) and broker.leads:
                broker.depose()
            wait_seconds = QUIET_SECONDS if case.outcome == "no answer" and case.name not in DIFFERENCES else 0
            outcomes[case.name] = ask(broker.port, rewritten(case, broker), wait_seconds)
        yield broker, outcomes
    finally:
        broker.stop()


def rewritten(case: Case, broker: ReplayingBroker) -> bytes:
    """The request, about the topic and the broker that are here."""
    if case.question.startswith("ControlledShutdown"):
        return case.sent.replace(BROKER_1_WITH_EPOCH_1, BROKER_0_WITH_EPOCH_1)
    return case.sent.replace(RECORDED_TOPIC_ID, broker.topic_id)


def is_elsewhere(case: Case) -> bool:
    """Whether the broker that was asked is not the leader, coordinator or controller that the question is for."""
    if "not leader" in case.name or "not the leader" in case.name:
        return True
    if case.broker is None or case.question == "delete unknown group":
        return False
    if case.question.startswith("ControlledShutdown"):
        return case.broker != 0
    return bool(codes_of(case) & ELSEWHERE)


def codes_of(case: Case) -> set[int]:
    """The error codes anywhere in the recorded answer."""
    codes: set[int] = set()

    def note(name: str, value: Any) -> Any:
        if name in ("error_code", "partition_error_code"):
            codes.add(value)
        return value

    if case.response is not None and case.api_key is not None:
        comparable(decode(case.response, case.api_key, case.version), note)
    return codes


def test_every_recorded_request_is_answered_as_apache_kafka_answered_it(replayed: tuple[ReplayingBroker, dict[str, Outcome]]) -> None:
    broker, outcomes = replayed
    wrong = [
        f"{case.name}:\n  {reason}"
        for case in bad_input()
        if case.api_key is None or case.api_key in IMPLEMENTED
        for reason in differences(case, outcomes[case.name], broker)
    ]
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong)


def differences(case: Case, outcome: Outcome, broker: ReplayingBroker, allowed: Difference | None = None) -> Iterator[str]:
    """What is not as recorded, and not allowed to differ by DIFFERENCES or `allowed`."""
    difference = allowed or DIFFERENCES.get(case.name)
    expected_kind = case.outcome if difference is None else difference.kind
    if outcome.kind != expected_kind:
        yield f"{outcome.kind} instead of {expected_kind}"
        return
    if outcome.response is None:
        return
    if not outcome.stays_open:
        yield "the connection was closed after the answer"
    if case.response is None or case.api_key is None:
        return
    if correlation_id(outcome.response) != correlation_id(case.response):
        yield "the answer is to another request"
    ours = comparable(decode(outcome.response, case.api_key, case.version), rewrite_ours(case, broker))
    theirs = comparable(decode(case.response, case.api_key, case.version), rewrite_recorded(case))
    yield from unequal(ours, theirs, difference.fields if difference is not None else {})


def unequal(ours: Any, theirs: Any, allowed: dict[str, Any], path: str = "") -> Iterator[str]:
    """The fields that differ, with their paths."""
    name = path.rpartition(".")[2]
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for field, value in theirs.items():
            yield from unequal(ours[field], value, allowed, f"{path}.{field}" if path else field)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for mine, its in zip(ours, theirs, strict=True):
            yield from unequal(mine, its, allowed, path)
    elif ours != theirs and not (name in allowed and ours == allowed[name]):
        yield f"{path}: {ours!r} instead of {theirs!r}"


def rewrite_recorded(case: Case) -> Rewrite:
    """The recording, as if one broker had been everything."""

    def rewrite(name: str, value: Any) -> Any:
        if name == "topic_id" and value == RECORDED_TOPIC_ID:
            return "id of bad"
        if name == "error_code" and value == ErrorCode.NOT_COORDINATOR and case.question == "delete unknown group":
            return ErrorCode.GROUP_ID_NOT_FOUND  # each coordinator answered for one of the two groups
        return common(name, value)

    return rewrite


def rewrite_ours(case: Case, broker: ReplayingBroker) -> Rewrite:
    """Our answer, with the names of the recording."""
    deposed = is_elsewhere(case)

    def rewrite(name: str, value: Any) -> Any:
        if name == "topic_id" and value == broker.topic_id:
            return "id of bad"
        if deposed and name in ("leader_id", "node_id", "nodeId") and value == OTHER_BROKER:
            return 0
        if deposed and name == "leader_epoch" and value == OTHER_EPOCH:
            return 0
        if deposed and name == "rack" and value == f"r{OTHER_BROKER}":
            return "r0"
        return common(name, value)

    return rewrite


def common(name: str, value: Any) -> Any:
    """What two brokers can never have in common, taken out of both."""
    match name:
        case "cluster_id" if value is not None:
            return "some cluster"
        case "port" if value > 0:
            return "some port"
        case "session_id" if value:
            return "some session"
        case "producer_id" if value >= 0:
            return "some producer"
        case "member_id" if value:
            return _MEMBER_ID.sub("-<uuid>", value)
        case "brokers":
            return [each for each in value if each["node_id"] == 0]
        case "results" | "groups":
            return sorted(value, key=repr)
        case "coordinators":
            return [each | {"node_id": min(each["node_id"], 0)} for each in value]
        case "records" if value is not None:
            return whole_batches(value)
        case "api_keys":
            return [each for each in value if ApiKey(each["api_key"]) in IMPLEMENTED]
    return value


def whole_batches(records: bytes) -> bytes:
    """The records without the leader epochs of the batches, which are not the producer's, and without a batch that is cut at the end."""
    position = 0
    batches = []
    while position + LOG_OVERHEAD <= len(records):
        end = position + LOG_OVERHEAD + int.from_bytes(records[position + 8 : position + LOG_OVERHEAD], "big")
        if end > len(records):
            break
        has_epoch = records[position + 16] == CURRENT_MAGIC
        batches.append(records[position : LOG_OVERHEAD + position] + records[position + (16 if has_epoch else LOG_OVERHEAD) : end])
        position = end
    return b"".join(batches)


def test_the_log_of_the_replay_is_byte_for_byte_that_of_apache_kafka(replayed: tuple[ReplayingBroker, dict[str, Outcome]]) -> None:
    broker, _ = replayed
    assert broker.log_of_bad == b"".join(batches_of("odd/bad-0/"))


def test_the_differences_are_those_that_are_documented() -> None:
    section = DOCUMENTED.read_text().partition("## Bad input\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    assert set(rows[2:]) == {difference.row for difference in DIFFERENCES.values()} | ANYWHERE


def test_a_difference_that_is_none_any_more_is_struck_out(replayed: tuple[ReplayingBroker, dict[str, Outcome]]) -> None:
    broker, outcomes = replayed
    cases = {case.name: case for case in bad_input()}
    for name, difference in DIFFERENCES.items():
        assert (
            list(differences(cases[name], outcomes[name], broker, allowed=difference._replace(fields={})))
            or difference.kind != cases[name].outcome
        )


def test_nothing_is_listed_that_apache_kafka_does_not_list() -> None:
    case = next(case for case in bad_input() if case.name == "ApiVersions v4 good")
    assert case.response is not None
    recorded = decode(case.response, ApiKey.API_VERSIONS, 4)
    assert isinstance(recorded, ApiVersionsResponse)
    assert {ApiKey(line.api_key) for line in recorded.api_keys} >= IMPLEMENTED
