"""Names the sender of requests. Every connection has a principal; without authentication all principals are ANONYMOUS.

Apache Kafka writes a principal as `Type:name`; ACLs and logs show that text.
"""

import re
from typing import Final

from ottla.protocol.schema.wire import MAX_STRING_BYTES

USER_TYPE = "User"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class UnusablePrincipal(Exception):
    """No principal may have this name. The text does not repeat the name."""


class Principal:
    """Kafka's KafkaPrincipal: a type and a name. Immutable by agreement; compared and hashed by both."""

    __slots__ = ("name", "principal_type", "token_authenticated")

    def __init__(self, principal_type: str, name: str, token_authenticated: bool = False) -> None:
        self.principal_type = principal_type
        self.name = name
        self.token_authenticated = token_authenticated

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"

    def __repr__(self) -> str:
        return f"Principal({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Principal) and self.principal_type == other.principal_type and self.name == other.name

    def __hash__(self) -> int:
        return hash((self.principal_type, self.name))

    @classmethod
    def parse(cls, text: str) -> "Principal":
        """The principal that `Type:name` stands for. Raises ValueError when one of the two is missing."""
        principal_type, colon, name = text.partition(":")
        if not colon or not principal_type or not name:
            raise ValueError(f"expected a string in format principalType:principalName but got {text}")
        return cls(principal_type, name)

    def check(self) -> None:
        """Raises UnusablePrincipal for a principal that ACLs, answers, znodes or logs cannot show as it is.

        Every principal is checked when its client logs in, and before the metadata store gets it.
        """
        text = str(self)
        if _CONTROL.search(text):
            raise UnusablePrincipal("the name of the principal has control characters")
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise UnusablePrincipal("the name of the principal has half of a surrogate pair, which is no character") from None
        if size > MAX_STRING_BYTES:
            raise UnusablePrincipal(f"the principal has {size} bytes; strings of the protocol have at most {MAX_STRING_BYTES}")


ANONYMOUS = Principal(USER_TYPE, "ANONYMOUS")
