"""Implements `ottla users`: lists, adds and removes users who authenticate by SCRAM."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options import cluster_command, command_group, json_option, report_outcomes
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.client.errors import ClientError
    from ottla.client.user_admin import Credential, NewCredential
    from ottla.config.broker import BrokerConfig

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MIN_ITERATIONS, _MAX_ITERATIONS = 4096, 16384

_mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(_MECHANISMS, case_sensitive=False),
    help="Of this mechanism; may be repeated. Both by default.",
)


def _store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options that let it change the metadata store without a broker."""
    command = click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A key of the stopped broker, with or without --properties."
    )(command)
    return click.option(
        "--properties",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Change the metadata store of the broker with this server.properties, which does not run yet.",
    )(command)


@command_group
def users() -> None:
    """List, add and remove users who authenticate by SCRAM.

    With --properties or --set the command works on the metadata store itself, the file or ZooKeeper: before the first
    start of a broker that needs a user to reach the others.
    """


@users.command("list")
@click.argument("names", nargs=-1)
@_store_options
@json_option
@cluster_command
def list_users(cluster: Cluster, names: tuple[str, ...], properties: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show the credentials of users, all without NAMES. Passwords are not stored."""
    from ottla.client.user_admin import list_users as listed

    if properties or overrides:
        found = _stored(_config(properties, overrides), names)
    else:
        found = listed(cluster, names)
    if as_json:
        print_json([each._asdict() for each in found])
        return
    print_table(("user", "mechanism", "iterations"), found, empty="no users")


@users.command()
@click.argument("name")
@_mechanism_option
@click.option(
    "--iterations",
    type=click.IntRange(_MIN_ITERATIONS, _MAX_ITERATIONS),
    default=_MIN_ITERATIONS,
    show_default=True,
    help="Rounds of hashing, which slow down guessing.",
)
@click.option("--password-file", type=click.File(), help="Read the password from the first line of this file; - is standard input.")
@_store_options
@json_option
@cluster_command
def add(
    cluster: Cluster,
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: Any,
    properties: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Add a user, or change the password of a user.

    On a terminal the command prompts for the password; otherwise it reads standard input. The password does not leave
    this command.
    """
    from ottla.client.user_admin import alter_users, new_credential

    config = _config(properties, overrides) if properties or overrides else None
    password = _password(name, password_file)
    stored = [new_credential(name, each, password, iterations) for each in mechanisms or _MECHANISMS]
    outcomes = alter_users(cluster, stored) if config is None else _alter_stored(config, stored)
    report_outcomes(outcomes.items(), "added", as_json=as_json)


@users.command()
@click.argument("names", nargs=-1, required=True)
@_mechanism_option
@_store_options
@json_option
@cluster_command
def remove(
    cluster: Cluster,
    names: tuple[str, ...],
    mechanisms: tuple[str, ...],
    properties: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Remove users, or only their credentials of one mechanism. Connections that are authenticated stay."""
    from ottla.client.user_admin import MECHANISMS, alter_users
    from ottla.client.user_admin import list_users as listed

    config = _config(properties, overrides) if properties or overrides else None
    found = listed(cluster, names) if config is None else _stored(config, names)
    deleted = [(each.user, MECHANISMS[each.mechanism]) for each in found if each.mechanism in (mechanisms or _MECHANISMS)]
    deleted += [(name, MECHANISMS[each]) for name in names for each in mechanisms if (name, MECHANISMS[each]) not in deleted]
    outcomes = alter_users(cluster, [], deleted) if config is None else _alter_stored(config, [], deleted)
    report_outcomes(outcomes.items(), "removed", as_json=as_json)


def _password(name: str, file: Any) -> str:
    """Raises UsageError for one that is empty, or no text."""
    if file is None and sys.stdin.isatty():
        password = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        try:
            password = (sys.stdin if file is None else file).readline().rstrip("\r\n")
            password.encode()  # standard input may have let bytes through that are no text
        except UnicodeError:
            raise click.UsageError("The password is not UTF-8.") from None
    if not password:
        raise click.UsageError("The password is empty.")
    return str(password)


def _config(properties: Path | None, overrides: tuple[str, ...]) -> BrokerConfig:
    """The configuration of the broker that does not run. Raises ClientError."""
    import os

    from ottla.client.errors import ClientError
    from ottla.config.broker import BrokerConfig
    from ottla.config.errors import ConfigError
    from ottla.config.loader import load_properties

    try:
        return BrokerConfig(load_properties(properties, os.environ, overrides))
    except ConfigError as error:
        raise ClientError(str(error)) from None


def _stored(config: BrokerConfig, names: tuple[str, ...]) -> list[Credential]:
    """The credentials in the metadata store. Raises ClientError, also for a user that does not exist."""
    from ottla.broker.security.sasl.scram import parse_credential
    from ottla.broker.stored_users import stored_users
    from ottla.client.errors import ClientError
    from ottla.client.user_admin import Credential

    found = _in_store(lambda: stored_users(config))
    credentials: list[Credential] = []
    for user, of_user in sorted(found.items()):
        for mechanism in (each for each in _MECHANISMS if each in of_user):
            try:
                credentials.append(Credential(user, mechanism, parse_credential(of_user[mechanism]).iterations))
            except ValueError as error:
                raise ClientError(f"user {user}, {mechanism}: {error}; add the user again") from None
    for name in names:
        if name not in {each.user for each in credentials}:
            raise ClientError(f"there is no user {name}")
    return [each for each in credentials if not names or each.user in names]


def _alter_stored(
    config: BrokerConfig, stored: Sequence[NewCredential], deleted: Sequence[tuple[str, int]] = ()
) -> dict[str, ClientError | None]:
    from ottla.broker.stored_users import alter_stored_users
    from ottla.client.errors import Refused
    from ottla.controller.admin.scram_credentials import Deletion, Upsertion
    from ottla.protocol.errors import ErrorCode

    outcomes = _in_store(lambda: alter_stored_users(config, [Deletion(*each) for each in deleted], [Upsertion(*each) for each in stored]))
    return {user: None if code is ErrorCode.NONE else Refused(f"user {user}", code, message) for user, (code, message) in outcomes}


def _in_store(work: Callable[[], Any]) -> Any:
    """The result of work with the metadata store. Raises ClientError."""
    from ottla.client.errors import ClientError
    from ottla.controller.errors import ControllerError, StoreError
    from ottla.controller.znodes.znode_json import MalformedZNode
    from ottla.storage.errors import StorageError

    try:
        return work()
    except (StoreError, ControllerError, StorageError, MalformedZNode) as error:
        raise ClientError(f"{error}. While a broker runs, leave out --properties and --set, and ask the broker") from None
