"""The controller watches each node once, however often it reads the node: a change queues one event."""

from ottla.controller.store.watches import Watches
from ottla.controller.znodes.layout import BROKER_IDS, TOPICS, broker_id_path, delete_topic_path
from tests.support.controlled_cluster import Cluster, run

BROKERS = 6


def watches_on(cluster: Cluster, path: str) -> int:
    """How many callbacks of the controller's store wait for a change of the node or its children."""
    watches: Watches = cluster.controller.store._watches
    return len(watches._data.get(path, ())) + len(watches._children.get(path, ()))


def test_brokers_that_come_and_go_leave_one_watch_on_each_broker() -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller
        events: list[str] = []
        controller.controller.measure(lambda name, waited_s, took_s: events.append(name), lambda broker_id, waited_s: None)
        for _ in range(5):
            await cluster.kill(BROKERS - 1)
            await cluster.start(BROKERS - 1)
        assert [watches_on(cluster, broker_id_path(each)) for each in range(1, BROKERS)] == [1] * (BROKERS - 1)
        assert watches_on(cluster, BROKER_IDS) == 1
        assert events.count("BrokerModifications") <= 10

    run(scenario, BROKERS)


def test_requests_to_delete_unknown_topics_leave_one_watch_on_the_topics() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(3):
            await cluster.controller.store.create(delete_topic_path(f"unknown{number}"))
            await cluster.settle()
        assert watches_on(cluster, TOPICS) == 1

    run(scenario)
