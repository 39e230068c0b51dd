"""Stories of clusters: those of a few seeds end well, and a seed always tells the same one. `make soak` tells many."""

from __future__ import annotations

import subprocess
import sys


def tell(*arguments: str) -> str:
    """What `python -m tests.simulation` prints; fails with it when a story ends badly."""
    done = subprocess.run([sys.executable, "-m", "tests.simulation", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_whatever_happens_to_a_cluster_nothing_acknowledged_is_lost() -> None:
    assert tell("--seed", "1", "--stories", "6", "--seconds", "20").endswith("all is well\n")


def test_a_seed_tells_the_same_story_again() -> None:
    arguments = ("--seed", "124", "--seconds", "10")
    assert tell(*arguments) == tell(*arguments)
