"""A leader that reaches neither ZooKeeper nor its followers sends producers elsewhere; one that lacks only one of the two goes on."""

from ottla.protocol.errors import ErrorCode
from ottla.replication.leader.isolation import Isolation
from ottla.storage.disk.clock import elapsed_ms
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.replicas import TOPIC_ID, state

TIMEOUT_MS = 6_000


class Leader:
    """Broker 0 leads orders-0 with 1 and 2 in sync; a look twice a second, as in a broker."""

    def __init__(self, isr: tuple[int, ...] = (0, 1, 2)) -> None:
        self.bench = HandlerBench()
        self.replicas = self.bench.replicas
        self.replicas.say(state(isr=isr), topic_id=TOPIC_ID)
        self.partition = self.replicas.partition
        self.is_connected = True
        self.sent_away = 0
        self.isolation = Isolation(self.replicas.manager, lambda: self.is_connected, TIMEOUT_MS, self.replicas.clock, self._on_sent_away)
        self.pass_seconds(1, *(broker_id for broker_id in isr if broker_id))

    def pass_seconds(self, seconds: float, *followers: int) -> None:
        """Time passes; only these followers fetch."""
        for _ in range(int(seconds * 2)):
            self.replicas.clock.move(500)
            for broker_id in followers:
                self.replicas.follow(broker_id, max(self.partition.followers[broker_id].log_end_offset, 0))
            self.isolation.look()

    def _on_sent_away(self) -> None:
        self.sent_away += 1

    def is_refused(self, acks: int = -1) -> bool:
        """Whether a Produce is answered at once with the error that makes a client look for the leader."""
        asking = self.bench.produce(acks=acks)
        return not asking.waits and asking.produced[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_a_loop
async def test_a_leader_without_zookeeper_and_followers_sends_producers_elsewhere() -> None:
    leader = Leader()
    waiting = leader.bench.produce()
    leader.is_connected = False
    leader.pass_seconds(5)
    assert waiting.waits
    leader.pass_seconds(2)
    assert waiting.produced[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    end_offset = leader.partition.log.log_end_offset
    assert leader.is_refused()
    assert leader.partition.log.log_end_offset == end_offset
    assert not leader.is_refused(acks=1), "what one replica is enough for may still be written, as in Apache Kafka"


@on_a_loop
async def test_a_cluster_without_zookeeper_goes_on_as_long_as_followers_fetch() -> None:
    leader = Leader()
    leader.is_connected = False
    leader.pass_seconds(60, 1, 2)
    asking = leader.bench.produce()
    assert asking.waits
    for broker_id in (1, 2):
        leader.replicas.follow(broker_id, 1)
    assert asking.produced[0].error_code == ErrorCode.NONE


@on_a_loop
async def test_followers_outside_the_isr_are_not_missed() -> None:
    leader = Leader(isr=(0,))
    leader.is_connected = False
    leader.pass_seconds(60)
    assert leader.bench.produce().produced[0].error_code == ErrorCode.NONE


@on_a_loop
async def test_a_follower_that_falls_silent_is_for_the_controller_as_long_as_zookeeper_is_there() -> None:
    leader = Leader()
    leader.pass_seconds(60, 1)
    assert leader.bench.produce().waits


@on_a_loop
async def test_nobody_is_sent_elsewhere_any_more_once_either_is_back() -> None:
    for is_connected, followers in ((True, ()), (False, (1, 2))):
        leader = Leader()
        leader.is_connected = False
        leader.pass_seconds(10)
        assert leader.is_refused()
        leader.is_connected = is_connected
        leader.pass_seconds(0.5, *followers)
        assert not leader.is_refused()
        assert leader.isolation.cut_off == 0


@on_a_loop
async def test_the_controller_s_word_counts_more() -> None:
    leader = Leader()
    leader.is_connected = False
    leader.pass_seconds(10)
    leader.replicas.say(state(epoch=1, isr=[0]), topic_id=TOPIC_ID)
    assert not leader.is_refused()


@on_a_loop
async def test_a_process_that_stood_still_listens_before_it_judges() -> None:
    leader = Leader()
    leader.replicas.clock.move(60_000)
    leader.is_connected = False
    leader.isolation.look()
    assert not leader.is_refused()


@on_a_loop
async def test_who_is_alone_sends_its_clients_away_once_in_a_session_timeout() -> None:
    leader = Leader()
    leader.is_connected = False
    leader.pass_seconds(5.5)
    assert leader.sent_away == 0
    leader.pass_seconds(1)
    assert leader.sent_away == 1
    leader.pass_seconds(3 * TIMEOUT_MS / 1000)
    assert leader.sent_away == 4
    leader.is_connected = True
    leader.pass_seconds(60)
    assert leader.sent_away == 4


@on_a_loop
async def test_who_is_followed_in_one_partition_keeps_its_clients() -> None:
    leader = Leader()
    leader.replicas.say(state(index=1, isr=(0, 1)), topic_id=TOPIC_ID)
    other = leader.replicas.manager.partitions["orders"][1]
    leader.is_connected = False
    for _ in range(60):
        other.on_follower_fetch(1, 0, 0, elapsed_ms(leader.replicas.clock))
        leader.pass_seconds(0.5)
    assert leader.partition.is_cut_off
    assert not other.is_cut_off
    assert leader.sent_away == 0
