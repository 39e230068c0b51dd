"""Options that take several names, comma-separated: which kinds of brokers, parts, loads."""

import argparse
from collections.abc import Callable, Container


def several(what: str, known: Container[str]) -> Callable[[str], list[str]]:
    """The `type` of an argument. A name that is not known is told as `no such <what>`."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        unknown = [each for each in chosen if each not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"no such {what}: {', '.join(unknown)}")
        return chosen

    return parse
