"""What a command imports before it does anything, which is what its start costs: counted, for time depends on the machine."""

import subprocess
import sys

import pytest

HEAVY = {
    "asyncio",
    "broker.server",
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
from broker.cli.main import main
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
