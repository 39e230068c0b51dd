"""`ottla cluster` with real brokers: up, status, crashes and pauses, down; and what is left when the supervisor itself is killed."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.supervisor import state_file
from tests.support.broker_process import eventually

pytestmark = pytest.mark.cluster

SECONDS = 60.0


class ClusterCommand:
    """Runs `ottla cluster ...` on one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.seconds = SECONDS
        """The time for one command."""

    def __call__(self, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ottla", "cluster", *arguments, "--dir", str(self.directory)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=self.seconds, check=False)
        assert done.returncode == status, done.stdout + done.stderr + self.logs()
        return done

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.directory.glob("*.[el][or][gr]")))

    def brokers(self) -> list[dict[str, Any]]:
        """What `status --json` says."""
        found: list[dict[str, Any]] = json.loads(self("status", "--json").stdout)["brokers"]
        return found

    def states(self) -> list[str]:
        return [broker["state"] for broker in self.brokers()]


@contextmanager
def a_detached_cluster(directory: Path, *arguments: str) -> Iterator[ClusterCommand]:
    """Up, and down again at the end, whatever happened."""
    cluster = ClusterCommand(directory)
    cluster("up", *arguments, "--base-port", "0", "--detach")
    try:
        yield cluster
    finally:
        supervisor = state_file.read(directory).supervisor
        assert supervisor is not None
        if supervisor.is_alive:
            cluster("down")


def processes(directory: Path) -> list[state_file.ProcessName]:
    """The brokers' and the supervisor's."""
    written = state_file.read(directory)
    assert written.supervisor is not None
    return [written.supervisor, *written.processes().values()]


def test_a_cluster_comes_up_shows_what_it_is_and_goes_down_leaving_nothing(tmp_path: Path) -> None:
    with a_detached_cluster(tmp_path, "3", "--racks", "2", "--set", "num.partitions=5") as cluster:
        brokers = cluster.brokers()
        assert [(broker["id"], broker["rack"], broker["state"], broker["restarts"]) for broker in brokers] == [
            (0, "r0", "ready", 0),
            (1, "r1", "ready", 0),
            (2, "r0", "ready", 0),
        ]
        assert sum(broker["role"] == "controller" for broker in brokers) == 1
        bootstrap = ",".join(f"127.0.0.1:{broker['port']}" for broker in brokers)
        lines = cluster("status").stdout.splitlines()
        assert lines[0].split()[:5] == ["ID", "PID", "PORT", "RACK", "STATE"]
        assert len(lines) == 4
        left = processes(tmp_path)
        assert len(left) == 4
        cluster("down")
        assert not any(name.is_alive for name in left)
        assert "stopped" in cluster("status", status=1).stdout
        for broker_id in range(3):  # each has a log of its own, which rotates; nothing else was said
            assert f"broker {broker_id} stopped" in (tmp_path / f"broker-{broker_id}.log").read_text()
            assert (tmp_path / f"broker-{broker_id}.err").read_text() == ""
    with a_detached_cluster(tmp_path, "3") as cluster:
        assert bootstrap == ",".join(f"127.0.0.1:{broker['port']}" for broker in cluster.brokers())


@pytest.mark.parametrize("path", [None, "."])
def test_a_cluster_runs_in_a_project_with_packages_of_the_floors_names(tmp_path: Path, path: str | None) -> None:
    for name in ("broker", "config", "storage"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('{name} of the project was imported')\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | (
        {} if path is None else {"PYTHONPATH": path}
    )

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "ottla", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("cluster", "up", "1", "--dir", "brokers", "--base-port", "0", "--detach")
    try:
        (broker,) = json.loads(run("cluster", "status", "--dir", "brokers", "--json"))["brokers"]
        assert "orders: created" in run("topics", "create", "orders", "-b", f"127.0.0.1:{broker['port']}")
    finally:
        run("cluster", "down", "--dir", "brokers")


def test_a_killed_broker_is_started_again_and_one_that_is_to_stay_down_is_not(tmp_path: Path) -> None:
    with a_detached_cluster(tmp_path, "2") as cluster:
        before = cluster.brokers()[1]["pid"]
        cluster("kill", "1")
        eventually(lambda: cluster.states() == ["ready", "ready"], what="broker 1 is ready again")
        after = cluster.brokers()[1]
        assert after["pid"] != before
        assert (after["restarts"], after["reason"]) == (1, "ended by signal 9")
        cluster("kill", "0", "--stays-down")
        assert cluster.states()[0] == "stopped"
        assert "broker 0 is stopped" in cluster("pause", "0", status=1).stderr
        cluster("start", "0")
        assert cluster.states() == ["ready", "ready"]


def test_brokers_are_paused_and_stopped_on_their_own(tmp_path: Path) -> None:
    with a_detached_cluster(tmp_path, "2") as cluster:
        cluster("pause", "1")
        paused = cluster.brokers()[1]
        assert paused["state"] == "paused"
        assert Path(f"/proc/{paused['pid']}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        cluster("resume", "1")
        cluster("stop", "1")
        assert cluster.states() == ["ready", "stopped"]
        assert "there is no broker 7; there are 0 to 1" in cluster("start", "7", status=1).stderr
        cluster("start", "1")
        cluster("pause", "0")
        cluster("down")


def test_two_supervisors_on_one_directory_refuse(tmp_path: Path) -> None:
    with a_detached_cluster(tmp_path, "1") as cluster:
        second = cluster("up", "1", "--base-port", "0", status=1)
        assert "has a supervisor already" in second.stderr
        assert cluster.states() == ["ready"]


def test_brokers_end_when_their_supervisor_is_killed_also_paused_ones_and_the_next_one_takes_over(tmp_path: Path) -> None:
    with a_detached_cluster(tmp_path, "2") as cluster:
        cluster("pause", "1")
        supervisor, *left = processes(tmp_path)
        os.kill(supervisor.pid, signal.SIGKILL)
        eventually(lambda: not any(name.is_alive for name in left), what="the end of the brokers")
        shown = cluster("status", "--json", status=1).stdout
        assert [each["state"] for each in json.loads(shown)["brokers"]] == ["stopped", "stopped"]
        cluster("up", "2", "--base-port", "0", "--detach")
        assert cluster.states() == ["ready", "ready"]


def test_a_supervisor_first_ends_what_the_last_one_left(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", f"{tmp_path}/broker-0.properties"]) as left:
        name = state_file.name_of(left.pid)
        left.send_signal(signal.SIGSTOP)
        broker = {
            "id": 0,
            "pid": name.pid,
            "process_started": name.started,
            "host": "",
            "port": 0,
            "rack": "r0",
            "state": "paused",
            "restarts": 0,
        }
        state_file.write(tmp_path, state_file.ProcessName(1, 0), [broker])
        with a_detached_cluster(tmp_path, "1") as cluster:
            assert left.wait(SECONDS) == -signal.SIGTERM
            assert cluster.states() == ["ready"]


def test_a_bad_configuration_is_one_line(tmp_path: Path) -> None:
    refused = ClusterCommand(tmp_path)("up", "2", "--set", "num.partitions=none", "--base-port", "0", "--detach", status=1)
    assert refused.stderr.splitlines() == ["ottla: Invalid value none for configuration num.partitions: Not a number of type INT"]


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = ClusterCommand(tmp_path / "file" / "below")("up", "1", "--base-port", "0", status=1)
    assert refused.stderr == f"ottla: {tmp_path}/file/below cannot be used for a cluster: Not a directory; set another --dir\n"


@pytest.mark.parametrize("connect", ["", "zk:port", "zk:99999", "zk:2181/a//b", "zk:2181/a/"])
def test_an_address_of_zookeeper_that_is_none_is_one_line(tmp_path: Path, connect: str) -> None:
    refused = ClusterCommand(tmp_path)("up", "2", "--zookeeper", connect, "--base-port", "0", "--detach", status=1)
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"ottla: Invalid value {connect} for configuration zookeeper.connect: ")


def test_brokers_of_a_cluster_are_not_given_one_id(tmp_path: Path) -> None:
    refused = ClusterCommand(tmp_path)("up", "2", "--set", "broker.id=7", "--base-port", "0", "--detach", status=1)
    assert refused.stderr.startswith("ottla: broker.id cannot be set for a cluster")
    assert not list(tmp_path.glob("broker-*"))


def test_brokers_of_a_cluster_are_not_given_one_log_file(tmp_path: Path) -> None:
    setting = f"ottla.log.file={tmp_path}/broker.log"
    refused = ClusterCommand(tmp_path)("up", "2", "--set", setting, "--base-port", "0", "--detach", status=1)
    assert refused.stderr == f"ottla: {setting} is one file for several brokers; put {{id}} into its name\n"
    assert not list(tmp_path.glob("broker-*"))


def test_racks_are_not_given_in_two_ways(tmp_path: Path) -> None:
    refused = ClusterCommand(tmp_path)("up", "2", "--racks", "2", "--set", "broker.rack=x", "--base-port", "0", "--detach", status=2)
    assert "--racks and --set broker.rack=... both define the racks" in refused.stderr
    assert not list(tmp_path.glob("broker-*"))


def test_ctrl_c_while_a_detached_cluster_starts_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla", "cluster", "up", "2", "--detach"]
    command += ["--zookeeper", "127.0.0.1:1", "--base-port", "0", "--dir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as command_line:
        eventually(lambda: len(state_file.read(tmp_path).processes()) == 2, SECONDS, "the brokers wait for ZooKeeper")
        left = processes(tmp_path)
        command_line.send_signal(signal.SIGINT)
        assert command_line.wait(SECONDS) == 1
        assert command_line.stderr is not None
        assert command_line.stderr.read().strip() == "Aborted!"  # and it was not that the brokers gave up
    assert not any(name.is_alive for name in left)


def test_a_broker_that_cannot_start_ends_the_start_of_the_cluster_with_its_reason(tmp_path: Path) -> None:
    nobody = tmp_path / "file"
    nobody.touch()
    cluster = ClusterCommand(tmp_path / "cluster")
    refused = cluster("up", "2", "--set", f"log.dirs={nobody}/{{id}}", "--base-port", "0", "--detach", status=1)
    lines = refused.stderr.splitlines()
    assert lines
    assert all(line.startswith("ottla: broker ") and str(nobody) in line for line in lines), lines
    assert not any(name.is_alive for name in processes(tmp_path / "cluster"))


def test_a_command_without_a_cluster_says_so(tmp_path: Path) -> None:
    assert "no supervisor runs in" in ClusterCommand(tmp_path)("kill", "0", status=1).stderr


def test_ctrl_c_ends_a_cluster_in_the_foreground(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla", "cluster", "up", "2", "--base-port", "0", "--dir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as foreground:
        assert foreground.stdout is not None
        line = foreground.stdout.readline()
        assert line.startswith("ottla cluster is ready: 127.0.0.1:")
        left = processes(tmp_path)
        foreground.send_signal(signal.SIGINT)
        assert foreground.wait(SECONDS) == 0
    assert not any(name.is_alive for name in left)


def test_a_cluster_has_a_console_that_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PROFILE", "of another cluster")
    cluster = ClusterCommand(tmp_path)
    refused = cluster("up", "1", "--base-port", "0", "--console", "--console-listen", "0.0.0.0:0", status=1)
    assert "ottla: --listen 0.0.0.0: others reach this address" in refused.stderr
    up = cluster("up", "1", "--base-port", "0", "--console", "--console-listen", "127.0.0.1:0", "--detach", "--json")
    try:
        address = json.loads(up.stdout)["console"]
        with urllib.request.urlopen(f"{address}api/v1/overview", timeout=SECONDS) as answer:
            assert len(json.loads(answer.read())["brokers"]) == 1
    finally:
        cluster("down")
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=SECONDS)
