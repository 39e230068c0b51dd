"""Implements `ottla configs`: describes and changes configurations of topics, groups, brokers and more, and the quotas of clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ottla.cli.options import amounts, cluster_command, command_group, has_wildcards, json_option, key_values, report_outcomes, topic_names
from ottla.cli.output import print_json, print_table, say
from ottla.client.errors import ClientError, Refused

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.client.config_admin import Change, ConfigResourceType

_KINDS = ("topic", "group", "broker", "broker-logger", "client-metrics", "user", "client", "ip")
_NAMED = ("topic", "group", "client-metrics")
"""The kinds whose names are not ids of brokers."""
_QUOTA_KINDS = {"user": "user", "client": "client-id", "ip": "ip"}
"""The configurations of these are quotas; each with the name that the protocol has for its type."""
_DEFAULT = "default"
_ID_DIGITS = 10
_NOTHING = "Nothing to change: give --set, --delete, --append or --subtract."


@command_group
def configs() -> None:
    """Describe and change configurations.

    Identify a topic, a group and a subscription to metrics of clients (`client-metrics`) by its name, several topics by a
    pattern like 'app-*', a broker by its id, all brokers as `broker default`, and the log levels of a broker as
    `broker-logger ID`. The configuration of a user, a client (id) or an ip is its quotas; `user default` has those of
    users without their own. `ottla quotas` also has pairs of users and clients.
    """


@configs.command()
@click.argument("kind", type=click.Choice(_KINDS))
@click.argument("name")
@click.option("--all", "everything", is_flag=True, help="All keys, including static configurations and defaults.")
@click.option("--synonyms", is_flag=True, help="All settings of each value, in order of precedence.")
@click.option("--key", "keys", multiple=True, help="Only this key; may be repeated.")
@json_option
@cluster_command
def describe(cluster: Cluster, kind: str, name: str, everything: bool, synonyms: bool, keys: tuple[str, ...], as_json: bool) -> None:
    """Show dynamic configurations, which `alter` or the creation of a topic set, and their sources."""
    from ottla.client.config_admin import DYNAMIC, SOURCES, describe_configs

    if kind in _QUOTA_KINDS:
        _describe_quotas(cluster, kind, name, keys, as_json)
        return
    found = [
        (known, config)
        for resource, known in _resources(cluster, kind, name)
        for config in describe_configs(cluster, resource, known, synonyms=True)
        if (config.name in keys if keys else everything or config.config_source in DYNAMIC or kind == "broker-logger")
    ]
    several = has_wildcards(name) and kind == "topic"
    if as_json:
        print_json(
            [
                {
                    **({"topic": known} if several else {}),
                    "name": config.name,
                    "value": config.value,
                    "source": SOURCES.get(config.config_source),
                    "read_only": config.read_only,
                    "sensitive": config.is_sensitive,
                    "synonyms": [
                        {"name": synonym.name, "value": synonym.value, "source": SOURCES.get(synonym.source)} for synonym in config.synonyms
                    ],
                }
                for known, config in found
            ]
        )
        return
    rows = [
        [
            *([known] if several else []),
            config.name,
            "(hidden)" if config.is_sensitive else config.value,
            SOURCES.get(config.config_source),
            *(
                ["; ".join(f"{SOURCES.get(synonym.source)} {synonym.name}={synonym.value}" for synonym in config.synonyms)]
                if synonyms
                else []
            ),
        ]
        for known, config in found
    ]
    print_table((*(["topic"] if several else []), "key", "value", "source", *(["synonyms"] if synonyms else [])), rows)
    if not rows and not keys:
        say("no dynamic configuration; --all shows static configurations and defaults")


@configs.command()
@click.argument("kind", type=click.Choice(_KINDS))
@click.argument("name")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a value; may be repeated.")
@click.option("--delete", "deletes", multiple=True, metavar="KEY", help="Reset to the default; may be repeated.")
@click.option("--append", "appends", multiple=True, metavar="KEY=VALUE", help="Add to a list.")
@click.option("--subtract", "subtracts", multiple=True, metavar="KEY=VALUE", help="Remove from a list.")
@click.option("--dry-run", "--validate-only", "validate_only", is_flag=True, help="Only check whether it can be changed.")
@json_option
@cluster_command
def alter(
    cluster: Cluster,
    kind: str,
    name: str,
    sets: tuple[str, ...],
    deletes: tuple[str, ...],
    appends: tuple[str, ...],
    subtracts: tuple[str, ...],
    validate_only: bool,
    as_json: bool,
) -> None:
    """Change configurations: of one entity all that is given, or nothing. Of several topics each is an entity."""
    from ottla.client.config_admin import Change, ConfigOperation

    if kind in _QUOTA_KINDS:
        if appends or subtracts:
            raise click.UsageError("A quota is no list: give --set or --delete.")
        _alter_quotas(cluster, kind, name, {**amounts(sets, "--set"), **dict.fromkeys(deletes)}, validate_only, as_json)
        return
    changes = [Change(key, ConfigOperation.SET, value) for key, value in key_values(sets, "--set").items()]
    changes += [Change(key, ConfigOperation.DELETE, None) for key in deletes]
    changes += [Change(key, ConfigOperation.APPEND, value) for key, value in key_values(appends, "--append").items()]
    changes += [Change(key, ConfigOperation.SUBTRACT, value) for key, value in key_values(subtracts, "--subtract").items()]
    if not changes:
        raise click.UsageError(_NOTHING)
    outcomes = []
    for resource, known in _resources(cluster, kind, name):
        error = _refusal(cluster, kind, resource, known, changes, validate_only)
        outcomes.append((f"{kind} {known or _DEFAULT}", error))
    report_outcomes(outcomes, "could be changed" if validate_only else "changed", as_json=as_json)


def _refusal(
    cluster: Cluster, kind: str, resource: ConfigResourceType, name: str, changes: Sequence[Change], validate_only: bool
) -> ClientError | None:
    """Changes the configurations of one entity; the error, or None."""
    from ottla.client.config_admin import alter_configs

    try:
        with meaning_told(kind, _without_stored(cluster, kind, resource, name, changes)):
            alter_configs(cluster, resource, name, changes, validate_only=validate_only)
    except ClientError as error:
        return error
    return None


def _without_stored(cluster: Cluster, kind: str, resource: ConfigResourceType, name: str, changes: Sequence[Change]) -> Sequence[str]:
    """The names of keys in changes, without those that are no key of this kind, but are stored: to delete them has an effect."""
    from ottla.client.config_admin import DYNAMIC, ConfigOperation, describe_configs

    known = _known_keys(kind)
    if not any(change.operation is ConfigOperation.DELETE and change.name not in known for change in changes):
        return [change.name for change in changes]
    stored = {config.name for config in describe_configs(cluster, resource, name) if config.config_source in DYNAMIC}
    return [change.name for change in changes if change.operation is not ConfigOperation.DELETE or change.name not in stored]


@contextmanager
def meaning_told(kind: str, names: Iterable[str]) -> Iterator[None]:
    """Tells which keys may be meant by unknown names, in the error of the block; in a remark where brokers accept any key."""
    try:
        yield
    except Refused as error:
        error.add(meant(kind, names))
        raise
    if text := meant(kind, names):
        say(f"without effect{text}")


def meant(kind: str, names: Iterable[str]) -> str:
    """The remark for names of which no key of this kind has one, but one that is like it; empty without such names."""
    from ottla.config.broker_keys import like

    known = _known_keys(kind)
    found = [(name, like(name, known)) for name in names if name not in known]
    return "".join(f"; {name} is no key: did you mean {key}?" for name, key in found if key is not None)


def _known_keys(kind: str) -> Iterable[str]:
    if kind == "topic":
        from ottla.config.topic import TOPIC_KEYS

        return TOPIC_KEYS
    if kind == "group":
        from ottla.config.resources import GROUP_KEYS

        return GROUP_KEYS
    if kind == "broker":
        from ottla.config.broker_keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS

        return {**BROKER_KEYS, **DYNAMIC_ONLY_KEYS}
    if kind in ("quota", *_QUOTA_KINDS):
        from ottla.controller.admin.client_quotas import QUOTAS

        return QUOTAS
    return ()


def _entity(kind: str, name: str) -> dict[str, str | None]:
    return {_QUOTA_KINDS[kind]: None if name == _DEFAULT else name}


def _describe_quotas(cluster: Cluster, kind: str, name: str, keys: tuple[str, ...], as_json: bool) -> None:
    from ottla.client.quota_admin import describe_quotas

    described = describe_quotas(cluster, _entity(kind, name), strict=True)
    found = {key: value for each in described for key, value in each.values.items() if not keys or key in keys}
    if as_json:
        print_json([{"name": key, "value": value} for key, value in found.items()])
        return
    print_table(("key", "value"), [[key, f"{value:.15g}"] for key, value in found.items()])
    if not found and not keys:
        say(f"{kind} {name} has no quotas")


def _alter_quotas(cluster: Cluster, kind: str, name: str, changes: dict[str, float | None], validate_only: bool, as_json: bool) -> None:
    from ottla.client.quota_admin import alter_quotas

    if not changes:
        raise click.UsageError(_NOTHING)
    with meaning_told(kind, changes):
        alter_quotas(cluster, _entity(kind, name), changes, validate_only=validate_only)
    report_outcomes([(f"{kind} {name}", None)], "could be changed" if validate_only else "changed", as_json=as_json)


def _resources(cluster: Cluster, kind: str, name: str) -> list[tuple[ConfigResourceType, str]]:
    """The entities that a name or a pattern stands for. Raises UsageError, and ClientError for a topic that does not exist."""
    from ottla.client.config_admin import ConfigResourceType

    resource = ConfigResourceType[kind.upper().replace("-", "_")]
    if resource is ConfigResourceType.TOPIC:
        names = topic_names(cluster, [name])
        if not has_wildcards(name):
            cluster.topic(name)
        return [(resource, each) for each in names]
    if resource is ConfigResourceType.BROKER and name == _DEFAULT:
        name = ""
    elif kind not in _NAMED and (not name.isdecimal() or len(name) > _ID_DIGITS):
        raise click.UsageError(f"{name!r} is not a broker id{'' if kind == 'broker-logger' else ' (or `default` for all brokers)'}.")
    return [(resource, name)]
