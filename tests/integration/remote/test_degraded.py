"""A broker whose remote store does not answer any more goes on, and says so wherever people look."""

from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from ottla.broker.remote import store_watch
from ottla.cli.doctor.remote_checks import check_remote_store
from ottla.cli.main import main
from ottla.config.broker import BrokerConfig
from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE, LOCAL_TIERED_STORAGE
from ottla.storage.remote.local_layout import ROOT
from tests.integration.remote.test_copied_and_read import CHUNKS, SETTINGS, scrape
from tests.support.apache_kafka.ports import free_ports
from tests.support.fault_proxy import Fault, a_fault_proxy, always
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.moto_server import s3_keys
from tests.support.s3_servers import an_s3_server
from tests.support.several_brokers import until

DEGRADED = "ottla_remote_store_degraded"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_watch, "ASK_SECONDS", 0.1)
    monkeypatch.setattr(store_watch, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(store_watch, "ANSWER_SECONDS", 2.0)


def health(broker: InProcessBroker, path: str = "/health") -> str:
    metrics = broker.broker.metrics
    assert metrics is not None
    with urlopen(f"http://{metrics.address}{path}") as answer:
        assert answer.status == 200
        text: str = answer.read().decode()
        return text


def doctor(broker: InProcessBroker) -> str:
    """The findings about the cluster, which the console shows, too."""
    return CliRunner().invoke(main, ["doctor", "-b", broker.bootstrap]).stdout


def is_writable(broker: InProcessBroker) -> bool:
    """Whether a producer gets an answer."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("t", b"a record")
    return producer.flush(30) == 0


def test_a_directory_that_goes_is_told_until_it_comes_back(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    keys = SETTINGS | {
        "remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE,
        "rsm.config.dir": str(shared),
        "ottla.metrics.listener": f"127.0.0.1:{free_ports(1)[0]}",
    }
    logs = {"log.dirs": str(tmp_path / "logs")}
    with a_broker_in_process(tmp_path / "logs", **keys) as broker:
        assert health(broker) == "running\n"
        (shared / ROOT).rename(shared / "away")
        until(lambda: scrape(broker)[DEGRADED] == 1)
        state, reason = health(broker).splitlines()
        assert (state, str(shared) in reason) == ("degraded", True)
        assert health(broker, "/health/ready") == "running\n"
        assert [each.kind.id for each in check_remote_store(BrokerConfig(keys | logs))] == ["remote-store-unusable"]
        (line,) = [line for line in doctor(broker).splitlines() if "remote-store-degraded" in line]
        assert str(shared) in line
        assert is_writable(broker)
        (shared / "away").rename(shared / ROOT)
        until(lambda: health(broker) == "running\n")
        assert scrape(broker)[DEGRADED] == 0


@pytest.mark.parametrize("fault", [Fault.FORBIDDEN, Fault.REFUSED, Fault.BLACK_HOLE])
def test_a_bucket_that_refuses_or_does_not_answer_is_told_until_it_does(tmp_path: Path, fault: Fault) -> None:
    with an_s3_server("moto", tmp_path / "s3", "bucket") as s3, a_fault_proxy(s3.url) as proxy:
        keys = SETTINGS | {"remote.log.storage.manager.class.name": AIVEN_REMOTE_STORAGE, **s3_keys(proxy.url, **CHUNKS)}
        with a_broker_in_process(tmp_path / "logs", **keys) as broker:
            assert health(broker) == "running\n"
            proxy.choose = always(fault)
            until(lambda: health(broker).startswith("degraded\nthe remote store does not answer: "))
            assert is_writable(broker)
            proxy.choose = lambda number, method, path: None
            until(lambda: health(broker) == "running\n")
