"""Reads the JSON Web Key Set at a file, http or https URL, in limited time and up to a limited size. Blocks: call it in a thread."""

from __future__ import annotations

import ssl
import time
from http.client import HTTPException
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, build_opener

from ottla.broker.security.tls.stores import PEM, certificates_from_pem, certificates_from_store, check_store_type, read_store
from ottla.config.errors import ConfigError

if TYPE_CHECKING:
    from ottla.config.sasl import JwksSource

MAX_BYTES: Final = 1024 * 1024
"""Largest key set, bytes; sets have a few keys of about 1 KiB."""
SILENCE_SECONDS: Final = 5.0
"""Time without a byte after which a server is given up, seconds."""
TOTAL_SECONDS: Final = 20.0
"""Time for the whole answer, seconds."""
_PIECE_BYTES: Final = 64 * 1024
_TRUST_OPTIONS: Final = frozenset(f"ssl.truststore.{name}" for name in ("location", "password", "type", "certificates"))


class JwksUnavailable(Exception):
    """The key set cannot be read; the text is the reason."""


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect, which could lead to a URL that the operator has not allowed."""

    def redirect_request(self, *_: object) -> None:
        return None


def read_jwks(source: JwksSource) -> bytes:
    """The bytes at the URL. Raises JwksUnavailable."""
    try:
        data = _read_file(source.url) if source.url.lower().startswith("file:") else _read_http(source)
    except (OSError, HTTPException, ValueError) as error:  # URLError, TimeoutError and ssl.SSLError are OSErrors
        raise JwksUnavailable(str(error) or type(error).__name__) from None
    except ConfigError as error:
        raise JwksUnavailable(str(error)) from None
    if len(data) > MAX_BYTES:
        raise JwksUnavailable(f"it is larger than {MAX_BYTES} bytes")
    return data


def _read_file(url: str) -> bytes:
    with open(unquote(urlsplit(url).path), "rb") as file:
        return file.read(MAX_BYTES + 1)


def _read_http(source: JwksSource) -> bytes:
    deadline = time.monotonic() + TOTAL_SECONDS
    opener = build_opener(ProxyHandler({}), _NoRedirects(), HTTPSHandler(context=_context(dict(source.tls))))
    found = b""
    with opener.open(source.url, timeout=SILENCE_SECONDS) as answer:
        while len(found) <= MAX_BYTES:
            piece = answer.read1(_PIECE_BYTES)
            if not piece:
                break
            found += piece
            if time.monotonic() > deadline:
                raise JwksUnavailable(f"it takes longer than {TOTAL_SECONDS:.0f} s")
    return found


def _context(options: dict[str, str]) -> ssl.SSLContext:
    """The TLS for an https URL. Options of the JAAS entry replace the trusted certificates of the system. Raises ConfigError."""
    if unknown := options.keys() - _TRUST_OPTIONS:
        raise ConfigError(f"the JAAS option {min(unknown)} is not supported; only ssl.truststore.* is")
    context = ssl.create_default_context()
    if not options:
        return context
    store_type, location = options.get("ssl.truststore.type", "JKS"), options.get("ssl.truststore.location")
    check_store_type("ssl.truststore.type", store_type)
    where = f"ssl.truststore.location={location}"
    if "ssl.truststore.certificates" in options:
        trusted = certificates_from_pem(options["ssl.truststore.certificates"], "ssl.truststore.certificates")
    elif location is None:
        raise ConfigError("ssl.truststore.location is not set")
    elif store_type.upper() == PEM:
        trusted = certificates_from_pem(read_store(location, where).decode("ascii", "replace"), where)
    else:
        trusted = certificates_from_store(read_store(location, where), options.get("ssl.truststore.password"), where)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in Java, every certificate of the trust store is trusted by itself, also one that others have signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=b"".join(dict.fromkeys(trusted)))
    return context
