"""`python -m tests.soak [--minutes M] [--seed N] [--rounds R] [--only logs|brokers]`: random work until the time is over.

Rounds of logs in memory and of broker processes take turns; each has its own seed, one more than the one before. The first that goes
wrong ends it with exit status 1 and the command that does it again.
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

LOGS_PER_BROKER = 20


def run_round(kind: str, seed: int) -> Counter[str]:
    """One round. Raises whatever goes wrong."""
    if kind == "logs":
        return LogsRound(seed).run()
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        return BrokerRound(seed, Path(directory)).run()


def main(arguments: list[str]) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rounds", type=int, default=None, help="that many, however long it takes")
    parser.add_argument("--only", choices=["logs", "brokers"], default=None)
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    end = time.monotonic() + options.minutes * 60
    counts: Counter[str] = Counter()
    seed = options.seed
    done = 0
    while done < options.rounds if options.rounds is not None else time.monotonic() < end:
        kind = options.only or ("brokers" if done % (LOGS_PER_BROKER + 1) == 0 else "logs")
        try:
            found = run_round(kind, seed)
        except Exception:
            traceback.print_exc()
            print(f"failed; again with: python -m tests.soak --only {kind} --seed {seed} --rounds 1", flush=True)
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
