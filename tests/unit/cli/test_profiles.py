"""Profiles of clusters: where they are read, what wins, and one line for each that cannot be used."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.cli.main import main
from ottla.cli.profiles import profiles_file

UNREACHABLE = "127.0.0.1:1"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "profiles.toml"
    path.write_text(f'[here]\nbootstrap-server = "{UNREACHABLE}"\ntimeout = 0.1\n')
    monkeypatch.setenv("OTTLA_PROFILES", str(path))
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVER", raising=False)
    return path


def brokers(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["brokers", "list", *arguments])


@pytest.mark.usefixtures("file")
def test_a_profile_gives_the_options_that_the_command_line_does_not() -> None:
    assert UNREACHABLE in brokers("--profile", "here").output
    assert "127.0.0.1:2" in brokers("--profile", "here", "-b", "127.0.0.1:2").output


@pytest.mark.usefixtures("file")
def test_a_profile_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", "127.0.0.1:3")
    monkeypatch.setenv("OTTLA_PROFILE", "here")
    assert UNREACHABLE in brokers().output


@pytest.mark.usefixtures("file")
def test_the_doctor_examines_the_cluster_of_a_profile() -> None:
    done = CliRunner().invoke(main, ["doctor", "--profile", "here"])
    assert done.exit_code == 2
    assert f"PROBLEM cluster-unreachable: {UNREACHABLE}: " in done.output


def test_the_doctor_reads_the_security_that_a_profile_names(file: Path, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=NONE\n")
    file.write_text(f'[here]\nbootstrap-server = "{UNREACHABLE}"\ncommand-config = "{tmp_path}/client.properties"\n')
    done = CliRunner().invoke(main, ["doctor", "--profile", "here"])
    assert done.exit_code == 2
    assert "security.protocol=NONE is not supported" in done.output


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[there]\n", "there is no profile here in "),
        ("[here\n", "the profiles of clusters cannot be read: "),
        ("[here]\nserver = 'a:1'\n", "server is no key of a profile; those are bootstrap-server, timeout"),
        ("[here]\ntimeout = 'long'\n", "timeout = 'long' must be a number"),
        ("[here]\ntimeout = true\n", "timeout = True must be a number"),
        ("[here]\ntimeout = -1\n", "timeout = -1 must be from 0.1 to 1000000 seconds"),
        ("[here]\ntimeout = nan\n", "timeout = nan must be from 0.1 to 1000000 seconds"),
    ],
)
def test_a_profile_that_cannot_be_used_is_one_line_and_status_1(file: Path, text: str, why: str) -> None:
    file.write_text(text)
    done = brokers("--profile", "here")
    assert done.exit_code == 1
    assert done.output.startswith("ottla: ")
    assert done.output.count("\n") == 1
    assert why in done.output


def test_a_missing_file_of_profiles_is_one_line_and_status_1(file: Path) -> None:
    file.unlink()
    done = brokers("--profile", "here")
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert f"{file}: No such file or directory" in done.output


def test_by_default_profiles_are_in_the_folder_for_configurations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_PROFILES", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert profiles_file() == tmp_path / "ottla" / "profiles.toml"


def test_the_keys_for_the_console_disturb_no_other_command(file: Path) -> None:
    registry = 'schema-registry = "https://registry.example"\nschema-registry-login = "/no/such/file"\n'
    file.write_text(f'[here]\nbootstrap-server = "{UNREACHABLE}"\ntimeout = 0.1\n{registry}')
    assert UNREACHABLE in brokers("--profile", "here").output
