"""Sends the same random histories of requests to Apache Kafka and to Ottla, and reports different answers.

    python -m tests.support.request_comparison --seed 1 --histories 1000

prints the first history in which an answer differs, up to that answer, and ends with status 1; with --all it continues to the end. A
request that only reads is repeated for a while before its answer counts as different, since a broker learns of changes a little later than
the client that made them. After requests that change shared state, it waits for both brokers.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import alter_configs, incremental_alter_configs
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from ottla.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker_process import a_broker
from tests.support.request_histories import BROKER, BROKER_LOGGER, STEPS, Step, a_history, prefix_of
from tests.support.request_player import CLOSED, Answer, RequestPlayer

PATIENCE_SECONDS = 60.0
NAMES = ("a", "b", "cfg", "gone", "new", "n1", "n2", "n.x", "n_x")
CONFIG = {
    "broker.rack": "r0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "zookeeper.session.timeout.ms": "4000",
    "zookeeper.connection.timeout.ms": "60000",
    # Records have old timestamps, and nothing shall happen by itself.
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "86400000",
    "log.cleaner.backoff.ms": "86400000",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.initial.task.delay.ms": "86400000",
}
CHANGE_TOPICS = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ELECT_LEADERS,
    }
)
CHANGE_CONFIGS = frozenset({ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
ONLY_READ = frozenset(
    {
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.FIND_COORDINATOR,
    }
)
_PARTITIONS = re.compile(r"has (\d+) partitions")


class Difference(NamedTuple):
    """The step of a history that was answered differently, and what comes before it."""

    seed: int
    steps: list[Step]
    theirs: Answer
    ours: Answer

    def __str__(self) -> str:
        *before, last = (f"{step.api_key.name} v{step.version} {step.request}" for step in self.steps)
        return "\n".join(
            [
                f"history {self.seed}",
                *(f"  {each}" for each in before),
                f"> {last}",
                *(f"    {each}" for each in unequal(self.ours, self.theirs)),
            ]
        )


def unequal(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """The fields that differ, with their paths."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for field, value in theirs.items():
            yield from unequal(ours.get(field), value, f"{path}.{field}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for at, (mine, its) in enumerate(zip(ours, theirs, strict=True)):
            yield from unequal(mine, its, f"{path}[{at}]")
    elif ours != theirs:
        yield f"{path}: ours {ours!r}, theirs {theirs!r}"


class Comparison:
    """Two brokers that serve alone, and what was asked of them so far."""

    def __init__(self, theirs: RequestPlayer, ours: RequestPlayer) -> None:
        self.asked: Counter[ApiKey] = Counter()
        self.patience_seconds = PATIENCE_SECONDS
        self._theirs = theirs
        self._ours = ours

    def begin(self) -> None:
        """Have both ready to coordinate groups, and log alike."""
        level = incremental_alter_configs.AlterableConfig(name="root", config_operation=0, value="WARN")
        resource = incremental_alter_configs.AlterConfigsResource(resource_type=BROKER_LOGGER, resource_name="0", configs=[level])
        for player in (self._theirs, self._ours):
            player.ask(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)
            _until(partial(_is_ready, player))
            player.learn_ids(["__consumer_offsets"])

    def differences(self, seed: int, steps: int = STEPS) -> Iterator[Difference]:
        """Play a history on both, as far as it is asked for, and put away what it leaves. Only the first difference is sure to be one."""
        history = a_history(seed, steps)
        names = [prefix_of(seed) + name for name in NAMES]
        try:
            for at, step in enumerate(history):
                self.asked[step.api_key] += 1
                theirs, ours = self._answers(step)
                if theirs == ours and step.api_key in CHANGE_TOPICS:
                    gone = _deleted(step, theirs)
                    theirs, ours = self._until_equal(partial(_settled, names=names, gone=gone))
                if theirs == ours and _changes_broker(step):
                    theirs, ours = self._until_equal(_described_broker)
                if theirs != ours:
                    yield Difference(seed, history[: at + 1], theirs, ours)
        finally:
            for player in (self._theirs, self._ours):
                _clean(player, prefix_of(seed))
            self._until_equal(_described_broker)

    def _answers(self, step: Step) -> tuple[Answer, Answer]:
        if step.api_key in ONLY_READ:
            return self._until_equal(lambda player: player.play(step))
        return self._theirs.play(step), self._ours.play(step)

    def _until_equal(self, ask: Callable[[RequestPlayer], Answer]) -> tuple[Answer, Answer]:
        deadline = time.monotonic() + self.patience_seconds
        while True:
            theirs, ours = ask(self._theirs), ask(self._ours)
            if theirs == ours or time.monotonic() > deadline:
                return theirs, ours
            time.sleep(0.02)


def _is_ready(player: RequestPlayer) -> bool:
    """Whether it coordinates groups and has producer ids."""
    (coordinator,) = player.ask(FindCoordinatorRequest(coordinator_keys=["x"]), 4).coordinators
    ids = player.ask(InitProducerIdRequest(transactional_id=None), 4)
    return coordinator.error_code == ids.error_code == ErrorCode.NONE


def _changes_broker(step: Step) -> bool:
    request: Any = step.request
    return (
        step.api_key in CHANGE_CONFIGS
        and request is not None
        and not request.validate_only
        and any(resource.resource_type == BROKER for resource in request.resources)
    )


def _described_broker(player: RequestPlayer) -> Answer:
    resources = [DescribeConfigsResource(resource_type=BROKER, resource_name=name, configuration_keys=None) for name in ("0", "")]
    return player.comparable(player.ask(DescribeConfigsRequest(resources=resources, include_synonyms=True), 4))


def _deleted(step: Step, answer: Answer) -> set[str]:
    """The topics that this request had deleted."""
    if step.api_key is not ApiKey.DELETE_TOPICS or answer == CLOSED or step.request is None:
        return set()
    return {each["name"] for each in answer["responses"] if each["error_code"] in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)}


def _settled(player: RequestPlayer, names: list[str], gone: set[str]) -> Answer:
    """The Metadata of the topics, once the broker knows the state in ZooKeeper."""
    known: list[Answer] = []

    def is_settled() -> bool:
        known[:] = [player.learn_ids(names)]
        growth = player.ask(
            CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=1) for name in names], timeout_ms=9, validate_only=True),
            3,
        )
        wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        creation = player.ask(CreateTopicsRequest(topics=wanted, validate_only=True), 5)
        exists = {each.name: each.error_code == ErrorCode.TOPIC_ALREADY_EXISTS for each in creation.topics}
        counts = {each.name: _count(each.error_message) for each in growth.results}
        return all(
            len(topic["partitions"]) == counts[topic["name"]]
            and all(each["leader_id"] >= 0 for each in topic["partitions"])
            and exists[topic["name"]] == bool(topic["partitions"])
            and not (topic["partitions"] and topic["name"] in gone)
            for topic in known[0]["topics"]
        )

    _until(is_settled)
    return known[0]


def _count(message: str | None) -> int:
    found = _PARTITIONS.search(message or "")
    return 0 if found is None else int(found.group(1))


def _clean(player: RequestPlayer, prefix: str) -> None:
    """Remove what the history made."""
    for session in player.sessions:
        player.ask(FetchRequest(max_wait_ms=0, session_id=session, session_epoch=-1), 12)
    player.sessions.clear()
    resources = [alter_configs.AlterConfigsResource(resource_type=BROKER, resource_name=name) for name in ("0", "")]
    player.ask(alter_configs.AlterConfigsRequest(resources=resources), 2)
    quotas = player.ask(DescribeClientQuotasRequest(), 1).entries
    removed = [
        AlterClientQuotasRequestEntryData(
            entity=[
                AlterClientQuotasRequestEntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
            ],
            ops=[OpData(key=quota.key, remove=True) for quota in entry.values],
        )
        for entry in quotas
    ]
    player.ask(AlterClientQuotasRequest(entries=removed), 1)
    users = player.ask(DescribeUserScramCredentialsRequest(users=None), 0).results
    deletions = [ScramCredentialDeletion(name=user.user, mechanism=each.mechanism) for user in users for each in user.credential_infos]
    player.ask(AlterUserScramCredentialsRequest(deletions=deletions), 0)
    topics = [topic.name for topic in player.ask(MetadataRequest(topics=None), 12).topics if topic.name.startswith(prefix)]
    if topics:
        player.ask(DeleteTopicsRequest(topic_names=topics, timeout_ms=60_000), 5)


def _until(condition: Callable[[], bool]) -> None:
    """Come back when it is true, or has not been for too long: what is wrong then shows in what is compared."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


@contextmanager
def a_comparison(directory: Path) -> Iterator[Comparison]:
    """Both brokers running."""
    kafka = ApacheKafka(directory / "theirs", heap="256m", config=CONFIG)
    with kafka, a_broker(directory / "ours", broker_id=0, **{key.replace(".", "_"): value for key, value in CONFIG.items()}) as broker:
        theirs, ours = RequestPlayer(kafka.port(), str(kafka.data_directory())), RequestPlayer(broker.port, str(broker.data))
        try:
            comparison = Comparison(theirs, ours)
            comparison.begin()
            yield comparison
        finally:
            theirs.close()
            ours.close()


def main() -> int:
    """Play histories until one differs, or all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="of the first history; those after it have the following ones")
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS, help="seconds to wait for both to say the same")
    parser.add_argument("--all", action="store_true", help="do not stop at the first difference")
    options = parser.parse_args()
    different = 0
    with tempfile.TemporaryDirectory() as directory, a_comparison(Path(directory)) as comparison:
        comparison.patience_seconds = options.patience
        for seed in range(options.seed, options.seed + options.histories):
            for difference in comparison.differences(seed, options.steps):
                different += 1
                print(difference, flush=True)
                if not options.all:
                    break
            if different and not options.all:
                break
        print(f"{sum(comparison.asked.values())} requests, {different} answers differ")
        print(", ".join(f"{key.name} {count}" for key, count in sorted(comparison.asked.items())))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
