"""Tries a TLS handshake between two contexts of this process, without a network."""

from __future__ import annotations

import ssl
from typing import Final

_MOST_ROUNDS: Final = 20
"""Turns of both sides, far more than a handshake needs."""


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Returns when both sides have finished their handshake. Raises ssl.SSLError, that of the side that refused.

    The client knows no name of the server, so `client.check_hostname` has to be off.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(_MOST_ROUNDS):
        sides = [side for side in sides if not _is_done(side)]
        if not sides:
            return
    raise ssl.SSLError("the handshake does not end")


def reason_of(error: ssl.SSLError) -> str:
    """The reason why a handshake failed, as text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return error.reason or str(error)


def _is_done(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
