"""An element that several messages contain is encoded once, also by encoders that take turns, into the same bytes as ever."""

from collections.abc import Generator

import pytest

from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.protocol.schema.wire import InvalidValue

Parts = list[bytes | memoryview]
Encoding = Generator[None, None, Parts]


def topics(count: int, partitions: int) -> list[UpdateMetadataTopicState]:
    return [
        UpdateMetadataTopicState(
            topic_name=f"t{number}",
            topic_id=bytes([number]) * 16,
            partition_states=[
                UpdateMetadataPartitionState(partition_index=index, isr=(1, 2), replicas=(1, 2)) for index in range(partitions)
            ],
        )
        for number in range(count)
    ]


def update(broker_epoch: int, states: list[UpdateMetadataTopicState], brokers: list[UpdateMetadataBroker]) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(broker_epoch=broker_epoch, topic_states=states, live_brokers=brokers)


def some_brokers() -> list[UpdateMetadataBroker]:
    return [UpdateMetadataBroker(id=each, endpoints=[UpdateMetadataEndpoint(port=each, host="h", listener="L")]) for each in range(3)]


def finish(encoding: Encoding) -> tuple[Parts, int]:
    """The parts, and the number of steps."""
    steps = 0
    while True:
        try:
            next(encoding)
        except StopIteration as end:
            return end.value, steps
        steps += 1


@pytest.mark.parametrize("version", range(9))
def test_encoders_in_steps_write_what_other_encoders_write(version: int) -> None:
    states = topics(3, 50)
    if version < 5:
        named = [state for topic in states for state in topic.partition_states]
        request = UpdateMetadataRequest(ungrouped_partition_states=named, live_brokers=some_brokers())
    else:
        request = update(1, states, some_brokers())
    for _ in range(2):
        assert b"".join(finish(request.encode_steps(version))[0]) == request.encode(version)


def test_an_element_is_encoded_anew_in_another_version() -> None:
    request = update(1, topics(2, 3), some_brokers())
    for version in (8, 5, 7, 8):
        assert b"".join(finish(request.encode_steps(version))[0]) == request.encode(version)


def test_requests_of_many_brokers_share_the_encodings_of_their_topics() -> None:
    states, brokers = topics(4, 100), some_brokers()
    encodings = [update(epoch, states, brokers).encode_steps(8) for epoch in range(10)]
    steps = 0
    ended: dict[int, Parts] = {}
    while len(ended) < len(encodings):  # in turns of a few steps, as the connections to the brokers do
        for number, encoding in enumerate(encodings):
            for _ in range(7):
                try:
                    next(encoding)
                except StopIteration as end:
                    ended.setdefault(number, end.value)
                    break
                steps += 1
    assert steps < 4 * 100 + len(encodings) * 20
    for number, parts in ended.items():
        assert b"".join(parts) == update(number, topics(4, 100), some_brokers()).encode(8)
    long = [{id(part) for part in parts if len(part) > 1000} for parts in ended.values()]
    assert len(long[0]) == 4
    assert all(each == long[0] for each in long)


def leader_and_isr(broker_epoch: int, states: list[LeaderAndIsrPartitionState]) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(broker_epoch=broker_epoch, topic_states=[LeaderAndIsrTopicState(topic_name="t", partition_states=states)])


def some_states(count: int) -> list[LeaderAndIsrPartitionState]:
    return [LeaderAndIsrPartitionState(partition_index=index, isr=(1, 2), replicas=(1, 2)) for index in range(count)]


@pytest.mark.parametrize("version", [7, 6, 4, 3])
def test_a_partition_of_several_brokers_is_encoded_once_in_each_version(version: int) -> None:
    states = some_states(1000)
    for epoch in range(3):
        parts, steps = finish(leader_and_isr(epoch, states).encode_steps(version))
        assert b"".join(parts) == leader_and_isr(epoch, some_states(1000)).encode(version)
        assert (steps > 1000) == (epoch == 0)
    for state in states:
        state.leader = 1 << 40  # what is encoded again is refused
    finish(leader_and_isr(3, states).encode_steps(version))
    with pytest.raises(InvalidValue):
        finish(leader_and_isr(3, states).encode_steps(version - 1))


def test_partitions_that_are_encoded_already_are_not_joined_in_one_step() -> None:
    states = some_states(20_000)
    finish(leader_and_isr(0, states).encode_steps(7))
    assert finish(leader_and_isr(1, states).encode_steps(7))[1] > 4


def test_an_element_that_cannot_be_encoded_fails_in_every_message() -> None:
    states = topics(1, 3)
    states[0].partition_states[1].leader = 1 << 40
    for epoch in range(2):
        with pytest.raises(InvalidValue):
            finish(update(epoch, states, []).encode_steps(8))


def test_a_decoded_element_can_be_encoded() -> None:
    request = update(1, topics(2, 2), some_brokers())
    decoded, _ = UpdateMetadataRequest.decode(request.encode(8), 8)
    assert decoded == request
    assert b"".join(finish(decoded.encode_steps(8))[0]) == request.encode(8)
