"""Which versions are spoken, from the recorded answers of a real broker."""

import json
from importlib.metadata import version

import pytest

from ottla.client.connection import CLIENT_SOFTWARE, decode_api_versions
from ottla.client.errors import Unreachable, UnsupportedByBroker
from ottla.client.versions import api_table, choose_version
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.schema.fields import Versions
from tests.support.golden_frames import WIRE, golden_frames

RECORDED = json.loads((WIRE / "api-versions.json").read_text())
FRAMES = [
    frame
    for capture in ("clients", "sweep")
    for frame in golden_frames(capture)
    if frame.api.key is ApiKey.API_VERSIONS and not frame.is_request
]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.where)
def test_every_recorded_answer_is_understood(frame: object) -> None:
    answer = decode_api_versions(frame.data, frame.version)  # type: ignore[attr-defined]  # a GoldenFrame
    table = api_table(answer.api_keys)
    assert table[ApiKey.API_VERSIONS].last >= 3
    for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.JOIN_GROUP):
        assert table[key].cover(choose_version(key, table, "there"))


def test_apache_kafka_is_spoken_to_in_the_newest_versions_that_names_allow() -> None:
    table = api_table(ApiVersionsResponse.decode(FRAMES[0].data, FRAMES[0].version, 4)[0].api_keys)
    assert choose_version(ApiKey.FETCH, table, "there") == 12
    assert choose_version(ApiKey.METADATA, table, "there") == 12
    assert choose_version(ApiKey.OFFSET_FETCH, table, "there") == 7


def test_an_answer_in_version_0_is_read_when_the_asked_one_is_not_known() -> None:
    listed = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)]
    old = b"\0\0\0\1" + ApiVersionsResponse(error_code=35, api_keys=listed).encode(0)
    assert api_table(decode_api_versions(old, 3).api_keys) == {ApiKey.API_VERSIONS: Versions(0, 2)}


def test_an_old_broker_is_spoken_to_in_its_own_versions() -> None:
    assert choose_version(ApiKey.FETCH, {ApiKey.FETCH: Versions(0, 4)}, "there") == 4


def test_what_a_broker_does_not_speak_is_said() -> None:
    with pytest.raises(UnsupportedByBroker, match="at there does not support OffsetDelete"):
        choose_version(ApiKey.OFFSET_DELETE, {}, "there")
    with pytest.raises(UnsupportedByBroker, match="supports Fetch 90 to 99, this client 0 to 18"):
        choose_version(ApiKey.FETCH, {ApiKey.FETCH: Versions(90, 99)}, "there")


def test_what_is_no_broker_is_said() -> None:
    with pytest.raises(Unreachable, match="does not speak Kafka's protocol"):
        decode_api_versions(b"HTTP/1.1 400 Bad Request", 3)


def test_the_client_names_the_version_of_its_package() -> None:
    assert ("ottla", version("ottla")) == CLIENT_SOFTWARE
