"""What the controller does costs as much as what changed, not that times the brokers, and not its square."""

from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.events.isr_changes import IsrChange
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import Cluster, run

BROKERS = 6


def test_brokers_receive_the_same_topics_of_a_changed_isr() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic(*([0, 1, 2] for _ in range(4)), name="t")
        controller = cluster.controller.controller
        for peer in cluster.peers.values():
            peer.requests.clear()
        changes = {}
        for index in range(4):
            state, partition_epoch = controller.context.leaderships[TopicPartition("t", index)]
            changes[TopicPartition("t", index)] = IsrChange(state.leader_epoch, (0, 1), partition_epoch)
        await controller.alter_isr(0, controller.broker_epoch, changes)
        await cluster.settle()
        found = [each for peer in cluster.peers.values() for each in peer.requests if isinstance(each, UpdateMetadataRequest)]
        assert len(found) == BROKERS
        assert len({id(topic) for request in found for topic in request.topic_states}) == 1
        assert len({id(broker) for request in found for broker in request.live_brokers}) == BROKERS
        assert all(len(request.topic_states[0].partition_states) == 4 for request in found)

    run(scenario, BROKERS)


def test_a_new_controller_has_equal_states_and_assignments_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic(*([1, 2, 3], [2, 3, 1]) * 20, name="t")
        await cluster.topic(*([1, 2, 3] for _ in range(20)), name="u")
        await cluster.kill(0)
        context = cluster.controller.controller.context
        states = [state for state, _ in context.leaderships.values()]
        assignments = [each for of_topic in context.assignments.values() for each in of_topic.values()]
        assert (len(states), len(assignments)) == (60, 60)
        assert {(state.leader, state.isr) for state in states} == {(1, (1, 2, 3)), (2, (2, 3, 1))}
        assert len({id(state) for state in states}) == 2
        assert len({id(assignment) for assignment in assignments}) == 2

    run(scenario, BROKERS)


def test_replicas_of_several_brokers_receive_the_same_states_of_a_new_controller() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic(*([1, 2, 3] for _ in range(120)), name="t")
        await cluster.topic(*([3, 2] for _ in range(3)), name="u")
        for peer in cluster.peers.values():
            peer.requests.clear()
        await cluster.kill(0)
        told = {
            broker_id: next(each for each in cluster.peers[broker_id].requests if isinstance(each, LeaderAndIsrRequest))
            for broker_id in (1, 2, 3)
        }
        assert [(topic.topic_name, len(topic.partition_states)) for topic in told[1].topic_states] == [("t", 120)]
        assert [(topic.topic_name, len(topic.partition_states)) for topic in told[2].topic_states] == [("t", 120), ("u", 3)]
        assert {leader.broker_id for leader in told[1].live_leaders} == {1}
        assert {leader.broker_id for leader in told[2].live_leaders} == {1, 3}
        assert len({id(state) for request in told.values() for topic in request.topic_states for state in topic.partition_states}) == 123

    run(scenario, BROKERS)


def test_a_broker_that_starts_receives_all_topics_and_the_others_none() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.controller.topics.create_topics([NewTopic("t", 3, 2)], timeout_ms=0)
        await cluster.settle()
        for peer in cluster.peers.values():
            peer.requests.clear()
        await cluster.start(3)
        first = {
            broker_id: next(each for each in peer.requests if isinstance(each, UpdateMetadataRequest))
            for broker_id, peer in cluster.peers.items()
        }
        assert {broker_id: len(request.topic_states) for broker_id, request in first.items()} == {0: 0, 1: 0, 2: 0, 3: 1}
        assert all(len(request.live_brokers) == 4 for request in first.values())

    run(scenario)
