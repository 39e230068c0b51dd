"""Makes the security of a client's connections from properties, in the words of Java's clients or of librdkafka's.

from ottla.client import Cluster
from ottla.client_security import client_security

Cluster("broker1:9093", security=client_security({"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}))
"""

from collections.abc import Mapping
from pathlib import Path

from ottla.broker.security.client_security import ConfiguredSecurity
from ottla.config.client_properties import ClientProperties, read_client_properties


def client_security(properties: Mapping[str, str] | Path) -> ConfiguredSecurity:
    """The security by these properties, or by those of a file. Keys of other subjects are left alone.

    Raises `ottla.config.errors.ConfigError`, whose text names the key or the file.
    """
    return ConfiguredSecurity(read_client_properties(properties) if isinstance(properties, Path) else ClientProperties(properties))
