"""The plugin for pytest in a project of its own: the examples, workers of xdist, and the end of everything.

Each test runs pytest in another process, so only `make soak` has them. test_pytest_ottla.py uses the fixtures themselves.
"""

import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.apache_kafka import ensure_jars, java_available
from tests.support.apache_kafka.java import QUICK_OPTIONS
from tests.support.broker_process import eventually

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.soak
PLUGIN = Path(__file__).parents[2] / "pytest-ottla"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project that has the plugin, and packages with the names of Ottla's own."""
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeini("[pytest]\naddopts = -p pytest_ottla.plugin\nottla_config =\n    num.partitions=2\n")
    for name in ("config", "storage"):
        pytester.mkpydir(name)
    return pytester


def brokers_under(directory: Path) -> list[str]:
    """The command lines of brokers with data below a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "--ephemeral" in line and str(directory) in line:
            found.append(line)
    return found


def run(project: pytest.Pytester, source: str, *arguments: str, **outcomes: int) -> pytest.RunResult:
    project.makepyfile(source)
    done = project.runpytest_subprocess("-q", f"--basetemp={project.path}/tmp", *arguments)
    done.assert_outcomes(**outcomes)
    assert brokers_under(project.path) == []
    assert not list((project.path / "tmp").rglob("*.log"))
    return done


def test_each_worker_of_xdist_has_a_broker_and_none_is_left(project: pytest.Pytester) -> None:
    run(
        project,
        """
        import os
        import pytest

        @pytest.mark.parametrize("number", range(40))
        def test_it(kafka, number, request):
            assert kafka.produce(kafka.topic(), [b"x"]) == [0]
            (request.config.rootpath / f"address-of-{os.getpid()}").write_text(kafka.bootstrap_servers)
        """,
        "-n2",
        passed=40,
    )
    addresses = [path.read_text() for path in project.path.glob("address-of-*")]
    assert len(set(addresses)) == 2
    for host, _, port in (address.partition(":") for address in addresses):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), 5)


def test_all_workers_of_xdist_can_share_a_broker_and_none_is_left(project: pytest.Pytester) -> None:
    with (project.path / "tox.ini").open("a") as ini:
        ini.write("\nottla_shared = true\n")
    run(
        project,
        """
        import os
        import pytest
        from pytest_ottla import OttlaError

        @pytest.mark.parametrize("number", range(8))
        def test_it(kafka, number, request):
            topic = kafka.topic()
            assert kafka.produce(topic, [b"x"]) == [0]
            assert kafka.consume(topic, 1)[0].value == b"x"
            with pytest.raises(OttlaError, match="is shared by all workers, so it takes no faults, and its time does not advance"):
                kafka.broker.kill()
            (request.config.rootpath / f"address-of-{os.getpid()}").write_text(kafka.bootstrap_servers)
        """,
        "-n2",
        passed=8,
    )
    addresses = [path.read_text() for path in project.path.glob("address-of-*")]
    assert len(addresses) == 2
    assert len(set(addresses)) == 1
    assert not (project.path / "tmp" / "ottla-shared").exists()


@pytest.mark.parametrize("fault", ["heal", "pause"])
def test_a_broker_ends_with_a_test_run_that_is_killed(fault: str, project: pytest.Pytester) -> None:
    file = project.makepyfile(f"""
        import time

        def test_it(ottla, request):
            ottla.{fault}()
            (request.config.rootpath / "ready").write_text(str(ottla.pid))
            time.sleep(60)
    """)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", f"--basetemp={project.path}/tmp", str(file)], cwd=project.path, stdout=subprocess.DEVNULL
    )
    ready = project.path / "ready"
    eventually(lambda: ready.exists() and ready.read_text())
    pid = int(ready.read_text())
    process.send_signal(signal.SIGKILL)
    process.wait()
    eventually(lambda: not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text(), 30)
    eventually(lambda: not (project.path / "tmp" / "ottla0").exists(), 30, "the end of the directory")


@pytest.mark.parametrize("library", ["confluent_kafka", "aiokafka", "kafka_python"])
def test_the_example_passes(project: pytest.Pytester, library: str) -> None:
    source = (PLUGIN / "examples" / f"test_{library}.py").read_text()
    run(project, source, passed=2)


@pytest.mark.parametrize(("program", "arguments"), [("node", ("ephemeral_broker.mjs",)), ("go", ("run", "ephemeral_broker.go"))])
def test_the_example_passes_in(program: str, arguments: tuple[str, ...]) -> None:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"needs {program}")
    command = [found, *arguments, str(Path(sys.executable).with_name("ottla"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=PLUGIN / "examples")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "new\n"


def test_a_cluster_that_does_not_start_shows_the_line_of_the_test_and_a_log_that_is_there(project: pytest.Pytester) -> None:
    project.makepyfile("""
        def test_it(ottla_cluster):
            ottla_cluster(2, num_partition=3)
        """)
    output = project.runpytest_subprocess("-q", f"--basetemp={project.path}/tmp").stdout.str()
    assert brokers_under(project.path) == []
    log = project.path.joinpath("tmp", "ottla-cluster0", "0", "broker.log")
    assert f"its log is {log}" in output
    assert log.exists()
    assert "did you mean num.partitions?" in output
    assert "thread.py" not in output
    assert "plugin.py" not in output


def test_a_failure_shows_the_line_of_the_test(project: pytest.Pytester) -> None:
    source = """
        def test_it(kafka):
            kafka.consume(kafka.topic(), 1, timeout=0.1)
        """
    done = run(project, source, failed=1)
    assert "helpers.py" not in done.stdout.str()
    done.stdout.fnmatch_lines(["*kafka.consume(kafka.topic(), 1, timeout=0.1)", "E *has 0 records, not 1, after 0.1 s*"])


@pytest.mark.java
def test_the_example_in_java_passes(tmp_path: Path) -> None:
    if not java_available():
        pytest.skip(str(java_available()))
    ottla = Path(sys.executable).with_name("ottla")
    command = ["java", *QUICK_OPTIONS, "-cp", f"{ensure_jars()}/*", str(PLUGIN / "examples" / "EphemeralBroker.java"), str(ottla)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "key=value\n"
