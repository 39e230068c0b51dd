"""Reads the profiles of clusters: options for `--profile NAME`, from a TOML file with one table for each cluster. Implements `ottla
profiles`, which lists and changes them.

    [staging]
    bootstrap-server = "broker1.example.com:9092,broker2.example.com:9092"
    timeout = 60
    command-config = "/etc/ottla/staging.properties"

The file is `ottla/profiles.toml` in $XDG_CONFIG_HOME (`~/.config`), or the file that $OTTLA_PROFILES names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from ottla.cli.options import DEFAULT_BOOTSTRAP, Amount, client_security, command_group, json_option, report_outcomes, reported_errors
from ottla.cli.output import print_json, print_table
from ottla.client.errors import ClientError

KEYS: Final[dict[str, tuple[type, ...]]] = {
    "bootstrap-server": (str,),
    "timeout": (int, float),
    "command-config": (str,),
    "schema-registry": (str,),
    "schema-registry-login": (str,),
}
"""The keys of a profile with the types of their values, named as options. The last two are for `ottla console`, `produce`, `consume`."""


_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_LEAST_SECONDS: Final = 0.1
_MOST_SECONDS: Final = 1_000_000.0


def profiles_file() -> Path:
    """The path of the file, which need not exist."""
    named = os.environ.get("OTTLA_PROFILES")
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(named) if named else Path(base, "ottla", "profiles.toml")


def profile_names() -> list[str]:
    """The profiles of the file, in its order. Raises ClientError for a file that cannot be read."""
    return [name for name, table in _tables().items() if isinstance(table, dict)]


def read_profile(name: str) -> dict[str, Any]:
    """The options of a profile. Raises ClientError for a file that cannot be read, and for a profile that is not in it."""
    file = profiles_file()
    profile = _tables().get(name)
    if not isinstance(profile, dict):
        raise ClientError(f"there is no profile {name} in {file}; it has {', '.join(sorted(profile_names())) or 'none'}")
    for key, value in profile.items():
        if key not in KEYS:
            raise ClientError(f"profile {name} in {file}: {key} is no key of a profile; those are {', '.join(KEYS)}")
        if not isinstance(value, KEYS[key]) or isinstance(value, bool):
            raise ClientError(f"profile {name} in {file}: {key} = {value!r} must be a {'text' if KEYS[key] == (str,) else 'number'}")
        if isinstance(value, int | float) and not _LEAST_SECONDS <= value <= _MOST_SECONDS:  # also nan
            raise ClientError(f"profile {name} in {file}: {key} = {value!r} must be from {_LEAST_SECONDS:g} to {_MOST_SECONDS:.0f} seconds")
    return profile


def _tables() -> dict[str, Any]:
    """The contents of the file. Raises ClientError."""
    import tomllib  # not needed without a profile

    file = profiles_file()
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ClientError(f"the profiles of clusters cannot be read: {file}: {error.strerror}; OTTLA_PROFILES names another file") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise ClientError(f"the profiles of clusters cannot be read: {file}: {error}") from None


@command_group
def profiles() -> None:
    """List, describe and change the profiles of clusters, which give the options of --profile."""


def _settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options that a profile keeps."""
    bootstrap = click.option("-b", "--bootstrap-server", "bootstrap", metavar="HOST:PORT,...", help="Bootstrap servers.")
    timeout = click.option("--timeout", type=Amount(_LEAST_SECONDS, _MOST_SECONDS), metavar="SECONDS", help="Time for retries.")
    file = click.Path(exists=True, dir_okay=False, resolve_path=True)
    config = click.option("--command-config", type=file, metavar="FILE", help="Properties for TLS and SASL; the profile keeps its path.")
    registry = click.option("--schema-registry", metavar="URL", help="A schema registry, without a user or a password in the URL.")
    login = click.option(
        "--schema-registry-login", type=file, metavar="FILE", help="A file with USER:PASSWORD for it; the profile keeps its path."
    )
    for option in (login, registry, config, timeout, bootstrap):
        command = option(command)
    return command


name_argument = click.argument("name")


@profiles.command("list")
@json_option
def list_profiles(as_json: bool) -> None:
    """List all profiles of the file."""
    with reported_errors():
        found = {name: read_profile(name) for name in (profile_names() if profiles_file().exists() else ())}
        if as_json:
            print_json([{"name": name, **profile} for name, profile in found.items()])
        else:
            rows = [[name, *(profile.get(key) for key in KEYS)] for name, profile in found.items()]
            print_table(("name", *KEYS), rows, empty="no profiles")


@profiles.command()
@name_argument
@json_option
def describe(name: str, as_json: bool) -> None:
    """Show the options of a profile, and whether each can be used."""
    with reported_errors():
        found = read_profile(name)
        _check(found)
        if as_json:
            print_json({"name": name, **found})
        else:
            print_table(("option", "value"), list(found.items()), title=f"profile {name} in {profiles_file()}")


@profiles.command()
@name_argument
@_settings
@json_option
def create(name: str, as_json: bool, **options: Any) -> None:
    """Add a profile to the file, and the file if there is none."""
    from ottla.cli.profile_file import change, locked

    if not _NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} is no name of a profile: those have letters, digits, hyphens and underscores.")
    found = {"bootstrap-server": DEFAULT_BOOTSTRAP, **_given(options)}
    with reported_errors():
        _check(found)
        with locked(profiles_file()):
            if profiles_file().exists() and name in _tables():
                raise ClientError(f"there is a profile {name} in {profiles_file()} already; `ottla profiles alter {name}` changes it")
            change(profiles_file(), name, found)
    report_outcomes([(name, None)], "created", as_json=as_json)


@profiles.command()
@name_argument
@_settings
@click.option("--unset", "removed", multiple=True, type=click.Choice(list(KEYS)), help="Remove an option from the profile; may repeat.")
@json_option
def alter(name: str, removed: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Change options of a profile; the others stay."""
    from ottla.cli.profile_file import change, locked

    given = _given(options)
    if not given and not removed:
        raise click.UsageError("Nothing to change: name an option, or one to --unset.")
    with reported_errors(), locked(profiles_file()):
        found = {key: value for key, value in {**read_profile(name), **given}.items() if key not in removed}
        _check(found)
        change(profiles_file(), name, found)
    report_outcomes([(name, None)], "altered", as_json=as_json)


@profiles.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_option
def delete(names: tuple[str, ...], as_json: bool) -> None:
    """Remove profiles from the file. The files that they name stay."""
    from ottla.cli.profile_file import change, locked

    outcomes: list[tuple[str, ClientError | None]] = []
    for name in names:
        try:
            with locked(profiles_file()):
                if name not in profile_names():
                    raise ClientError(f"there is no profile {name} in {profiles_file()}")
                change(profiles_file(), name, None)
        except ClientError as error:
            outcomes.append((name, error))
        else:
            outcomes.append((name, None))
    report_outcomes(outcomes, "deleted", as_json=as_json)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options of the command line by the keys of a profile."""
    named = {("bootstrap_server" if name == "bootstrap" else name).replace("_", "-"): value for name, value in options.items()}
    return {key: named[key] for key in KEYS if named.get(key) is not None}


def _check(profile: dict[str, Any]) -> None:
    """Raises ClientError, or UsageError, for an option that could not be used; a password in the URL is one."""
    from ottla.client.cluster import parse_bootstrap
    from ottla.schemas.schema_registry import check_url, read_login

    if "bootstrap-server" in profile:
        parse_bootstrap(profile["bootstrap-server"])
    if "command-config" in profile:
        client_security(Path(profile["command-config"]))
    if "schema-registry" in profile:
        check_url(profile["schema-registry"])
    if "schema-registry-login" in profile:
        if "schema-registry" not in profile:
            raise ClientError("a login for a schema registry needs the address of the registry: schema-registry")
        read_login(Path(profile["schema-registry-login"]))
