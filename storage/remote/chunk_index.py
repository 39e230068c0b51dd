"""Maps positions in a segment to positions in its object, whose chunks are transformed one by one (compressed, encrypted).

The chunks of the object follow one another. A fixed index has one size for all of them but the last; a variable one has a size for each,
which the manifest holds as base64 of a zstd frame around the binary form of `encode_sizes`.
"""

from __future__ import annotations

import base64
import binascii
import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

MAX_CHUNKS: Final = 1 << 20
"""Chunks of a segment that a manifest may name: those of 2 GiB in chunks of 2 KiB."""

_INT: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">iiB")
_WIDTHS: Final = range(1, 5)


class MalformedChunks(ValueError):
    """The chunk index of a manifest contradicts itself."""


class ChunkRange(NamedTuple):
    """Consecutive chunks: their bytes [start, end) in the object, the size of each there, and the position of the first in the segment."""

    start: int
    end: int
    sizes: Sequence[int]
    original_start: int


class ChunkIndex:
    """The chunks of one segment. Immutable."""

    __slots__ = ("_ends", "is_fixed", "original_chunk_size", "original_size", "sizes")

    def __init__(self, original_chunk_size: int, original_size: int, sizes: Sequence[int], *, is_fixed: bool) -> None:
        """`sizes` are those of the transformed chunks. Raises MalformedChunks unless there are as many as the segment has chunks."""
        if original_chunk_size <= 0 or original_size < 0:
            raise MalformedChunks(f"chunks of {original_chunk_size} bytes in a segment of {original_size}")
        if len(sizes) != max(1, -(-original_size // original_chunk_size)) or min(sizes) < 0:
            raise MalformedChunks(f"{len(sizes)} chunks of {original_chunk_size} bytes for a segment of {original_size}")
        self.original_chunk_size = original_chunk_size
        self.original_size = original_size
        self.sizes = sizes
        self.is_fixed = is_fixed
        self._ends = list(accumulate(sizes))

    @property
    def transformed_size(self) -> int:
        """Bytes of the object."""
        return self._ends[-1]

    def covering(self, start: int, end: int) -> ChunkRange:
        """Returns the chunks that hold the bytes [start, end) of the segment, which are not empty and within its size."""
        first = start // self.original_chunk_size
        last = (end - 1) // self.original_chunk_size
        begin = self._ends[first - 1] if first else 0
        return ChunkRange(begin, self._ends[last], self.sizes[first : last + 1], first * self.original_chunk_size)

    def original_position(self, transformed: int) -> int:
        """Returns the position in the segment of the chunk that holds the byte `transformed` of the object."""
        return bisect_right(self._ends, transformed) * self.original_chunk_size

    def fields(self) -> dict[str, object]:
        """Returns the object `chunkIndex` of a manifest."""
        fields: dict[str, object] = {
            "type": "fixed" if self.is_fixed else "variable",
            "originalChunkSize": self.original_chunk_size,
            "originalFileSize": self.original_size,
        }
        if self.is_fixed:
            growth = self.sizes[-1] - (self.original_size - (len(self.sizes) - 1) * self.original_chunk_size)
            fields["transformedChunkSize"] = self.original_chunk_size + growth
            fields["finalTransformedChunkSize"] = self.sizes[-1]
        else:
            fields["transformedChunks"] = base64.b64encode(_compressed(encode_sizes(self.sizes))).decode("ascii")
        return fields


def fixed_index(original_chunk_size: int, original_size: int, transformed: int | None = None, last: int | None = None) -> ChunkIndex:
    """Makes the index of chunks of one size; by default nothing transforms them. Raises MalformedChunks."""
    if original_chunk_size <= 0 or not 0 <= original_size <= original_chunk_size * MAX_CHUNKS:
        raise MalformedChunks(f"chunks of {original_chunk_size} bytes in a segment of {original_size}")
    count = max(1, -(-original_size // original_chunk_size))
    sizes = [original_chunk_size if transformed is None else transformed] * count
    sizes[-1] = original_size - (count - 1) * original_chunk_size if last is None else last
    return ChunkIndex(original_chunk_size, original_size, sizes, is_fixed=True)


def chunk_index(fields: Mapping[str, object]) -> ChunkIndex:
    """Reads the object `chunkIndex` of a manifest. Raises MalformedChunks."""
    chunk_size, size = number(fields, "originalChunkSize"), number(fields, "originalFileSize")
    if fields.get("type") == "fixed":
        return fixed_index(chunk_size, size, number(fields, "transformedChunkSize"), number(fields, "finalTransformedChunkSize"))
    text = fields.get("transformedChunks")
    if fields.get("type") != "variable" or not isinstance(text, str):
        raise MalformedChunks(f"a chunk index of type {fields.get('type')!r}")
    try:
        sizes = decode_sizes(_decompressed(base64.b64decode(text, validate=True)))
    except (binascii.Error, struct.error) as error:
        raise MalformedChunks(f"sizes of chunks: {error}") from None
    return ChunkIndex(chunk_size, size, sizes, is_fixed=False)


def number(fields: Mapping[str, object], name: str) -> int:
    """Returns the integer of that name. Raises MalformedChunks."""
    found = fields.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        raise MalformedChunks(f"{name} is {found!r}")
    return found


def encode_sizes(sizes: Sequence[int]) -> bytes:
    """Encodes the sizes of chunks, one or more: their number, the least without the last, what each exceeds it by, and the last."""
    if len(sizes) == 1:
        return _INT.pack(1) + _INT.pack(sizes[0])
    base = min(sizes[:-1])
    width = max(1, ((max(sizes[:-1]) - base).bit_length() + 7) // 8)
    return b"".join(
        (_HEAD.pack(len(sizes), base, width), *((size - base).to_bytes(width, "big") for size in sizes[:-1]), _INT.pack(sizes[-1]))
    )


def decode_sizes(data: bytes) -> list[int]:
    """Decodes what `encode_sizes` made. Raises MalformedChunks and struct.error."""
    (count,) = _INT.unpack_from(data, 0)
    if count == 1:
        return [_INT.unpack_from(data, 4)[0]]
    count, base, width = _HEAD.unpack_from(data, 0)
    if not 1 < count <= MAX_CHUNKS or width not in _WIDTHS or len(data) != _HEAD.size + (count - 1) * width + _INT.size:
        raise MalformedChunks(f"{count} chunks of width {width} in {len(data)} bytes")
    at = _HEAD.size
    sizes = [base + int.from_bytes(data[p : p + width], "big") for p in range(at, at + (count - 1) * width, width)]
    sizes.append(_INT.unpack_from(data, len(data) - _INT.size)[0])
    return sizes


def _compressed(data: bytes) -> bytes:
    import zstandard  # most brokers do not need it

    return zstandard.ZstdCompressor().compress(data)


def _decompressed(data: bytes) -> bytes:
    import zstandard

    try:
        parts = zstandard.ZstdDecompressor().decompressobj()
        out = bytearray()
        for at in range(0, len(data), 1024):
            out += parts.decompress(data[at : at + 1024])
            if len(out) > MAX_CHUNKS * 4 + _HEAD.size + _INT.size:
                raise MalformedChunks(f"more than {MAX_CHUNKS} chunks")
        return bytes(out)
    except zstandard.ZstdError as error:
        raise MalformedChunks(f"sizes of chunks: {error}") from None
