"""The administration clients of librdkafka, kafka-python and aiokafka find what they know from Apache Kafka."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support.broker_process import BrokerProcess, a_broker, eventually

SECONDS = 90


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def changed(kind: ResourceType, name: str, key: str, value: str) -> ConfigResource:
    return ConfigResource(kind, name, incremental_configs=[ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)])


def test_librdkafka_administers_topics_and_configurations(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic("ck", 3, 1, config={"retention.ms": "1000"}), NewTopic("ck-default")]).values():
        assert created.result(SECONDS) is None
    with pytest.raises(KafkaException, match="Topic 'ck' already exists"):
        admin.create_topics([NewTopic("ck", 1, 1)])["ck"].result(SECONDS)
    assert admin.create_partitions([NewPartitions("ck", 5)])["ck"].result(SECONDS) is None
    assert len(admin.list_topics("ck", timeout=SECONDS).topics["ck"].partitions) == 5
    resource = ConfigResource(ResourceType.TOPIC, "ck")
    for altered in admin.incremental_alter_configs([changed(ResourceType.TOPIC, "ck", "segment.ms", "60000")]).values():
        assert altered.result(SECONDS) is None
    configs = admin.describe_configs([resource])[resource].result(SECONDS)
    assert {name: entry.value for name, entry in configs.items() if not entry.is_default} == {"retention.ms": "1000", "segment.ms": "60000"}
    with pytest.raises(KafkaException, match="Value must be at least 14"):
        admin.incremental_alter_configs([changed(ResourceType.TOPIC, "ck", "segment.bytes", "-1")])[resource].result(SECONDS)
    deleted = admin.delete_topics(["ck", "not-there"])
    assert deleted["ck"].result(SECONDS) is None
    with pytest.raises(KafkaException, match="Unknown topic or partition"):
        deleted["not-there"].result(SECONDS)


def test_librdkafka_deletes_a_topic_and_creates_it_again_at_once(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for partitions in range(1, 21):
        assert admin.create_topics([NewTopic("in-turn", partitions, 1)])["in-turn"].result(SECONDS) is None
        assert len(admin.list_topics("in-turn", timeout=SECONDS).topics["in-turn"].partitions) == partitions
        assert admin.delete_topics(["in-turn"])["in-turn"].result(SECONDS) is None


def test_librdkafka_describes_the_cluster_and_the_broker(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    cluster = admin.describe_cluster(include_authorized_operations=True).result(SECONDS)
    assert [node.port for node in cluster.nodes] == [broker.port]
    assert cluster.controller.id == cluster.nodes[0].id
    assert AclOperation.ALTER_CONFIGS in cluster.authorized_operations
    resource = ConfigResource(ResourceType.BROKER, str(cluster.controller.id))
    assert admin.describe_configs([resource])[resource].result(SECONDS)["log.retention.hours"].value == "168"
    acl = AclBinding(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW)
    with pytest.raises(KafkaException, match="No Authorizer is configured"):
        admin.create_acls([acl])[acl].result(SECONDS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_administers_topics_and_configurations(broker: BrokerProcess) -> None:
    # Imported here, because its import already uses what Python 3.11 calls deprecated.
    from kafka.admin import ConfigResource as KpConfigResource
    from kafka.admin import ConfigResourceType as KpConfigResourceType
    from kafka.admin import KafkaAdminClient
    from kafka.admin import NewTopic as KpNewTopic

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        (created,) = admin.create_topics([KpNewTopic("kp", 2, 1)])["topics"]
        assert (created["error_code"], created["num_partitions"]) == (0, 2)
        described = admin.describe_configs([KpConfigResource(KpConfigResourceType.TOPIC, "kp")], config_filter="all")
        assert described["topic"]["kp"]["cleanup.policy"]["value"] == "delete"
        (directory,) = admin.describe_log_dirs()[0]["log_dirs"]
        assert {"kp"} <= {topic["name"] for topic in directory["topics"]}
        assert admin.describe_cluster()["brokers"][0]["port"] == broker.port
        (deleted,) = admin.delete_topics(["kp"])["topics"]
        assert deleted["error_code"] == 0
        assert "kp" not in admin.list_topics()
    finally:
        admin.close()


def test_aiokafka_administers_topics(broker: BrokerProcess) -> None:
    async def administer() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            created = await admin.create_topics([AioNewTopic("aio", 2, 1)])
            assert [error[1] for error in created.topic_errors] == [0]
            (described,) = await admin.describe_topics(["aio"])
            assert len(described["partitions"]) == 2
            deleted = await admin.delete_topics(["aio"])
            assert [code for _, code in deleted.topic_error_codes] == [0]
            assert "aio" not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(administer())


def test_a_topic_is_created_by_asking_for_it(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "allow.auto.create.topics": "true"})
    eventually(lambda: admin.list_topics("by-asking", timeout=SECONDS).topics["by-asking"].partitions, what="the topic")


def test_dynamic_configuration_outlives_the_broker(tmp_path: Path) -> None:
    with a_broker(tmp_path, broker_id=3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("kept", 1, 1, config={"retention.ms": "1000"})])["kept"].result(SECONDS)
        for resource in (
            changed(ResourceType.BROKER, "3", "log.segment.bytes", "5000000"),
            changed(ResourceType.TOPIC, "kept", "segment.ms", "60000"),
        ):
            admin.incremental_alter_configs([resource])[resource].result(SECONDS)
        running.stop()
        running.start()
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        resource = ConfigResource(ResourceType.TOPIC, "kept")
        found = admin.describe_configs([resource])[resource].result(SECONDS)
        assert [found[name].value for name in ("retention.ms", "segment.ms", "segment.bytes")] == ["1000", "60000", "5000000"]
