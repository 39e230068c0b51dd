"""The judge is judged: right histories of any shape pass, and each fault, put into one anywhere, is named."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fault_cells import Cell
from tests.support.fault_judge import ALONG, FaultHistory, judge
from tests.support.history import UNKNOWN_OFFSET, Place, Record

FINAL = "final"


@dataclass
class Told:
    """What clients will tell: a log per partition, who was sent and acknowledged what, and what two consumers are given of it."""

    sent: dict[Record, int] = field(default_factory=dict)
    acknowledged: list[tuple[Record, Place]] = field(default_factory=list)
    polled: dict[str, list[tuple[Record, Place]]] = field(default_factory=dict)

    def violations(self) -> list[str]:
        history = FaultHistory()
        for record, partition in self.sent.items():
            history.sent(record, partition)
        for record, place in self.acknowledged:
            history.acknowledged(record, place)
        for consumer, polled in self.polled.items():
            for record, place in polled:
                history.polled(consumer, record, place)
        history.came_to_the_end(FINAL)
        return history.violations()

    def kinds(self) -> set[str]:
        return {each.partition(":")[0] for each in self.violations()}

    def at(self, consumer: str, place: Place) -> int:
        """Where in what the consumer was given."""
        return next(number for number, (_, found) in enumerate(self.polled[consumer]) if found == place)


def told(random: Random, producers: int, partitions: int, records: int) -> Told:
    """A right one: producers write to partitions as they like; some records are never acknowledged, some without an offset."""
    found = Told()
    ends = dict.fromkeys(range(partitions), 0)
    written: list[tuple[Record, Place]] = []
    for sequence in range(records):
        for producer in range(producers):
            record = Record(f"p{producer}", sequence)
            partition = random.randrange(partitions) if sequence >= partitions else sequence
            found.sent[record] = partition
            place = Place(partition, ends[partition])
            if random.random() < 0.1:
                continue  # it did not come to the broker, and its producer knows no better
            ends[partition] += 1
            written.append((record, place))
            if random.random() < 0.9:
                found.acknowledged.append((record, place if random.random() < 0.9 else Place(partition, UNKNOWN_OFFSET)))
    random.shuffle(found.acknowledged)
    for consumer in (ALONG, FINAL):
        found.polled[consumer] = shuffled_by_partition(random, written)
    return found


def shuffled_by_partition(random: Random, written: list[tuple[Record, Place]]) -> list[tuple[Record, Place]]:
    """Each partition in its order, partitions in any."""
    left = {place.partition: [each for each in written if each[1].partition == place.partition] for _, place in written}
    turns = [place.partition for _, place in written]
    random.shuffle(turns)
    return [left[partition].pop(0) for partition in turns]


def with_an_offset(given: Told) -> list[tuple[Record, Place]]:
    return [each for each in given.acknowledged if each[1].offset != UNKNOWN_OFFSET]


def end_of(given: Told, partition: int) -> int:
    return max(place.offset + 1 for _, place in given.polled[FINAL] if place.partition == partition)


def a_lost_write(given: Told, random: Random) -> None:
    """It never stood in the log: all behind it stand one place before where they stood, and were acknowledged there."""
    lost, gone = random.choice(with_an_offset(given))

    def moved(place: Place) -> Place:
        return Place(place.partition, place.offset - 1) if place.partition == gone.partition and place.offset > gone.offset else place

    given.acknowledged = [(each, moved(place)) for each, place in given.acknowledged if each != lost] + [(lost, gone)]
    for consumer, polled in given.polled.items():
        given.polled[consumer] = [(each, moved(place)) for each, place in polled if each != lost]


def a_tail_that_only_the_one_who_read_along_saw(given: Told, random: Random) -> None:
    """The log was cut: what was read, and acknowledged, is there no more."""
    partition = random.choice(given.acknowledged)[1].partition
    last = Place(partition, end_of(given, partition) - 1)
    record = given.polled[FINAL].pop(given.at(FINAL, last))[0]
    if record not in dict(given.acknowledged):
        given.acknowledged.append((record, last))


def a_tail_that_was_read_and_never_acknowledged(given: Told, random: Random) -> None:
    """Also what nobody was promised must not be shown and taken back."""
    partition = random.choice(given.acknowledged)[1].partition
    last = Place(partition, end_of(given, partition) - 1)
    record = given.polled[FINAL].pop(given.at(FINAL, last))[0]
    given.acknowledged = [each for each in given.acknowledged if each[0] != record]


def a_duplicate(given: Told, random: Random) -> None:
    """A retry was written again."""
    record, place = random.choice(given.polled[FINAL])
    again = Place(place.partition, end_of(given, place.partition))
    for polled in given.polled.values():
        polled.append((record, again))


def a_second_acknowledgement_elsewhere(given: Told, random: Random) -> None:
    """Two leaders told a producer of the same record."""
    record, place = random.choice(with_an_offset(given))
    given.acknowledged.append((record, Place(place.partition, place.offset + 1)))


def two_in_the_wrong_order(given: Told, random: Random) -> None:
    """Of one producer, in one partition; nobody was told where they stand."""
    polled = given.polled[FINAL]
    candidates = [
        (one, other)
        for at, one in enumerate(polled)
        for other in polled[at + 1 :]
        if one[0].producer == other[0].producer and one[1].partition == other[1].partition
    ]
    (first, here), (second, there) = random.choice(candidates)
    for consumer in given.polled:
        given.polled[consumer][given.at(consumer, here)] = (second, here)
        given.polled[consumer][given.at(consumer, there)] = (first, there)
    given.acknowledged = [
        (each, Place(place.partition, UNKNOWN_OFFSET) if each in {first, second} else place) for each, place in given.acknowledged
    ]


def one_that_nobody_sent(given: Told, random: Random) -> None:
    """Somebody else's, or of an earlier life."""
    _, place = random.choice(given.polled[FINAL])
    where = Place(place.partition, end_of(given, place.partition))
    for polled in given.polled.values():
        polled.append((Record("stranger", 0), where))


def one_in_another_partition(given: Told, random: Random) -> None:
    """Nobody was told of it, and nothing else is wrong."""
    record = Record("p0", 1_000_000)
    _, place = random.choice(given.polled[FINAL])
    given.sent[record] = place.partition + 1
    for polled in given.polled.values():
        polled.append((record, Place(place.partition, end_of(given, place.partition) if polled is given.polled[ALONG] else 0)))
    given.polled[FINAL][-1] = given.polled[ALONG][-1]


def an_acknowledgement_of_another_place(given: Told, random: Random) -> None:
    """The producer was told a wrong offset."""
    at = random.randrange(len(given.acknowledged))
    record, place = given.acknowledged[at]
    given.acknowledged[at] = (record, Place(place.partition, end_of(given, place.partition) + 7))


def a_poll_that_goes_back(given: Told, random: Random) -> None:
    """A consumer is given what it had."""
    at = random.randrange(len(given.polled[ALONG]))
    given.polled[ALONG].insert(at + 1, given.polled[ALONG][at])


def a_poll_that_leaves_one_out(given: Told, random: Random) -> None:
    """Who reads to the end finds it."""
    inner = [place for _, place in given.polled[ALONG] if place.offset + 1 < end_of(given, place.partition)]
    given.polled[ALONG].pop(given.at(ALONG, random.choice(inner)))


def another_record_at_a_place_that_was_read(given: Told, random: Random) -> None:
    """The leader that was read from was not the leader."""
    _, place = random.choice(given.polled[ALONG])
    record = Record("p0", 1_000_000)
    given.sent[record] = place.partition
    given.polled[ALONG][given.at(ALONG, place)] = (record, place)


def two_acknowledged_at_one_place(given: Told, random: Random) -> None:
    """Two leaders."""
    record, place = random.choice(with_an_offset(given))
    other = Record(record.producer, 1_000_000)
    given.sent[other] = place.partition
    given.acknowledged.append((other, place))


def a_consumer_that_stops(given: Told, random: Random) -> None:
    """It never hears of the new leader."""
    partition = random.choice(given.polled[ALONG])[1].partition
    at = given.at(ALONG, Place(partition, end_of(given, partition) - 1))
    given.polled[ALONG].pop(at)


FAULTS: list[tuple[Callable[[Told, Random], None], str]] = [
    (a_lost_write, "lost"),
    (a_tail_that_only_the_one_who_read_along_saw, "lost"),
    (a_tail_that_only_the_one_who_read_along_saw, "vanished"),
    (a_tail_that_was_read_and_never_acknowledged, "vanished"),
    (a_duplicate, "duplicate"),
    (a_second_acknowledgement_elsewhere, "duplicate"),
    (two_in_the_wrong_order, "reordered"),
    (one_that_nobody_sent, "unseen"),
    (one_in_another_partition, "misplaced"),
    (an_acknowledgement_of_another_place, "misplaced"),
    (a_poll_that_goes_back, "backwards"),
    (a_poll_that_leaves_one_out, "gap"),
    (another_record_at_a_place_that_was_read, "changed"),
    (two_acknowledged_at_one_place, "twice"),
    (a_consumer_that_stops, "behind"),
]
shapes = st.tuples(st.builds(Random, st.integers(0, 2**32)), st.integers(1, 3), st.integers(1, 3), st.integers(15, 25))
few = settings(max_examples=10, deadline=None)


@few
@given(shapes)
def test_a_right_history_of_any_shape_passes(shape: tuple[Random, int, int, int]) -> None:
    assert told(*shape).violations() == []


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "rule"), [pytest.param(fault, rule, id=f"{fault.__name__}-{rule}") for fault, rule in FAULTS])
@few
@given(shapes)
def test_a_fault_anywhere_is_named(fault: Callable[[Told, Random], None], rule: str, shape: tuple[Random, int, int, int]) -> None:
    found = told(*shape)
    fault(found, shape[0])
    assert rule in found.kinds()
    bad, _ = judge(Cell("kill", "leader"), found.violations())
    assert rule in {each.partition(":")[0] for each in bad}


@pytest.mark.parametrize("fault", [a_poll_that_goes_back, a_poll_that_leaves_one_out, a_consumer_that_stops, one_that_nobody_sent])
def test_what_consumers_see_is_held_to_the_same_with_one_acknowledgement(fault: Callable[[Told, Random], None]) -> None:
    found = told(Random(1), 2, 2, 20)
    fault(found, Random(2))
    assert judge(Cell("kill", "leader", "1"), found.violations())[0]


def test_reading_can_be_told_not_to_end_before_what_was_acknowledged() -> None:
    history = FaultHistory()
    assert history.acknowledged_end(0) == 0
    history.acknowledged(Record("p", 0), Place(0, 4))
    history.acknowledged(Record("p", 1), Place(0, UNKNOWN_OFFSET))
    assert (history.acknowledged_end(0), history.acknowledged_end(1)) == (5, 0)
