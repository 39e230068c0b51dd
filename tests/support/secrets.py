"""Knows the secrets of tests, and finds them in what tests and their processes print and log.

A password of a test ends with `-secret`, which no other text of a log does. Keys, hashes and tokens, which are made while a test runs, are
added by their makers with `keep_secret`.
"""

from __future__ import annotations

import base64
import re

_PASSWORD = re.compile(r"\b\w+-secret\b")
_LEAST_CHARACTERS = 16
"""Shorter texts may stand in a log by chance."""
_made: set[str] = set()


def keep_secret(*secrets: str | bytes) -> None:
    """Texts that nothing may show from now on; bytes are looked for in hexadecimal and base64, too."""
    for secret in secrets:
        if isinstance(secret, bytes):
            forms = {
                secret.hex(),
                base64.b64encode(secret).decode(),
                base64.urlsafe_b64encode(secret).decode().rstrip("="),
                repr(secret)[2:-1],
            }
        else:
            forms = {secret}
        assert all(len(each) >= _LEAST_CHARACTERS for each in forms), "this could stand anywhere by chance"
        _made.update(forms)


def secrets_in(text: str) -> list[str]:
    """The passwords, keys and tokens that a text shows."""
    return sorted({*_PASSWORD.findall(text), *(each for each in _made if each in text)}) if text else []
