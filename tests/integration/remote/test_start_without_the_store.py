"""A broker that has had a store starts while that does not answer. It writes there only once the store has named this cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import pytest

from ottla.broker.remote import remote_storage, store_child
from ottla.broker.server import CannotStart
from ottla.cli.doctor.remote_checks import check_remote_store
from ottla.config.broker import BrokerConfig
from ottla.storage.remote.ports import OWNER_NAME
from tests.support.apache_kafka.ports import free_ports
from tests.support.fault_proxy import Fault, FaultProxy, a_fault_proxy, always
from tests.support.forked_broker import start_broker
from tests.support.in_process_broker import a_broker_in_process
from tests.support.moto_server import SIGNED, s3_keys
from tests.support.s3_servers import S3Server, an_s3_server
from tests.support.tiered_broker import OBJECTS_OF_A_COPY, SETTINGS, TieredBroker, objects_by_copy, records

HALF, RECORDS = 100, 200
CLOSED = "http://127.0.0.1:9"
ENDPOINT = "rsm.config.storage.s3.endpoint.url"


class Stage(NamedTuple):
    """A broker that was stopped after it has copied half of the records of its topic `t`. Its store is behind the proxy."""

    broker: TieredBroker
    proxy: FaultProxy
    s3: S3Server

    def health(self) -> str:
        """What `/health` says."""
        with urlopen(f"http://{self.broker.config['ottla.metrics.listener']}/health") as answer:
            text: str = answer.read().decode()
            return text

    def keys(self) -> dict[str, str]:
        """The configuration for a broker in the process of the test, on the same directory."""
        return {name: value for name, value in self.broker.config.items() if name != "log.dirs"}

    def log(self) -> str:
        """All that the broker has logged."""
        return self.broker.log_file.read_text(errors="replace")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with an_s3_server("moto", tmp_path / "s3", "bucket") as s3, a_fault_proxy(s3.url) as proxy:
        broker = TieredBroker(tmp_path / "broker", proxy.url)
        broker.config["ottla.metrics.listener"] = f"127.0.0.1:{free_ports(1)[0]}"
        try:
            broker.start()
            broker.create("t", **{"remote.storage.enable": "true"})
            broker.fill("t", 0, HALF)
            broker.await_(lambda: broker.are_all_copied("t"), "the copies")
            assert broker.stop() == 0
            yield Stage(broker, proxy, s3)
        except BaseException:
            print(f"--- the broker's log ---\n{broker.log()}")
            raise
        finally:
            proxy.forget()
            proxy.let_go()
            if broker.is_running:
                broker.kill()


def start_and_fill(stage: Stage) -> None:
    """The broker starts without its store, and serves what is local."""
    broker = stage.broker
    broker.start()
    state, reason = stage.health().splitlines()
    assert (state, "bucket" in reason) == ("degraded", True)
    (first_here,) = broker.local_bases("t")
    assert broker.consume("t", first_here, HALF) == records(first_here, HALF)
    broker.fill("t", HALF, RECORDS)
    assert broker.consume("t", first_here, RECORDS) == records(first_here, RECORDS)
    (line,) = [line for line in stage.log().splitlines() if "the remote store does not answer; local records are served" in line]
    assert " WARN" in line


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.UNAVAILABLE])
def test_local_records_are_served_and_copies_go_on_when_the_store_is_back(stage: Stage, fault: Fault) -> None:
    broker, proxy, s3 = stage
    proxy.choose = always(fault)
    start_and_fill(stage)
    proxy.forget()

    broker.await_(lambda: broker.are_all_copied("t"), "the copies")
    assert objects_by_copy(s3, "t") == dict.fromkeys(broker.copies("t"), OBJECTS_OF_A_COPY)
    assert broker.consume("t", 0, RECORDS) == records(0, RECORDS)
    broker.await_(lambda: stage.health() == "running\n", "the health")


def test_a_broker_that_has_had_a_store_starts_where_no_server_listens(stage: Stage) -> None:
    stage.broker.config[ENDPOINT] = CLOSED
    start_and_fill(stage)
    assert [each.kind.id for each in check_remote_store(BrokerConfig(stage.broker.config))] == ["remote-store-unusable"]
    assert stage.broker.stop() == 0
    stage.broker.config[ENDPOINT] = stage.proxy.url
    stage.broker.start()
    stage.broker.await_(lambda: stage.broker.are_all_copied("t"), "the copies")


def test_a_store_that_comes_back_as_that_of_another_cluster_is_not_written(stage: Stage) -> None:
    broker, proxy, s3 = stage
    proxy.choose = always(Fault.REFUSED)
    with urlopen(
        Request(f"{s3.url}/bucket/{OWNER_NAME}", data=b"another\n", method="PUT", headers=SIGNED | {"Content-Type": "text/plain"})
    ) as answer:
        assert answer.status == 200
    before = sorted(s3.keys("bucket"))
    start_and_fill(stage)
    broker.configure("t", retention_bytes="1")
    proxy.forget()

    broker.await_(lambda: "the remote store belongs to the cluster another" in stage.health(), "the health")
    broker.create("later", **{"remote.storage.enable": "true"})
    broker.fill("later", 0, HALF)
    asked = len(proxy.requests)
    broker.await_(lambda: len(proxy.requests) > asked, "a further question")
    assert {method for method, _ in proxy.requests} == {"GET"}
    assert sorted(s3.keys("bucket")) == before
    assert sum(" ERROR" in line and "the remote store belongs to the cluster another" in line for line in stage.log().splitlines()) == 1


@pytest.mark.parametrize("fault", [Fault.FORBIDDEN, None])
def test_a_store_that_refuses_a_broker_that_has_had_it_ends_the_start(stage: Stage, fault: Fault | None) -> None:
    keys = stage.keys()
    reason = "403 Forbidden"
    if fault is None:
        keys["rsm.config.storage.s3.bucket.name"] = "another"
        reason = "NoSuchBucket"
    else:
        stage.proxy.choose = always(fault)
    with pytest.raises(CannotStart, match=f"the remote store cannot be used: .*{reason}"), a_broker_in_process(stage.broker.data, **keys):
        pass


def test_a_store_that_never_answers_holds_the_start_for_a_limited_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_storage, "PROBE_SECONDS", 3.0)
    keys = stage.keys()
    stage.proxy.choose = always(Fault.BLACK_HOLE)
    with a_broker_in_process(stage.broker.data, **keys):
        assert stage.health() == "degraded\nthe remote store does not answer: no answer within 3 s\n"


def test_a_store_that_goes_before_it_has_named_its_owner_is_asked_later(stage: Stage) -> None:
    stage.proxy.choose = always(Fault.REFUSED, lambda method, path: path.endswith(OWNER_NAME))
    with a_broker_in_process(stage.broker.data, **stage.keys()):
        assert stage.health().startswith("degraded\n")


def test_a_store_process_that_does_not_start_ends_the_start(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_child, "command_of", lambda descriptor: ["/bin/false"])
    with pytest.raises(CannotStart, match="the store process does not start"), a_broker_in_process(stage.broker.data, **stage.keys()):
        pass


def test_the_first_start_needs_a_store_that_is_reached(tmp_path: Path) -> None:
    config = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"} | SETTINGS | s3_keys(CLOSED)
    with (tmp_path / "log").open("ab") as log:
        arguments = [argument for name, value in config.items() for argument in ("--set", f"{name}={value}")]
        process = start_broker(arguments, log, {}, tmp_path)
    assert process.wait(60) == 1
    if process.stdout is not None:
        process.stdout.close()
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line.startswith("ottla: the remote store cannot be used: ")
    assert not (tmp_path / "data").exists()
