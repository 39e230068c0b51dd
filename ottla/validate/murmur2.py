"""Computes the partition that Java's producer chooses for a key: murmur2 as Spark SQL expressions, which executors run without Python.

Numbers are bigint. Products wrap around, since session.py turns ANSI mode off; the low 32 bits stay right. Spark computes an expression at
each place where it is written, so an expression that is used twice is bound to a variable.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as fn

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_WORD = 4


def partition_of_key(key: Column, partitions: int) -> Column:
    """The partition of a binary key."""
    return (murmur2(key).bitwiseAND(fn.lit(0x7FFFFFFF)) % fn.lit(partitions)).cast("int")


def murmur2(key: Column) -> Column:
    """The unsigned 32-bit hash of a binary column; null for null."""
    digits, length = fn.hex(key), fn.length(key).cast("bigint")
    words = fn.floor(length / _WORD)
    # sequence(1, 0) would count down, so there is always a first word, which filter() drops when it is not whole.
    at = fn.filter(fn.sequence(fn.lit(1).cast("bigint"), fn.greatest(words, fn.lit(1))), lambda i: i <= words)
    seeded = fn.lit(_SEED).bitwiseXOR(length)
    h = fn.aggregate(at, seeded, lambda h, i: _times_m(h).bitwiseXOR(_word(digits, (i - 1) * 2 * _WORD)))
    tail = fn.conv(_reversed(digits, words * 2 * _WORD, _WORD - 1), 16, 10).cast("bigint")  # beyond the end substr() gives nothing
    h = _let(h, lambda h: fn.when(length % _WORD > 0, _times_m(h.bitwiseXOR(tail))).otherwise(h))
    h = _let(h, lambda h: _times_m(h.bitwiseXOR(fn.shiftright(h, 13))))
    return _let(h, lambda h: h.bitwiseXOR(fn.shiftright(h, 15)))


def _word(digits: Column, first: Column) -> Column:
    """The whole word from character `first` (counted from 0) on, mixed as murmur2 does before it goes into the hash."""
    k = _times_m(fn.conv(_reversed(digits, first, _WORD), 16, 10).cast("bigint"))
    return _let(k, lambda k: _times_m(k.bitwiseXOR(fn.shiftright(k, 24))))


def _reversed(digits: Column, first: Column, size: int) -> Column:
    """The digits of up to `size` bytes, the last byte first, as the number is little-endian."""
    return fn.concat(*(fn.substr(digits, (first + (2 * i + 1)).cast("int"), fn.lit(2)) for i in reversed(range(size))))


def _times_m(a: Column) -> Column:
    return (a * fn.lit(_M)).bitwiseAND(fn.lit(_MASK))


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    return fn.transform(fn.array(value), body)[0]
