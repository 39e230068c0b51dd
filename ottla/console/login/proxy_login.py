"""Takes the user of a request from a proxy that has authenticated the user, by OpenID Connect for example.

The proxy names the user in a header. A secret in another header authenticates the proxy, because every process of this host can reach a
loopback address.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ottla.client.errors import ClientError

SECRET_HEADER: Final = "x-ottla-proxy-secret"
MIN_SECRET_LENGTH: Final = 16
MAX_USER_LENGTH: Final = 200
"""Characters of a user's name; a longer one is refused."""
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")


class ProxyLogin:
    """The header with the user, and the secret of the proxy."""

    def __init__(self, user_header: str, secret: str) -> None:
        self._user_header = user_header.lower().encode()
        self._secret = secret.encode()

    def user_of(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The user whom the proxy names. None without the secret, without a user, or if a header is there twice.

        A client adds a second header if the proxy does not remove the client's own.
        """
        secrets: list[bytes] = []
        users: list[bytes] = []
        for name, value in headers:
            if name == SECRET_HEADER.encode():
                secrets.append(value)
            elif name == self._user_header:
                users.append(value)
        if len(secrets) != 1 or len(users) != 1 or not hmac.compare_digest(secrets[0], self._secret):
            return None
        user = users[0].decode("utf-8", "replace").strip()
        return user if 0 < len(user) <= MAX_USER_LENGTH and user.isprintable() else None


def read_proxy_login(user_header: str, file: Path) -> ProxyLogin:
    """Reads the secret from the first line of the file. Raises ClientError, without the secret."""
    if _HEADER_NAME.fullmatch(user_header) is None or user_header.lower() == SECRET_HEADER:
        raise ClientError(f"--user-header {user_header!r} cannot be the name of the header with the user")
    try:
        secret = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except OSError as error:
        raise ClientError(f"the secret of the proxy cannot be read from {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ClientError(f"the secret of the proxy cannot be read from {file}: it is not text") from None
    if len(secret) < MIN_SECRET_LENGTH or not secret.isascii():
        raise ClientError(f"the secret of the proxy in {file} needs at least {MIN_SECRET_LENGTH} characters of ASCII")
    return ProxyLogin(user_header, secret)
