"""What real clients write comes back as they wrote it: every codec, every kind of record, every way to be told of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.records.compression import CODEC_BY_NAME
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.clients import CODECS, Client, Clients, ConfluentClient, Record
from tests.support.segment_files import batch_headers

MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("produce")) as running:
        yield running


@pytest.fixture(params=Clients.all)
def client(broker: BrokerProcess, request: pytest.FixtureRequest) -> Client:
    return Clients.all[request.param](broker.bootstrap)


@pytest.fixture
def topic(broker: BrokerProcess, name: str) -> str:
    ConfluentClient(broker.bootstrap).create_topic(name)
    return name


def records_of_all_kinds() -> list[Record]:
    plain = [Record(b"value-%d" % number, b"key-%d" % (number % 7)) for number in range(200)]
    odd = [Record(b"no key"), Record(None, b"no value"), Record(b"h" * 40, b"k", (("a", b"1"), ("a", b"2"), ("b", "\u00e4".encode())))]
    return plain + odd


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_all_kinds_come_back(broker: BrokerProcess, client: Client, topic: str, codec: str) -> None:
    sent = records_of_all_kinds()

    client.produce(topic, sent, codec=codec)

    found = client.consume(topic)
    assert [record.content for record in found] == [record.content for record in sent]
    assert [record.offset for record in found] == list(range(len(sent)))
    written = {header.compression_codec for header in batch_headers(broker.data / f"{topic}-0")}
    assert CODEC_BY_NAME[codec] in written
    assert written <= {CODEC_BY_NAME[codec], 0}  # a client leaves a batch alone that would not become smaller


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_level_of_acknowledgement_writes(client: Client, topic: str, acks: str) -> None:
    client.produce(topic, [Record(b"first")])

    client.produce(topic, [Record(b"%d" % number) for number in range(50)], acks=acks)

    def values() -> list[bytes | None]:
        return [record.value for record in client.consume(topic)]

    eventually(lambda: len(values()) == 51, what="51 records")  # nobody waited for those with acks=0
    assert values() == [b"first", *(b"%d" % number for number in range(50))]


def test_an_idempotent_producer_gets_an_id_and_writes_in_sequence(broker: BrokerProcess, client: Client, topic: str) -> None:
    client.produce(topic, [Record(b"%d" % number) for number in range(300)], idempotent=True)

    assert [record.value for record in client.consume(topic)] == [b"%d" % number for number in range(300)]
    headers = batch_headers(broker.data / f"{topic}-0")
    assert {header.producer_id for header in headers} != {-1}
    assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_message_of_a_megabyte_comes_back(client: Client, topic: str, codec: str) -> None:
    large = bytes(range(97, 123)) * (MEGABYTE // 26)

    client.produce(topic, [Record(b"before"), Record(large), Record(b"after")], codec=codec)

    assert [record.value for record in client.consume(topic)] == [b"before", large, b"after"]


def test_a_message_larger_than_the_topic_allows_is_refused_and_the_next_is_not(client: Client, topic: str) -> None:
    client.produce(topic, [Record(b"before")])

    with pytest.raises(Exception, match=r"(?i)MSG_SIZE_TOO_LARGE|MessageSizeTooLarge|message.*larger than|Message size too large"):
        client.produce(topic, [Record(b"x" * 2 * MEGABYTE)])

    client.produce(topic, [Record(b"after")])
    assert [record.value for record in client.consume(topic)] == [b"before", b"after"]


def test_what_one_client_wrote_all_others_read(broker: BrokerProcess, client: Client, topic: str) -> None:
    writer = ConfluentClient(broker.bootstrap)
    for codec in CODECS:
        writer.produce(topic, records_of_all_kinds(), codec=codec)

    expected = [record.content for _ in CODECS for record in records_of_all_kinds()]
    assert [record.content for record in client.consume(topic)] == expected
    assert [record.content for record in writer.consume(topic)] == expected


def test_the_broker_compresses_anew_where_the_topic_asks_for_another_codec(broker: BrokerProcess, name: str) -> None:
    client = ConfluentClient(broker.bootstrap)
    client.create_topic(name, config={"compression.type": "lz4"})
    for codec in CODECS:
        client.produce(name, records_of_all_kinds(), codec=codec)

    assert {header.compression_codec for header in batch_headers(broker.data / f"{name}-0")} == {CODEC_BY_NAME["lz4"]}
    assert len(client.consume(name)) == len(CODECS) * len(records_of_all_kinds())


def test_the_broker_sets_the_time_where_the_topic_asks_for_it(broker: BrokerProcess, client: Client, name: str) -> None:
    ConfluentClient(broker.bootstrap).create_topic(name, config={"message.timestamp.type": "LogAppendTime"})

    client.produce(name, [Record(b"value", timestamp=1_000)], codec="gzip")

    (found,) = client.consume(name)
    assert found.timestamp is not None
    assert found.timestamp > 1_700_000_000_000


@pytest.mark.parametrize("illegal", ["a" * 250, "no spaces", "."])
def test_a_topic_with_an_illegal_name_is_not_made_by_writing_to_it(broker: BrokerProcess, illegal: str) -> None:
    client = ConfluentClient(broker.bootstrap)

    with pytest.raises(Exception, match=r"(?i)topic"):
        client.produce(illegal, [Record(b"value")])

    assert illegal not in client.topics()


def test_the_data_directory_holds_what_was_produced(broker: BrokerProcess, topic: str) -> None:
    ConfluentClient(broker.bootstrap).produce(topic, [Record(b"on disk")])

    assert b"on disk" in Path(broker.data / f"{topic}-0" / f"{0:020d}.log").read_bytes()
