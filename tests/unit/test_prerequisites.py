"""The programs that tests need: packages are named before the first is installed, and missing programs with their purpose."""

import pytest

from tests.support import prerequisites

WANTED = ("debootstrap", "ip")


def test_a_run_as_root_names_the_packages_before_it_installs_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[tuple[str, str]] = []
    monkeypatch.setattr(prerequisites, "can_install", lambda: True)
    monkeypatch.setattr(prerequisites, "missing_programs", lambda wanted: [] if steps else [*wanted])
    monkeypatch.setattr(prerequisites, "install", lambda package: steps.append((package, capsys.readouterr().out)))
    prerequisites.main(WANTED)
    assert [package for package, _ in steps] == ["debootstrap", "iproute2"]
    assert steps[0][1].startswith("as root on Debian: apt-get installs debootstrap, iproute2; without them")


def test_another_user_installs_nothing_and_reads_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prerequisites, "can_install", lambda: False)
    monkeypatch.setattr(prerequisites, "missing_programs", lambda wanted: [*wanted])
    monkeypatch.setattr(prerequisites, "install", lambda package: pytest.fail(f"installs {package}"))
    prerequisites.main(WANTED)
    said = capsys.readouterr().err.splitlines()
    assert said[1] == "missing: ip: tests of the packages for servers will be skipped (Debian, Ubuntu: apt-get install iproute2)"


def test_the_programs_for_root_file_systems_are_asked_for_by_their_own_target_only() -> None:
    assert prerequisites.PROGRAMS.keys() - set(prerequisites.UNASKED) == set(WANTED)
