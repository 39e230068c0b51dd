"""Error codes of answers: every one that Apache Kafka counts."""

import pytest

from ottla.broker.handlers.table import SERVED, handlers_of
from ottla.broker.metrics.response_errors import ErrorCounts, count_answers, walker
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.serving.route import Route
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse
from ottla.protocol.schema.registry import api

PRODUCE = int(ApiKey.PRODUCE)


def a_fetch_response(*codes: ErrorCode) -> FetchResponse:
    partitions = [PartitionData(partition_index=index, error_code=code, records=b"") for index, code in enumerate(codes)]
    return FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])


def test_the_request_and_every_partition_have_an_error_code() -> None:
    counts: dict[int, int] = {}
    walker(FetchResponse)(a_fetch_response(ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE), counts, 0)
    assert counts == {ErrorCode.NONE: 2, ErrorCode.OFFSET_OUT_OF_RANGE: 1}


def test_a_negative_code_is_told_by_its_name() -> None:
    errors = ErrorCounts({})
    walker(FindCoordinatorResponse)(FindCoordinatorResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), errors.counts, 10 << 16)
    assert list(errors.items()) == [(10, "UNKNOWN_SERVER_ERROR", 1)]


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: key.name)
def test_every_answer_can_be_walked(key: ApiKey) -> None:
    counts: dict[int, int] = {}
    response = api(key).response
    walker(response)(response(), counts, 0)
    assert sum(counts.values()) == any(field.name == "error_code" for field in response.SCHEMA.fields)


def test_answers_made_of_messages_are_counted_beside_those_that_a_handler_counted() -> None:
    key = ApiKey.FIND_COORDINATOR << 16
    errors = ErrorCounts({key: 10, ApiKey.PRODUCE << 16: 0})
    route = Route(api(ApiKey.FIND_COORDINATOR), 2, *handlers_of(ApiKey.FIND_COORDINATOR))
    encode = route.encode
    count_answers(route, errors)
    response = FindCoordinatorResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert route.encode(1, response) == encode(1, response)
    found = {(api_key, name): count for api_key, name, count in errors.items()}
    assert found == {(ApiKey.FIND_COORDINATOR, "NONE"): 10, (ApiKey.FIND_COORDINATOR, "NOT_COORDINATOR"): 1}


def test_an_answer_that_cannot_be_written_still_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    route = Route(api(ApiKey.FIND_COORDINATOR), 3, *handlers_of(ApiKey.FIND_COORDINATOR))
    count_answers(route, ErrorCounts({}))
    assert route.encode(1, FindCoordinatorResponse(host=5)) is CLOSE  # type: ignore[arg-type]  # no text
    assert "cannot be written" in caplog.text
