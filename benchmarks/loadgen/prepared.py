"""Describes requests to the load generator: frames, checks of their answers, and numbers that are written before sending.

`loadgen.c` documents the format of the file.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

TAKEN = -1
"""In place of a counter: the number that the connection has taken from an answer."""

_NO_ANSWER, _SHOWN = 1, 2
_WORD_BITS = 32


@dataclass(frozen=True, slots=True)
class Checksum:
    """A CRC-32C over a patched number: its place, its value for the number 0, and the change for each bit of the number."""

    offset: int
    of_zero: int
    of_bits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Patch:
    """A 32-bit number that is written into a frame each time before the frame is sent.

    The number is TAKEN, or the value of a counter that begins with `first` and advances by `step`. Frames may share a counter.
    """

    offset: int
    counter: int
    first: int = 0
    step: int = 1
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A frame, with the facts that the generator needs. Places in answers are counted from the correlation id.

    `error_offsets` are places of 16-bit error codes. `least_answer_bytes` is the length of the shortest good answer, with its prefix.
    `takes` is the place in its answer of four bytes that the connection's later frames may send; 0 for none. The first answer to a frame
    that `is_shown` is checked by `answers.check`. A frame with patches must be dealt to one connection alone.
    """

    frame: bytes
    error_offsets: tuple[int, ...] = ()
    least_answer_bytes: int = 0
    patches: tuple[Patch, ...] = ()
    takes: int = 0
    is_answered: bool = True
    is_shown: bool = False


def checksum_over(offset: int, of_number: Callable[[int], int]) -> Checksum:
    """The checksum at `offset` of the frame; `of_number` gives its value for a number."""
    of_zero = of_number(0)
    return Checksum(offset, of_zero, tuple(of_number(1 << bit) ^ of_zero for bit in range(_WORD_BITS)))


def dealt(lists: Sequence[Sequence[Prepared]]) -> list[Prepared]:
    """The frames of all connections in the order of dealing, from a list per connection. Short lists repeat; lengths divide the longest."""
    longest = max(len(each) for each in lists)
    if any(longest % len(each) for each in lists):
        raise ValueError("the length of a list of frames does not divide that of the longest")
    return [each[at % len(each)] for at in range(longest) for each in lists]


def write_frames(file: IO[bytes], opening: Sequence[Prepared], frames: Sequence[Prepared]) -> list[Prepared]:
    """Write both sequences as loadgen reads them. Returns the distinct frames in the order of their indices."""
    unique = list({id(each): each for each in (*opening, *frames)}.values())
    indices = {id(each): index for index, each in enumerate(unique)}
    file.write(_words(len(unique)))
    for each in unique:
        file.write(_described(each))
        file.write(each.frame)
    for sequence in (opening, frames):
        file.write(_words(len(sequence), *(indices[id(each)] for each in sequence)))
    return unique


def _described(prepared: Prepared) -> bytes:
    flags = (0 if prepared.is_answered else _NO_ANSWER) | (_SHOWN if prepared.is_shown else 0)
    head = [len(prepared.frame), flags, prepared.least_answer_bytes, prepared.takes]
    checks = [len(prepared.error_offsets), *prepared.error_offsets]
    patches = [word for patch in prepared.patches for word in _patch_words(patch)]
    return _words(*head, *checks, len(prepared.patches), *patches)


def _patch_words(patch: Patch) -> list[int]:
    words = [patch.offset, patch.counter & 0xFFFFFFFF, patch.first, patch.step]
    if patch.checksum is None:
        return [*words, 0]
    return [*words, patch.checksum.offset, patch.checksum.of_zero, *patch.checksum.of_bits]


def _words(*words: int) -> bytes:
    return struct.pack(f">{len(words)}I", *words)
