"""Reads a Kerberos identity from the JAAS entry of Krb5LoginModule: principal, keytab or ticket cache, and service name.

`ottla.config.sasl` reads the identities of listeners and of logins at other brokers, `ottla.config.client_properties` that of a client.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final, NamedTuple

from ottla.config.errors import ConfigError
from ottla.config.jaas import LoginModule

PACKAGE: Final = "gssapi"
"""The package that calls the Kerberos library of the host."""
INSTALLATION: Final = f"install the package {PACKAGE} with `pip install 'ottla[{PACKAGE}]'`, which compiles it against libkrb5-dev"
"""The remedy for a missing package."""

SERVICE_NAME: Final = "serviceName"
_FILE: Final = "FILE:"


class KerberosIdentity(NamedTuple):
    """The credential of one side. `service_name` is that of the brokers, `kafka` in `kafka/host@REALM`."""

    service_name: str
    principal: str | None
    """None for the principal of the ticket cache."""
    keytab: str | None
    """The path of the keytab; None without one."""
    uses_ticket_cache: bool
    ticket_cache: str | None
    """The path of the ticket cache; None for the library's own choice."""


class KerberosListener(NamedTuple):
    """How a listener knows clients by their tickets. `rules_key` is the key that has the rules."""

    identity: KerberosIdentity
    rules: tuple[str, ...]
    rules_key: str


def is_installed() -> bool:
    """Whether this Python has the package."""
    return find_spec(PACKAGE) is not None


def with_service_name(module: LoginModule, configured: str | None) -> LoginModule:
    """The JAAS entry with the service name of `sasl.kerberos.service.name`. Raises ConfigError without one, or for two."""
    own = module.options.get(SERVICE_NAME)
    if own is not None and configured is not None and own != configured:
        raise ConfigError(
            f"Conflicting serviceName values found in JAAS and Kafka configs value in JAAS file {own}, value in Kafka config {configured}"
        )
    found = configured if own is None else own
    if not found:
        raise ConfigError("No serviceName defined in either JAAS or Kafka config: set sasl.kerberos.service.name")
    return module._replace(options={**module.options, SERVICE_NAME: found})


def kerberos_identity(module: LoginModule) -> KerberosIdentity:
    """The identity of a JAAS entry that has a service name. Raises ConfigError for an option that is missing."""
    options = module.options
    keytab = options.get("keyTab", "").removeprefix(_FILE) if _is_true(module, "useKeyTab") else None
    uses_ticket_cache = _is_true(module, "useTicketCache")
    principal = options.get("principal") or None
    if keytab is None and not uses_ticket_cache:
        raise ConfigError("Krb5LoginModule needs the option useKeyTab=true with keyTab and principal, or useTicketCache=true")
    if keytab is not None:
        for name, value in (("keyTab", keytab), ("principal", principal)):
            if not value:
                raise ConfigError(f"Krb5LoginModule with useKeyTab=true has no option {name}")
    ticket_cache = options.get("ticketCache", "").removeprefix(_FILE) or None
    return KerberosIdentity(options[SERVICE_NAME], principal, keytab, uses_ticket_cache, ticket_cache)


def _is_true(module: LoginModule, option: str) -> bool:
    return module.options.get(option, "").lower() == "true"
