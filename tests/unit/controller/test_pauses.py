"""Events that look at very many things pause: others have their turn, and a session that ends there ends the event."""

import asyncio
from collections import Counter
from itertools import count

import pytest

from ottla.controller import controller
from ottla.controller.admin import topic_admin
from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.state import core, deletion
from ottla.controller.znodes.layout import CONTROLLER, partition_state_path
from ottla.controller.znodes.pauses import PER_SLICE, clear_in_slices, slices
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import Cluster, P, run, until


class Pauses:
    """Those of the active controller, which is this broker's; its session ends in the `last`th."""

    def __init__(self, cluster: Cluster, broker_id: int, monkeypatch: pytest.MonkeyPatch, last: int = 0) -> None:
        self.cluster = cluster
        self.broker = cluster.brokers[broker_id]
        self.last = last
        self.taken = 0
        self.sent_by_then: int | None = None
        monkeypatch.setattr(core, "pause", self.pause)

    async def pause(self) -> None:
        self.taken += 1
        await asyncio.sleep(0)
        if self.taken == self.last:
            self.cluster.ensemble.expire(self.broker.store.session_id)
            await until(lambda: not self.broker.controller.is_active)
            self.sent_by_then = self.sent(epoch=2)

    def sent(self, epoch: int) -> int:
        """How many requests of a controller of this epoch have come to a broker."""
        return sum(request.controller_epoch == epoch for peer in self.cluster.peers.values() for request in peer.requests)


@pytest.mark.slow
def test_a_session_that_ends_at_any_pause_of_a_new_controller_ends_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "SESSION_RETRY_SECONDS", 0)

    def with_the_end_at(last: int) -> bool:
        async def scenario(cluster: Cluster) -> None:
            await cluster.topic([0, 1], [1, 0])
            pauses.append(Pauses(cluster, 1, monkeypatch, last))
            heir = cluster.brokers[1]
            await cluster.kill(0)
            await until(lambda: heir.controller.is_active and heir.controller.context.epoch == (3 if pauses[0].taken >= last else 2))
            await cluster.settle()
            assert cluster.state().leader == 1
            assert cluster.peers[1].replicas[P][0] == 1
            assert (await heir.store.get(CONTROLLER))[1].ephemeral_owner == heir.store.session_id
            if pauses[0].sent_by_then is not None:
                assert pauses[0].sent(epoch=2) == pauses[0].sent_by_then

        pauses: list[Pauses] = []
        run(scenario, brokers=2)
        return pauses[0].sent_by_then is not None

    ends = next(last for last in count(1) if not with_the_end_at(last))
    assert ends > 20


def test_a_new_controller_pauses_between_any_few_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic(*([0, 1] for _ in range(10 * PER_SLICE)))
        pauses = Pauses(cluster, 1, monkeypatch)
        await cluster.kill(0)
        await until(lambda: cluster.brokers[1].controller.is_active)
        await cluster.settle()
        # Read, told, elected, written, told again, and more.
        assert pauses.taken > 10 * 10

    run(scenario, brokers=2)


def test_new_topics_of_one_event_and_their_deletion_are_taken_in_between_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    many = 30

    async def scenario(cluster: Cluster) -> None:
        broker = cluster.brokers[0]
        events = Pauses(cluster, 0, monkeypatch)
        requests = 0

        async def pause() -> None:
            nonlocal requests
            requests += 1
            await asyncio.sleep(0)

        monkeypatch.setattr(topic_admin, "pause", pause)
        names = [f"t{number}" for number in range(many)]
        await broker.topics.create_topics([NewTopic(name, 1, 1) for name in names])
        await cluster.settle()
        assert events.taken > 2 * many
        requests = 0
        await broker.topics.delete_topics(names)
        assert requests >= 4 * many

    run(scenario, brokers=1)


def test_a_topic_of_very_many_partitions_is_removed_between_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    at: list[int] = []

    async def scenario(cluster: Cluster) -> None:
        await cluster.topic(*([0] for _ in range(3 * PER_SLICE)))
        pauses = Pauses(cluster, 0, monkeypatch)

        def noting(partition: TopicPartition) -> str:
            at.append(pauses.taken)
            return partition_state_path(partition)

        monkeypatch.setattr(deletion, "partition_state_path", noting)
        await cluster.brokers[0].topics.delete_topics(["t"])
        await cluster.settle()
        assert "/brokers/topics/t" not in cluster.ensemble.dump()

    run(scenario, brokers=1)
    assert len(at) == 3 * PER_SLICE
    assert max(Counter(at).values()) == PER_SLICE


def test_very_many_partitions_are_reassigned_between_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    many = 100

    async def scenario(cluster: Cluster) -> None:
        await cluster.topic(*([0] for _ in range(many)))
        pauses = Pauses(cluster, 0, monkeypatch)
        controller = cluster.brokers[0].controller
        await controller.alter_reassignments({TopicPartition("t", index): [1] for index in range(many)})
        assert pauses.taken > 3 * many

    run(scenario, brokers=2)


def test_slices_hold_everything_once() -> None:
    assert [*slices(range(5), 2)] == [[0, 1], [2, 3], [4]]
    large = [dict.fromkeys(range(3 * PER_SLICE + 1)), {}]
    asyncio.run(clear_in_slices(large))
    assert large == [{}, {}]
