"""Where Java's producer puts a record with a key: murmur2 as Spark SQL expressions, so that the executors compute it without Python.

Numbers are bigint, because ANSI mode forbids the overflow that the hash lives on; products are taken modulo 2^32 in halves.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def partition_of_key(key: Column, partitions: int) -> Column:
    """The partition of a binary key."""
    return (murmur2(key).bitwiseAND(F.lit(0x7FFFFFFF)) % F.lit(partitions)).cast("int")


def murmur2(key: Column) -> Column:
    """The unsigned 32-bit hash of a binary column; null for null."""
    digits = F.hex(key)  # two characters per byte
    length = F.length(key).cast("bigint")
    words = (length / 4).cast("bigint")
    h = F.lit(_SEED).bitwiseXOR(length)
    # sequence(1, 0) would count down; filter() leaves nothing of it.
    at = F.filter(F.sequence(F.lit(1).cast("bigint"), F.greatest(words, F.lit(1))), lambda i: i <= words)
    h = F.aggregate(at, h, lambda h, i: _mixed(h, _number(digits, (i - 1) * 8, 4)))
    rest = length % 4
    tail = _number(digits, words * 8, 3, present=rest)
    h = F.when(rest > 0, _times_m(h.bitwiseXOR(tail))).otherwise(h)
    h = _times_m(h.bitwiseXOR(F.shiftright(h, 13)))
    return h.bitwiseXOR(F.shiftright(h, 15))


def _mixed(h: Column, k: Column) -> Column:
    k = _times_m(k)
    k = _times_m(k.bitwiseXOR(F.shiftright(k, 24)))
    return _times_m(h).bitwiseXOR(k)


def _times_m(a: Column) -> Column:
    low = a * F.lit(_M & 0xFFFF)
    high = F.shiftleft((a * F.lit(_M >> 16)).bitwiseAND(F.lit(0xFFFF)), 16)
    return (low + high).bitwiseAND(F.lit(_MASK))


def _number(digits: Column, first: Column, size: int, present: Column | None = None) -> Column:
    """The little-endian number of up to `size` bytes from character `first` (counted from 0) on."""
    total = F.lit(0).cast("bigint")
    for i in range(size):
        pair = F.substr(digits, (first + (2 * i + 1)).cast("int"), F.lit(2))
        byte = F.conv(pair, 16, 10).cast("bigint")
        byte = byte if present is None else F.when(present > i, byte).otherwise(F.lit(0).cast("bigint"))
        total = total + F.shiftleft(byte, 8 * i)
    return total
