"""@platformatic/kafka, a client for Node.js, in groups of the classic protocol, its default, and of the new one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.command_line import CommandLine
from tests.support.neighbours.artifacts import whole

NODE, NPM = shutil.which("node"), shutil.which("npm")
PROGRAM = Path(__file__).parents[1] / "support" / "node" / "group.mjs"
PACKAGE = "@platformatic/kafka@1.35.0"
COUNT = 100

pytestmark = [
    whole,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(NODE is None or NPM is None, reason="there is no Node.js (Debian: apt-get install npm)"),
]


@pytest.fixture(scope="module")
def modules() -> Path:
    """The folder with the client, which npm fetches once. Skips the test if it cannot."""
    folder = Path.home() / ".cache" / "ottla" / "node" / PACKAGE.replace("/", "-")
    if not (folder / "node_modules").exists():
        folder.mkdir(parents=True, exist_ok=True)
        assert NPM is not None
        done = subprocess.run([NPM, "install", "--prefix", str(folder), PACKAGE], capture_output=True, text=True, timeout=200, check=False)
        if done.returncode != 0:
            pytest.skip(f"npm cannot fetch {PACKAGE}: {done.stderr.strip()[-500:]}")
    return folder / "node_modules"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), num_partitions=3, group_initial_rebalance_delay_ms=0) as running:
        yield running


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_everything_once_and_commits_it(protocol: str, modules: Path, broker: BrokerProcess) -> None:
    assert NODE is not None
    command = [NODE, str(PROGRAM), broker.bootstrap, protocol, protocol, str(COUNT)]
    environment = {**os.environ, "NODE_PATH": str(modules)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.split()) == (0, [str(COUNT), str(COUNT)]), done.stderr
    (described,) = CommandLine(broker.bootstrap)("groups", "describe", protocol, "--json").json
    assert {each["lag"] for each in described["partitions"]} == {0}
