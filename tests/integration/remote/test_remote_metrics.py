"""The metrics of tiered storage have the names of Apache Kafka 3.9, and tell of quotas and of tasks that wait."""

from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.config.remote_storage import LOCAL_TIERED_STORAGE
from tests.integration.remote.test_copied_and_read import RECORDS, SETTINGS, consume, fill, local_starts
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.several_brokers import until

IDLE = "kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent"
READS = "kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems"
PURGATORY = 'kafka_server_delayedoperationpurgatory_{}{{delayedOperation="RemoteFetch"}}'
THROTTLE = "kafka_server_remotelogmanager_remote_{}_throttle_time_{}"


def scraped(broker: InProcessBroker) -> dict[str, float]:
    metrics = broker.broker.metrics
    assert metrics is not None
    with urlopen(f"http://{metrics.address}/metrics") as answer:
        lines = (line.split(" ") for line in answer.read().decode().splitlines() if not line.startswith("#"))
        return {line[0]: float(line[-1]) for line in lines}


def test_the_quotas_the_idle_share_and_the_reads_are_told(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    quotas = {f"remote.log.manager.{kind}.max.bytes.per.second": "200000" for kind in ("copy", "fetch")}
    keys = SETTINGS | quotas | {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(shared)}
    with a_broker_in_process(tmp_path / "logs", **keys) as broker:
        before = scraped(broker)
        assert (before[f"{READS}_count"], before[PURGATORY.format("purgatorysize")]) == (0, 0)
        assert (before[IDLE], before["kafka_server_rlmcopy_byte_rate"], before["kafka_server_rlmfetch_byte_rate"]) == (1, 0, 0)
        fill(broker, 1)
        until(lambda: scraped(broker)[IDLE] < 1)
        until(lambda: local_starts(broker, 1)[0] > RECORDS // 2)
        until(lambda: scraped(broker)[IDLE] == 1)
        consume(broker, TopicPartition("t", 0, 0))
        found = scraped(broker)
        for kind in ("copy", "fetch"):
            assert found[f"kafka_server_rlm{kind}_byte_rate"] > 0
            assert 0 < found[THROTTLE.format(kind, "avg")] <= found[THROTTLE.format(kind, "max")]
        assert found[f"{READS}_count"] == found["kafka_server_brokertopicmetrics_remotefetchrequests_total"] > 0
        assert found[f"{READS}_sum"] > 0
        assert found[PURGATORY.format("numdelayedoperations")] == 0


def test_nothing_of_a_deleted_topic_stays_in_the_metrics_and_in_the_caches(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    keys = SETTINGS | {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(shared)}
    with a_broker_in_process(tmp_path / "logs", **keys) as broker:
        fill(broker, 1)
        until(lambda: local_starts(broker, 1)[0] > RECORDS // 2)
        consume(broker, TopicPartition("t", 0, 0))

        def left() -> set[str]:
            cached = {path.name for path in (tmp_path / "logs").rglob("*") if "-cache-" in path.name or "-cache/" in str(path)}
            return cached | {name for name in scraped(broker) if "remote" in name and 'topic="t"' in name}

        assert len(left()) > 10
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["t"])["t"].result(30)
        until(lambda: not list(shared.rglob("*.log")))
        until(lambda: not left())
