"""What options take: several names, comma-separated (kinds of brokers, parts, loads), or a folder."""

import argparse
from collections.abc import Callable, Container
from pathlib import Path


def several(what: str, known: Container[str]) -> Callable[[str], list[str]]:
    """The `type` of an argument. A name that is not known is told as `no such <what>`."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        unknown = [each for each in chosen if each not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"no such {what}: {', '.join(unknown)}")
        return chosen

    return parse


def folder(text: str) -> str:
    """The `type` of an argument: a folder that is there."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder")
    return text
