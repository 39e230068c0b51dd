"""Topics are deleted while brokers die, come back and answer late."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.errors import StoreError, StoreUnavailable
from ottla.controller.state.context import Replica
from ottla.controller.store.metadata_store import Multi, Request, Result, SetData
from ottla.controller.znodes.changes import encode_log_dir_event
from ottla.controller.znodes.layout import partition_state_path
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from tests.support.controlled_cluster import BrokerUnderTest, Cluster, P, run, until


async def delete_while_broker_2_is_down(cluster: Cluster) -> None:
    """Broker 1 has deleted its replica, the topic is there still."""
    await cluster.topic([1, 2])
    await cluster.kill(2)
    await cluster.brokers[0].topics.delete_topics(["t"])
    await cluster.settle()
    assert P not in cluster.peers[1].replicas


def test_with_zookeeper_a_deletion_waits_for_the_replica_that_is_down() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 2])
        await cluster.kill(2)
        assert await cluster.brokers[0].topics.delete_topics(["t"]) == {"t": None}
        await cluster.settle()
        assert "/brokers/topics/t" in cluster.ensemble.dump()
        assert P not in cluster.peers[0].replicas
        await cluster.start(2)
        assert "/brokers/topics/t" not in cluster.ensemble.dump()
        assert "/admin/delete_topics/t" not in cluster.ensemble.dump()
        stop = [request for request in cluster.peers[2].requests if isinstance(request, StopReplicaRequest)]
        assert [(s.leader_epoch, s.delete_partition) for r in stop for t in r.topic_states for s in t.partition_states] == [
            (-2, False),
            (-2, True),
        ]

    run(scenario, on_zookeeper=True)


def test_without_zookeeper_a_topic_is_gone_at_once_and_its_name_is_free_while_a_replica_is_down() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        first = cluster.controller.controller.context.topic_id("t")
        await cluster.kill(2)
        assert await cluster.brokers[0].topics.delete_topics(["t"]) == {"t": None}
        await cluster.settle()
        assert not {"/brokers/topics/t", "/admin/delete_topics/t", "/config/topics/t"} & cluster.ensemble.dump().keys()
        assert P not in cluster.peers[1].replicas
        await cluster.topic([2, 1])
        await cluster.start(2)
        assert cluster.controller.controller.context.topic_id("t") != first
        (told,) = [request for request in cluster.peers[2].requests if isinstance(request, LeaderAndIsrRequest)]
        assert [topic.topic_id for topic in told.topic_states] == [cluster.controller.controller.context.topic_id("t")]

    run(scenario)


async def delete_with_a_failed_directory(cluster: Cluster, *, is_known: bool) -> None:
    """Broker 2 has a replica there. `is_known` says that the controller knows it before, and not only from the answer to StopReplica."""
    await cluster.topic([1, 2])
    cluster.peers[2].error_of = lambda _: ErrorCode.KAFKA_STORAGE_ERROR
    if is_known:
        path = "/log_dir_event_notification/log_dir_event_"
        await cluster.brokers[2].store.create(path, encode_log_dir_event(2), sequential=True)
        await cluster.settle()
    assert bool(cluster.controller.controller.context.offline_replicas) == is_known
    assert await cluster.brokers[0].topics.delete_topics(["t"]) == {"t": None}
    await cluster.settle()
    assert P not in cluster.peers[1].replicas


@pytest.mark.parametrize("is_known", [False, True])
def test_without_zookeeper_a_topic_is_gone_at_once_and_its_name_is_free_while_a_log_directory_has_failed(is_known: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        await delete_with_a_failed_directory(cluster, is_known=is_known)
        context = cluster.controller.controller.context
        assert not {"/brokers/topics/t", "/admin/delete_topics/t", "/config/topics/t"} & cluster.ensemble.dump().keys()
        assert not context.topics_to_be_deleted | context.topics_ineligible_for_deletion
        assert not context.offline_replicas
        stopped = [request for request in cluster.peers[2].requests if isinstance(request, StopReplicaRequest)]
        assert [each.delete_partition for request in stopped for topic in request.topic_states for each in topic.partition_states][-1]
        await cluster.topic([2, 1])

    run(scenario)


@pytest.mark.parametrize("is_known", [False, True])
def test_with_zookeeper_a_deletion_waits_for_a_failed_log_directory(is_known: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        await delete_with_a_failed_directory(cluster, is_known=is_known)
        assert cluster.controller.controller.context.topics_ineligible_for_deletion == {"t"}
        assert {"/brokers/topics/t", "/admin/delete_topics/t"} <= cluster.ensemble.dump().keys()

    run(scenario, on_zookeeper=True)


def test_without_zookeeper_a_directory_that_fails_while_a_broker_is_asked_does_not_end_the_wait_for_its_answer() -> None:
    """Its replicas of the topic in other directories are still to be deleted."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        is_back = asyncio.Event()
        stop = cluster.peers[2].on_stop_replica

        async def stop_later(request: StopReplicaRequest) -> StopReplicaResponse:
            await is_back.wait()
            return await stop(request)

        cluster.peers[2].on_stop_replica = stop_later  # type: ignore[method-assign]  # as a broker whose disk is slow
        await cluster.brokers[0].topics.delete_topics(["t"])
        await until(lambda: P not in cluster.peers[1].replicas)
        await cluster.controller.controller._core.deletion.on_replicas_offline([Replica(P, 2)])
        assert "/brokers/topics/t" in cluster.ensemble.dump()
        assert not cluster.controller.controller.context.topics_ineligible_for_deletion
        is_back.set()
        await until(lambda: "/brokers/topics/t" not in cluster.ensemble.dump())

    run(scenario)


def test_without_zookeeper_a_topic_whose_brokers_are_all_down_is_gone_at_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        await cluster.kill(1)
        await cluster.kill(2)
        assert "t" in cluster.peers[0].cluster.topics
        assert await cluster.brokers[0].topics.delete_topics(["t"]) == {"t": None}
        await cluster.settle()
        assert "/brokers/topics/t" not in cluster.ensemble.dump()
        assert "t" not in cluster.peers[0].cluster.topics

    run(scenario)


@pytest.mark.parametrize("fails", [False, True], ids=["hangs", "cannot delete it"])
def test_without_zookeeper_a_deletion_goes_on_when_the_broker_that_held_it_up_dies(fails: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        stopping: list[StopReplicaRequest] = []

        async def hang(request: StopReplicaRequest) -> StopReplicaResponse:
            stopping.append(request)
            await asyncio.Event().wait()
            raise AssertionError

        if fails:
            cluster.peers[2].error_of = lambda _: ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            cluster.peers[2].on_stop_replica = hang  # type: ignore[method-assign]  # as a broker that hangs
        await cluster.brokers[0].topics.delete_topics(["t"])
        if fails:
            await cluster.settle()
            assert cluster.controller.controller.context.topics_ineligible_for_deletion == {"t"}
        else:
            await until(lambda: bool(stopping) and P not in cluster.peers[1].replicas)
        assert "/brokers/topics/t" in cluster.ensemble.dump()
        await cluster.kill(2)
        await until(lambda: "/brokers/topics/t" not in cluster.ensemble.dump())

    run(scenario)


def test_without_zookeeper_a_broker_that_shuts_down_deletes_its_replica_before() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        await cluster.controller.controller.controlled_shutdown(2, -1)
        await cluster.brokers[0].topics.delete_topics(["t"])
        await cluster.settle()
        assert P not in cluster.peers[2].replicas
        assert "/brokers/topics/t" not in cluster.ensemble.dump()

    run(scenario)


def test_what_a_broker_deleted_in_an_earlier_life_is_deleted_once_more() -> None:
    async def scenario(cluster: Cluster) -> None:
        await delete_while_broker_2_is_down(cluster)
        await cluster.kill(1)
        await cluster.start(1)  # where it is told to host the partition, before anything else
        await cluster.settle()
        await cluster.start(2)
        assert "/brokers/topics/t" not in cluster.ensemble.dump()
        assert P not in cluster.peers[1].replicas

    run(scenario, on_zookeeper=True)


def test_a_late_answer_of_an_earlier_life_says_nothing_of_what_a_broker_hosts_now() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        is_back = asyncio.Event()
        stop = cluster.peers[1].on_stop_replica

        async def stop_later(request: StopReplicaRequest) -> StopReplicaResponse:
            await is_back.wait()
            return await stop(request)

        cluster.peers[1].on_stop_replica = stop_later  # type: ignore[method-assign]  # as a broker that hangs
        await cluster.brokers[0].topics.delete_topics(["t"])
        await until(lambda: P not in cluster.peers[2].replicas)
        told = cluster.peers[2].requests
        before = cluster.brokers.pop(2)
        await before.controller.shutdown()
        cluster.ensemble.expire(before.store.session_id)
        cluster.brokers[2] = BrokerUnderTest(cluster.ensemble, 2, peers=cluster.peers)
        await cluster.brokers[2].start()
        await until(lambda: P in cluster.peers[2].replicas)
        on_response = cluster.brokers[0].controller._core.on_response
        for request in told:
            if isinstance(request, StopReplicaRequest):
                error = StopReplicaPartitionError(topic_name="t", partition_index=0, error_code=0)
                on_response(2, request, StopReplicaResponse(partition_errors=[error]))
        is_back.set()
        await cluster.settle()
        assert "/brokers/topics/t" not in cluster.ensemble.dump()
        assert P not in cluster.peers[2].replicas

    run(scenario, on_zookeeper=True)


def test_a_late_answer_about_a_failed_directory_of_an_earlier_life_moves_no_leadership() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([2, 1])
        (told,) = [request for request in cluster.peers[2].requests if isinstance(request, LeaderAndIsrRequest)]
        await cluster.kill(2)
        await cluster.start(2)
        await cluster.catch_up(2)
        core = cluster.brokers[0].controller._core
        failed = LeaderAndIsrPartitionError(topic_name="t", partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        core.on_response(2, told, LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(partition_errors=[failed])]))
        await cluster.settle()
        assert not core.context.offline_replicas
        assert cluster.state().isr == (1, 2)

    run(scenario)


@pytest.mark.parametrize(
    ("code", "level"), [(ErrorCode.STALE_BROKER_EPOCH, logging.INFO), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, logging.ERROR)]
)
def test_that_a_restarted_broker_drops_a_request_for_its_former_life_is_no_error(
    code: ErrorCode, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([2, 1])
        (told,) = [request for request in cluster.peers[2].requests if isinstance(request, LeaderAndIsrRequest)]
        cluster.brokers[0].controller._core.on_response(2, told, LeaderAndIsrResponse(error_code=code))

    with caplog.at_level(logging.INFO, "ottla.controller.events.broker_responses"):
        run(scenario)
    assert [record.levelno for record in caplog.records if record.name == "ottla.controller.events.broker_responses"] == [level]


def test_what_was_deleted_is_not_hosted_again_when_a_directory_fails() -> None:
    async def scenario(cluster: Cluster) -> None:
        await delete_while_broker_2_is_down(cluster)
        path = "/log_dir_event_notification/log_dir_event_"
        await cluster.brokers[1].store.create(path, encode_log_dir_event(1), sequential=True)
        await cluster.settle()
        assert P not in cluster.peers[1].replicas

    run(scenario, on_zookeeper=True)


def test_a_controller_that_dies_in_a_deletion_leaves_it_to_the_next() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        cluster.peers[2].error_of = lambda _: ErrorCode.UNKNOWN_SERVER_ERROR
        await cluster.brokers[0].topics.delete_topics(["t"])
        await cluster.settle()
        await cluster.kill(0)
        assert "/brokers/topics/t" in cluster.ensemble.dump()
        cluster.peers[2].error_of = lambda _: 0
        await cluster.kill(2)
        await cluster.start(2)
        assert "/brokers/topics/t" not in cluster.ensemble.dump()

    run(scenario)


def test_the_next_controller_tells_that_a_deletion_is_suspended() -> None:
    async def scenario(cluster: Cluster) -> None:
        await delete_while_broker_2_is_down(cluster)
        controller = cluster.brokers[1].controller
        told: list[set[str]] = []
        cluster.brokers[1].deletion_listeners.append(lambda: told.append(set(controller.context.topics_ineligible_for_deletion)))
        await cluster.kill(0)
        await cluster.settle()
        assert controller.is_active
        assert {"t"} in told

    run(scenario, on_zookeeper=True)


def test_a_topic_whose_states_could_not_be_written_is_deleted_with_the_next_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        await cluster.topic([1, 2], name="u")
        store = cluster.controller.store
        pipeline = store.pipeline
        refusals = iter([StoreUnavailable("metadata.db", "disk full")])

        async def refuse(requests: Sequence[Request]) -> list[Result | StoreError]:
            if any(isinstance(part, SetData) for each in requests if isinstance(each, Multi) for part in each.writes):
                for refusal in refusals:
                    raise refusal
            return await pipeline(requests)

        store.pipeline = refuse
        await cluster.brokers[0].topics.delete_topics(["t"], timeout_ms=0)
        await cluster.settle()
        assert next(refusals, None) is None
        assert "/brokers/topics/t" in cluster.ensemble.dump()
        await cluster.brokers[0].topics.delete_topics(["u"])
        await cluster.settle()
        assert not {"/brokers/topics/t", "/brokers/topics/u"} & cluster.ensemble.dump().keys()

    run(scenario)


def test_nothing_of_a_topic_counts_as_deleted_that_has_the_name_of_a_removed_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        await delete_while_broker_2_is_down(cluster)
        for below in ("/partitions/0/state", "/partitions/0", "/partitions", ""):  # an operator does not want to wait
            await cluster.brokers[0].store.delete(f"/brokers/topics/t{below}")
        await cluster.brokers[0].store.delete("/admin/delete_topics/t")
        await cluster.settle()
        await cluster.topic([1])
        assert P in cluster.peers[1].replicas
        await cluster.brokers[0].topics.delete_topics(["t"])
        await cluster.settle()
        assert "/brokers/topics/t" not in cluster.ensemble.dump()
        assert P not in cluster.peers[1].replicas

    run(scenario, on_zookeeper=True)


def test_the_logs_of_a_partition_whose_state_is_gone_are_deleted_with_the_topic() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2], [1, 2])
        for broker_id in (1, 2, 0):
            await cluster.kill(broker_id)
        store = cluster.ensemble.store()
        await store.open_session()
        await store.delete(partition_state_path(P))
        await store.create("/admin/delete_topics/t", b"")
        await store.close()
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        await cluster.settle()
        assert "/brokers/topics/t" not in cluster.ensemble.dump()
        for broker_id in (1, 2):
            stop = [request for request in cluster.peers[broker_id].requests if isinstance(request, StopReplicaRequest)]
            deleted = [s.partition_index for r in stop for t in r.topic_states for s in t.partition_states if s.delete_partition]
            assert set(deleted) == {0, 1}

    run(scenario, on_zookeeper=True)


def test_a_partition_without_a_live_replica_is_forgotten_with_its_topic(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        for broker_id in (3, 4):
            await cluster.controller.topics.create_topics([NewTopic("t", assignments={0: [8, 9]})], timeout_ms=0)
            await cluster.settle()
            await cluster.controller.topics.delete_topics(["t"])
            await cluster.settle()
            assert "/brokers/topics/t" not in cluster.ensemble.dump()
            await cluster.start(broker_id)

    run(scenario)
    assert len([line for line in caplog.messages if "t-0 has no live replica" in line]) == 2
