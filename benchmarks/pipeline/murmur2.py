"""Where Java's producer puts a record with a key: murmur2 as Spark SQL expressions, so that the executors compute it without Python.

Numbers are bigint, so that nothing overflows, in ANSI mode or not: products are taken modulo 2^32 in halves.
"""

from pyspark.sql import Column
from pyspark.sql import functions as fn

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def partition_of_key(key: Column, partitions: int) -> Column:
    """The partition of a binary key."""
    return (murmur2(key).bitwiseAND(fn.lit(0x7FFFFFFF)) % fn.lit(partitions)).cast("int")


def murmur2(key: Column) -> Column:
    """The unsigned 32-bit hash of a binary column; null for null."""
    digits = fn.hex(key)  # two characters per byte
    length = fn.length(key).cast("bigint")
    words = (length / 4).cast("bigint")
    h = fn.lit(_SEED).bitwiseXOR(length)
    # sequence(1, 0) would count down; filter() leaves nothing of it.
    at = fn.filter(fn.sequence(fn.lit(1).cast("bigint"), fn.greatest(words, fn.lit(1))), lambda i: i <= words)
    h = fn.aggregate(at, h, lambda h, i: _mixed(h, _number(digits, (i - 1) * 8, 4)))
    rest = length % 4
    tail = _number(digits, words * 8, 3, present=rest)
    h = fn.when(rest > 0, _times_m(h.bitwiseXOR(tail))).otherwise(h)
    h = _times_m(h.bitwiseXOR(fn.shiftright(h, 13)))
    return h.bitwiseXOR(fn.shiftright(h, 15))


def _mixed(h: Column, k: Column) -> Column:
    k = _times_m(k)
    k = _times_m(k.bitwiseXOR(fn.shiftright(k, 24)))
    return _times_m(h).bitwiseXOR(k)


def _times_m(a: Column) -> Column:
    low = a * fn.lit(_M & 0xFFFF)
    high = fn.shiftleft((a * fn.lit(_M >> 16)).bitwiseAND(fn.lit(0xFFFF)), 16)
    return (low + high).bitwiseAND(fn.lit(_MASK))


def _number(digits: Column, first: Column, size: int, present: Column | None = None) -> Column:
    """The little-endian number of up to `size` bytes from character `first` (counted from 0) on."""
    total = fn.lit(0).cast("bigint")
    for i in range(size):
        pair = fn.substr(digits, (first + (2 * i + 1)).cast("int"), fn.lit(2))
        byte = fn.conv(pair, 16, 10).cast("bigint")
        byte = byte if present is None else fn.when(present > i, byte).otherwise(fn.lit(0).cast("bigint"))
        total = total + fn.shiftleft(byte, 8 * i)
    return total
