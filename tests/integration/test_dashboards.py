"""Every expression of the dashboards and alert rules finds its series in the metrics of a running cluster."""

import re
import urllib.request
from collections.abc import Iterable, Iterator

import pytest

from ottla.config.remote_storage import LOCAL_TIERED_STORAGE
from ottla.dashboards.files import expressions, metrics_in
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.clients import ConfluentClient, Record

SERIES = re.compile(r"^(\w+)(?:\{(.*)\})? \S+$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SELECTOR = re.compile(r"\b((?:kafka|org_apache_kafka|ottla|process)_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!=|=)"([^"]*)"')


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The metrics of two brokers that served a producer and a group, and copied records between each other and to a remote store."""
    directory = tmp_path_factory.mktemp("dashboards")
    (directory / "remote").mkdir()
    shared = f"{directory}/metadata.db"
    common = {
        "ottla.metadata.file": shared,
        "ottla.metrics.listener": "127.0.0.1:0",
        "ottla.group.lag.max.series": "100",
        "default.replication.factor": "2",
        "offsets.topic.num.partitions": "2",
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE,
        "rsm.config.dir": str(directory / "remote"),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
        "remote.log.manager.task.interval.ms": "100",
        "log.initial.task.delay.ms": "100",
        "log.retention.check.interval.ms": "100",
    }
    with (
        a_broker(directory / "0", broker_id=0, **common) as first,
        a_broker(directory / "1", broker_id=1, **common) as second,
    ):
        addresses = [metrics_address(first), metrics_address(second)]
        client = ConfluentClient(f"{first.bootstrap},{second.bootstrap}")
        client.create_topic("orders", 1, {"remote.storage.enable": "true", "segment.bytes": "1000", "local.retention.bytes": "1"})
        for _ in range(10):
            client.produce("orders", [Record(b"value" * 100)])
        client.consume_in_group("orders", "readers", 10)
        eventually(lambda: client.consume("orders") and "brokertopicmetrics_remotefetchrequests_total{" in metrics_at(addresses))
        eventually(lambda: "ottla_group_committed_offset{" in metrics_at(addresses))
        yield metrics_at(addresses)


def metrics_address(broker: BrokerProcess) -> str:
    found = re.search(r"metrics are at (\S+)", broker.log())
    assert found is not None
    return found[1]


def metrics_at(addresses: Iterable[str]) -> str:
    texts = []
    for address in addresses:
        with urllib.request.urlopen(address, timeout=30) as answer:
            texts.append(answer.read().decode())
    return "".join(texts)


def series_in(scrape: str) -> list[tuple[str, dict[str, str]]]:
    found = [match for match in map(SERIES.match, scrape.splitlines()) if match is not None]
    return [(match[1], {"instance": "127.0.0.1:9404", **dict(LABEL.findall(match[2] or ""))}) for match in found]


def fits(labels: dict[str, str], matchers: str) -> bool:
    for name, kind, value in MATCHER.findall(matchers):
        wanted, there = re.sub(r"\$\w+", ".*", value), labels.get(name, "")
        if (kind == "=" and there != wanted) or (kind == "!=" and there == wanted) or (kind == "=~" and not re.fullmatch(wanted, there)):
            return False
    return True


@pytest.mark.cluster
@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_an_expression_finds_its_series(scrape: str, expression: str) -> None:
    series = series_in(scrape)
    assert len(series) > 300
    selectors = [(name, matchers) for name, matchers in SELECTOR.findall(expression) if name in metrics_in(expression)]
    assert selectors
    for name, matchers in selectors:
        assert any(name == there and fits(labels, matchers) for there, labels in series), f"{name}{{{matchers}}}"
