"""Faults of brokers and of ZooKeeper under load: nothing that was acknowledged is lost, repeated or reordered, and clients recover.

The cells share a cluster per store and test process as long as they go well. This is the ordinary selection; all of the matrix is
`python -m tests.chaos.fault_matrix`, or `make soak`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.chaos.conftest import CELL_PROPERTY
from tests.chaos.fault_matrix import Clusters
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.fault_cells import CELLS, ORDINARY, Cell
from tests.support.fault_judge import ALONG, FaultHistory, judge
from tests.support.history import Place, Record


def _param(cell: Cell) -> object:
    marks = [pytest.mark.slow]
    if cell.store == "zookeeper":
        marks.append(pytest.mark.java)
    if cell.client == "java":
        marks += needs_apache_kafka
    if cell.client == "kafka-python":
        marks.append(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
    return pytest.param(cell, id=cell.name, marks=marks)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    held = Clusters(tmp_path_factory.mktemp("fault-matrix"))
    yield held
    held.drop()


@pytest.mark.parametrize("cell", [_param(cell) for cell in sorted(ORDINARY, key=lambda cell: cell.store)])
def test_nothing_acknowledged_is_lost_and_clients_recover(
    cell: Cell, clusters: Clusters, record_property: Callable[[str, object], None]
) -> None:
    try:
        result = clusters.on(cell.store).run(cell)
    except BaseException as failure:
        record_property(CELL_PROPERTY, [cell.name, 0.0, 0.0, 0.0])
        clusters.drop(failure)
        raise
    print(result.line)
    record_property(CELL_PROPERTY, [cell.name, result.produce_stall_s, result.consume_stall_s, result.whole_s])


def test_the_ordinary_cells_are_of_the_matrix_and_names_are_unique() -> None:
    assert set(ORDINARY) <= set(CELLS)
    assert len({cell.name for cell in CELLS}) == len(CELLS)


def a_history(*acknowledged: tuple[int, int]) -> FaultHistory:
    """Records by number, acknowledged at offsets."""
    history = FaultHistory()
    for number, offset in acknowledged:
        history.sent(Record("w", number), 0)
        history.acknowledged(Record("w", number), Place(0, offset))
    return history


def read(history: FaultHistory, name: str, *polled: tuple[int, int]) -> None:
    for number, offset in polled:
        history.polled(name, Record("w", number), Place(0, offset))


def test_the_judge_finds_a_gap_and_a_reader_that_stays_behind() -> None:
    history = a_history((0, 0), (1, 1), (2, 2), (3, 3))
    read(history, "final", (0, 0), (1, 1), (2, 2), (3, 3))
    read(history, ALONG, (0, 0), (2, 2))
    assert [each.partition(":")[0] for each in history.violations()] == ["gap", "behind"]


def test_two_acknowledgements_at_one_place_are_two_leaders() -> None:
    history = a_history((0, 0), (1, 0))
    read(history, "final", (1, 0))
    read(history, ALONG, (1, 0))
    rules = [each.partition(":")[0] for each in history.violations()]
    assert rules == ["lost", "twice"]
    assert judge(Cell("cut", "leader"), history.violations())[1] == {}
    assert judge(Cell("cut", "leader", "1"), history.violations()) == ([], {"lost": 1, "twice": 1})
    assert len(judge(Cell("cut", "follower", "1"), history.violations())[0]) == 2
