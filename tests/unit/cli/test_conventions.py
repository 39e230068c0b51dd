"""All commands read alike: names, options, helps, and the messages for typing errors. docs/command-line.md tells people the conventions."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ottla.cli.main import main

SINGULAR = {"ottla cluster", "ottla metadata", "ottla remote"}
"""Groups of commands for the only one that there is."""
WITHOUT_LIST = SINGULAR | {"ottla configs"}
"""`ottla configs` has the configurations of things that other commands list."""
WITHOUT_JSON = {"ottla console"}
DRY_RUN = re.compile(r"--(validate-only|plan|preview|no-act)")


def commands_of(command: click.Command, path: str = "ottla") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, f"{path} {name} is listed, and does not exist"
            yield from commands_of(found, f"{path} {name}")


COMMANDS = dict(commands_of(main))
LEAVES = {path: command for path, command in COMMANDS.items() if not isinstance(command, click.Group)}
GROUPS = {path: command for path, command in COMMANDS.items() if isinstance(command, click.Group) and path != "ottla"}


def options_of(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option)]


def outcome(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.output


@pytest.mark.parametrize("path", COMMANDS)
def test_names_and_helps(path: str) -> None:
    command = COMMANDS[path]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", path.rpartition(" ")[2])
    assert command.help
    first = command.help.strip().splitlines()[0]
    assert first[0].isupper(), first
    for option in options_of(command):
        long = [name for name in option.opts if name.startswith("--")]
        assert long, f"{option.opts} has a long name"
        assert all(re.fullmatch(r"--[a-z]+([-0-9a-z]*[0-9a-z])?", name) for name in long)
        assert option.help, long
        assert option.help[0].isupper(), long
        assert option.help.endswith("."), long


@pytest.mark.parametrize("path", LEAVES)
def test_options_that_mean_the_same_have_one_name(path: str) -> None:
    names = [name for option in options_of(LEAVES[path]) for name in option.opts]
    if path not in WITHOUT_JSON:
        assert "--json" in names or path == "ottla validate"
    for option in options_of(LEAVES[path]):
        if any(DRY_RUN.fullmatch(name) for name in option.opts):
            assert option.opts[0] == "--dry-run"
        if "--bootstrap-server" in option.opts and path != "ottla validate":
            assert option.opts[0] == "-b"


@pytest.mark.parametrize("path", GROUPS)
def test_groups_are_plurals_and_list(path: str) -> None:
    names = GROUPS[path].list_commands(click.Context(GROUPS[path]))
    assert path in SINGULAR or path.endswith("s") or path == "ottla topics reassign"
    assert path in WITHOUT_LIST or "list" in names


@pytest.mark.parametrize("page", ["command-line.md", "console.md"])
def test_every_option_that_a_page_names_exists(page: str) -> None:
    known = {name for command in COMMANDS.values() for option in options_of(command) for name in (*option.opts, *option.secondary_opts)}
    text = (Path(__file__).parents[3] / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))
    assert len(named) > 10
    assert named <= known | {"--help"}


def test_a_name_that_is_like_no_command_is_answered_with_all_of_them() -> None:
    status, text = outcome("quotas", "describe")
    assert status == 2
    assert "No such command 'describe'. There are list, remove, set." in text


@pytest.mark.parametrize("path", COMMANDS)
def test_a_mistyped_option_is_a_usage_error_that_names_the_one_that_is_meant(path: str) -> None:
    words = path.split()[1:]
    known = next((name for option in options_of(COMMANDS[path]) for name in option.opts if len(name) > 5), "--help")
    mistyped = known[:-2] + known[-1]
    status, text = outcome(*words, mistyped)
    assert status == 2
    assert f"No such option '{mistyped}'" in text
    assert f"'{known}'" in text.partition("Did you mean")[2], text


@pytest.mark.parametrize("path", {path.rpartition(" ")[0]: None for path in COMMANDS if path != "ottla"})
def test_a_mistyped_command_is_a_usage_error_that_names_the_one_that_is_meant(path: str) -> None:
    group = COMMANDS[path]
    assert isinstance(group, click.Group)
    known = group.list_commands(click.Context(group))[0]
    mistyped = known[:-1]
    status, text = outcome(*path.split()[1:], mistyped)
    assert status == 2
    assert f"No such command '{mistyped}'" in text
    assert f"'{known}'" in text.partition("Did you mean")[2], text
