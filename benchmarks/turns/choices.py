"""Reads the values of options: names, comma-separated (kinds of brokers, parts, loads), patterns of names, or a folder."""

import argparse
from collections.abc import Callable, Container, Sequence
from fnmatch import filter as matching
from pathlib import Path


def several(what: str, known: Container[str]) -> Callable[[str], list[str]]:
    """The `type` of an argument. The error for an unknown name is `no such <what>`."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        unknown = [each for each in chosen if each not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"no such {what}: {', '.join(unknown)}")
        return chosen

    return parse


def patterns(what: str, known: Sequence[str]) -> Callable[[str], list[str]]:
    """Like `several`, with shell wildcards: a pattern is replaced by the names that match."""

    def parse(text: str) -> list[str]:
        matches = {each: matching(known, each) for each in text.split(",")}
        unknown = [each for each, found in matches.items() if not found]
        if unknown:
            raise argparse.ArgumentTypeError(f"no such {what}: {', '.join(unknown)}")
        return [name for found in matches.values() for name in found]

    return parse


def folder(text: str) -> str:
    """The `type` of an argument: an existing folder."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder")
    return text
