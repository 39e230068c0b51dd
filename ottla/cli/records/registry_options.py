"""Defines the options of a schema registry for `ottla consume` and `ottla produce`; a profile may have them, too."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options import reported_errors
from ottla.cli.output import say

if TYPE_CHECKING:
    from ottla.schemas.schema_registry import SchemaRegistry


def registry_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options of a registry, and the parameter `registry`, which is None without one."""

    @click.option("--schema-registry", metavar="URL", help="Decode or encode records by the schemas of this registry.")
    @click.option(
        "--schema-registry-login",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A file with USER:PASSWORD for the registry.",
    )
    @functools.wraps(command)
    def with_registry(schema_registry: str | None, schema_registry_login: Path | None, **options: Any) -> Any:
        with reported_errors():
            registry = _opened(schema_registry, schema_registry_login, options.get("profile"))
        return command(registry=registry, **options)

    return with_registry


def _opened(url: str | None, login_file: Path | None, profile: str | None) -> SchemaRegistry | None:
    """The registry of the options, or else of the profile, whose login goes to its own registry alone. Raises ClientError."""
    from ottla.cli.profiles import read_profile

    own = {} if profile is None else read_profile(profile)
    if login_file is None and "schema-registry-login" in own and url in {None, own.get("schema-registry")}:
        login_file = Path(own["schema-registry-login"])
    url = url or own.get("schema-registry")
    if url is None and login_file is None:
        return None
    from ottla.schemas.schema_registry import open_registry  # its import takes longer than the start of a command without a registry

    return open_registry(url, login_file, os.environ, say)
