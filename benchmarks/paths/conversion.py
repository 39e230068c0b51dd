"""Measures conversions between message formats: `python -m benchmarks.paths.conversion`.

Prints processor µs for a batch of each shape: from format 2 to messages of format 1, as for a Fetch of an old consumer, and from these
messages to format 2, as for a Produce of an old client. The floor is the checksum of each message by zlib. With OTTLA_OTHER, which names
another checkout with its own `.venv`, children of both run in turns; the ratios are medians of the pairs.
"""

import json
import os
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.brokers.kinds import OTHER_CHECKOUT
from benchmarks.loads.batches import values_like_text
from ottla.protocol.conversion.down_converter import DownConverter
from ottla.protocol.conversion.message_sets import down_convert, up_convert
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import CODEC_BY_NAME
from ottla.protocol.records.reader import Record
from ottla.storage.disk.yielding import no_yield
from tests.support.old_messages import Old, messages, wrapped

_SHAPES = {
    "150 records of 100 B": (150, 100, "none"),
    "1 record of 100 B": (1, 100, "none"),
    "1000 records of 1000 B": (1000, 1000, "none"),
    "150 records of 100 B, lz4": (150, 100, "lz4"),
    "150 records of 100 B, gzip": (150, 100, "gzip"),
}
_FIRST_TIMESTAMP = 1_700_000_000_000
_MAGIC = 1
_ROUNDS = 7
_ROUND_S = 0.02
_PAIRS = 7
_ONCE = "--once"
_COLUMNS = ("down", "up", "floor")


def processor_us(work: Callable[[], object]) -> float:
    """Processor µs of a call: the minimum of several rounds."""
    number = 1
    taken: list[float] = []
    while len(taken) < _ROUNDS:
        began = time.process_time()
        for _ in range(number):
            work()
        seconds = time.process_time() - began
        if seconds >= _ROUND_S:
            taken.append(seconds / number * 1e6)
        else:
            number *= 2
    return min(taken)


def measure() -> dict[str, float]:
    """µs of each work, by shape and column."""
    found = {}
    for title, (count, size, codec) in _SHAPES.items():
        values = values_like_text(count, size)
        batch = build_batch([Record(at, _FIRST_TIMESTAMP + at, None, value) for at, value in enumerate(values)], CODEC_BY_NAME[codec])
        olds = [Old(at, _FIRST_TIMESTAMP + at, None, value) for at, value in enumerate(values)]
        sent = bytearray(messages(_MAGIC, olds) if codec == "none" else wrapped(_MAGIC, CODEC_BY_NAME[codec], olds))
        works = (partial(down, memoryview(batch)), partial(up, memoryview(sent)), partial(floor, messages(_MAGIC, olds), count))
        for column, work in zip(_COLUMNS, works, strict=True):
            found[f"{title}|{column}"] = processor_us(work)
    return found


# For 150 records of 100 B it showed 51.9 µs down and 49.0 up when `zlib.crc32` was called for each message, and 13.3 and 19.6 without.


def down(batch: memoryview) -> None:
    converter = DownConverter(_MAGIC, 2 * len(batch))
    down_convert(converter, batch, 0, len(batch), 0, no_yield)


def up(sent: memoryview) -> None:
    up_convert(sent, 0, len(sent), no_yield)


def floor(plain: bytes, count: int) -> None:
    view = memoryview(plain)
    size = len(plain) // count
    for at in range(0, size * count, size):
        zlib.crc32(view[at + 16 : at + size])


def of_child(checkout: Path) -> dict[str, float]:
    """Run the benchmark of a checkout once; the results are those of `measure`."""
    command = [str(checkout / ".venv" / "bin" / "python"), "-m", "benchmarks.paths.conversion", _ONCE]
    found: dict[str, float] = json.loads(subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True).stdout)
    return found


def compare(other: Path) -> None:
    """Print the medians of both checkouts, and of the ratios of the pairs."""
    here = Path(__file__).parents[2]
    pairs = []
    for number in range(_PAIRS):
        order = (other, here) if number % 2 == 0 else (here, other)
        by_side = {side: of_child(side) for side in order}
        pairs.append((by_side[other], by_side[here]))
    print(f"{'µs per batch':<32}{'':>7}{'other':>10}{'this':>10}{'times better':>14}")
    for key in pairs[0][1]:
        title, column = key.split("|")
        theirs, ours = (statistics.median(pair[side][key] for pair in pairs) for side in (0, 1))
        ratio = statistics.median(pair[0][key] / pair[1][key] for pair in pairs)
        print(f"{title:<32}{column:>7}{theirs:>10.1f}{ours:>10.1f}{ratio:>14.2f}")


def main() -> int:
    if OTHER_CHECKOUT in os.environ and _ONCE not in sys.argv:
        compare(Path(os.environ[OTHER_CHECKOUT]))
        return 0
    found = measure()
    if _ONCE in sys.argv:
        print(json.dumps(found))
        return 0
    print(f"{'µs per batch':<32}" + "".join(f"{column:>10}" for column in _COLUMNS))
    for title in _SHAPES:
        print(f"{title:<32}" + "".join(f"{found[f'{title}|{column}']:>10.1f}" for column in _COLUMNS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
