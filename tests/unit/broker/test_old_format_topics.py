"""Topics that keep message format 0 or 1 (message.format.version), for clients of any age."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.storage.segment.file_region import FileRegion
from tests.support.batches import a_batch, a_record
from tests.support.controlled_cluster import until
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.old_messages import Old, messages, read
from tests.support.replicas import TOPIC, state

OLD_BROKER = BrokerConfig({"log.index.size.max.bytes": "1024", "inter.broker.protocol.version": "2.8"})
RELEASES = {0: "0.9.0", 1: "0.10.2"}


def alone(magic: int, **topic_config: str) -> HandlerBench:
    """Broker 0 leads partition 0, which has no other replica."""
    bench = HandlerBench(message_format_version=RELEASES[magic], **topic_config)
    bench.replicas.disks.broker = OLD_BROKER
    bench.replicas.say(state(isr=[0], replicas=[0]))
    bench.know(p0=0)
    return bench


async def answered(*asked: Asking) -> None:
    await until(lambda: not any(each.waits for each in asked))


async def fetched(bench: HandlerBench, offset: int, version: int) -> tuple[int, list[Old]]:
    asked = bench.fetch(offset, version=version)
    await answered(asked)
    (partition,) = asked.fetched
    return partition.error_code, read(partition.records or b"")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_batches_of_many_producers_at_once_are_all_stored_as_messages(magic: int, codec: str) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = alone(magic)
        asked = [bench.produce(a_batch([a_record(key=b"%d" % number), a_record(1, key=None)], codec)) for number in range(20)]
        await answered(*asked)
        offsets = [each.produced[0].base_offset for each in asked]
        assert sorted(offsets) == list(range(0, 40, 2))
        for version in (1, 3, 11):
            code, found = await fetched(bench, 0, version)
            keys = {old.offset: old.key for old in found}
            assert code == 0
            assert [keys[offset] for offset in offsets] == [b"%d" % number for number in range(20)]

    scenario()


@pytest.mark.parametrize(("magic", "codes"), [(0, [0, 0]), (1, [ErrorCode.UNSUPPORTED_VERSION, 0])])
def test_a_topic_without_down_conversion_serves_those_who_know_its_format(magic: int, codes: list[int]) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = alone(magic, message_downconversion_enable="false")
        asked = bench.produce(messages(0, [Old(0, -1, b"k", b"v")]), version=2)
        await answered(asked)
        assert [(await fetched(bench, 0, version))[0] for version in (1, 3)] == codes

    scenario()


@pytest.mark.parametrize(("magic", "code"), [(0, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), (1, ErrorCode.NONE)])
def test_offsets_by_time_need_times(magic: int, code: ErrorCode) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = alone(magic)
        asked = bench.produce(a_batch(3))
        await answered(asked)
        for timestamp, wanted in ((1, code), (-1, ErrorCode.NONE), (-2, ErrorCode.NONE), (-3, code)):
            partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            listed = bench.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[partition])]), ApiKey.LIST_OFFSETS, 7)
            await answered(listed)
            assert listed.response.topics[0].partitions[0].error_code == wanted

    scenario()


@on_a_loop
async def test_logs_of_a_clients_format_leave_as_they_are_without_a_thread() -> None:
    bench = alone(1)
    sent = [Old(offset, 1, b"k", bytes(20_000)) for offset in range(4)]
    await answered(bench.produce(messages(1, sent), version=2))
    for version in (2, 3, 4, 11):
        asked = bench.fetch(0, version=version)
        assert not asked.waits
        assert any(isinstance(part, FileRegion) for part in asked.parts)
        assert read(asked.fetched[0].records or b"") == sent
    assert bench.replicas.manager.topic_stats.total("fetch_message_conversions") == 0


@on_a_loop
async def test_a_client_of_an_older_format_gets_the_messages_converted() -> None:
    bench = alone(1)
    await answered(bench.produce(messages(1, [Old(0, 1, b"k", b"v")]), version=2))
    assert await fetched(bench, 0, 1) == (0, [Old(0, -1, b"k", b"v")])
    assert bench.replicas.manager.topic_stats.total("fetch_message_conversions") == 1


@on_a_loop
async def test_an_idempotent_producer_is_refused_and_others_are_served() -> None:
    bench = alone(1)
    asked = [bench.produce(a_batch(producer_id=7)), bench.produce(a_batch())]
    await answered(*asked)
    assert [each.produced[0].error_code for each in asked] == [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.NONE]


@on_a_loop
async def test_lost_leadership_ends_the_turns_of_the_batches_that_wait() -> None:
    bench = alone(1)
    asked = [bench.produce(a_batch(100, "gzip")) for _ in range(5)]
    bench.replicas.say(state(leader=1, epoch=1, partition_epoch=1))
    await answered(*asked)
    assert {each.produced[0].error_code for each in asked} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert bench.replicas.partition.log.log_end_offset == 0


@pytest.mark.parametrize(("release", "code"), [("2.0", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), ("2.1", 0)])
def test_zstd_needs_brokers_that_know_it(release: str, code: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = HandlerBench()
        bench.replicas.disks.broker = BrokerConfig({"log.index.size.max.bytes": "1024", "inter.broker.protocol.version": release})
        bench.replicas.say(state(isr=[0], replicas=[0]))
        bench.know(p0=0)
        asked = bench.produce(a_batch(2, "zstd"))
        await answered(asked)
        (partition,) = asked.produced
        assert (partition.error_code, partition.log_start_offset) == (code, 0)
        assert bench.produce(a_batch(2, "lz4")).produced[0].error_code == 0

    scenario()
