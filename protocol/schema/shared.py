"""Keeps the encoding of an element that several messages contain, such as a topic in the requests to all brokers.

The first encoder that reaches the element begins the encoding. Encoders of several messages run in turns, and others may
reach the element before its encoding is complete. They then continue the same encoding, so no step is done twice. The
encoding of an element without arrays of structures is plain bytes, made in one step. The generated encoders in steps are the only users.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.protocol.schema.wire import InvalidValue


class SharedEncoding:
    """The encoding of one element: `encoded` once it is complete, None before."""

    __slots__ = ("_steps", "encoded")

    def __init__(self, steps: Generator[None, None, list[bytes | memoryview]]) -> None:
        """`steps` encode the element, and return its bytes in parts."""
        self.encoded: bytes | None = None
        self._steps: Generator[None, None, list[bytes | memoryview]] | None = steps

    def advance(self) -> bool:
        """Do the next step. Returns whether more are left.

        Raises InvalidValue and UnsupportedField, as the encoder of the whole message does. Later calls raise InvalidValue.
        """
        if self._steps is None:
            raise InvalidValue("an element that several messages contain cannot be encoded")
        steps, self._steps = self._steps, None
        try:
            next(steps)
        except StopIteration as end:
            self.encoded = b"".join(end.value)
            return False
        self._steps = steps
        return True
