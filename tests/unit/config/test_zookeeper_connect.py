"""How zookeeper.connect is read: as ZooKeeper's Java client does, with one line for what it would not take."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.zookeeper_connect import parse_zookeeper_connect


@pytest.mark.parametrize(
    ("text", "servers", "path"),
    [
        ("a:2181", "a:2181", ""),
        ("a", "a", ""),
        ("a:1, b:2 ,,c:3,/x/y", "a:1,b:2,c:3", "/x/y"),
        ("[::1]:2181/x", "[::1]:2181", "/x"),
        ("a:1/", "a:1", ""),
        (":2181", "127.0.0.1:2181", ""),
        (":/x", "127.0.0.1", "/x"),
        ("a:,[::1]", "a,[::1]", ""),
    ],
)
def test_servers_and_path_are_told_apart(text: str, servers: str, path: str) -> None:
    assert parse_zookeeper_connect(text) == (servers, path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "/x",
        "a:b",
        "a:-1",
        "[]:1",
        "[::1]:",
        "a:0",
        "a:65536",
        f"a:{'9' * 5000}",
        "a..b:1",
        f"{'a' * 64}:1",
        "a b",
        "a:1:2",
        "a:1/x/",
        "a:1//",
        "a:1//x",
        "a:1/x/../y",
        "a:1/./x",
    ],
)
def test_what_names_no_server_or_no_path_is_refused_before_anything_is_touched(text: str) -> None:
    with pytest.raises(ConfigError, match=r"Invalid value .* for configuration zookeeper\.connect: "):
        BrokerConfig({"zookeeper.connect": text})
