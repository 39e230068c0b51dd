"""Makes the TLS context of a client, from the same keys and stores as that of a listener."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from ottla.broker.security.tls.context import TlsConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.tls import SSL_ENDPOINT_IDENTIFICATION_ALGORITHM

if TYPE_CHECKING:
    from ottla.config.schema.key import Reading

HTTPS: Final = "https"


def connecting_context(values: Reading, owner: str) -> ssl.SSLContext:
    """The context. `owner` names the client in log lines. Raises ConfigError.

    The server's certificate is always checked. `ssl.endpoint.identification.algorithm` decides whether its name is compared, too.
    """
    algorithm = values[SSL_ENDPOINT_IDENTIFICATION_ALGORITHM] or ""
    if algorithm.lower() not in {"", HTTPS}:
        raise ConfigError(f"{SSL_ENDPOINT_IDENTIFICATION_ALGORITHM.name}={algorithm} is not supported; use https, or nothing")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = algorithm.lower() == HTTPS
    config = TlsConfig(values, owner)
    config.prepare(context)
    if config.has_key:
        config.load_key(context)
    config.load_trust(context, ssl.Purpose.SERVER_AUTH)
    return context
