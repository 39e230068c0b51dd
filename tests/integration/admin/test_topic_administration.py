"""CreateTopics, DeleteTopics and CreatePartitions over the wire: every answer here is the one that Apache Kafka 3.9.1 gave."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.uuid import ZERO_UUID
from tests.support.admin_requests import OK, a_topic, create, delete, grow, said
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        yield connected


def topics(client: WireClient) -> dict[str, int]:
    """Partitions by topic."""
    return {topic.name: len(topic.partitions) for topic in client.ask(MetadataRequest(topics=None), 9).topics}


def test_a_created_topic_is_answered_with_its_id_numbers_and_configuration(client: WireClient) -> None:
    (made,) = create(client, a_topic("answered", 3, configs={"retention.ms": "1000"}))
    assert said(made) == OK
    assert made.topic_id != ZERO_UUID
    assert (made.num_partitions, made.replication_factor) == (3, 1)
    configs = {config.name: (config.value, config.config_source) for config in made.configs}
    assert configs["retention.ms"] == ("1000", 1)
    assert configs["cleanup.policy"] == ("delete", 5)
    assert topics(client)["answered"] == 3


@pytest.mark.parametrize("version", range(8))
def test_every_version_creates_and_minus_one_is_the_default_in_all(client: WireClient, version: int) -> None:
    (made,) = create(client, a_topic(f"version-{version}", -1, -1), version=version)
    assert made.error_code == ErrorCode.NONE
    assert topics(client)[f"version-{version}"] == 1


def test_a_topic_that_is_named_twice_is_not_created_and_the_others_are(client: WireClient) -> None:
    results = create(client, a_topic("twice"), a_topic("twice"), a_topic("once"))
    assert [said(result) for result in results] == [
        ("INVALID_REQUEST", "Found multiple entries for this topic."),
        ("INVALID_REQUEST", "Found multiple entries for this topic."),
        OK,
    ]
    assert "twice" not in topics(client)


def test_a_dry_run_answers_everything_but_the_id_and_creates_nothing(client: WireClient) -> None:
    (made,) = create(client, a_topic("dry", 2, configs={"cleanup.policy": "compact"}), validate_only=True)
    assert said(made) == OK
    assert (made.topic_id, made.num_partitions) == (ZERO_UUID, 2)
    assert "dry" not in topics(client)


def test_without_time_to_wait_the_topic_is_created_and_the_answer_a_timeout_with_its_id(client: WireClient) -> None:
    (made,) = create(client, a_topic("hasty"), timeout_ms=0)
    assert said(made) == ("REQUEST_TIMED_OUT", None)
    assert made.topic_id != ZERO_UUID
    assert (made.num_partitions, made.configs) == (-1, [])
    assert said(create(client, a_topic("hasty"))[0]) == ("TOPIC_ALREADY_EXISTS", "Topic 'hasty' already exists.")


@pytest.mark.parametrize(
    ("topic", "answer"),
    [
        (
            a_topic("bad name"),
            (
                "INVALID_TOPIC_EXCEPTION",
                "Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
            ),
        ),
        (a_topic(""), ("INVALID_TOPIC_EXCEPTION", "Topic name is invalid: the empty string is not allowed")),
        (a_topic("__cluster_metadata"), ("INVALID_REQUEST", "Creation of internal topic __cluster_metadata is prohibited.")),
        (a_topic("none", 0), ("INVALID_PARTITIONS", "Number of partitions must be larger than 0.")),
        (a_topic("none", 1, 0), ("INVALID_REPLICATION_FACTOR", "Replication factor must be larger than 0.")),
        (a_topic("none", 1, 2), ("INVALID_REPLICATION_FACTOR", "Replication factor: 2 larger than available brokers: 1.")),
        (
            a_topic("none", assignments={0: [0], 2: [0]}),
            ("INVALID_REPLICA_ASSIGNMENT", "partitions should be a consecutive 0-based integer sequence"),
        ),
        (
            a_topic("none", assignments={0: [0], 1: [0, 1]}),
            ("INVALID_REPLICA_ASSIGNMENT", "All partitions should have the same number of replicas"),
        ),
        (a_topic("none", configs={"foo": "x"}), ("INVALID_CONFIG", "Unknown topic config name: foo")),
        (
            a_topic("none", configs={"retention.ms": "x"}),
            ("INVALID_CONFIG", "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        ),
        (
            a_topic("none", configs={"retention.ms": None}),
            ("INVALID_CONFIG", "Null value not supported for topic configs: retention.ms"),
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_apache_kafkas_words(
    client: WireClient, topic: object, answer: tuple[str, str | None]
) -> None:
    (result,) = create(client, topic)  # type: ignore[arg-type]  # pytest's parameters have no types
    assert said(result) == answer
    assert (result.topic_id, result.num_partitions, result.replication_factor, result.configs) == (ZERO_UUID, -1, -1, [])


def test_names_that_differ_by_dot_and_underscore_collide(client: WireClient) -> None:
    create(client, a_topic("with.dot"))
    assert said(create(client, a_topic("with_dot"))[0]) == (
        "INVALID_TOPIC_EXCEPTION",
        "Topic 'with_dot' collides with existing topics: with.dot",
    )


def test_counts_and_assignments_exclude_each_other(client: WireClient) -> None:
    topic = a_topic("both", assignments={0: [0]})
    topic.num_partitions = 1
    assert said(create(client, topic)[0])[0] == "INVALID_REQUEST"


def test_topics_grow(client: WireClient) -> None:
    create(client, a_topic("growing"))
    assert grow(client, "growing", 3) == OK
    assert topics(client)["growing"] == 3
    assert grow(client, "growing", 4, [[0]]) == OK
    assert grow(client, "growing", 9, validate_only=True) == OK
    assert topics(client)["growing"] == 4


@pytest.mark.parametrize(
    ("count", "assignments", "answer"),
    [
        (2, None, ("INVALID_PARTITIONS", "Topic already has 2 partitions.")),
        (1, None, ("INVALID_PARTITIONS", "Topic currently has 2 partitions, which is higher than the requested 1.")),
        (3, [[5]], ("INVALID_REPLICA_ASSIGNMENT", "Unknown broker(s) in replica assignment: 5.")),
        (
            3,
            [[0], [0]],
            ("INVALID_REPLICA_ASSIGNMENT", "Increasing the number of partitions by 1 but 2 assignments provided."),
        ),
        (
            3,
            [[0, 0]],
            ("INVALID_REPLICA_ASSIGNMENT", "Duplicate brokers not allowed in replica assignment: 0, 0 for partition id 2."),
        ),
    ],
)
def test_growth_that_cannot_be_is_refused(
    client: WireClient, count: int, assignments: list[list[int]] | None, answer: tuple[str, str]
) -> None:
    create(client, a_topic("two", 2))
    assert grow(client, "two", count, assignments) == answer


def test_growth_of_nothing_and_growth_asked_for_twice_are_refused(client: WireClient) -> None:
    assert grow(client, "nothing", 3) == ("UNKNOWN_TOPIC_OR_PARTITION", "The topic 'nothing' does not exist.")
    create(client, a_topic("doubled"))
    asked = [CreatePartitionsTopic(name="doubled", count=count, assignments=None) for count in (2, 3)]
    (result,) = client.ask(CreatePartitionsRequest(topics=asked, timeout_ms=1000), 3).results
    assert said(result) == ("INVALID_REQUEST", "Duplicate topic in request.")


def test_topics_are_deleted_by_name_and_by_id(client: WireClient) -> None:
    create(client, a_topic("by-name"))
    (made,) = create(client, a_topic("by-id"))
    results = delete(client, "by-name", made.topic_id, "not-there", b"\x01" * 16)
    assert [(result.name, ErrorCode(result.error_code).name) for result in results] == [  # type: ignore[call-arg]  # looks a member up
        ("by-name", "NONE"),
        ("by-id", "NONE"),
        ("not-there", "UNKNOWN_TOPIC_OR_PARTITION"),
        (None, "UNKNOWN_TOPIC_ID"),
    ]
    assert results[1].topic_id == made.topic_id
    assert not {"by-name", "by-id"} & topics(client).keys()


@pytest.mark.parametrize("version", range(7))
def test_every_version_deletes(client: WireClient, version: int) -> None:
    name = f"deleted-{version}"
    create(client, a_topic(name))
    assert [result.error_code for result in delete(client, name, version=version)] == [ErrorCode.NONE]
    assert name not in topics(client)


def test_a_name_is_free_again_after_deletion_and_comes_with_another_configuration(client: WireClient, broker: InProcessBroker) -> None:
    create(client, a_topic("again", configs={"retention.ms": "1"}))
    delete(client, "again")
    assert said(create(client, a_topic("again", configs={"segment.ms": "2"}))[0]) == OK
    (overrides,) = broker.run(
        lambda: [dict(log.config.overrides) for log in broker.services.data.log_manager.all_logs() if log.topic_partition.topic == "again"]
    )
    assert overrides == {"segment.ms": "2"}


def test_name_and_id_together_spoil_the_whole_request(client: WireClient) -> None:
    create(client, a_topic("kept"))
    states = [DeleteTopicState(name="kept", topic_id=b"\x01" * 16), DeleteTopicState(name="kept", topic_id=ZERO_UUID)]
    results = client.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6).responses
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert "kept" in topics(client)


def test_a_topic_without_name_and_id_may_not_be_deleted_by_anybody(client: WireClient) -> None:
    (result,) = client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=ZERO_UUID)], timeout_ms=1000), 6).responses
    assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_deletion_that_is_switched_off_has_its_own_error_from_version_3(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path, delete_topic_enable="false") as running, a_wire_client(running.port) as connected:
        create(connected, a_topic("stays"))
        assert [result.error_code for result in delete(connected, "stays", version=3)] == [ErrorCode.TOPIC_DELETION_DISABLED]
        assert [result.error_code for result in delete(connected, "stays", version=2)] == [ErrorCode.INVALID_REQUEST]
        assert "stays" in topics(connected)
