"""Reads the profiles of clusters: options for `--profile NAME`, from a TOML file with one table for each cluster.

    [staging]
    bootstrap-server = "broker1.example.com:9092,broker2.example.com:9092"
    timeout = 60
    command-config = "/etc/ottla/staging.properties"

The file is `ottla/profiles.toml` in $XDG_CONFIG_HOME (`~/.config`), or the file that $OTTLA_PROFILES names.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from ottla.client.errors import ClientError

KEYS: Final[dict[str, tuple[type, ...]]] = {
    "bootstrap-server": (str,),
    "timeout": (int, float),
    "command-config": (str,),
    "schema-registry": (str,),
    "schema-registry-login": (str,),
}
"""The keys of a profile with the types of their values. They are named as the options; the last two are options of `ottla console`."""


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
