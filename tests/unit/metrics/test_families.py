"""The metrics, the page that tells of them, and the MBeans of a real Apache Kafka."""

import json
import re
from pathlib import Path

import pytest

from ottla.broker.metrics.docs import page
from ottla.broker.metrics.endpoint import FAMILIES
from ottla.broker.metrics.families import Family, Kind
from ottla.broker.metrics.uncovered import UNCOVERED, why_uncovered

ROOT = Path(__file__).parents[3]
PATTERNS: list[str] = [each["pattern"] for each in json.loads((ROOT / "tests" / "golden" / "metrics.json").read_text())["patterns"]]
VARIES = re.compile(r"(request|delayedOperation|fetcherType)=[^,]+")
OPTIONAL = re.compile(r"(topic|processor)=\*,")
"""Properties without which Apache Kafka has a second MBean, for all topics or processors."""


def general(pattern: str) -> str:
    return VARIES.sub(r"\1=*", pattern)


OF_FOLLOWERS = {
    "kafka.server:clientId=*,name=ConsumerLag,partition=*,topic=*,type=FetcherLagMetrics",
    "kafka.server:brokerHost=*,brokerPort=*,clientId=*,name=RequestsPerSec,type=FetcherStats",
    "kafka.server:brokerHost=*,brokerPort=*,clientId=*,name=BytesPerSec,type=FetcherStats",
}
"""The broker that was recorded led everything, so it had none of these."""

OF_TLS = {"kafka.server:cipher=*,listener=*,networkProcessor=*,protocol=*,type=socket-server-metrics"}
"""The cluster that was recorded had no TLS."""

OF_NEW_GROUPS = {
    "kafka.server:protocol=*,type=group-coordinator-metrics",
    "kafka.server:state=*,type=group-coordinator-metrics",
    "kafka.server:type=group-coordinator-metrics",
}
"""Apache Kafka has them with the coordinator of 4.x."""
OF_TELEMETRY = {"kafka.server:type=client-metrics"}
"""Apache Kafka has it with KRaft."""

OF_SHARE_GROUPS = {
    "kafka.server:type=share-coordinator-metrics",
    "kafka.server:ackType=*,name=RecordAcknowledgementsPerSec,type=ShareGroupMetrics",
    *(
        f"kafka.server:group=*,name={name},partition=*,topic=*,type=SharePartitionMetrics"
        for name in ("InFlightMessageCount", "InFlightBatchCount", "AcquisitionLockTimeoutPerSec")
    ),
    *(
        f"kafka.server:name={outcome}Share{request}RequestsPerSec,topic=*,type=BrokerTopicMetrics"
        for outcome in ("Total", "Failed")
        for request in ("Fetch", "Acknowledgement")
    ),
}
"""Apache Kafka has them since 4.0."""

OF_TIERED_STORAGE = {
    *(
        f"kafka.server:name={name},topic=*,type=BrokerTopicMetrics"
        for name in (
            *(f"Remote{what}{unit}PerSec" for what in ("Fetch", "Copy") for unit in ("Bytes", "Requests", "Errors")),
            *(f"{what}{unit}PerSec" for what in ("RemoteDelete", "BuildRemoteLogAuxState") for unit in ("Requests", "Errors")),
            *(f"Remote{what}Lag{unit}" for what in ("Copy", "Delete") for unit in ("Bytes", "Segments")),
            *("RemoteLogMetadataCount", "RemoteLogSizeBytes", "RemoteLogSizeComputationTime"),
        )
    ),
    "kafka.server:name=ExpiresPerSec,type=DelayedRemoteFetchMetrics",
    *(
        f"org.apache.kafka.storage.internals.log:name={name},type=RemoteStorageThreadPool"
        for name in ("RemoteLogReaderTaskQueueSize", "RemoteLogReaderAvgIdlePercent")
    ),
    *(
        f"kafka.log.remote:name={name},type=RemoteLogManager"
        for name in ("RemoteLogManagerTasksAvgIdlePercent", "RemoteLogReaderFetchRateAndTimeMs")
    ),
    *(f"kafka.server:type={kind}" for kind in ("RLMCopy", "RLMFetch", "RemoteLogManager")),
}
"""The broker that was recorded had no tiered storage."""

OF_QUOTAS = {
    mbean
    for kind in ("Produce", "Fetch", "Request", "ControllerMutation")
    for mbean in (
        f"kafka.server:type={kind},user=*",
        f"kafka.server:client-id=*,type={kind}",
        f"kafka.server:client-id=*,type={kind},user=*",
    )
}
"""They come into being with a client that a quota limits; the broker that was recorded had few."""

OF_ALL_CLIENTS = {f"kafka.server:type={kind}" for kind in ("Produce", "Fetch", "Request", "ControllerMutation")}

RECORDED = {general(pattern) for pattern in PATTERNS}
COVERED = {mbean for family in FAMILIES for mbean in (family.mbean, *family.more_mbeans) if mbean} | {
    OPTIONAL.sub("", family.mbean, count=1) for family in FAMILIES
}

each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def exported_name(mbean: str, kind: Kind) -> str:
    """The name that the JMX exporter's example rules for Kafka give an MBean with a name."""
    domain, _, rest = mbean.partition(":")
    properties = dict(each.split("=", 1) for each in rest.split(","))
    name = properties["name"]
    if kind is Kind.COUNTER:
        name, renamed = re.subn(r"PerSec\w*$", "_total", name)
        name += "" if renamed else "_count"
    return re.sub(r"[^a-z0-9_]", "_", f"{domain.replace('.', '_')}_{properties['type']}_{name}".lower())


@each_family
def test_a_metric_has_the_name_that_the_jmx_exporter_gives_its_mbean(family: Family) -> None:
    if not family.mbean:
        assert family.name.startswith("ottla_")
    elif "name=" in family.mbean:
        assert family.name == exported_name(family.mbean, family.kind)
    elif family.name.startswith("kafka_server_quota_"):
        # The exporter has rules for MBeans with a user or a client id. Those of all clients have no name there.
        assert "user=" in family.mbean or "client-id=" in family.mbean or family.mbean in OF_ALL_CLIENTS
    else:
        kind = family.mbean.rpartition("type=")[2].replace("-", "_").lower()
        assert family.name.startswith(f"kafka_server_{kind}_")


@each_family
def test_the_labels_are_the_properties_of_the_mbean(family: Family) -> None:
    mbeans = ",".join((family.mbean, *family.more_mbeans))
    properties = {each.replace("-", "_") for each in re.findall(r"[:,]([\w-]+)=", mbeans)} - {"name", "type"}
    if "socket-server" in family.mbean:
        assert set(family.labels) <= properties
    elif family.name.startswith("kafka_server_quota_"):
        assert {"clientId" if name == "client_id" else name for name in properties} == set(family.labels) - {"resource"}
    elif family.mbean:
        assert set(family.labels) == properties


@each_family
def test_the_mbean_is_one_of_apache_kafka(family: Family) -> None:
    # Those of single topics come into being with the first such event, so not all were there to be recorded.
    assert (
        not family.mbean
        or family.mbean in RECORDED | OF_FOLLOWERS | OF_QUOTAS | OF_TIERED_STORAGE | OF_TLS | OF_NEW_GROUPS | OF_TELEMETRY | OF_SHARE_GROUPS
        or OPTIONAL.sub("", family.mbean, count=1) in RECORDED
    )


def test_names_are_given_once() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))


@each_family
def test_counters_end_in_total_or_count_and_others_do_not(family: Family) -> None:
    # A meter that is not called PerSec is a count to the exporter, and a summary has its own.
    is_meter = "PerSec" not in family.mbean and family.mbean.endswith(
        ("type=Throttler", "type=AddPartitionsToTxnManager", "kafka.server:type=group-coordinator-metrics", *OF_TELEMETRY)
    )
    assert family.name.endswith("_count" if is_meter else "_total") == (family.kind is Kind.COUNTER)


@pytest.mark.parametrize("pattern", sorted(RECORDED))
def test_every_mbean_has_a_metric_or_a_reason_why_not(pattern: str) -> None:
    assert (pattern in COVERED) != (why_uncovered(pattern) is not None), pattern


def test_every_reason_is_about_an_mbean_that_there_is() -> None:
    reasons = {(pattern, reason) for pattern, reason in UNCOVERED}
    assert len(reasons) == len(UNCOVERED)
    used = {reason for each in RECORDED if (reason := why_uncovered(each)) is not None}
    assert used == {reason for _, reason in UNCOVERED}


def test_the_page_in_the_repository_is_that_of_the_families() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == page(), "run: python -m ottla.broker.metrics.docs"
