"""`python -m tests.simulation`: tell stories, and print the seed of one that ends badly."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence
from random import SystemRandom

from tests.simulation.cluster import silence
from tests.simulation.story import Story


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 when a story ended badly."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="the story to tell; with --minutes, the first one")
    parser.add_argument("--minutes", type=float, default=0.0, help="go on with the next seeds for so long")
    parser.add_argument("--stories", type=int, default=1, help="how many to tell at least, each with the next seed")
    parser.add_argument("--log", action="store_true", help="what the brokers log, too")
    parser.add_argument("--seconds", type=float, default=30.0, help="virtual seconds of misfortune in each")
    asked = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is part of the story.
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    if asked.log:
        logging.basicConfig(level=logging.DEBUG, format="            %(name)s: %(message)s", stream=sys.stdout)
    else:
        silence()
    seed = SystemRandom().getrandbits(31) if asked.seed is None else asked.seed
    end = time.monotonic() + asked.minutes * 60
    several = bool(asked.minutes) or asked.stories > 1
    stories = faults = orders = elections = rebalances = acknowledged = 0
    virtual_seconds = 0.0
    while True:
        story = Story(seed, asked.seconds, say=(lambda line: None) if several else print)
        try:
            told = story.tell()
        except BaseException as error:
            print(f"the story of seed {seed} ends badly: {type(error).__name__}: {error}")
            print(f"tell it again: python -m tests.simulation --seed {seed} --seconds {asked.seconds:g}")
            if not several:
                raise
            return 1
        stories += 1
        faults += told.faults
        orders += told.orders
        elections += told.elections
        rebalances += told.rebalances
        acknowledged += told.acknowledged
        virtual_seconds += told.virtual_seconds
        seed += 1
        if stories >= asked.stories and time.monotonic() >= end:
            break
    went_wrong = f"{faults} faults, {orders} orders, {elections} elections, {rebalances} rebalances, {acknowledged} records"
    print(f"{stories} stories, {virtual_seconds:,.0f} virtual seconds: {went_wrong}; all is well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
