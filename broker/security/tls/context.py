"""Fills a TLS context from the configuration: versions, cipher suites, key, trusted certificates.

Listeners and clients use the same keys, `ssl.*`, and the same stores.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import TYPE_CHECKING, Final

from ottla.broker.security.tls.cipher_suites import TLS_1_3_SUITES, openssl_name, split
from ottla.broker.security.tls.stores import (
    PEM,
    KeyMaterial,
    certificates_from_pem,
    certificates_from_store,
    check_store_type,
    key_from_pem,
    key_from_store,
    read_store,
)
from ottla.config.errors import ConfigError
from ottla.config.keys.security import SECURITY_PROVIDERS
from ottla.config.keys.tls import (
    SSL_CIPHER_SUITES,
    SSL_ENABLED_PROTOCOLS,
    SSL_ENGINE_FACTORY_CLASS,
    SSL_KEY_PASSWORD,
    SSL_KEYSTORE_CERTIFICATE_CHAIN,
    SSL_KEYSTORE_KEY,
    SSL_KEYSTORE_LOCATION,
    SSL_KEYSTORE_PASSWORD,
    SSL_KEYSTORE_TYPE,
    SSL_PROTOCOL,
    SSL_PROVIDER,
    SSL_TRUSTSTORE_CERTIFICATES,
    SSL_TRUSTSTORE_LOCATION,
    SSL_TRUSTSTORE_PASSWORD,
    SSL_TRUSTSTORE_TYPE,
)

if TYPE_CHECKING:
    from ottla.config.schema.key import Key, Reading
    from ottla.config.schema.types import Password

logger = logging.getLogger(__name__)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_PROTOCOLS: Final = ("TLS", *_VERSIONS)
_DISABLED_VERSIONS: Final = ("TLSv1.1", "TLSv1", "SSLv3", "SSLv2Hello")
"""Java knows these names, and has disabled the versions. Configurations of older brokers name them beside the others."""
_TOO_WEAK: Final = ("CA_MD_TOO_WEAK", "CA_KEY_TOO_SMALL", "EE_KEY_TOO_SMALL")
"""OpenSSL's reasons not to use a certificate of a broker which Java would use."""
_SIGNED_BY_SHA_1: Final = (bytes.fromhex("06092a864886f70d010105"), bytes.fromhex("06072a8648ce3d0401"))
"""The identifiers of signatures by SHA-1 with RSA and ECDSA, in DER."""


class TlsConfig:
    """Reads `ssl.*` from `values`. `owner` names the listener or client in log lines, like `listener EXTERNAL`."""

    def __init__(self, values: Reading, owner: str) -> None:
        self._values = values
        self._owner = owner

    def prepare(self, context: ssl.SSLContext) -> None:
        """Set versions and suites. Raises ConfigError, also for keys that name classes of the Java platform."""
        values = self._values
        for key in (SSL_ENGINE_FACTORY_CLASS, SSL_PROVIDER, SECURITY_PROVIDERS):
            if values[key]:
                raise ConfigError(f"{key.name}={values[key]}: classes of the Java platform cannot be loaded; unset it")
        if values[SSL_PROTOCOL] not in _PROTOCOLS:
            raise ConfigError(f"{SSL_PROTOCOL.name}={values[SSL_PROTOCOL]} is not supported; use one of {', '.join(_PROTOCOLS)}")
        context.options |= ssl.OP_NO_RENEGOTIATION
        self._set_versions_and_suites(context)

    @property
    def has_key(self) -> bool:
        """Whether a private key is configured."""
        values = self._values
        inline = (values[SSL_KEYSTORE_KEY], values[SSL_KEYSTORE_CERTIFICATE_CHAIN])
        return values[SSL_KEYSTORE_LOCATION] is not None or any(inline)

    @property
    def has_trust_store(self) -> bool:
        """Whether trusted certificates are configured."""
        return self._values[SSL_TRUSTSTORE_LOCATION] is not None or self._values[SSL_TRUSTSTORE_CERTIFICATES] is not None

    @property
    def key_setting(self) -> str:
        """The setting with the private key and its certificate, as NAME=VALUE."""
        location = self._values[SSL_KEYSTORE_LOCATION]
        return f"{SSL_KEYSTORE_CERTIFICATE_CHAIN.name}=[hidden]" if location is None else f"{SSL_KEYSTORE_LOCATION.name}={location}"

    @property
    def trust_setting(self) -> str:
        """The setting with the trusted certificates, as NAME=VALUE; a phrase if there is none."""
        location = self._values[SSL_TRUSTSTORE_LOCATION]
        if location is not None:
            return f"{SSL_TRUSTSTORE_LOCATION.name}={location}"
        if self.has_trust_store:
            return f"{SSL_TRUSTSTORE_CERTIFICATES.name}=[hidden]"
        return f"the system's certificates, which count since {SSL_TRUSTSTORE_LOCATION.name} is not set"

    def in_pem(self) -> dict[str, str]:
        """Key and trusted certificates as librdkafka's keys. Raises ConfigError."""
        found = {}
        trusted = self._trusted()
        if trusted is not None:
            found["ssl.ca.pem"] = "".join(map(ssl.DER_cert_to_PEM_cert, trusted))
        if self.has_key:
            material, password = self._key_material()
            found["ssl.key.pem"] = material.key_pem
            found["ssl.certificate.pem"] = "".join(map(ssl.DER_cert_to_PEM_cert, material.chain))
            if password is not None:
                found["ssl.key.password"] = password
        return found

    def load_key(self, context: ssl.SSLContext) -> bytes:
        """Load the private key. Returns its certificate in DER. Raises ConfigError."""
        material, password = self._key_material()
        # OpenSSL takes keys from files only. This file is in memory, so the key is never on a disk.
        descriptor = os.memfd_create("tls-key", os.MFD_CLOEXEC)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(material.pem.encode())
            self._load_chain(context, f"/proc/self/fd/{descriptor}", password)
        except (ssl.SSLError, ValueError) as error:
            hint = f"; is {SSL_KEY_PASSWORD.name} right?" if material.is_encrypted else ""
            raise ConfigError(f"{self.key_setting}: the private key cannot be used with its certificate: {error}{hint}") from None
        finally:
            os.close(descriptor)
        if material.alias is not None:
            logger.info("%s: uses the key %s of its key store", self._owner, material.alias)
        return material.chain[0]

    def _load_chain(self, context: ssl.SSLContext, path: str, password: str | None) -> None:
        # Without a password OpenSSL would ask for one at the terminal.
        try:
            context.load_cert_chain(path, password=password or "")
        except ssl.SSLError as error:
            if error.reason not in _TOO_WEAK:
                raise
            logger.warning(
                "%s: a certificate of %s has a signature by SHA-1 or a short key (%s). It is used, but clients may refuse it: replace it",
                self._owner, self.key_setting, error.reason,
            )  # fmt: skip
            _allow_weak_certificates(context)
            context.load_cert_chain(path, password=password or "")

    def load_trust(self, context: ssl.SSLContext, purpose: ssl.Purpose) -> None:
        """Trust the certificates of the trust store; without one those of the system, for `purpose`. Raises ConfigError."""
        # As in Java, every certificate of the trust store is trusted by itself, also one that others have signed.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        trusted = self._trusted()
        if trusted is None:
            if context.verify_mode is not ssl.CERT_NONE:
                context.load_default_certs(purpose)
            return
        try:
            context.load_verify_locations(cadata=b"".join(dict.fromkeys(trusted)))
        except ssl.SSLError as error:
            raise ConfigError(f"{self.trust_setting}: a certificate of the trust store cannot be used: {error}") from None
        asks_clients = purpose is ssl.Purpose.CLIENT_AUTH and context.verify_mode is not ssl.CERT_NONE
        if asks_clients and any(identifier in certificate for certificate in trusted for identifier in _SIGNED_BY_SHA_1):
            # Otherwise OpenSSL does not ask for such certificates, and a Java client sends none.
            logger.warning(
                "%s: a certificate of %s has a signature by SHA-1. Its clients are let in: replace it", self._owner, self.trust_setting
            )
            _allow_weak_certificates(context)

    def _set_versions_and_suites(self, context: ssl.SSLContext) -> None:
        names = self._values[SSL_ENABLED_PROTOCOLS] or tuple(_VERSIONS)
        disabled = [name for name in names if name in _DISABLED_VERSIONS]
        versions = {_VERSIONS[name] for name in names if name in _VERSIONS}
        unknown = [name for name in names if name not in _VERSIONS and name not in _DISABLED_VERSIONS]
        if unknown or not versions:
            raise ConfigError(f"{SSL_ENABLED_PROTOCOLS.name}: {(unknown or disabled)[0]} is not supported; use TLSv1.2 and TLSv1.3")
        if disabled:
            left_out = ", ".join(disabled)
            logger.warning("%s: %s: versions without security are left out: %s", self._owner, SSL_ENABLED_PROTOCOLS.name, left_out)
        if suites := self._values[SSL_CIPHER_SUITES]:
            versions = self._limit_suites(context, suites, versions)
        context.minimum_version, context.maximum_version = min(versions), max(versions)

    def _limit_suites(self, context: ssl.SSLContext, suites: tuple[str, ...], versions: set[ssl.TLSVersion]) -> set[ssl.TLSVersion]:
        """Allow only these suites. Returns the versions for which there are some."""
        newest, older = split(suites)
        names = []
        known = _known_ciphers()
        for suite in older:
            name = openssl_name(suite)
            if name is None or name not in known:
                raise ConfigError(f"{SSL_CIPHER_SUITES.name}: {suite} is not supported by {ssl.OPENSSL_VERSION}")
            names.append(name)
        if names:
            context.set_ciphers(":".join(names))
        usable = {each for each in versions if (newest if each is ssl.TLSVersion.TLSv1_3 else older)}
        if not usable:
            raise ConfigError(f"{SSL_CIPHER_SUITES.name}={','.join(suites)} has no suite for the versions of {SSL_ENABLED_PROTOCOLS.name}")
        if ssl.TLSVersion.TLSv1_3 in usable and len(newest) < len(TLS_1_3_SUITES):
            logger.warning(
                "%s: %s cannot select among the suites of TLS 1.3; all of these are allowed: %s",
                self._owner, SSL_CIPHER_SUITES.name, ", ".join(sorted(TLS_1_3_SUITES)),
            )  # fmt: skip
        return usable

    def _secret(self, key: Key[Password | None]) -> str | None:
        found = self._values[key]
        return None if found is None else found.value

    def _key_material(self) -> tuple[KeyMaterial, str | None]:
        """The key with its certificates, and the password of an encrypted key."""
        values = self._values
        store_type, location = values[SSL_KEYSTORE_TYPE], values[SSL_KEYSTORE_LOCATION]
        key, chain = self._secret(SSL_KEYSTORE_KEY), self._secret(SSL_KEYSTORE_CERTIFICATE_CHAIN)
        store_password, key_password = self._secret(SSL_KEYSTORE_PASSWORD), self._secret(SSL_KEY_PASSWORD)
        check_store_type(SSL_KEYSTORE_TYPE.name, store_type)
        is_pem = store_type.upper() == PEM
        inline = (SSL_KEYSTORE_KEY, SSL_KEYSTORE_CERTIFICATE_CHAIN)
        self._check_sources(inline, SSL_KEYSTORE_LOCATION, SSL_KEYSTORE_TYPE, SSL_KEYSTORE_PASSWORD, is_pem=is_pem)
        if key is not None or chain is not None:
            if key is None or chain is None:
                raise ConfigError(f"{inline[0].name} and {inline[1].name} have to be set together")
            material = key_from_pem(key, chain, SSL_KEYSTORE_KEY.name)
        elif location is None:
            raise ConfigError(f"it has no private key: set {SSL_KEYSTORE_LOCATION.name} or {SSL_KEYSTORE_KEY.name}")
        else:
            where = f"{SSL_KEYSTORE_LOCATION.name}={location}"
            data = read_store(location, where)
            if not is_pem:
                if store_password is None:
                    raise ConfigError(f"{where}: {SSL_KEYSTORE_PASSWORD.name} is not set")
                return key_from_store(data, store_password, key_password, where), None
            text = data.decode("ascii", "replace")
            material = key_from_pem(text, text, where)
        if material.is_encrypted != (key_password is not None):
            state = "encrypted, but" if material.is_encrypted else "not encrypted, yet"
            is_set = "set" if key_password is not None else "not set"
            raise ConfigError(f"{self.key_setting}: the private key is {state} {SSL_KEY_PASSWORD.name} is {is_set}")
        return material, key_password

    def _trusted(self) -> tuple[bytes, ...] | None:
        """The trusted certificates in DER; None without a trust store."""
        values = self._values
        store_type, location = values[SSL_TRUSTSTORE_TYPE], values[SSL_TRUSTSTORE_LOCATION]
        inline = self._secret(SSL_TRUSTSTORE_CERTIFICATES)
        check_store_type(SSL_TRUSTSTORE_TYPE.name, store_type)
        is_pem = store_type.upper() == PEM
        sources = (SSL_TRUSTSTORE_CERTIFICATES,)
        self._check_sources(sources, SSL_TRUSTSTORE_LOCATION, SSL_TRUSTSTORE_TYPE, SSL_TRUSTSTORE_PASSWORD, is_pem=is_pem)
        if inline is not None:
            return certificates_from_pem(inline, SSL_TRUSTSTORE_CERTIFICATES.name)
        if location is None:
            return None
        where = f"{SSL_TRUSTSTORE_LOCATION.name}={location}"
        data = read_store(location, where)
        if is_pem:
            return certificates_from_pem(data.decode("ascii", "replace"), where)
        return certificates_from_store(data, self._secret(SSL_TRUSTSTORE_PASSWORD), where)

    def _check_sources(
        self,
        inline: tuple[Key[Password | None], ...],
        file: Key[str | None],
        kind: Key[str],
        password: Key[Password | None],
        *,
        is_pem: bool,
    ) -> None:
        """Raises ConfigError when the keys of a store contradict each other."""
        values = self._values
        given = [key.name for key in inline if values[key] is not None]
        location = values[file]
        if given and not is_pem:
            raise ConfigError(f"{given[0]} needs {kind.name}=PEM, but it is {values[kind]}")
        if given and location is not None:
            raise ConfigError(f"only one of {given[0]} and {file.name} may be set")
        if self._secret(password) is not None:
            if is_pem:
                raise ConfigError(f"{password.name} cannot be set with {kind.name}=PEM")
            if location is None:
                raise ConfigError(f"{password.name} is set, but {file.name} is not")


def _allow_weak_certificates(context: ssl.SSLContext) -> None:
    """OpenSSL ties certificates and suites to one level of security. The suites stay those of the level that there was."""
    suites = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    context.set_ciphers(":".join((*suites, "@SECLEVEL=0")))


def _known_ciphers() -> set[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    return {cipher["name"] for cipher in context.get_ciphers()}
