"""Reads processor time and memory of a broker's process and its children from /proc."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """The process and all its descendants that are alive."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in _read(task).split()]
    return found


def cpu_s(pid: int) -> float:
    """User and system seconds so far, in steps of 10 ms. Those of ended children stay counted: a broker ends its idle cleaner processes."""
    return sum(_used_s(Path(f"/proc/{one}/stat"), with_ended_children=True) for one in tree(pid))


def compiler_cpu_s(pid: int) -> float:
    """The part of `cpu_s` that a JVM's JIT compilers have used; 0 for other processes."""
    return sum(_used_s(stat) for stat in Path(f"/proc/{pid}/task").glob("*/stat") if "CompilerThre" in _read(stat))


def bind(pid: int, cores: Iterable[int]) -> None:
    """Bind all threads of a process to these cores; later threads inherit the binding."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), cores)


def resident_bytes(pid: int) -> int:
    """Resident memory now."""
    return sum(_status(one, "VmRSS") for one in tree(pid))


def peak_resident_bytes(pid: int) -> int:
    """The highest resident memory so far, summed over the processes."""
    return sum(_status(one, "VmHWM") for one in tree(pid))


def machine_busy_s() -> float:
    """Busy seconds of all cores together since the machine started, including time stolen by its host."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = _machine_ticks()
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def stolen_s() -> float:
    """Seconds of all cores together for which the host withheld a core that had work; 0 if the host does not report them."""
    return _machine_ticks()[-1] / _TICKS_PER_S


def own_s() -> float:
    """Processor seconds of this process and of the children it has waited for."""
    return sum(os.times()[:4])


def _machine_ticks() -> list[int]:
    return [int(field) for field in _read(Path("/proc/stat")).split()[1:9]]


def _used_s(stat: Path, *, with_ended_children: bool = False) -> float:
    # The name in parentheses may hold spaces: count fields after it. utime and stime are the 14th and 15th of all, then follow cutime and
    # cstime, those of children that were waited for.
    fields = _read(stat).rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_ended_children else 13])) / _TICKS_PER_S


def _status(pid: int, name: str) -> int:
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it ended while we looked
