"""What is advertised, which header precedes what, the error codes, and ids as text."""

import json
import subprocess
import sys

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.schema.api_versions import DECLARED_APIS, versions_in_3_9
from ottla.protocol.schema.registry import INTER_BROKER_APIS, ZOOKEEPER_MODE_APIS, api
from ottla.protocol.uuid import ZERO_UUID, from_text, to_text
from tests.support.golden_frames import WIRE
from tests.support.message_table import tables

RECORDED = json.loads((WIRE / "api-versions.json").read_text())

IN_3_9 = [(key, *versions_in_3_9(key)) for key in sorted(ZOOKEEPER_MODE_APIS)]


def test_the_versions_of_3_9_are_the_recorded_ones() -> None:
    lines = [(line["api_key"], line["min"], line["max"]) for line in RECORDED["table"]]
    assert lines == IN_3_9


def test_the_recorded_answer_lists_the_same_in_the_same_order() -> None:
    data = bytes.fromhex(RECORDED["response_v4_hex"])
    _, offset = ResponseHeader.decode(data, api(ApiKey.API_VERSIONS).response_header_version(4))
    response, _ = ApiVersionsResponse.decode(data, 4, offset)
    listed = [(line.api_key, line.min_version, line.max_version) for line in response.api_keys]
    assert listed == IN_3_9


def test_what_is_served_in_zookeeper_mode_is_what_kafkas_table_says() -> None:
    listed = {table["apiKey"] for table in tables().values() if "zkBroker" in table.get("listeners", ())}
    assert listed == ZOOKEEPER_MODE_APIS
    assert INTER_BROKER_APIS < DECLARED_APIS
    assert ZOOKEEPER_MODE_APIS < DECLARED_APIS


def test_every_key_finds_the_request_and_the_response_of_its_api() -> None:
    for key in DECLARED_APIS:
        found = api(key)
        assert found.request.SCHEMA.api_key == found.response.SCHEMA.api_key == key
        assert found.request.SCHEMA.versions == found.response.SCHEMA.versions == found.versions
        assert found.request.SCHEMA.flexible == found.response.SCHEMA.flexible == found.flexible


def test_what_is_advertised_is_known_without_importing_the_messages() -> None:
    code = """if True:
        import sys
        from ottla.broker.handlers.table import SERVED
        from ottla.broker.request.listed_apis import ListedApis
        assert ListedApis(SERVED).versions
        print(*(name for name in sys.modules if name.startswith("ottla.protocol.messages.")))
    """
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split() == []


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.CONTROLLED_SHUTDOWN, 0, 0, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 1, 1, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 3, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
    ],
)
def test_header_versions(key: ApiKey, version: int, request_header: int, response_header: int) -> None:
    found = api(key)
    assert (found.request_header_version(version), found.response_header_version(version)) == (request_header, response_header)


def test_error_codes_are_dense_and_complete() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 137))
    assert (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER) == (-1, 0, 6)
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message == "This server does not host this topic-partition."


def test_an_error_code_of_a_later_kafka_is_an_unknown_server_error() -> None:
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_ids_are_written_as_kafka_writes_them() -> None:
    assert to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert to_text(bytes.fromhex("c4ca9ae213ac40878921776ff68b6504")) == "xMqa4hOsQIeJIXdv9otlBA"
    assert from_text("xMqa4hOsQIeJIXdv9otlBA").hex().startswith("c4ca9ae213ac")


@pytest.mark.parametrize("text", ["", "xMqa4hOsQIeJIXdv9otlB", "xMqa4hOsQIeJIXdv9otlBA==", "xMqa4hOsQIeJIXdv9otl!A", "é" * 22])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        from_text(text)
