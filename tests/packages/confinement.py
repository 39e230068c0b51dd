"""Puts a unit's restrictions on a process as far as that can be done without systemd: its system calls, its memory, its sockets, /proc.

A program in the root reads the restrictions, makes a seccomp filter of them with Debian's python3-seccomp, and becomes the unit's process.
The names in the groups of system calls come from `systemd-analyze` of this host.
"""

import configparser
import json
import subprocess

PROGRAM = "/usr/local/lib/confine.py"
PROC_OPTIONS = "subset=pid,hidepid=invisible"
"""How systemd mounts /proc with ProcSubset=pid and ProtectProc=invisible."""
ALWAYS = "@default"
"""System calls that are permitted with every list of permitted ones."""

# PROT_WRITE is 2, PROT_EXEC 4. MemoryDenyWriteExecute refuses both at once, and to make memory executable that is mapped.
SOURCE = """
import errno, json, os, socket, sys
import seccomp
from seccomp import ALLOW, Arg, EQ, ERRNO, MASKED_EQ, SyscallFilter

calls, families = json.loads(sys.argv[1])
found = SyscallFilter(ERRNO(errno.EPERM))
for name in sorted(set(calls) - {"mmap", "mprotect", "pkey_mprotect", "shmat", "socket", "socketpair"}):
    try:
        found.add_rule(ALLOW, name)
    except RuntimeError:
        pass  # of another architecture
for protection in (0, 2, 4):
    found.add_rule(ALLOW, "mmap", Arg(2, MASKED_EQ, 6, protection))
found.add_rule(ALLOW, "mprotect", Arg(2, MASKED_EQ, 4, 0))
for family in families:
    for name in ("socket", "socketpair"):
        found.add_rule(ALLOW, name, Arg(0, EQ, getattr(socket, family)))
found.load()
os.execvp(sys.argv[2], sys.argv[2:])
"""


def restrictions(unit: str) -> str:
    """The argument of the program for the text of a unit."""
    lines = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("SystemCallFilter=")]
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(unit)
    assert parser["Service"]["MemoryDenyWriteExecute"] == "yes"
    return json.dumps([sorted(permitted(lines)), parser["Service"]["RestrictAddressFamilies"].split()])


def permitted(lines: list[str]) -> set[str]:
    """The system calls that these values of SystemCallFilter leave, each applied to the outcome of those before it."""
    groups = _groups()
    found = _expanded(ALWAYS, groups)
    for line in lines:
        named = set().union(*(_expanded(name, groups) for name in line.removeprefix("~").split()))
        found = found - named if line.startswith("~") else found | named
    return found


def _groups() -> dict[str, set[str]]:
    """The names in each group, other groups among them. Raises CalledProcessError."""
    said = subprocess.run(["systemd-analyze", "syscall-filter"], stdout=subprocess.PIPE, text=True, check=True).stdout
    groups: dict[str, set[str]] = {}
    name = ""
    for line in said.splitlines():
        if line.startswith("@"):
            name = line.strip()
            groups[name] = set()
        elif line.startswith("    ") and not line.strip().startswith("#"):
            groups[name].add(line.strip())
    return groups


def _expanded(name: str, groups: dict[str, set[str]]) -> set[str]:
    return set().union(*(_expanded(each, groups) for each in groups[name])) if name.startswith("@") else {name}
