"""Clients of before 2017: Produce 0 to 2 with messages of formats 0 and 1, Fetch 0 to 3."""

import struct
import zlib
from collections.abc import Callable

import pytest

from ottla.broker.network.offenders import LINES_PER_WINDOW
from ottla.broker.network.request_channel import CLOSE, NO_RESPONSE
from ottla.config.broker import BrokerConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import LOG_OVERHEAD
from ottla.protocol.records.compression import CompressionCodec, compress
from ottla.protocol.records.reader import iter_records
from ottla.storage.log.origins import CLIENT, COORDINATOR
from ottla.storage.segment.converted_region import PIECE_BYTES, ConvertedRegion
from ottla.storage.validation.run import BatchRun
from tests.support.batches import a_batch, a_record
from tests.support.controlled_cluster import until
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.odd_batches import a_body, framed
from tests.support.old_messages import LOG_APPEND_TIME, Old, message, messages, read, wrapped
from tests.support.replicas import TOPIC, state

SENT = [Old(0, 1000, b"k", b"v"), Old(1, 1001, b"k", None), Old(2, -1, None, b"w")]
GZIP = CompressionCodec.GZIP


def alone(**topic_config: str) -> HandlerBench:
    """Broker 0 leads partition 0, which has no other replica."""
    bench = HandlerBench(**topic_config)
    bench.replicas.say(state(isr=[0], replicas=[0]))
    bench.know(p0=0)
    return bench


def inside(records: bytes) -> bytes:
    """A compressed message with these bytes in it."""
    return message(1, Old(1, 1000, None, compress(GZIP, records)), GZIP)


def bomb() -> bytes:
    """A compressed message with the beginning of one of 140 MiB in it, whose zeros were compressed once: such blocks can be repeated."""
    size, block = 140 << 20, 1 << 20
    deflater = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    begin = deflater.compress(struct.pack(">qiIbBii", 0, size + 14, 0, 0, 0, -1, size)) + deflater.flush(zlib.Z_FULL_FLUSH)
    zeros = deflater.compress(bytes(block)) + deflater.flush(zlib.Z_FULL_FLUSH)
    return message(0, Old(0, -1, None, begin + size // block * zeros), GZIP)


def with_size(records: bytes, size: int) -> bytes:
    """The message with another size, which its checksum does not cover."""
    return records[:8] + struct.pack(">i", size) + records[12:]


async def answered(asked: Asking) -> Asking:
    await until(lambda: not asked.waits)
    return asked


async def produced(bench: HandlerBench, records: bytes, version: int = 2) -> tuple[int, int]:
    """Error code and base offset."""
    (partition,) = (await answered(bench.produce(records, version=version))).produced
    return partition.error_code, partition.base_offset


async def fetched(bench: HandlerBench, offset: int, version: int) -> bytes:
    (partition,) = (await answered(bench.fetch(offset, version=version))).fetched
    assert partition.error_code == 0
    return partition.records or b""


def stored(records: bytes) -> list[Old]:
    return [Old(record.offset, record.timestamp, record.key, record.value) for record in iter_records(records)]


# -- producing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_messages_are_stored_as_one_batch_with_the_same_records(version: int, codec: int) -> None:
    magic = 1 if version == 2 else 0
    sent = [old if magic else old._replace(timestamp=-1) for old in SENT]

    @on_a_loop
    async def scenario() -> None:
        bench = alone()
        records = wrapped(magic, codec, sent) if codec else messages(magic, sent)
        assert await produced(bench, records, version) == (0, 0)
        assert await produced(bench, records, version) == (0, 3)
        batches = await fetched(bench, 3, 4)
        assert stored(batches) == [old._replace(offset=3 + old.offset) for old in sent]
        assert bench.replicas.manager.topic_stats.total("produce_message_conversions") == 6

    scenario()


@on_a_loop
async def test_acks_0_gets_no_answer_and_an_error_closes_the_connection() -> None:
    bench = alone()
    assert (await answered(bench.produce(messages(0, SENT), version=0, acks=0))).control is NO_RESPONSE
    assert bench.replicas.partition.log.log_end_offset == 3
    assert (await answered(bench.produce(message(0, SENT[0], crc=1), version=0, acks=0))).control is CLOSE


@on_a_loop
async def test_no_complete_message_is_no_error_and_is_not_appended() -> None:
    bench = alone()
    for records in (b"", message(0, SENT[0])[:-1]):
        assert await produced(bench, records) == (0, -1)
    assert bench.replicas.partition.log.log_end_offset == 0
    assert bench.replicas.manager.topic_stats.total("messages_in") == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("records", "code"),
    [
        (message(1, SENT[0], crc=1), ErrorCode.CORRUPT_MESSAGE),
        (message(3, SENT[0]), ErrorCode.CORRUPT_MESSAGE),
        (message(0, SENT[0]) + message(1, SENT[1]), ErrorCode.INVALID_RECORD),
        (message(1, SENT[0]._replace(timestamp=-2)) + message(0, SENT[1]), ErrorCode.UNKNOWN_SERVER_ERROR),
        (bytes(a_batch()) + message(1, SENT[1]), ErrorCode.INVALID_RECORD),
        (2 * wrapped(1, GZIP, SENT), ErrorCode.INVALID_RECORD),
        (message(1, Old(0, 1, None, b"no gzip"), GZIP), ErrorCode.UNKNOWN_SERVER_ERROR),
        (message(1, Old(0, 1, None, b""), 5), ErrorCode.UNKNOWN_SERVER_ERROR),
        (message(1, SENT[0]._replace(timestamp=-2)), ErrorCode.UNKNOWN_SERVER_ERROR),
        (wrapped(1, GZIP, SENT[2:], attributes=LOG_APPEND_TIME), ErrorCode.INVALID_TIMESTAMP),
        (message(0, Old(0, -1, None, bytes(1_100_000))), ErrorCode.MESSAGE_TOO_LARGE),
        (bomb, ErrorCode.MESSAGE_TOO_LARGE),
        (inside(wrapped(1, GZIP, SENT)), ErrorCode.INVALID_RECORD),
        (inside(message(1, SENT[0], crc=1)), ErrorCode.CORRUPT_MESSAGE),
        (inside(with_size(message(1, SENT[0]), -1)), ErrorCode.CORRUPT_MESSAGE),
        (inside(with_size(message(1, SENT[0]), 1 << 20)), ErrorCode.INVALID_RECORD),
        (with_size(message(1, SENT[0]), 13), ErrorCode.CORRUPT_MESSAGE),
        (wrapped(1, GZIP, SENT, 1), ErrorCode.INVALID_RECORD),
    ],
    ids=[
        "crc",
        "magic 3",
        "two magics",
        "time in front of another magic",
        "behind a batch",
        "two wrappers",
        "codec",
        "codec 5",
        "time",
        "append time",
        "large",
        "bomb",
        "nested twice",
        "crc inside",
        "negative size inside",
        "large size inside",
        "small size",
        "offsets that contradict",
    ],
)
def test_bad_messages_get_the_error_code_of_apache_kafka_and_one_line_in_the_log(
    records: bytes | Callable[[], bytes], code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    assert_refused(records() if callable(records) else records, code, caplog)


@pytest.mark.slow
def test_many_empty_messages_are_too_large_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    """Each of them is small. They are converted in several slices."""
    assert_refused(message(0, Old(0, -1, None, None)) * 10_000, ErrorCode.MESSAGE_TOO_LARGE, caplog, max_message_bytes="50000")


def assert_refused(data: bytes, code: ErrorCode, caplog: pytest.LogCaptureFixture, **topic_config: str) -> None:
    """With this error, and one line in the log; later messages are appended."""

    @on_a_loop
    async def scenario() -> None:
        bench = alone(**topic_config)
        assert await produced(bench, data) == (code, -1)
        assert bench.replicas.partition.log.log_end_offset == 0
        assert await produced(bench, message(1, SENT[0])) == (0, 0)

    scenario()
    (line,) = [each.getMessage() for each in caplog.records if each.name == "ottla.broker.request.refused_records"]
    assert line.startswith("local:1-host:2-0 on listener PLAINTEXT: records for orders-0 are refused: ")


@on_a_loop
async def test_bad_messages_do_not_hold_up_the_other_partitions_of_their_request() -> None:
    bench = alone()
    bench.replicas.say(state(isr=[0], replicas=[0]), state(index=1, isr=[0], replicas=[0]))
    bench.know(p0=0, p1=0)
    asked = await answered(bench.produce(inside(wrapped(1, GZIP, SENT)), messages(1, SENT), version=2))
    assert [partition.error_code for partition in asked.produced] == [ErrorCode.INVALID_RECORD, ErrorCode.NONE]


def test_a_host_that_repeats_bad_messages_gets_a_few_lines_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = alone()
        for _ in range(50):
            assert (await produced(bench, message(1, SENT[0], crc=1)))[0] == ErrorCode.CORRUPT_MESSAGE

    scenario()
    assert len(caplog.records) == 6


@on_a_loop
async def test_a_compacted_topic_needs_keys() -> None:
    bench = alone(cleanup_policy="compact")
    assert await produced(bench, messages(1, SENT)) == (ErrorCode.INVALID_RECORD, -1)
    assert bench.replicas.manager.topic_stats.records_without_key == 1
    assert await produced(bench, messages(1, SENT[:2])) == (0, 0)


def test_of_very_many_messages_without_a_key_the_first_ones_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed message of some KB may hold five million."""
    monkeypatch.setattr("ottla.storage.validation.conversion.MOST_RECORD_ERRORS", 4)

    @on_a_loop
    async def scenario() -> None:
        bench = alone(cleanup_policy="compact")
        assert await produced(bench, messages(1, [SENT[2]] * 9)) == (ErrorCode.INVALID_RECORD, -1)
        assert bench.replicas.manager.topic_stats.records_without_key == 4

    scenario()


@on_a_loop
async def test_a_topic_limits_timestamps_and_sets_them() -> None:
    bench = alone(message_timestamp_before_max_ms="1000")
    assert await produced(bench, messages(1, SENT[:1])) == (ErrorCode.INVALID_TIMESTAMP, -1)
    bench = alone(message_timestamp_type="LogAppendTime", compression_type="lz4")
    (partition,) = (await answered(bench.produce(messages(0, SENT), version=2))).produced
    now_ms = bench.replicas.clock.now_ms()
    assert partition.log_append_time_ms == now_ms
    assert {old.timestamp for old in stored(await fetched(bench, 0, 4))} == {now_ms}


# -- consuming -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_batches_are_read_as_messages(version: int, codec: str) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = alone()
        records = [a_record(offset, headers=((b"h", b"x"),)) for offset in range(3)]
        for _ in range(2):
            assert (await answered(bench.produce(a_batch(records, codec)))).produced[0].error_code == 0
        found: list[Old] = []
        while len(found) < 6:
            next_offset = len(found)
            found += [old for old in read(await fetched(bench, next_offset, version)) if old.offset >= next_offset]
        wanted = stored(await fetched(bench, 0, 4)) + [
            Old(3 + record.offset, record.timestamp, record.key, record.value) for record in records
        ]
        assert [old.offset for old in found] == [0, 1, 2, 3, 4, 5]
        assert found == [old if version > 1 else old._replace(timestamp=-1) for old in wanted]
        assert bench.replicas.manager.topic_stats.total("fetch_message_conversions") >= 6

    scenario()


@on_a_loop
async def test_single_messages_begin_at_the_offset_and_compressed_ones_with_their_batch() -> None:
    bench = alone()
    for codec in ("none", "gzip"):
        await answered(bench.produce(a_batch(3, codec=codec)))
    assert [old.offset for old in read(await fetched(bench, 1, 2))][:2] == [1, 2]
    assert [old.offset for old in read(await fetched(bench, 4, 2))] == [3, 4, 5]


@on_a_loop
async def test_the_size_is_that_of_the_batches_and_an_incomplete_message_fills_it() -> None:
    bench = alone()
    await answered(bench.produce(a_batch(1, value_bytes=1)))
    size = len(await fetched(bench, 0, 4))
    records = await fetched(bench, 0, 0)
    assert len(records) == size
    assert len(read(records)) == 1


@on_a_loop
async def test_the_first_batch_is_sent_even_if_its_messages_take_more_bytes() -> None:
    bench = alone()
    await answered(bench.produce(a_batch(200, value_bytes=1)))
    assert len(await fetched(bench, 0, 3)) > len(await fetched(bench, 0, 4))
    assert len(read(await fetched(bench, 0, 3))) == 200


@pytest.mark.parametrize(("version", "stored_as"), [(0, "3.9"), (1, "3.9"), (2, "3.9"), (3, "3.9"), (2, "0.10.2"), (3, "0.10.2")])
def test_a_client_with_hard_limits_learns_of_a_batch_that_is_too_large_by_a_part_of_it(version: int, stored_as: str) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = HandlerBench()
        formats = {} if stored_as == "3.9" else {"inter.broker.protocol.version": "2.8", "log.message.format.version": stored_as}
        bench.replicas.disks.broker = BrokerConfig({**formats, "log.index.size.max.bytes": "1024"})
        bench.replicas.say(state(isr=[0], replicas=[0]))
        bench.know(p0=0)
        await answered(bench.produce(messages(1, [Old(0, 1000, None, bytes(300))]), version=2))
        (partition,) = (await answered(bench.fetch(0, version=version, partition_max_bytes=200))).fetched
        records = bytes(partition.records or b"")
        if version == 3:
            assert len(read(records)) == 1
        else:
            assert len(records) == (200 if stored_as == "0.10.2" else LOG_OVERHEAD)
            assert read(records) == []
        assert len(read(await fetched(bench, 0, version))) == 1

    scenario()


@on_a_loop
async def test_zstd_is_refused_in_front_and_left_out_behind() -> None:
    bench = alone()
    await answered(bench.produce(a_batch(2)))
    await answered(bench.produce(a_batch(2, codec="zstd")))
    assert [old.offset for old in read(await fetched(bench, 0, 2))] == [0, 1]
    (partition,) = (await answered(bench.fetch(2, version=2))).fetched
    assert (partition.error_code, partition.high_watermark) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1)


@pytest.mark.parametrize(
    ("stored", "code"),
    [(framed(a_body(9)), ErrorCode.INVALID_RECORD), (framed(b"", GZIP), ErrorCode.UNKNOWN_SERVER_ERROR)],
    ids=["plain", "gzip"],
)
def test_a_malformed_batch_is_left_out_behind_others_and_costs_few_lines_in_front(
    stored: bytes, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    """No client can write one now, but logs of earlier versions may have it."""

    @on_a_loop
    async def scenario() -> None:
        bench = alone()
        for batch, origin in ((bytes(a_batch(3)), CLIENT), (stored, COORDINATOR), (bytes(a_batch(3)), CLIENT)):
            run = BatchRun(memoryview(bytearray(batch)))
            run.read(0)
            bench.replicas.manager.partition_or_raise(TOPIC, 0).append(run, -1, 0, origin)
        assert [old.offset for old in read(await fetched(bench, 0, 3))] == [0, 1, 2]
        for _ in range(20):
            (partition,) = (await answered(bench.fetch(3, version=3))).fetched
            assert partition.error_code == code
        assert [old.offset for old in read(await fetched(bench, 13, 3))] == [13, 14, 15]

    scenario()
    assert 0 < caplog.text.count("cannot be converted") <= LINES_PER_WINDOW
    assert f"{TOPIC}-0: the records from offset 3 on cannot be converted for" in caplog.text


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_topic_without_down_conversion_refuses_old_consumers(version: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = alone(message_downconversion_enable="false")
        await answered(bench.produce(a_batch()))
        (partition,) = bench.fetch(0, version=version).fetched
        assert (partition.error_code, partition.high_watermark, partition.records) == (ErrorCode.UNSUPPORTED_VERSION, -1, b"")
        assert len(await fetched(bench, 0, 4)) > 0

    scenario()


@pytest.mark.parametrize(("of_topic", "code"), [(None, ErrorCode.UNSUPPORTED_VERSION), ("true", ErrorCode.NONE)])
def test_a_broker_without_down_conversion_refuses_old_consumers_unless_the_topic_has_it(of_topic: str | None, code: ErrorCode) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = HandlerBench(**({} if of_topic is None else {"message_downconversion_enable": of_topic}))
        bench.replicas.disks.broker = BrokerConfig({"log.message.downconversion.enable": "false", "log.index.size.max.bytes": "1024"})
        bench.replicas.say(state(isr=[0], replicas=[0]))
        bench.know(p0=0)
        await answered(bench.produce(a_batch()))
        for version in range(4):
            (partition,) = (await answered(bench.fetch(0, version=version))).fetched
            assert partition.error_code == code
        assert len(await fetched(bench, 0, 4)) > 0

    scenario()


@on_a_loop
async def test_only_old_consumers_cost_a_conversion() -> None:
    bench = alone()
    await answered(bench.produce(messages(1, SENT), version=2))
    await answered(bench.produce(a_batch(3)))
    for version in (4, 10, 11, 12, 16):
        asked = bench.fetch(0, version=version)
        assert not asked.waits
    assert bench.replicas.manager.topic_stats.total("fetch_message_conversions") == 0
    assert bench.replicas.manager.topic_stats.total("produce_message_conversions") == len(SENT)
    await answered(bench.fetch(0, version=3))
    assert bench.replicas.manager.topic_stats.total("fetch_message_conversions") > 0


@on_a_loop
async def test_a_fetch_of_many_partitions_converts_a_batch_of_each_and_a_piece_before_it_answers() -> None:
    bench = alone()
    partitions = range(4)
    bench.replicas.say(*(state(index=index, isr=[0], replicas=[0]) for index in partitions))
    bench.know(p0=0, p1=0, p2=0, p3=0)
    for _ in range(20):
        await answered(bench.produce(*(a_batch(100, value_bytes=200) for _ in partitions)))
    asked = await answered(bench.fetch(*(0 for _ in partitions), version=3))
    size = len(a_batch(100, value_bytes=200))
    assert len([part for part in asked.parts if isinstance(part, ConvertedRegion)]) == len(partitions)
    converted = bench.replicas.manager.topic_stats.total("fetch_message_conversions")
    assert 100 * len(partitions) < converted <= 100 * (len(partitions) + 2 * PIECE_BYTES // size)
    for partition in asked.fetched:
        found = [old.offset for old in read(partition.records or b"")]
        assert len(found) > 1000
        assert found == list(range(len(found)))


@on_a_loop
async def test_an_old_consumer_waits_for_records() -> None:
    bench = alone()
    asked = bench.fetch(0, version=0)
    assert asked.waits
    bench.produce(a_batch())
    (partition,) = (await answered(asked)).fetched
    assert [old.offset for old in read(partition.records or b"")] == [0]


@on_a_loop
async def test_nothing_is_read_at_the_end_of_the_log() -> None:
    bench = alone()
    (partition,) = (await answered(bench.fetch(0, version=0, max_wait_ms=0))).fetched
    assert (partition.error_code, partition.records) == (0, b"")
    assert TOPIC in bench.replicas.manager.partitions
