"""Translates the IANA names of cipher suites, which ssl.cipher.suites contains, into the names of OpenSSL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

TLS_1_3_SUITES: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""The suites of TLS 1.3 that OpenSSL enables; both libraries use the same names."""
_NAME: Final = re.compile(r"TLS_(?:(?P<exchange>(?:ECDHE|DHE)_(?:RSA|ECDSA|DSS))|RSA)_WITH_(?P<cipher>\w+)")


def openssl_name(suite: str) -> str | None:
    """The name of a suite of TLS 1.2 as OpenSSL writes it; None for a name of another form. The suite need not exist."""
    found = _NAME.fullmatch(suite)
    if found is None:
        return None
    cipher = re.sub(r"^(AES|CAMELLIA)_(\d+)_", r"\1\2_", found["cipher"])
    cipher = re.sub(r"_CBC_(SHA\d*)$", r"_\1", cipher)
    cipher = cipher.replace("CCM_8", "CCM8").removesuffix("_SHA256" if cipher.startswith("CHACHA20") else "\0")
    return "-".join(part.replace("_", "-") for part in (found["exchange"], cipher) if part)


def split(suites: Iterable[str]) -> tuple[list[str], list[str]]:
    """The suites of TLS 1.3, and the others."""
    given = list(suites)
    return [each for each in given if each in TLS_1_3_SUITES], [each for each in given if each not in TLS_1_3_SUITES]
