"""Defines the client's side of a SASL login to ZooKeeper, which `zookeeper_client` runs on each new connection."""

from __future__ import annotations

from typing import Protocol


class LoginFailed(Exception):
    """The login cannot continue: this side has no credential, or does not trust the server."""


class SaslExchange(Protocol):
    """One exchange. The result of `first` is sent, then those of `answer`, until `answer` returns None. Both raise LoginFailed."""

    def first(self) -> bytes:
        """The first token."""

    def answer(self, challenge: bytes) -> bytes | None:
        """The next token; None when the exchange is complete."""
