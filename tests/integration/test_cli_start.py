"""What a command imports before it does anything, which is what its start costs: counted, for time depends on the machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.protocol.compiled import describe

ROOT = Path(__file__).parents[2]

HEAVY = {
    "asyncio",
    "ottla.broker.server",
    "concurrent.futures",
    "cryptography",
    "kazoo",
    "multiprocessing",
    "prometheus_client",
    "rich",
    "uvloop",
}
"""Each is a good part of the time that a start may take. `rich` draws tables on a terminal only."""

CALLS = {
    "topics": ["topics", "-h"],
    "groups": ["groups", "-h"],
    "configs": ["configs", "-h"],
    "acls": ["acls", "-h"],
    "users": ["users", "-h"],
    "produce": ["produce", "-h"],
    "consume": ["consume", "-h"],
    "topics list": ["topics", "list"],
    "groups describe": ["groups", "describe", "g"],
    "configs describe": ["configs", "describe", "topic", "t"],
    "acls list": ["acls", "list"],
    "users list": ["users", "list"],
    "produce to": ["produce", "t"],
    "consume from": ["consume", "-e", "t"],
}

SCRIPT = """
import sys
from ottla.cli.main import main
try:
    main({arguments!r}, standalone_mode=False)
except BaseException as error:
    print(error, file=sys.stderr)
print("modules", *sys.modules)
"""


@pytest.mark.parametrize("name", CALLS)
def test_a_command_imports_little(name: str) -> None:
    # Where a broker has to be asked there is none: the command gets as far as trying to connect.
    where = ["-b", "127.0.0.1:1", "--timeout", "0.1"] if "-h" not in CALLS[name] else []
    arguments = [*CALLS[name], *where]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(arguments=arguments)], input="", capture_output=True, text=True, timeout=60, check=True
    )
    modules = set(done.stdout.splitlines()[-1].split())
    assert not modules & HEAVY, done.stderr
    assert len(modules) < 300


@pytest.mark.parametrize("program", [["-m", "ottla"], ["-m", "ottla.cli.main"]])
def test_the_version_says_what_is_emulated_and_whether_the_hot_path_is_compiled(program: list[str]) -> None:
    done = subprocess.run([sys.executable, *program, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("ottla ")
    assert "emulates Apache Kafka 3.9 in ZooKeeper mode; Python 3." in done.stdout
    assert f"hot path {describe()}" in done.stdout


def test_a_python_that_is_too_old_is_one_line() -> None:
    code = (
        "import runpy, sys; sys.hexversion = 0x030A0000; sys.argv = ['ottla', '--version']; runpy.run_module('ottla', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ottla: Python 3.11 or newer is needed, and ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "position", "expected"), [("ottla to", 1, "topics"), ("ottla topics cr", 2, "create"), ("ottla serve --ep", 2, "--ephemeral")]
)
def test_the_shell_completes_commands_and_options(words: str, position: int, expected: str) -> None:
    environment = {**os.environ, "_OTTLA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(position)}
    done = subprocess.run([sys.executable, "-m", "ottla"], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [f"plain,{expected}"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_page_says_how_a_shell_learns_to_complete(shell: str) -> None:
    assert f"_OTTLA_COMPLETE={shell}_source" in (ROOT / "docs" / "command-line.md").read_text()
    environment = {**os.environ, "_OTTLA_COMPLETE": f"{shell}_source"}
    done = subprocess.run([sys.executable, "-m", "ottla"], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert f"_OTTLA_COMPLETE={shell}_complete" in done.stdout
