"""Commands and pages that need an answer of every leader name those that do not answer, and show the rest."""

from starlette.datastructures import QueryParams

from broker.cli.console import control
from tests.support.played_leaders import ALIVE, DEAD, LEADERLESS, ClusterOfTest


def test_a_look_for_hanging_transactions_names_the_leader_that_does_not_answer() -> None:
    found = control.hanging_transactions(ClusterOfTest(ALIVE, DEAD, LEADERLESS), QueryParams())
    lost = f"t-1: no broker can be reached at 127.0.0.1:{DEAD}"
    assert found == {"held_back": [], "hanging": [], "not_examined": [lost]}
    assert "not_examined" not in control.hanging_transactions(ClusterOfTest(ALIVE), QueryParams())
