"""What tables look like on a terminal, in a pipe and as JSON, and what commands print of the things that they changed."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ottla.cli.main import COMMANDS, main
from ottla.cli.options import report_outcomes
from ottla.cli.output import counted, print_json, print_table, say
from ottla.client.errors import ClientError

ROOT = Path(__file__).parents[3]
MEMBER = "consumer-readers-1-0b8f3a52-7e7d-4e58-9d0c-55a1f0a0b9f3"
COLUMNS = ("topic", "partition", "offset", "end", "lag", "member", "client")
ROWS = [["orders", 0, 2, 3, 1, MEMBER, "reader"], ["orders", 1, None, 5, None, None, None]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """What is seen: without the escape sequences of colours."""
        return re.sub(r"\x1b\[\d+m", "", self.getvalue()).splitlines()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 80 columns, for `redirect_stdout`: pytest exchanges standard output between a fixture and its test."""
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


def test_a_table_that_is_too_wide_for_the_terminal_breaks_no_name(terminal: Terminal) -> None:
    with redirect_stdout(terminal):
        print_table(COLUMNS, ROWS, title="group readers")
    assert terminal.lines()[0] == "group readers"
    assert f"  MEMBER     {MEMBER}" in terminal.lines()
    assert all(len(line) <= 80 for line in terminal.lines())
    assert "  OFFSET     -" not in terminal.lines()  # empty cells are left out


def test_a_table_that_fits_is_drawn(terminal: Terminal) -> None:
    with redirect_stdout(terminal):
        print_table(("topic", "partitions"), [["orders", 3], ["a" * 60, 1]])
    assert any("orders" in line and "3" in line for line in terminal.lines())
    assert any(line.split() == ["TOPIC", "PARTITIONS"] for line in terminal.lines())  # the headings of a pipe
    assert all(len(line) <= 80 for line in terminal.lines())


def test_a_pipe_gets_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ROWS)
    heading, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert heading == [column.upper() for column in COLUMNS]
    assert rows == [["orders", "0", "2", "3", "1", MEMBER, "reader"], ["orders", "1", "-", "5", "-", "-", "-"]]


@pytest.mark.parametrize(("number", "text"), [(0, "0 brokers"), (1, "1 broker"), (2, "2 brokers"), (1000, "1000 brokers")])
def test_a_number_has_the_plural_that_it_needs(number: int, text: str) -> None:
    assert counted(number, "broker") == text


def test_outcomes_as_json_are_one_document_with_the_errors_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        report_outcomes([("a", None), ("b", ClientError("topic b: exists"))], "created", as_json=True)
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out) == [
        {"name": "a", "result": "created", "error": None},
        {"name": "b", "result": None, "error": "topic b: exists"},
    ]
    assert printed.err == "ottla: topic b: exists\n"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "validate"])  # whose help is that of another process
def test_the_help_of_80_columns_loses_no_end_of_a_sentence(name: str) -> None:
    shown = CliRunner().invoke(main, [name, "--help"], terminal_width=80)
    assert shown.exit_code == 0
    _, _, commands = shown.output.partition("\nCommands:\n")
    assert "..." not in commands
    assert all(len(line) <= 80 for line in shown.output.splitlines())


def commands_of(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands_of(found, (*path, name))
    else:
        yield " ".join(path), command


def test_every_command_has_json_but_those_whose_output_is_a_page_or_a_report() -> None:
    found = dict(commands_of(main))
    assert len(found) > 40
    without = {name for name, command in found.items() if "--json" not in {each for option in command.params for each in option.opts}}
    assert without == {"console", "validate"}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_behind_the_output_is_one_line() -> None:
    program = "from ottla.cli.options import reported_errors\nwith reported_errors(): print('x')"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "ottla: standard output: No space left on device\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("cluster", "status", "--json"), ("dump-log", "--verify", "."), ("dump-log", "--verify", ".", "--json"), ("doctor", ".")]
)
def test_a_reader_that_has_gone_ends_a_command_without_a_word(arguments: tuple[str, ...], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "ottla", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "") or arguments[0] == "cluster", done
    assert "Broken pipe" not in done.stderr


def test_no_name_moves_the_cursor_of_a_terminal_and_a_pipe_gets_it_as_it_is(terminal: Terminal) -> None:
    name = "a\x1b[2J\u202e"
    with redirect_stdout(terminal):
        print_table(("group",), [[name]], title=name)
    assert "\n".join(terminal.lines()).count("a\\u001b[2J\\u202e") == 2
    pipe = io.StringIO()
    with redirect_stdout(pipe):
        print_table(("group",), [[name]])
    assert pipe.getvalue() == f"GROUP\n{name}\n"


def test_no_remark_outcome_or_json_moves_the_cursor_of_a_terminal(terminal: Terminal) -> None:
    name = "a\x1b[2J\u202e\x9b"
    with redirect_stdout(terminal), redirect_stderr(terminal):
        say(f"ottla: {name}\nsecond line")
        report_outcomes([(name, None)], "deleted")
        print_json({"group": name})
    shown = terminal.getvalue()
    assert shown.isascii()
    assert "\x1b" not in shown
    said, second, outcome, document = shown.split("\n", 3)
    assert (said, second, outcome) == ("ottla: a\\u001b[2J\\u202e\\u009b", "second line", "a\\u001b[2J\\u202e\\u009b: deleted")
    assert json.loads(document) == {"group": name}


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_path_that_is_no_text_is_printed(encoding: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + "/é".encode() + b"\xff"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "doctor", path, *arguments], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, b"")
    if arguments:
        assert [each["id"] for each in json.loads(done.stdout)["findings"]] == ["configuration-invalid"]
    assert b"udcff" in done.stdout


@pytest.mark.parametrize("arguments", [("remove", "\x1b[31m"), ("add", "\x1b[31m", "--operation", "read", "--topic", "t")])
def test_an_argument_that_an_error_repeats_moves_no_cursor(terminal: Terminal, arguments: tuple[str, ...]) -> None:
    with redirect_stderr(terminal), pytest.raises(click.UsageError) as refused:
        main.main(["acls", *arguments], standalone_mode=False)
    assert "\\u001b[31m" in refused.value.message
    assert "\x1b" not in refused.value.message


def test_names_in_problems_of_a_directory_move_no_cursor(terminal: Terminal, tmp_path: Path) -> None:
    directory = tmp_path / "t\x1b[31m-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"torn")
    with redirect_stdout(terminal), pytest.raises(SystemExit):
        main.main(["dump-log", "--verify", str(tmp_path)], standalone_mode=False)
    assert "PROBLEM" in terminal.getvalue()
    assert "t\\u001b[31m-0" in terminal.getvalue()
    assert "t\x1b" not in terminal.getvalue()
