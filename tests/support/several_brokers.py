"""Runs several brokers of one cluster in the test's own process: with one metadata file, and a log directory and an event loop each.

`with three_brokers(tmp_path) as brokers:` starts brokers 0, 1 and 2, each when the previous one is ready, so that 0 is the controller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.support.in_process_broker import InProcessBroker
from tests.support.wire_client import a_wire_client

SECONDS = 90.0


def start_broker(directory: Path, broker_id: int, **config: object) -> InProcessBroker:
    """Broker `broker_id` of the cluster under `directory`."""
    logs = directory / f"broker-{broker_id}"
    logs.mkdir(exist_ok=True)
    shared = {
        "ottla_metadata_file": directory / "metadata.sqlite3",
        "broker_id": broker_id,
        "auto_create_topics_enable": "false",
        "auto_leader_rebalance_enable": "false",
    }
    return InProcessBroker(logs, **(shared | config))


@contextmanager
def three_brokers(directory: Path, **config: object) -> Iterator[list[InProcessBroker]]:
    """Brokers 0, 1 and 2; those that the test takes out of the list it stops itself."""
    brokers: list[InProcessBroker] = []
    try:
        while len(brokers) < 3:
            brokers.append(start_broker(directory, len(brokers), **config))
        until(lambda: all(set(broker.services.metadata.brokers) == {0, 1, 2} for broker in brokers))
        yield brokers
    finally:
        for broker in reversed(brokers):
            with suppress(TimeoutError):
                broker.stop()


def create_topic(broker: InProcessBroker, name: str, partitions: int = 1, replication_factor: int = 3) -> None:
    """Create a topic; `broker` is the controller's."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication_factor)
    with a_wire_client(broker.port) as client:
        response = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 7)
    assert [each.error_code for each in response.topics] == [0], response.topics


def metadata_of(broker: InProcessBroker, *topics: str) -> MetadataResponse:
    """The Metadata that `broker` answers to a client."""
    with a_wire_client(broker.port) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])
        response = client.ask(request, 12)
    assert isinstance(response, MetadataResponse)
    return response


def leaders_of(broker: InProcessBroker, topic: str) -> dict[int, int]:
    """The leader of each partition, as `broker` says."""
    return {each.partition_index: each.leader_id for each in metadata_of(broker, topic).topics[0].partitions}


def until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Wait for something that happens by itself."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)
