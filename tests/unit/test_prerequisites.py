"""The programs that tests need: packages are named before the first is installed, and missing programs with their purpose."""

import re
from pathlib import Path

import pytest

from tests.support import go_programs, prerequisites

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


@pytest.mark.parametrize(
    ("version", "remark"),
    [
        ("go version go1.19.8 linux/amd64", "; {go} is 1.19.8"),
        ("nothing", "; {go} is of no known version"),
        ("go version go1.1000 linux/amd64", None),
        (None, ""),
    ],
)
def test_a_go_that_is_missing_or_too_old_is_named_with_its_remedy(
    version: str | None, remark: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho {version}\n")
    go.chmod(0o755)
    monkeypatch.setattr(go_programs, "GO", None if version is None else str(go))
    monkeypatch.setattr(prerequisites, "install", lambda package: pytest.fail(f"installs {package}"))
    prerequisites.main(["go"])
    said = capsys.readouterr().err
    if remark is None:
        assert said == ""
    else:
        before = r"missing: go: tests of Go clients will be skipped \(install Go 1\.\d+\.\d+ or a later one: https://go\.dev/dl"
        assert re.fullmatch(before + re.escape(remark.format(go=go)) + r"\)\n", said)


def test_the_programs_for_root_file_systems_are_asked_for_by_their_own_target_only() -> None:
    assert prerequisites.PROGRAMS.keys() - set(prerequisites.UNASKED) == set(WANTED)
