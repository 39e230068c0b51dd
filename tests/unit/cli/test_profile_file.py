"""`ottla profiles`: what is written, what stays in the file, who may read it, and what is refused."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.cli.main import main
from tests.support.broker_process import eventually

HAND_WRITTEN = """# my clusters
[one]
# the first
bootstrap-server = 'one:9092'   # by hand
timeout = 5

["two"]
bootstrap-server = "two:9092"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the profiles, which does not exist."""
    path = tmp_path / "folder" / "profiles.toml"
    monkeypatch.setenv("OTTLA_PROFILES", str(path))
    return path


def profiles(*arguments: str, status: int = 0) -> Result:
    done = CliRunner().invoke(main, ["profiles", *arguments])
    assert done.exit_code == status, done.output
    return done


def test_a_profile_is_created_altered_used_and_deleted(file: Path, tmp_path: Path) -> None:
    assert profiles("list", "--json").output.strip() == "[]"
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=PLAINTEXT\n")
    made = profiles("create", "here", "-b", "127.0.0.1:1,[::1]:2", "--timeout", "0.1", "--command-config", str(config))
    assert made.output == "here: created\n"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    expected = {"bootstrap-server": "127.0.0.1:1,[::1]:2", "timeout": 0.1, "command-config": str(config)}
    assert tomllib.loads(file.read_text()) == {"here": expected}
    assert "127.0.0.1:1" in CliRunner().invoke(main, ["brokers", "list", "--profile", "here"]).output
    assert "already; `ottla profiles alter here` changes it" in profiles("create", "here", status=1).output

    profiles("alter", "here", "--timeout", "3", "--unset", "command-config")
    assert json.loads(profiles("describe", "here", "--json").output) == {
        "name": "here",
        "bootstrap-server": "127.0.0.1:1,[::1]:2",
        "timeout": 3.0,
    }
    assert profiles("list").output.splitlines()[0].split()[:2] == ["NAME", "BOOTSTRAP-SERVER"]
    assert profiles("delete", "here").output == "here: deleted\n"
    assert tomllib.loads(file.read_text()) == {}
    assert "there is no profile here in" in profiles("delete", "here", status=1).output


def test_what_was_written_by_hand_stays_and_others_lose_their_rights(file: Path) -> None:
    file.parent.mkdir()
    file.write_text(HAND_WRITTEN)
    file.chmod(0o644)
    profiles("alter", "one", "--timeout", "7")
    assert file.read_text() == HAND_WRITTEN.replace("timeout = 5", "timeout = 7.0")
    assert file.stat().st_mode & 0o777 == 0o600
    profiles("alter", "two", "--timeout", "1")
    assert file.read_text().endswith('["two"]\nbootstrap-server = "two:9092"\ntimeout = 1.0\n')
    profiles("create", "three", "-b", "three:9092")
    profiles("delete", "one")
    assert file.read_text() == (
        '# my clusters\n["two"]\nbootstrap-server = "two:9092"\ntimeout = 1.0\n\n[three]\nbootstrap-server = "three:9092"\n'
    )


def test_a_table_that_only_an_editor_can_change_is_left_as_it_is(file: Path) -> None:
    file.parent.mkdir()
    text = 'one = { bootstrap-server = "one:9092" }\n'
    file.write_text(text)
    assert "has a form that only an editor can change; nothing was written" in profiles("alter", "one", "--timeout", "7", status=1).output
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (("create", "a b"), 2, "'a b' is no name of a profile"),
        (("create", "a", "-b", "host:port"), 1, "is not an address of a broker"),
        (
            ("create", "a", "--schema-registry", "https://me:of-me-secret@registry"),
            1,
            "has a user or a password; put USER:PASSWORD into a file",
        ),
        (("create", "a", "--schema-registry", "ftp://registry"), 1, "is not an http(s) URL"),
        (("create", "a", "--command-config", "missing"), 2, "does not exist"),
        (("alter", "a"), 2, "Nothing to change"),
        (("alter", "a", "--timeout", "1"), 1, "cannot be read"),
        (("create", "a", "--timeout", "nan"), 2, "not a finite number"),
    ],
)
def test_what_could_not_be_used_and_secrets_are_refused(arguments: tuple[str, ...], status: int, why: str, file: Path) -> None:
    refused = profiles(*arguments, status=status).output
    assert why in refused
    assert "of-me-secret" not in refused
    assert not file.exists()


def test_a_login_that_is_no_file_with_one_is_refused(file: Path, tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text("no colon")
    options = ("--schema-registry", "https://registry", "--schema-registry-login", str(login))
    assert f"{login} is not one line USER:PASSWORD" in profiles("create", "a", *options, status=1).output
    login.write_text("me:of-me-secret\n")
    profiles("create", "a", *options)
    assert "of-me-secret" not in file.read_text()
    assert tomllib.loads(file.read_text())["a"]["schema-registry-login"] == str(login)


def test_a_file_that_cannot_be_written_is_one_line(file: Path) -> None:
    file.parent.write_text("no folder")
    assert f"ottla: {file} cannot be written: " in profiles("create", "a", status=1).output


def test_a_link_stays_one_and_the_new_file_is_made_on_the_disk_where_it_leads(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept" / "clusters.toml"
    kept.parent.mkdir()
    file.parent.mkdir()
    kept.write_text("# mine\n")
    file.symlink_to(kept)
    replace, folders = os.replace, []

    def watched(new: Path, old: Path) -> None:
        folders.append((new.parent, old.parent))
        replace(new, old)

    monkeypatch.setattr(os, "replace", watched)
    profiles("create", "a")
    assert file.is_symlink()
    assert kept.read_text().startswith("# mine\n")
    assert folders == [(kept.parent, kept.parent)]


def test_of_two_commands_at_a_time_none_loses_what_the_other_wrote(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, others = os.replace, []

    def is_done_or_waits(other: subprocess.Popen[bytes]) -> bool:
        waits = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "-> FLOCK" in line]
        return other.poll() is not None or any(words[5] == str(other.pid) for words in waits)

    def while_another_one_creates(new: Path, old: Path) -> None:
        if not others:
            others.append(subprocess.Popen([sys.executable, "-P", "-m", "ottla", "profiles", "create", "second"]))
            eventually(lambda: is_done_or_waits(others[0]))
        replace(new, old)

    monkeypatch.setattr(os, "replace", while_another_one_creates)
    profiles("create", "first")
    assert others[0].wait(20) == 0
    assert sorted(tomllib.loads(file.read_text())) == ["first", "second"]
