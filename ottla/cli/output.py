"""Prints the output of commands: tables for people, lines for pipes, JSON for machines, progress bars on standard
error.

`rich` is imported only to draw on a terminal, because its import takes longer than the rest of a command's start.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

Row = Sequence[object]
Advance = Callable[..., None]
"""Called with the amount done, once it is known with the total, and perhaps with another title."""

_NOTHING = "-"
_GAP = 3
"""Characters between two drawn columns, and at their sides."""
_REDRAW_SECONDS = 0.1
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def print_table(columns: Sequence[str], rows: Sequence[Row], *, title: str = "", empty: str = "") -> None:
    """Prints a drawn table on a terminal, otherwise aligned columns with a heading line; empty cells are `-`, so that
    columns can be counted.

    A table that is wider than the terminal becomes a block of lines for each row: names and ids are never broken. Of a table without rows
    the remark `empty` says what it would have.
    """
    if empty and not rows:
        say(empty)
    texts = [[cell_text(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        title, texts = printable(title), [[printable(text) for text in row] for row in texts]
    columns = [column.upper() for column in columns]
    widths = [max(len(column), *(len(row[at]) for row in texts)) if texts else len(column) for at, column in enumerate(columns)]
    if sys.stdout.isatty():
        import shutil  # takes longer than other imports of a command

        if sum(widths) + _GAP * len(widths) <= shutil.get_terminal_size().columns:
            _draw_table(columns, texts, rows, title)
        else:
            _print_blocks(columns, texts, title)
        return
    if title:
        print(title)
    for line in (columns, *texts):
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _print_blocks(columns: Sequence[str], texts: list[list[str]], title: str) -> None:
    """A line for each cell that is not empty, and a blank line before each row."""
    if title:
        print(title)
    width = max(map(len, columns))
    for row in texts:
        print()
        for column, text in zip(columns, row, strict=True):
            if text != _NOTHING:
                print(f"  {column.ljust(width)}  {text}")


def cell_text(cell: object) -> str:
    """The text of a value in a cell: lists comma-separated, booleans as `true` and `false`, nothing as `-`."""
    if cell is None or cell in ("", []):
        return _NOTHING
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, list | tuple):
        return ",".join(str(part) for part in cell)
    return str(cell)


def _draw_table(columns: Sequence[str], texts: list[list[str]], rows: Sequence[Row], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title) or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for at, column in enumerate(columns):
        numbers = bool(rows) and all(row[at] is None or type(row[at]) is int for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in texts:
        table.add_row(*(escape(text) for text in row))
    Console().print(table)


def printable(text: str) -> str:
    """The text with control characters, and marks that change its direction, as numbers: no name moves the cursor of a terminal."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def printable_bytes(data: bytes) -> bytes:
    """Text of a record as `printable`, but with its lines and tabs; bytes that are no text as `\\xHH`."""
    text = data.decode(errors="backslashreplace")
    return _UNPRINTABLE.sub(lambda found: found[0] if found[0] in "\n\t" else f"\\u{ord(found[0]):04x}", text).encode()


def counted(number: int, thing: str) -> str:
    """`1 broker`, `2 brokers`: a number with the plural that it needs; for nouns that take an s."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def for_stream(text: str, stream: TextIO) -> str:
    """The lines of a text as they are for a pipe, as `printable` for a terminal."""
    return "\n".join(map(printable, text.split("\n"))) if stream.isatty() else text


def print_json(value: object) -> None:
    """Prints one JSON document."""
    import json

    is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    print(for_stream(json.dumps(value, ensure_ascii=not is_unicode, indent=2), sys.stdout))


def say(text: str) -> None:
    """Prints a remark to standard error, beside the output."""
    print(for_stream(text, sys.stderr), file=sys.stderr)


def _draw_nothing(done: int, total: int | None = None, title: str | None = None) -> None:
    """The progress callback without a terminal."""


@contextmanager
def progress_bar(title: str, total: int | None, *, unit: str = "bytes", quiet: bool = False) -> Iterator[Advance]:
    """Gives a function to call with the progress. Nothing is drawn unless standard error is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield _draw_nothing
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        drawn_at = 0.0

        def advance(done: int, total: int | None = None, title: str | None = None) -> None:
            nonlocal drawn_at
            now = time.monotonic()
            if title is not None or now - drawn_at > _REDRAW_SECONDS:
                drawn_at = now
                bar.update(task, completed=done, total=total, description=title and escape(printable(title)))

        yield advance
