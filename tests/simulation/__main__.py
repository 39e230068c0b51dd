"""`python -m tests.simulation`: tell stories, and print the seed of one that ends badly."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from random import SystemRandom

from tests.simulation.cluster import silence
from tests.simulation.shares.story import SharesTold, ShareStory
from tests.simulation.story import Story, Told
from tests.simulation.tiered_story import TieredStory


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 when a story ended badly."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="the story to tell; with --minutes, the first one")
    parser.add_argument("--minutes", type=float, default=0.0, help="go on with the next seeds for so long")
    parser.add_argument("--stories", type=int, default=1, help="how many to tell at least, each with the next seed")
    parser.add_argument("--log", action="store_true", help="what the brokers log, too")
    parser.add_argument("--seconds", type=float, default=30.0, help="virtual seconds of misfortune in each")
    parser.add_argument("--shares", action="store_true", help="stories of share groups")
    parser.add_argument("--tiered", action="store_true", help="stories of a cluster with tiered storage")
    asked = parser.parse_args(arguments)
    kind: type[Story | TieredStory | ShareStory] = ShareStory if asked.shares else TieredStory if asked.tiered else Story
    if asked.log:
        logging.basicConfig(level=logging.DEBUG, format="            %(name)s: %(message)s", stream=sys.stdout)
    else:
        silence()
    seed = SystemRandom().getrandbits(31) if asked.seed is None else asked.seed
    end = time.monotonic() + asked.minutes * 60
    several = bool(asked.minutes) or asked.stories > 1
    told: Told | SharesTold = SharesTold() if asked.shares else Told()
    stories = 0
    while True:
        story = kind(seed, asked.seconds, say=(lambda line: None) if several else print)
        try:
            told.add(story.tell())
        except BaseException as error:
            print(f"the story of seed {seed} ends badly: {type(error).__name__}: {error}")
            option = "--shares " if asked.shares else "--tiered " if asked.tiered else ""
            print(f"tell it again: python -m tests.simulation {option}--seed {seed} --seconds {asked.seconds:g}")
            if not several:
                raise
            print(summary(told, stories, time.process_time()))
            return 1
        stories += 1
        seed += 1
        if stories >= asked.stories and time.monotonic() >= end:
            break
    if not several:
        print(f"the digest of all frames is {story.digest:08x}")
    print(f"{summary(told, stories, time.process_time())}; all is well")
    return 0


def summary(told: Told | SharesTold, stories: int, seconds: float) -> str:
    """What was told in so many seconds of the processor."""
    failovers = told.failovers.total()
    return (
        f"{stories} stories, {told.virtual_seconds:,.0f} virtual seconds in {seconds:,.0f} of the processor: "
        f"{told.faults.total():,} misfortunes ({kinds(told.faults)}), "
        f"{failovers:,} failovers ({kinds(told.failovers)}), {failovers * 60 / seconds:,.0f} a minute, "
        f"{told.elections:,} elections, {of_shares(told) if isinstance(told, SharesTold) else of_records(told)}"
    )


def of_records(told: Told) -> str:
    """The counts of stories of producers, consumers and groups."""
    return (
        f"{told.controllers:,} controllers, {told.orders:,} orders, {told.rebalances:,} rebalances, "
        f"{told.given:,} partitions given by the new protocol, "
        f"{told.commits:,} transactions committed, {told.aborts:,} aborted, "
        f"{told.copied:,} segments copied, {told.removed:,} copies removed, "
        f"{told.acknowledged:,} records acknowledged, {told.seen:,} seen, {told.checks:,} checks"
    )


def of_shares(told: SharesTold) -> str:
    """The counts of stories of share groups."""
    return (
        f"{told.births:,} topics made anew, {told.terms:,} terms of leaders, "
        f"{told.records:,} records delivered {told.acquired:,} times, {told.completed:,} acknowledgements stored"
    )


def kinds(counted: Counter[str]) -> str:
    """The commonest first."""
    return ", ".join(f"{count} {kind}" for kind, count in counted.most_common())


if __name__ == "__main__":
    sys.exit(main())
