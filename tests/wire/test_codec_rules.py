"""The rules of Kafka's generator: defaults, fields that a version lacks, ignorable ones, tagged ones, nulls, views."""

import linecache

import pytest

from ottla.protocol.messages.api_versions import ApiVersionsResponse, SupportedFeatureKey
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema.codegen import source_of
from ottla.protocol.schema.wire import InvalidValue, UnsupportedField, UnsupportedVersion


def test_every_field_has_kafkas_default() -> None:
    request = FetchRequest()
    assert (request.replica_id, request.max_bytes, request.session_epoch, request.cluster_id) == (-1, 2**31 - 1, -1, None)
    assert CreateTopicsRequest().timeout_ms == 60000
    assert CreatableTopicResult().configs == []


def test_arrays_and_structures_are_not_shared_between_messages() -> None:
    one, other = FetchRequest(), FetchRequest()
    one.topics.append("x")  # type: ignore[arg-type]  # any object shows the sharing
    one.replica_state.replica_id = 7
    assert other == FetchRequest()


def test_a_field_that_the_version_lacks_keeps_its_default() -> None:
    request, _ = FetchRequest.decode(FetchRequest(max_wait_ms=5).encode(0), 0)
    assert request == FetchRequest(max_wait_ms=5)


def test_a_set_field_that_the_version_lacks_is_refused() -> None:
    with pytest.raises(UnsupportedField, match=r"FindCoordinatorRequest\.coordinator_keys"):
        FindCoordinatorRequest(coordinator_keys=["a"]).encode(3)
    with pytest.raises(UnsupportedField, match=r"FetchRequest\.replica_id"):
        FetchRequest(replica_id=3).encode(15)


def test_an_ignorable_field_that_the_version_lacks_is_dropped() -> None:
    assert FetchRequest(rack_id="r").encode(10) == FetchRequest().encode(10)


def test_a_set_field_inside_an_array_is_refused_too() -> None:
    with pytest.raises(UnsupportedField, match=r"FetchPartition\.last_fetched_epoch"):
        FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(last_fetched_epoch=3)])]).encode(11)


def test_a_version_that_does_not_exist_is_refused() -> None:
    for version in (-1, 5, 99):
        with pytest.raises(UnsupportedVersion):
            HeartbeatRequest().encode(version)
        with pytest.raises(UnsupportedVersion):
            HeartbeatRequest.decode(b"", version)
        with pytest.raises(UnsupportedVersion):
            HeartbeatRequest().encode_parts(version)


def test_a_tagged_field_is_written_only_when_it_is_not_its_default() -> None:
    plain = ApiVersionsResponse().encode(3)
    assert plain == b"\x00\x00\x01\x00\x00\x00\x00\x00"
    assert ApiVersionsResponse(finalized_features_epoch=1).encode(3) == plain[:-1] + b"\x01\x01\x08" + bytes(7) + b"\x01"
    assert ApiVersionsResponse(supported_features=[SupportedFeatureKey(name="f")]).encode(3) != plain


def test_unknown_tagged_fields_are_kept_and_written_in_the_order_of_tags() -> None:
    data = ApiVersionsResponse().encode(3)[:-1] + b"\x03\x01\x08" + bytes(8) + b"\x05\x02ab\x63\x00"
    response, end = ApiVersionsResponse.decode(data, 3)
    assert end == len(data)
    assert response.finalized_features_epoch == 0
    assert response.unknown_tagged_fields == {5: b"ab", 99: b""}
    assert response.encode(3) == data
    assert ApiVersionsResponse().unknown_tagged_fields is None


def test_known_and_unknown_tags_are_sorted_together() -> None:
    response = ApiVersionsResponse(zk_migration_ready=True)
    response.unknown_tagged_fields = {9: b"", 2: b"x"}
    assert response.encode(3)[8 - 1 :] == b"\x03\x02\x01x\x03\x01\x01\x09\x00"


def test_the_client_id_keeps_its_old_encoding_in_the_flexible_header() -> None:
    header = RequestHeader(request_api_key=3, request_api_version=12, correlation_id=1, client_id="ab")
    assert header.encode(2) == b"\x00\x03\x00\x0c\x00\x00\x00\x01\x00\x02ab\x00"


def test_null_is_refused_where_the_version_has_none() -> None:
    assert MetadataRequest(topics=None).encode(1) == b"\xff\xff\xff\xff"
    with pytest.raises(InvalidValue):
        MetadataRequest(topics=None).encode(0)
    with pytest.raises(InvalidValue):
        MetadataRequest(topics=[MetadataRequestTopic(name=None)]).encode(9)


@pytest.mark.parametrize(
    "message",
    [
        HeartbeatRequest(group_id="x" * 40_000),
        HeartbeatRequest(generation_id=2**31),
        HeartbeatRequest(group_id="\ud800"),
        HeartbeatRequest(generation_id="3"),  # type: ignore[arg-type]  # the wrong type, on purpose
    ],
)
@pytest.mark.parametrize("version", [3, 4])
def test_a_value_that_does_not_fit_is_refused(message: HeartbeatRequest, version: int) -> None:
    with pytest.raises(InvalidValue):
        message.encode(version)


def test_any_byte_but_zero_is_true() -> None:
    request, _ = MetadataRequest.decode(b"\x00\x00\x00\x00\x07", 4)
    assert request.allow_auto_topic_creation is True


def test_any_negative_length_is_null_where_null_is_allowed() -> None:
    request, _ = MetadataRequest.decode(b"\xff\xff\xff\xf0\x01", 4)
    assert request.topics is None


def test_records_are_views_of_the_input() -> None:
    frame = bytearray(ProduceRequest(topic_data=[_topic_data(b"0123456789")]).encode(9))
    request, _ = ProduceRequest.decode(memoryview(frame), 9)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"0123")] = ord("X")
    assert bytes(records) == b"X123456789"


def _topic_data(records: bytes) -> TopicProduceData:
    return TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])


def test_records_are_handed_on_as_parts_without_a_copy() -> None:
    first, second = memoryview(b"a" * 300), b"b" * 5
    partitions = [
        PartitionData(partition_index=0, records=first),
        PartitionData(partition_index=1, records=second),
        PartitionData(records=None),
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    parts = response.encode_parts(11)
    assert parts[1] is first
    assert parts[3] is second
    assert len(parts) == 5
    assert b"".join(parts) == response.encode(11)


def test_messages_are_equal_by_value_and_shown_by_name() -> None:
    assert HeartbeatResponse(error_code=3) == HeartbeatResponse(error_code=3)
    assert HeartbeatResponse(error_code=3) != HeartbeatResponse()
    assert HeartbeatResponse() != HeartbeatRequest()
    assert repr(HeartbeatResponse(error_code=3)) == "HeartbeatResponse(throttle_time_ms=0, error_code=3)"


def test_unknown_names_are_no_fields() -> None:
    with pytest.raises(TypeError):
        HeartbeatResponse(errorcode=3)  # type: ignore[call-arg]  # misspelt, on purpose
    with pytest.raises(AttributeError):
        HeartbeatResponse().errorcode = 3  # type: ignore[attr-defined]  # misspelt, on purpose


def test_the_generated_source_can_be_read_and_stepped_through() -> None:
    decoder = HeartbeatRequest.decoder(4)
    assert source_of(decoder).startswith("def decode(buf, p, allowed=")
    assert decoder is HeartbeatRequest.decoder(4)
    linecache.checkcache()
    assert source_of(HeartbeatRequest.encoder(4)).startswith("def encode(m):")
