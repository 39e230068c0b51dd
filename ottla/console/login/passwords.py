"""Reads the file of the console's users, and checks their passwords against salted hashes (scrypt, RFC 7914).

A line is `NAME:scrypt$N$R$P$SALT$HASH`; `ottla console --hash-password NAME` prints it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ottla.client.errors import ClientError

_NAME: Final = re.compile(r"[\w.@-]{1,100}", re.ASCII)
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
_COST: Final = 2**14
_BLOCK_SIZE: Final = 8
_PARALLEL: Final = 1
_COSTS: Final = frozenset(2**power for power in range(14, 18))
MAX_PASSWORD_BYTES: Final = 1024
"""Size of a password, bytes."""


class HashedPassword(NamedTuple):
    """The salted hash of a password, with the parameters of scrypt."""

    cost: int
    block_size: int
    parallel: int
    salt: bytes
    hash: bytes

    def __str__(self) -> str:
        encoded = (base64.b64encode(each).decode() for each in (self.salt, self.hash))
        return "$".join(("scrypt", str(self.cost), str(self.block_size), str(self.parallel), *encoded))

    def fits(self, password: str) -> bool:
        """Whether the hash is that of the password."""
        return hmac.compare_digest(self.hash, _scrypt(password, self))


def hashed(password: str) -> HashedPassword:
    """The hash of a password, with a new salt."""
    made = HashedPassword(_COST, _BLOCK_SIZE, _PARALLEL, secrets.token_bytes(_SALT_BYTES), b"")
    return made._replace(hash=_scrypt(password, made))


def _scrypt(password: str, parameters: HashedPassword) -> bytes:
    memory = 128 * parameters.block_size * (parameters.cost + parameters.parallel + 2)
    return hashlib.scrypt(
        password.encode(),
        salt=parameters.salt,
        n=parameters.cost,
        r=parameters.block_size,
        p=parameters.parallel,
        maxmem=memory * 2,
        dklen=_HASH_BYTES,
    )


class Passwords:
    """The users who may log in. A hash takes 16 MiB, so passwords are checked one at a time."""

    def __init__(self, users: Mapping[str, HashedPassword]) -> None:
        self._users = dict(users)
        self._unknown = hashed(secrets.token_hex())
        self._one_at_a_time = threading.Lock()

    def are_right(self, user: str, password: str) -> bool:
        """Whether the user exists and has this password; an unknown user takes as long as a known one."""
        if len(password.encode()) > MAX_PASSWORD_BYTES:
            return False
        with self._one_at_a_time:
            fits = self._users.get(user, self._unknown).fits(password)
        return fits and user in self._users


def check_name(name: str) -> None:
    """Raises ClientError for a name that a line cannot hold."""
    if not _NAME.fullmatch(name):
        raise ClientError(f"{name!a} is not a name of a user; use up to 100 letters, digits and . _ - @")


def read_passwords(file: Path) -> Passwords:
    """The users of a file. Raises ClientError for a file that cannot be read, has another form, or has no user."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ClientError(f"the users of the console cannot be read: {file}: {error.strerror}") from None
    except ValueError:
        raise ClientError(f"the users of the console cannot be read: {file} is not text") from None
    users: dict[str, HashedPassword] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, text = line.strip().partition(":")
        found = _parsed(text)
        if found is None or not _NAME.fullmatch(name) or name in users:
            reason = f"{name} is in it twice" if name in users else "it is not NAME:HASH as `ottla console --hash-password NAME` prints it"
            raise ClientError(f"{file}, line {number}: {reason}")
        users[name] = found
    if not users:
        raise ClientError(f"{file} has no user; `ottla console --hash-password NAME` prints a line for it")
    return Passwords(users)


def _parsed(text: str) -> HashedPassword | None:
    kind, *parts = text.split("$")
    if kind != "scrypt" or len(parts) != len(HashedPassword._fields) or not all(each.isascii() and each.isdecimal() for each in parts[:3]):
        return None
    try:
        salt, found = (base64.b64decode(each, validate=True) for each in parts[3:])
    except binascii.Error:
        return None
    cost, block_size, parallel = map(int, parts[:3])
    usable = cost in _COSTS and block_size == _BLOCK_SIZE and parallel == _PARALLEL and len(found) == _HASH_BYTES
    return HashedPassword(cost, block_size, parallel, salt, found) if usable else None
