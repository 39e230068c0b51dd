"""Stories of clusters: those of a few seeds end well, and a seed always tells the same one. `make soak` tells many."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest


def tell(*arguments: str, **environment: str) -> str:
    """What `python -m tests.simulation` prints; fails with it when a story ends badly."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_whatever_happens_to_a_cluster_nothing_acknowledged_is_lost() -> None:
    told = tell("--seed", "1", "--stories", "1", "--seconds", "12")
    assert told.endswith("all is well\n")
    failovers = re.search(r" (\d+) failovers \(", told)
    assert failovers is not None
    assert int(failovers[1]) >= 20, told


@pytest.mark.parametrize("arguments", [("--seed", "124", "--seconds", "6"), ("--shares", "--seed", "5", "--seconds", "4")])
def test_a_seed_tells_the_same_story_again_whatever_the_hashes_of_strings_are(arguments: tuple[str, ...]) -> None:
    one, other = (tell(*arguments, PYTHONHASHSEED=seed).splitlines() for seed in ("0", "1"))
    assert one[-2].startswith("the digest of all frames is ")
    assert one[:-1] == other[:-1]  # the last line says how long it took
