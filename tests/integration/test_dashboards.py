"""Every expression of the dashboards and alert rules finds its series in the metrics of a running cluster."""

import re
import urllib.request
from collections.abc import Iterator

import pytest

from ottla.dashboards.files import expressions, metrics_in
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.clients import ConfluentClient, Record

SERIES = re.compile(r"^(\w+)(?:\{(.*)\})? \S+$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SELECTOR = re.compile(r"\b((?:kafka|ottla|process)_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!=|=)"([^"]*)"')


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The metrics of two brokers that served a producer and a group, and copied records between each other."""
    directory = tmp_path_factory.mktemp("dashboards")
    shared = f"{directory}/metadata.db"
    common = {
        "ottla.metadata.file": shared,
        "ottla.metrics.listener": "127.0.0.1:0",
        "ottla.group.lag.max.series": "100",
        "default.replication.factor": "2",
        "offsets.topic.num.partitions": "2",
    }
    with (
        a_broker(directory / "0", broker_id=0, **common) as first,
        a_broker(directory / "1", broker_id=1, **common) as second,
    ):
        client = ConfluentClient(f"{first.bootstrap},{second.bootstrap}")
        client.produce("orders", [Record(b"value")] * 10)
        client.consume_in_group("orders", "readers", 10)
        eventually(lambda: "ottla_group_committed_offset{" in metrics_of(first) + metrics_of(second))
        yield metrics_of(first) + metrics_of(second)


def metrics_of(broker: BrokerProcess) -> str:
    found = re.search(r"metrics are at (\S+)", broker.log())
    assert found is not None
    with urllib.request.urlopen(found.group(1), timeout=30) as answer:
        text: str = answer.read().decode()
        return text


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
