"""Adapts the package `gssapi`, which calls the Kerberos library of the host, to the contexts of `kerberos`.

Only brokers and clients with the mechanism GSSAPI import the package. The library reads `/etc/krb5.conf`, or the file that the environment
variable KRB5_CONFIG names. A server never contacts the KDC. It looks up its key in the keytab at each login, so that a new key takes effect
at once; this takes about 0.1 ms of the event loop. A client contacts the KDC, so its steps belong in a thread.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from ottla.broker.security.sasl.kerberos import KerberosClient, KerberosFailed, KerberosServer
from ottla.broker.security.sasl.kerberos_names import PrincipalToLocalRules
from ottla.config.errors import ConfigError, ConfigValueError
from ottla.config.kerberos import INSTALLATION, PACKAGE, KerberosIdentity, KerberosListener
from ottla.config.sasl import GSSAPI

MAX_REASON_CHARS: Final = 200
"""Longest text of an error, characters; a part of it may come from the ticket of an unauthenticated client."""

_FIRST_ERROR: Final = -1765328384
"""The number that the library adds to the errors of RFC 4120."""
_ERRORS: Final = 128
"""Errors of RFC 4120; the library's own errors follow them."""


def accepting(listener: KerberosListener) -> Callable[[], KerberosServer]:
    """A function that begins exchanges with clients of a listener. Raises ConfigError, also for a keytab without the principal's key."""
    gssapi = _library()
    identity = listener.identity
    assert identity.keytab is not None
    _require_readable(identity.keytab)
    try:
        rules = PrincipalToLocalRules(listener.rules, _default_realm(gssapi))
    except ConfigError as reason:
        raise ConfigValueError(listener.rules_key, ",".join(listener.rules), str(reason)) from None
    try:
        with _failures(gssapi):
            name = gssapi.Name(identity.principal, gssapi.NameType.kerberos_principal)
            store = {"keytab": f"FILE:{identity.keytab}"}
            credential = gssapi.Credentials(name=name, usage="accept", mechs=[gssapi.MechType.kerberos], store=store)
    except KerberosFailed as failed:
        raise ConfigError(f"{GSSAPI} with keyTab={identity.keytab} and principal={identity.principal}: {failed}") from None
    return lambda: KerberosServer(_Accepting(gssapi, credential), rules.name_of)


def initiating(identity: KerberosIdentity, host: str) -> Callable[[], KerberosClient]:
    """A function that begins exchanges with the server on a host. Raises ConfigError. Asks no KDC."""
    gssapi = _library()
    if identity.keytab is not None:
        _require_readable(identity.keytab)
    return lambda: KerberosClient(_Initiating(gssapi, identity, host))


class _Established:
    """A context, and what both sides do with a complete one."""

    __slots__ = ("_context", "_gssapi")

    def __init__(self, gssapi: Any) -> None:
        self._gssapi = gssapi
        self._context: Any = None

    def wrap(self, message: bytes) -> bytes:
        """See `Context`."""
        with _failures(self._gssapi):
            return bytes(self._gssapi.raw.wrap(self._context, message, False).message)

    def unwrap(self, token: bytes) -> bytes:
        """See `Context`."""
        with _failures(self._gssapi):
            return bytes(self._gssapi.raw.unwrap(self._context, token).message)


class _Accepting(_Established):
    """Implements `AcceptingContext`."""

    __slots__ = ("_credential", "peer")

    def __init__(self, gssapi: Any, credential: Any) -> None:
        super().__init__(gssapi)
        self._credential = credential
        self.peer = ""

    def step(self, token: bytes | None) -> tuple[bytes, bool]:
        """See `Context`."""
        raw = self._gssapi.raw
        with _failures(self._gssapi):
            found = raw.accept_sec_context(token or b"", acceptor_creds=self._credential, context=self._context)
            self._context = found.context
            if not found.more_steps:
                self.peer = raw.display_name(found.initiator_name, name_type=False).name.decode("utf-8", "replace")
        return found.token or b"", not found.more_steps


class _Initiating(_Established):
    """Implements `Context`. The first step asks the KDC for tickets, unless they are in the cache."""

    __slots__ = ("_credential", "_identity", "_server")

    def __init__(self, gssapi: Any, identity: KerberosIdentity, host: str) -> None:
        super().__init__(gssapi)
        self._identity = identity
        self._server = f"{identity.service_name}@{host}"
        self._credential: Any = None

    def step(self, token: bytes | None) -> tuple[bytes, bool]:
        """See `Context`."""
        gssapi = self._gssapi
        flags = (gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity)
        with _failures(gssapi):
            if self._credential is None:
                self._credential = _initiator(gssapi, self._identity)
            found = gssapi.raw.init_sec_context(
                gssapi.Name(self._server, gssapi.NameType.hostbased_service),
                creds=self._credential,
                context=self._context,
                mech=gssapi.MechType.kerberos,
                flags=flags,
                input_token=token,
            )
            self._context = found.context
        return found.token or b"", not found.more_steps


def _initiator(gssapi: Any, identity: KerberosIdentity) -> Any:
    """The credential of a client: with a keytab the library gets tickets when they are needed, and new ones before they expire."""
    store = {}
    if identity.keytab is not None:
        store["client_keytab"] = f"FILE:{identity.keytab}"
        if not identity.uses_ticket_cache:
            # All connections of the process share the tickets.
            known = hashlib.sha256(f"{identity.principal}\0{identity.keytab}".encode()).hexdigest()
            store["ccache"] = f"MEMORY:ottla-{known}"
    if identity.uses_ticket_cache and identity.ticket_cache is not None:
        store["ccache"] = f"FILE:{identity.ticket_cache}"
    name = None if identity.principal is None else gssapi.Name(identity.principal, gssapi.NameType.kerberos_principal)
    return gssapi.Credentials(name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store or None)


def _default_realm(gssapi: Any) -> str:
    """The realm of names without one; empty if the library's configuration has none, as in Apache Kafka."""
    try:
        with _failures(gssapi):
            name = gssapi.Name("name", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
            return str(name).partition("@")[2]
    except KerberosFailed:
        return ""


def _library() -> Any:
    """The package. Raises ConfigError if it is missing, or if it does not find the library."""
    try:
        return import_module(PACKAGE)
    except ImportError as error:
        raise ConfigError(f"{GSSAPI} cannot be used: {error}; {INSTALLATION}") from None


def _require_readable(keytab: str) -> None:
    """The library has a misleading message for a keytab that cannot be read. Raises ConfigError."""
    try:
        os.close(os.open(keytab, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise ConfigError(f"{GSSAPI} with keyTab={keytab}: {error.strerror}") from None


@contextmanager
def _failures(gssapi: Any) -> Iterator[None]:
    """Turns the exceptions of the package into KerberosFailed, on the thread that has the library's message."""
    try:
        yield
    except gssapi.exceptions.GSSError as error:
        number = error.min_code or error.maj_code
        text = "; ".join(error.get_all_statuses(number, not error.min_code))
        printable = "".join(char if char.isprintable() else "?" for char in text[:MAX_REASON_CHARS])
        code = (error.min_code - _FIRST_ERROR) & 0xFFFFFFFF
        raise KerberosFailed(printable or f"error {number}", code if code < _ERRORS else None) from None
