"""Creates the exchanges of the mechanisms that are configured for a listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from ottla.broker.security.sasl.bearer_tokens import Token, validate_unsecured
from ottla.broker.security.sasl.mechanism import SaslServer
from ottla.broker.security.sasl.oauthbearer import OAuthBearerServer
from ottla.broker.security.sasl.plain import PlainServer
from ottla.broker.security.sasl.scram import ScramCredential, ScramServer, TokenCredential
from ottla.broker.security.sasl.session import Offer, OfferedMechanism
from ottla.config.broker import BrokerConfig
from ottla.config.jaas import PLAIN_MODULE
from ottla.config.sasl import GSSAPI, OAUTHBEARER, PLAIN, Mechanism, SaslListener, SignedTokens, sasl_listener, unsecured_tokens
from ottla.controller.znodes.java_order import properties_order

_NONCE_BYTES: Final = 20


class Credentials(NamedTuple):
    """The data with which mechanisms verify clients."""

    scram_credential_of: Callable[[str, str], ScramCredential | None]
    """Called with mechanism and user."""
    token_credential_of: Callable[[str, str], TokenCredential | None]
    """Called with mechanism and id of a delegation token."""
    signed_token_validator: Callable[[SignedTokens], Callable[[str], Token]]
    """Makes the function that validates signed tokens."""
    random_bytes: Callable[[int], bytes]
    now_ms: Callable[[], int]
    prepare_token: Callable[[str, str], Awaitable[None] | None]
    """Called with mechanism and id of a delegation token: what has to be awaited before `token_credential_of`, if anything."""
    unknown_key: bytes
    """Makes the salts of unknown users: a secret that all brokers of a cluster have."""
    usual_iterations: Callable[[str], int]
    """Called with mechanism: the iterations of most users."""


def offer_of(listener: SaslListener, credentials: Credentials) -> Offer:
    """The offer of a listener. Raises ConfigError for a mechanism that this host cannot offer."""
    mechanisms = {
        name: OfferedMechanism(_beginning(mechanism, credentials), mechanism.max_reauth_ms)
        for name, mechanism in listener.mechanisms.items()
    }
    return Offer(mechanisms, in_order_of_java(mechanisms))


def check_listeners(config: BrokerConfig) -> None:
    """Raises ConfigError if a SASL listener lacks something in the configuration, or on this host: a library, a keytab."""
    for endpoint in config.listeners.listeners:
        if endpoint.security_protocol.uses_sasl:
            listener = sasl_listener(config.current, endpoint.listener_name)
            if GSSAPI in listener.mechanisms:
                _kerberos(listener.mechanisms[GSSAPI])


def in_order_of_java(names: Iterable[str]) -> list[str]:
    """The names in the order in which a Java HashSet lists them: Apache Kafka sends its set of mechanisms as it is."""
    return properties_order(names)  # the same for up to eleven names


def _beginning(mechanism: Mechanism, credentials: Credentials) -> Callable[[], SaslServer]:
    """A function that begins an exchange of the mechanism."""
    if mechanism.name == PLAIN:
        return partial(PlainServer, lambda user: mechanism.option(PLAIN_MODULE, f"user_{user}"))
    if mechanism.name == OAUTHBEARER:
        return partial(OAuthBearerServer, _token_validator(mechanism, credentials))
    if mechanism.name == GSSAPI:
        return _kerberos(mechanism)

    def begin() -> SaslServer:
        credential_of = partial(credentials.scram_credential_of, mechanism.name)
        token_credential_of = partial(credentials.token_credential_of, mechanism.name)
        nonce = credentials.random_bytes(_NONCE_BYTES).hex()
        prepare_token = partial(credentials.prepare_token, mechanism.name)
        iterations = partial(credentials.usual_iterations, mechanism.name)
        return ScramServer(mechanism.name, credential_of, token_credential_of, nonce, credentials.unknown_key, prepare_token, iterations)

    return begin


def _token_validator(mechanism: Mechanism, credentials: Credentials) -> Callable[[str], Token]:
    if mechanism.signed_tokens is not None:
        return credentials.signed_token_validator(mechanism.signed_tokens)
    accepted = unsecured_tokens(mechanism)
    return lambda compact: validate_unsecured(compact, accepted, credentials.now_ms())


def _kerberos(mechanism: Mechanism) -> Callable[[], SaslServer]:
    # Few brokers have the package and the library that it loads.
    from ottla.broker.security.sasl.kerberos_library import accepting

    assert mechanism.kerberos is not None
    return accepting(mechanism.kerberos)
