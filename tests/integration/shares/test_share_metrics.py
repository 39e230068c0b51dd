"""The metrics of share groups follow what members fetch and acknowledge."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.share_members import ShareMember, create_topic, initialize, produce
from tests.support.wire_client import a_wire_client

ACCEPT, RELEASE, REJECT = 1, 2, 3
CONFIG: dict[str, Any] = {
    "ottla.metrics.listener": "127.0.0.1:0",
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.record.lock.duration.ms": 1_000,
    "share.coordinator.state.topic.num.partitions": 1,
}
PLACE = {"group": "g", "topic": "t", "partition": "0"}


def scrape(broker: InProcessBroker) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    assert broker.broker.metrics is not None
    with urllib.request.urlopen(f"http://{broker.broker.metrics.address}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {(each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples}


def value(broker: InProcessBroker, name: str, **labels: str) -> float:
    return scrape(broker)[f"kafka_server_{name}", tuple(sorted(labels.items()))]


def test_the_work_of_a_share_group_is_counted(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path, **CONFIG) as broker, a_wire_client(broker.port) as client:
        topic_id = create_topic(client, "t")
        initialize(client, "g", topic_id)
        produce(client, "t", 10)
        member = ShareMember(client, topic_id)
        assert member.acquire(0) == [(0, 9, 1)]
        assert value(broker, "sharepartitionmetrics_inflightmessagecount", **PLACE) == 10
        assert value(broker, "sharepartitionmetrics_inflightbatchcount", **PLACE) == 1
        assert member.acknowledge((0, 3, ACCEPT), (5, 6, RELEASE), (9, 9, REJECT)) == 0
        assert member.acknowledge((5, 5, ACCEPT)) != 0
        for kind, count in (("Accept", 4), ("Release", 2), ("Reject", 1), ("Renew", 0)):
            assert value(broker, "sharegroupmetrics_recordacknowledgements_total", ackType=kind) == count
        assert value(broker, "brokertopicmetrics_totalshareacknowledgementrequests_total", topic="t") == 2
        assert value(broker, "brokertopicmetrics_failedshareacknowledgementrequests_total", topic="t") == 1
        assert value(broker, "brokertopicmetrics_totalsharefetchrequests_total", topic="t") == 1
        assert value(broker, "brokertopicmetrics_failedsharefetchrequests_total", topic="t") == 0
        member.fetch(7)
        assert value(broker, "brokertopicmetrics_totalsharefetchrequests_total") == 2
        assert value(broker, "brokertopicmetrics_failedsharefetchrequests_total", topic="t") == 1
        assert value(broker, "sharepartitionmetrics_inflightmessagecount", **PLACE) == 6
        assert value(broker, "share_coordinator_metrics_write_total") >= 1
        eventually(lambda: value(broker, "sharepartitionmetrics_acquisitionlocktimeout_total", **PLACE) >= 3)
