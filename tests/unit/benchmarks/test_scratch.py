"""The folder for what Spark drops: new for each process, and gone when nobody uses it any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.validate.report import ReportFolder
from ottla.validate.scratch import jvm_in, scratch_folder

ONE_THAT_WAITS = """
import sys
from ottla.validate.report import ReportFolder
from ottla.validate.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "blocks").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_goes_with_all_that_is_in_it(temporary: Path) -> None:
    with pytest.raises(KeyboardInterrupt), scratch_folder() as folder:
        assert folder.parent == temporary
        (folder / "deep" / "down").mkdir(parents=True)
        raise KeyboardInterrupt
    assert not list(temporary.iterdir())


def test_what_a_killed_process_left_goes_with_the_next_and_what_one_uses_stays(temporary: Path) -> None:
    environment = {"PYTHONPATH": str(Path(__file__).parents[3]), "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", ONE_THAT_WAITS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        with scratch_folder() as ours:
            assert sorted(temporary.iterdir()) == sorted([ours, theirs])
        other.send_signal(signal.SIGKILL)
    assert (theirs / "blocks").is_dir()
    with scratch_folder() as ours:
        assert list(temporary.iterdir()) == [ours]


def test_a_report_that_a_killed_run_left_unfinished_goes_with_the_next_one_there(temporary: Path) -> None:
    killed = "import os, sys; from pathlib import Path; from ottla.validate.report import ReportFolder\n"
    killed += "ReportFolder(Path(sys.argv[1])).growing.joinpath('report.json').touch(); os.kill(os.getpid(), 9)"
    environment = {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", killed, str(temporary / "first")], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = temporary.iterdir()
    assert left.name.startswith(".")  # nobody takes it for a report
    with ReportFolder(temporary / "second") as other, ReportFolder(temporary / "third") as folder:
        assert {*temporary.iterdir()} == {other.growing, folder.growing}
        folder.publish()
    assert [path.name for path in temporary.rglob("*")] == ["third"]


def test_what_another_machine_left_stays(temporary: Path) -> None:
    """Locks of other machines may not show on a shared disk."""
    (temporary / "ottla-spark-theirs").mkdir()
    (temporary / "ottla-spark-theirs" / "lock").write_text("another.example.com")
    with scratch_folder():
        pass
    assert (temporary / "ottla-spark-theirs" / "lock").exists()


def test_nothing_but_such_folders_is_removed(temporary: Path) -> None:
    (temporary / "ottla-spark-notes.txt").write_text("precious")
    (temporary / "ottla-spark-mine").mkdir()
    (temporary / "ottla-spark-mine" / "diary.txt").write_text("precious")
    with scratch_folder():
        pass
    assert len(list(temporary.rglob("*.txt"))) == 2


def test_options_of_the_user_stand_behind_ours(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Djava.io.tmpdir=/elsewhere")
    here = Path.cwd()
    with jvm_in(temporary):
        assert os.environ["SPARK_SUBMIT_OPTS"] == f"-Djava.io.tmpdir={temporary} -Djava.io.tmpdir=/elsewhere"
        assert Path.cwd() == temporary
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Djava.io.tmpdir=/elsewhere"
    assert Path.cwd() == here
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    with jvm_in(temporary):
        pass
    assert "SPARK_SUBMIT_OPTS" not in os.environ
