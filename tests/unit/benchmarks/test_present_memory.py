"""Memory that the host has taken back is asked for before anything is measured, and only where the kernel gives any away."""

from pathlib import Path

import pytest

from benchmarks.brokers import present_memory
from benchmarks.brokers.present_memory import free_memory_present

MIB = 1 << 20


@pytest.fixture
def reporting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel that reports free pages, with 30 MiB available."""
    (tmp_path / "meminfo").write_text("MemTotal:  99999 kB\nMemAvailable:  30720 kB\n", encoding="ascii")
    monkeypatch.setattr(present_memory, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(present_memory, "_REPORTING", tmp_path)
    return tmp_path


def resident_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@pytest.mark.usefixtures("reporting")
def test_two_thirds_of_what_is_available_were_used_and_all_but_a_page_of_a_block_is_free_again() -> None:
    before = resident_mib()
    with free_memory_present() as length:
        assert length == 20 * MIB
        assert resident_mib() - before < 2


def test_where_no_memory_is_reported_nothing_is_done(reporting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(present_memory, "_REPORTING", reporting / "not-there")
    with free_memory_present() as length:
        assert length == 0
