"""`python -m tests.soak [--minutes M] [--seed N] [--rounds R] [--only logs|brokers|slow-disk]`: random work until the time is over.

Rounds of logs in memory, of broker processes and of brokers on slow disks take turns; each has its own seed, one more than the one before.
The first that goes wrong ends it with exit status 1 and the command that does it again; what slow brokers left stays in `--keep`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.soak.brokers import BrokerRound
from tests.soak.logs import LogsRound
from tests.soak.slow_disk import BROKERS, SECONDS, STORES, SlowDiskRound

KINDS = ("slow-disk", "brokers", *["logs"] * 20)
"""In turns."""


def run_round(kind: str, seed: int, options: argparse.Namespace) -> Counter[str]:
    """One round. Raises whatever goes wrong."""
    if kind == "logs":
        return LogsRound(seed).run()
    if kind == "slow-disk" and options.keep is not None:
        return slow_round(seed, options.keep / str(seed), options)
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        return slow_round(seed, Path(directory), options) if kind == "slow-disk" else BrokerRound(seed, Path(directory)).run()


def slow_round(seed: int, directory: Path, options: argparse.Namespace) -> Counter[str]:
    """As the seed says, but for what the command line says."""
    return SlowDiskRound(seed, directory, options.brokers, options.store, options.seconds).run()


def again(kind: str, seed: int, options: argparse.Namespace) -> str:
    """The command that does it again."""
    chosen = {"--brokers": options.brokers, "--store": options.store} if kind == "slow-disk" else {}
    if kind == "slow-disk" and options.seconds != SECONDS:
        chosen["--seconds"] = options.seconds
    more = "".join(f" {name} {value}" for name, value in chosen.items() if value is not None)
    return f"python -m tests.soak --only {kind} --seed {seed} --rounds 1{more}"


def main(arguments: list[str]) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rounds", type=int, default=None, help="that many, however long it takes")
    parser.add_argument("--only", choices=sorted(set(KINDS)), default=None)
    parser.add_argument("--brokers", type=int, choices=BROKERS, default=None, help="on slow disks; else as the seed says")
    parser.add_argument("--store", choices=STORES, default=None, help="of brokers on slow disks; else as the seed says")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of work on each slow disk")
    parser.add_argument("--keep", type=Path, default=None, help="a directory for logs and data of brokers on slow disks")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    end = time.monotonic() + options.minutes * 60
    counts: Counter[str] = Counter()
    seed = options.seed
    done = 0
    while done < options.rounds if options.rounds is not None else time.monotonic() < end:
        kind = options.only or KINDS[done % len(KINDS)]
        try:
            found = run_round(kind, seed, options)
        except Exception:
            traceback.print_exc()
            print(f"failed; again with: {again(kind, seed, options)}", flush=True)
            return 1
        counts.update({f"{kind}: {name}": count for name, count in found.items()})
        counts[f"{kind}: rounds"] += 1
        seed += 1
        done += 1
    for name in sorted(counts):
        print(f"{counts[name]:>10} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
