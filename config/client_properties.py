"""Reads the security of a client's connections from a properties file with the keys of Java's clients or of librdkafka.

Keys of other subjects are left alone, since such files often configure a producer or consumer, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from ottla.config.errors import ConfigError
from ottla.config.jaas import LoginModule, parse_jaas
from ottla.config.kerberos import with_service_name
from ottla.config.keys import tls
from ottla.config.keys.security import SASL_JAAS_CONFIG, SASL_KERBEROS_SERVICE_NAME, SECURITY_PROVIDERS
from ottla.config.listeners import SecurityProtocol
from ottla.config.properties_format import decode, parse_properties
from ottla.config.providers import resolved
from ottla.config.sasl import GSSAPI, LOGIN_MODULES, MECHANISMS, OAUTHBEARER, login_module
from ottla.config.schema.key import Key

T = TypeVar("T")

SECURITY_PROTOCOL: Final = "security.protocol"
SASL_MECHANISM: Final = "sasl.mechanism"
_TLS_KEYS: Final = {key.name: key for key in (*vars(tls).values(), SECURITY_PROVIDERS) if isinstance(key, Key)}
_SUBJECTS: Final = ("ssl.", "sasl.", "security.")
_CLASS_KEYS: Final = ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class")
_OAUTHBEARER_PAIR: Final = re.compile(r'([A-Za-z_]+)=(?:"([^"]*)"|(\S*))')
_OAUTHBEARER_OPTIONS: Final = {
    "principal": "unsecuredLoginStringClaim_sub",
    "principalClaimName": "unsecuredLoginPrincipalClaimName",
    "lifeSeconds": "unsecuredLoginLifetimeSeconds",
    "scopeClaimName": "unsecuredLoginScopeClaimName",
}


class ClientProperties:
    """The security of a client. `java` has its keys as Java's clients name them, with their texts, for clients that are made of them."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises ConfigError, whose text names the key."""
        self.java = _in_java(properties)
        text = self.java.get(SECURITY_PROTOCOL, SecurityProtocol.PLAINTEXT.name)
        try:
            self.protocol = SecurityProtocol[text.upper()]
        except KeyError:
            names = ", ".join(each.name for each in SecurityProtocol)
            raise ConfigError(f"{SECURITY_PROTOCOL}={text} is not supported; use one of {names}") from None
        self.java[SECURITY_PROTOCOL] = self.protocol.name
        self._values: dict[Key[Any], Any] = {}
        for name, key in _TLS_KEYS.items():
            self._values[key] = key.parse(self.java[name]) if name in self.java else key.default_for(False)

    def __getitem__(self, key: Key[T]) -> T:
        """The value of a key of TLS."""
        return cast(T, self._values[key])

    @property
    def mechanism(self) -> str:
        """The SASL mechanism. Raises ConfigError unless it is one of this program."""
        found = self.java.get(SASL_MECHANISM, GSSAPI)
        if found not in MECHANISMS:
            raise ConfigError(f"{SASL_MECHANISM}={found} is not supported; use one of {', '.join(MECHANISMS)}")
        return found

    @property
    def login(self) -> LoginModule:
        """The JAAS entry with the client's credential. Raises ConfigError."""
        for name in _CLASS_KEYS:
            if self.java.get(name):
                raise ConfigError(f"{name}={self.java[name]}: classes of the Java platform cannot be loaded; unset it")
        text = self.java.get(SASL_JAAS_CONFIG.name)
        mechanism = self.mechanism
        if text is None:
            others = "; set sasl.mechanism for another mechanism" if mechanism == GSSAPI else ", or sasl.username and sasl.password"
            raise ConfigError(f"{mechanism} needs {SASL_JAAS_CONFIG.name}{others}")
        try:
            module = login_module(mechanism, parse_jaas(text))
            return with_service_name(module, self.java.get(SASL_KERBEROS_SERVICE_NAME.name)) if mechanism == GSSAPI else module
        except ConfigError as reason:
            raise ConfigError(f"{SASL_JAAS_CONFIG.name}: {reason}") from None


def read_client_properties(path: Path) -> ClientProperties:
    """The properties of a file. Raises ConfigError, whose text names the file."""
    try:
        return ClientProperties(resolved(parse_properties(decode(path.read_bytes())), os.environ))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except ConfigError as reason:
        raise ConfigError(f"{path}: {reason}") from None


def _in_java(properties: Mapping[str, str]) -> dict[str, str]:
    """The keys of security, those of librdkafka translated."""
    given = {name: value for name, value in properties.items() if name.startswith(_SUBJECTS)}
    found = {name: value for name, value in given.items() if name not in _OF_LIBRDKAFKA}
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise ConfigError("enable.ssl.certificate.verification=false is not supported; name the authority in ssl.ca.location")
    if found.get(tls.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM.name, "").lower() == "none":
        found[tls.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM.name] = ""
    for name, translate in _OF_LIBRDKAFKA.items():
        if name in given:
            translate(given, found)
    return found


def _mechanism(given: Mapping[str, str], found: dict[str, str]) -> None:
    found.setdefault(SASL_MECHANISM, given["sasl.mechanisms"])


def _password(given: Mapping[str, str], found: dict[str, str]) -> None:
    mechanism = found.get(SASL_MECHANISM, "")
    if SASL_JAAS_CONFIG.name in found or mechanism not in LOGIN_MODULES or mechanism in (OAUTHBEARER, GSSAPI):
        return
    missing = [name for name in ("sasl.username", "sasl.password") if not given.get(name)]
    if missing:
        raise ConfigError(f"{missing[0]} is not set")
    options = {"username": given["sasl.username"], "password": given["sasl.password"]}
    found[SASL_JAAS_CONFIG.name] = _jaas(mechanism, options)


def _oauthbearer(given: Mapping[str, str], found: dict[str, str]) -> None:
    options: dict[str, str] = {}
    for match in _OAUTHBEARER_PAIR.finditer(given["sasl.oauthbearer.config"]):
        name, value = match[1], match[2] if match[2] is not None else match[3]
        if name in _OAUTHBEARER_OPTIONS:
            options[_OAUTHBEARER_OPTIONS[name]] = value
        elif name == "scope":
            options["unsecuredLoginListClaim_scope"] = f",{value}"
        elif name.startswith("extension_"):
            options[f"unsecuredLoginExtension_{name.removeprefix('extension_')}"] = value
        else:
            raise ConfigError(f"sasl.oauthbearer.config: {name} is not known")
    found.setdefault(SASL_JAAS_CONFIG.name, _jaas(OAUTHBEARER, options))


def _kerberos(given: Mapping[str, str], found: dict[str, str]) -> None:
    """Translates a keytab with its principal, or a principal whose ticket `kinit` has put into the cache."""
    if SASL_JAAS_CONFIG.name in found or found.get(SASL_MECHANISM, GSSAPI) != GSSAPI:
        return
    keytab = given.get("sasl.kerberos.keytab")
    options = {"useTicketCache": "true"} if keytab is None else {"useKeyTab": "true", "keyTab": keytab}
    if "sasl.kerberos.principal" in given:
        options["principal"] = given["sasl.kerberos.principal"]
    found.setdefault(SASL_KERBEROS_SERVICE_NAME.name, "kafka")
    found[SASL_JAAS_CONFIG.name] = _jaas(GSSAPI, options)


def _jaas(mechanism: str, options: Mapping[str, str]) -> str:
    def quoted(value: str) -> str:
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        return f'"{text}"'

    pairs = "".join(f" {name}={quoted(value)}" for name, value in options.items())
    return f"{LOGIN_MODULES[mechanism]} required{pairs};"


def _pem_of(source: str, *, is_file: bool, key: Key[Any], kind: Key[Any]) -> Callable[[Mapping[str, str], dict[str, str]], None]:
    """Translates a key with a PEM file, or with the text itself, into `key`."""

    def translate(given: Mapping[str, str], found: dict[str, str]) -> None:
        value = given[source]
        if is_file:
            try:
                value = Path(value).read_text("ascii", "replace")
            except OSError as error:
                raise ConfigError(f"{source}={given[source]}: {error.strerror}") from None
        found[key.name] = value
        found[kind.name] = "PEM"

    return translate


_CA, _CHAIN, _KEY = tls.SSL_TRUSTSTORE_CERTIFICATES, tls.SSL_KEYSTORE_CERTIFICATE_CHAIN, tls.SSL_KEYSTORE_KEY
_OF_LIBRDKAFKA: Final[dict[str, Callable[[Mapping[str, str], dict[str, str]], None]]] = {
    "sasl.mechanisms": _mechanism,
    "sasl.username": _password,
    "sasl.password": _password,
    "sasl.oauthbearer.config": _oauthbearer,
    "sasl.kerberos.keytab": _kerberos,
    "sasl.kerberos.principal": _kerberos,
    "ssl.ca.location": _pem_of("ssl.ca.location", is_file=True, key=_CA, kind=tls.SSL_TRUSTSTORE_TYPE),
    "ssl.ca.pem": _pem_of("ssl.ca.pem", is_file=False, key=_CA, kind=tls.SSL_TRUSTSTORE_TYPE),
    "ssl.certificate.location": _pem_of("ssl.certificate.location", is_file=True, key=_CHAIN, kind=tls.SSL_KEYSTORE_TYPE),
    "ssl.certificate.pem": _pem_of("ssl.certificate.pem", is_file=False, key=_CHAIN, kind=tls.SSL_KEYSTORE_TYPE),
    "ssl.key.location": _pem_of("ssl.key.location", is_file=True, key=_KEY, kind=tls.SSL_KEYSTORE_TYPE),
    "ssl.key.pem": _pem_of("ssl.key.pem", is_file=False, key=_KEY, kind=tls.SSL_KEYSTORE_TYPE),
}
"""The keys that only librdkafka has, in the order in which they are translated."""
