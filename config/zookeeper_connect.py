"""Parses `zookeeper.connect` into servers and the chroot path, as ZooKeeper's Java client does."""

import re

from ottla.config.errors import ConfigValueError
from ottla.config.keys.zookeeper import ZOOKEEPER_CONNECT

_SERVER = re.compile(r"(\[[^\]\s]+\](?!:$)|[^:\[\]\s]*)(?::(\d*))?")
NOT_IN_PATHS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
"""Characters that ZooKeeper allows in no path: control characters, and in Java's terms surrogates, private use and
specials."""
_PORTS = range(1, 65536)
_PORT_DIGITS = 5
_NO_NAME = "127.0.0.1"
"""The host that Java uses for an empty host name."""


def parse_zookeeper_connect(text: str) -> tuple[str, str]:
    """The comma-separated servers, as host or host:port, and the path: `/a/b`, or the empty string. Raises ConfigError."""
    listed, _, path = text.partition("/")
    servers = []
    for server in filter(None, map(str.strip, listed.split(","))):
        found = _SERVER.fullmatch(server)
        if found is None or (found[2] and (len(found[2]) > _PORT_DIGITS or int(found[2]) not in _PORTS)) or not _can_be_name(found[1]):
            raise ConfigValueError(ZOOKEEPER_CONNECT.name, text, f"{server} is not of the form host:port")
        servers.append((found[1] or _NO_NAME) + (f":{found[2]}" if found[2] else ""))
    if not servers:
        raise ConfigValueError(ZOOKEEPER_CONNECT.name, text, "it contains no server; omit the key for a broker without ZooKeeper")
    names = path.split("/")
    if path and not names[-1]:
        raise ConfigValueError(ZOOKEEPER_CONNECT.name, text, f"/{path} must not end with a slash")
    if (path and any(name in {"", ".", ".."} for name in names)) or NOT_IN_PATHS.search(path):
        raise ConfigValueError(ZOOKEEPER_CONNECT.name, text, f"/{path} is not a path in ZooKeeper")
    return ",".join(servers), f"/{path}" if path else ""


def _can_be_name(host: str) -> bool:
    """Whether a resolver can be asked for the name: none of its parts is empty or too long."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True
