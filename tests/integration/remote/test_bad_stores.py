"""A broker process and a store that refuses it, loses or swaps its objects, or never answers: lines, alarms and records stay right."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE, LOCAL_TIERED_STORAGE
from ottla.storage.remote.local_layout import ROOT
from tests.integration.remote.test_copied_and_read import RECORDS, SETTINGS, fill, local_starts, scrape
from tests.support.broker_process import eventually
from tests.support.fault_proxy import Fault, FaultProxy, a_fault_proxy, always
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.moto_server import SIGNED, a_moto_server, forget_buckets, make_bucket, s3_keys
from tests.support.several_brokers import until
from tests.support.tiered_broker import a_tiered_broker, records


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    with a_moto_server("bucket") as url, a_fault_proxy(url) as proxy:
        yield proxy


def counted(broker: InProcessBroker, name: str) -> float:
    """A metric of all topics; 0 while it has no value."""
    return scrape(broker).get(f"kafka_server_brokertopicmetrics_remote{name}", 0.0)


@pytest.mark.parametrize("fault", ["credentials", "bucket", "directory"])
def test_a_process_whose_store_refuses_it_ends_with_one_line_and_writes_nothing(proxy: FaultProxy, tmp_path: Path, fault: str) -> None:
    proxy.forget()
    proxy.choose = always(Fault.FORBIDDEN) if fault == "credentials" else lambda number, method, path: None
    keys = {"remote.log.storage.manager.class.name": AIVEN_REMOTE_STORAGE, **s3_keys(proxy.url, "gone" if fault == "bucket" else "bucket")}
    if fault == "directory":
        keys = {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(tmp_path / "gone")}
    keys |= {"remote.log.storage.system.enable": "true", "log.dirs": str(tmp_path / "logs"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    words = [word for name, value in keys.items() for word in ("--set", f"{name}={value}")]
    done = subprocess.run([sys.executable, "-P", "-m", "ottla", "serve", *words], capture_output=True, text=True, check=False)
    proxy.forget()
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "the remote store cannot be used" in line
    assert "moto-secret" not in line
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("fault", "said"), [("credentials", "check the credentials of the remote store"), ("bucket", "The specified bucket does not exist")]
)
def test_a_store_that_refuses_a_running_broker_is_an_alarm_and_producers_go_on(
    proxy: FaultProxy, tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str, said: str
) -> None:
    proxy.forget()
    keys = SETTINGS | {
        "remote.log.storage.manager.class.name": AIVEN_REMOTE_STORAGE,
        **s3_keys(proxy.url, **{"key.prefix": f"{fault}/"}),
    }
    with a_broker_in_process(tmp_path / "logs", **keys) as broker:
        if fault == "bucket":
            forget_buckets(proxy.url)
        else:
            proxy.choose = always(Fault.FORBIDDEN)
        fill(broker, 1)
        until(lambda: counted(broker, "copyerrors_total") > 0)
        until(lambda: counted(broker, "copylagsegments") >= 5)
        assert counted(broker, "copylagbytes") > 50_000
        lines = [each.message for each in caplog.records if "remote storage task failed" in each.message]
        assert len(lines) == 1, "one line a minute"
        assert said in lines[0]
        assert local_starts(broker, 1) == [0]
        proxy.forget()
        if fault == "bucket":
            make_bucket(proxy.url, "bucket")
        until(lambda: local_starts(broker, 1)[0] > RECORDS // 2)
        until(lambda: counted(broker, "copylagsegments") == 0)


def test_a_broker_stops_in_time_while_its_store_never_answers(proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.forget()
    try:
        with a_tiered_broker(tmp_path, proxy.url) as broker:
            proxy.choose = always(Fault.BLACK_HOLE)
            broker.create("t", **{"remote.storage.enable": "true"})
            broker.fill("t", 0, 100)
            broker.await_(lambda: proxy.requests, "a copy")
            assert broker.stop() == 0
            proxy.forget()
            proxy.let_go()
            broker.start()
            assert broker.consume("t", 0, 100) == records(0, 100)
    finally:
        proxy.forget()
        proxy.let_go()


class _Reader:
    """A consumer that keeps what it got, and which errors."""

    def __init__(self, broker: InProcessBroker) -> None:
        self._consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False, "log_level": 0})
        self._consumer.assign([TopicPartition("t", 0, 0)])
        self.found: list[tuple[int, bytes | None]] = []
        self.errors: set[int] = set()

    def poll(self) -> None:
        for message in self._consumer.consume(500, 0.1):
            if message.error() is None:
                self.found.append((message.offset(), message.value()))
            else:
                self.errors.add(message.error().code())

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("fault", ["missing", "cut", "swapped"])
def test_objects_that_are_missing_cut_or_swapped_stop_a_reader_and_skip_nothing(tmp_path: Path, fault: str) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    keys = SETTINGS | {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(shared)}
    with a_broker_in_process(tmp_path / "logs", **keys) as broker:
        fill(broker, 1)
        until(lambda: local_starts(broker, 1)[0] > RECORDS // 2)
        logs = sorted((shared / ROOT).rglob("*.log"))
        right = {path: path.read_bytes() for path in logs[1:3]}
        if fault == "missing":
            logs[1].unlink()
        elif fault == "cut":
            logs[1].write_bytes(right[logs[1]][:-7])
        else:
            logs[1].write_bytes(right[logs[2]])
            logs[2].write_bytes(right[logs[1]])
        second = int(logs[1].name[:20])
        reader = _Reader(broker)
        try:

            def is_stopped() -> bool:
                reader.poll()
                return counted(broker, "fetcherrors_total") > 0 and len(reader.found) >= second

            eventually(is_stopped, what="a read that fails")
            for _ in range(5):
                reader.poll()
            assert [offset for offset, _ in reader.found] == list(range(second)), "no record is skipped, and none of another place read"
            assert KafkaError.OFFSET_OUT_OF_RANGE not in reader.errors
            assert scrape(broker)["ottla_remote_unreadable_segments"] == 1
            for path, data in right.items():
                path.write_bytes(data)
            eventually(lambda: reader.poll() or len(reader.found) == RECORDS, what="the rest")
            assert reader.found == [(at, (f"{at:05d}" * 100).encode()) for at in range(RECORDS)]
            until(lambda: scrape(broker)["ottla_remote_unreadable_segments"] == 0)
        finally:
            reader.close()


def _object(url: str, key: str, data: bytes | None = None) -> bytes:
    """Reads an object of the bucket, or writes it."""
    method, headers = "GET" if data is None else "PUT", SIGNED | {"Content-Type": "application/octet-stream"}
    with urlopen(Request(f"{url}/bucket/{key}", data, headers, method=method)) as answer:
        found: bytes = answer.read()
        return found


@pytest.mark.parametrize(
    ("suffix", "was", "becomes"),
    [("log", rb".*", b""), ("rsm-manifest", rb".*", b"{"), ("rsm-manifest", rb'"originalFileSize":', b'"originalFileSize":1')],
    ids=["empty records", "a malformed manifest", "a manifest of another size"],
)
def test_an_object_that_is_not_what_was_copied_is_counted_until_it_is_restored(
    proxy: FaultProxy, tmp_path: Path, suffix: str, was: bytes, becomes: bytes
) -> None:
    proxy.forget()
    prefix = f"{tmp_path.name}/"
    keys = {"remote.log.storage.manager.class.name": AIVEN_REMOTE_STORAGE, **s3_keys(proxy.url, **{"key.prefix": prefix})}
    with a_broker_in_process(tmp_path / "logs", **SETTINGS | keys) as broker:
        fill(broker, 1)
        until(lambda: local_starts(broker, 1)[0] > RECORDS // 2)
        keys_of_objects = {path.partition("?")[0].removeprefix("/bucket/") for _, path in proxy.requests}
        key = sorted(each for each in keys_of_objects if each.startswith(f"{prefix}t-") and each.endswith(f".{suffix}"))[1]
        right = _object(proxy.url, key)
        _object(proxy.url, key, re.sub(was, becomes, right, count=1, flags=re.DOTALL))
        reader = _Reader(broker)
        try:
            until(lambda: reader.poll() or scrape(broker)["ottla_remote_unreadable_segments"] == 1)
            assert reader.errors.isdisjoint({KafkaError.OFFSET_OUT_OF_RANGE})
            _object(proxy.url, key, right)
            until(lambda: reader.poll() or len(reader.found) == RECORDS)
            assert [offset for offset, _ in reader.found] == list(range(RECORDS))
            until(lambda: scrape(broker)["ottla_remote_unreadable_segments"] == 0)
        finally:
            reader.close()
