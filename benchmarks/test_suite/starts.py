"""Measures what pytest-ottla and the command line take to start: `python -m benchmarks.test_suite.starts FOLDER` prints JSON."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from pytest_ottla import Cluster
from pytest_ottla.process import command

BROKERS = 3
CLUSTERS = 3
HELPS = 7


def cluster_s(directory: Path) -> float:
    """Seconds until three new brokers know each other."""
    begin = time.perf_counter()
    with Cluster(directory, BROKERS):
        return time.perf_counter() - begin


def help_s() -> float:
    """Seconds of `ottla --help`."""
    begin = time.perf_counter()
    subprocess.run([*command(), "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main(directory: Path) -> None:
    """Print the medians."""
    clusters = [cluster_s(directory / str(number)) for number in range(CLUSTERS)]
    helps = [help_s() for _ in range(HELPS)]
    print(json.dumps({"cluster_s": statistics.median(clusters), "help_s": statistics.median(helps)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
