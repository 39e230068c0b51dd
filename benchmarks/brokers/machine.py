"""Collects the facts about machine and programs that figures need to have a meaning."""

import importlib.metadata
import os
import platform
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ottla.protocol.compiled import describe
from tests.support.apache_kafka import KAFKA_VERSION

_PACKAGES = ("ottla", "uvloop", "crc32c", "lz4", "confluent-kafka")


def machine_facts() -> dict[str, str]:
    """Name -> value, for the head of a result."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "command": " ".join([Path(sys.executable).name, "-m", "benchmarks.bench", *sys.argv[1:]]),
        "commit": _output("git", "describe", "--always", "--dirty") or "unknown",
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "load average before": " ".join(f"{one:.2f}" for one in os.getloadavg()),
        "python": _python(),
        "hot path": describe(),
        "java": next(iter(_output("java", "-version").splitlines()), "none"),
        "Apache Kafka": KAFKA_VERSION,
        "compiler": next(iter(_output(os.environ.get("CC", "cc"), "--version").splitlines()), "none"),
        **dict(_versions(_PACKAGES)),
    }


def _python() -> str:
    """The version of Python, and whether its build used profile-guided optimisation, as distributions do: a tenth of a broker's time."""
    optimised = sys.base_prefix == "/usr" or "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return f"{platform.python_version()}, {'with' if optimised else 'without'} profile-guided optimisation"


def _versions(packages: Iterable[str]) -> Iterator[tuple[str, str]]:
    for package in packages:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield package, "not installed"


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _output(*command: str) -> str:
    """The output of a program on both streams; empty when it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=Path(__file__).parent)
    except OSError:
        return ""
    return (done.stdout or done.stderr).strip() if done.returncode == 0 else ""
