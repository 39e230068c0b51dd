"""Members that join, leave, die, think for too long and come back: nothing is lost, doubled or undone. Real clients."""

from collections.abc import Iterator

import pytest

from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.rebalance_history import History, are_shared, check_offsets_topic
from tests.support.rebalance_kinds import CONFIG, RECORDS, Kind, all_of, every_client, every_kind, fill

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), **CONFIG) as running:
        yield running


@every_kind
def test_members_join_are_killed_and_leave(kind: Kind, broker: BrokerProcess) -> None:
    topic = group = f"life-{kind}"
    with History() as history:
        values = fill(broker, topic)
        first = kind.member(broker, group, topic)
        history.poll_until(lambda: history.values() == values, first)
        second = kind.member(broker, group, topic)
        doomed = kind.process(broker, group, topic, session_timeout_ms=1_000)
        history.poll_until(lambda: are_shared(all_of(topic), first, second, doomed), first, second, doomed)
        values |= fill(broker, topic, RECORDS)
        history.poll(first, second, doomed)
        history.note(doomed, doomed.kill())
        values |= fill(broker, topic, 2 * RECORDS)
        history.poll_until(lambda: are_shared(all_of(topic), first, second), first, second)
        history.poll_until(lambda: history.values() == values, first, second)
        first.close()
        values |= fill(broker, topic, 3 * RECORDS)
        history.poll_until(lambda: second.assignment() == all_of(topic), second)
        history.poll_until(lambda: history.values() == values, second)
        second.close()
        history.check(values)
        assert check_offsets_topic(broker.data, group) >= 4


@every_client
def test_a_member_that_thinks_for_too_long_loses_its_partitions_and_cannot_commit(kind: Kind, broker: BrokerProcess) -> None:
    topic = group = f"slow-{kind}"
    with History() as history:
        values = fill(broker, topic)
        slow = kind.member(broker, group, topic, session_timeout_ms=1_000, max_poll_interval_ms=1_000)
        history.poll_until(lambda: history.values() == values, slow)
        values |= fill(broker, topic, RECORDS)
        quick = kind.member(broker, group, topic)
        history.poll_until(lambda: are_shared(all_of(topic), slow, quick), slow, quick)
        history.poll_until(lambda: quick.assignment() == all_of(topic), quick)
        values |= fill(broker, topic, 2 * RECORDS)
        history.poll_until(lambda: history.values() == values, quick)
        assert not history.commit(slow)
        history.poll_until(lambda: are_shared(all_of(topic), slow, quick), slow, quick)
        values |= fill(broker, topic, 3 * RECORDS)
        history.poll_until(lambda: history.values() == values, slow, quick)
        for member in (slow, quick):
            member.close()
        history.check(values)
        check_offsets_topic(broker.data, group)


@every_client
def test_a_static_member_that_is_killed_and_comes_back_disturbs_nobody(kind: Kind, broker: BrokerProcess) -> None:
    topic = group = f"static-{kind}"
    patient = {"session_timeout_ms": 300_000, "max_poll_interval_ms": 300_000}
    with History() as history:
        values = fill(broker, topic)
        staying = kind.member(broker, group, topic, group_instance_id="staying", **patient)
        doomed = kind.process(broker, group, topic, group_instance_id="doomed", **patient)
        history.poll_until(lambda: are_shared(all_of(topic), staying, doomed), staying, doomed)
        history.poll_until(lambda: history.values() == values, staying, doomed)
        generation, assigned = staying.generation(), doomed.assignment()
        history.note(doomed, doomed.kill())
        values |= fill(broker, topic, RECORDS)
        back = kind.process(broker, group, topic, group_instance_id="doomed", **patient)
        history.poll_until(lambda: history.values() == values, staying, back)
        assert back.assignment() == assigned
        assert staying.generation() == generation
        assert check_offsets_topic(broker.data, group) == generation
        back.kill()
        staying.close()
        history.check(values)
