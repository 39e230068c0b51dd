"""Changes the file of the profiles. Comments and all other tables stay as they are, and the file is replaced as a whole.

Commands change it one after the other: each holds a lock beside the file from its reading to its writing.

The file is for its owner alone (mode 0600): addresses and names of credentials' files are in it, but no secrets.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ottla.client.errors import ClientError

_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_TABLE: Final = re.compile(r"\s*\[")
_KEY: Final = re.compile(r"""\s*(?:"(?P<quoted>[^"]+)"|'(?P<literal>[^']+)'|(?P<bare>[\w-]+))\s*=""")

Value = str | float | int


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Lets one command at a time read and change the file. Raises ClientError if the lock cannot be made."""
    kept = file.resolve()
    try:
        os.makedirs(kept.parent, _FOLDER_MODE, exist_ok=True)
        descriptor = os.open(kept.with_name(f".{kept.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        raise ClientError(f"{file} cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        os.close(descriptor)


def change(file: Path, name: str, new: Mapping[str, Value] | None) -> None:
    """Give the file a profile with these keys in place of the one of this name; None removes it. The caller has it `locked`.

    Raises ClientError if the file cannot be read or written, or has a form that this function does not understand.
    """
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        before = tomllib.loads(text)
    except OSError as error:
        raise ClientError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ClientError(f"{file} cannot be read: {error}") from None
    old = before.get(name)
    changed = _changed(text, name, old if isinstance(old, dict) else {}, new)
    expected: dict[str, Any] = {key: value for key, value in before.items() if key != name or new is not None}
    if new is not None:
        expected[name] = dict(new)
    try:
        is_as_expected = tomllib.loads(changed) == expected
    except ValueError:
        is_as_expected = False
    if not is_as_expected:
        raise ClientError(f"{file}: the table of {name} has a form that only an editor can change; nothing was written")
    _replace(file, changed)


def _changed(text: str, name: str, old: Mapping[str, Any], new: Mapping[str, Value] | None) -> str:
    lines = text.splitlines(keepends=True)
    begin = next((at for at, line in enumerate(lines) if _is_head(line, name)), None)
    if begin is None:
        gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
        return text + (gap + f"[{name}]\n" + "".join(_line(key, value) for key, value in new.items()) if new is not None else "")
    end = next((at for at in range(begin + 1, len(lines)) if _TABLE.match(lines[at])), len(lines))
    if new is None:
        return "".join((*lines[:begin], *lines[end:]))
    left = dict(new)
    body = []
    for line in lines[begin + 1 : end]:
        found = _KEY.match(line)
        key = found and (found["quoted"] or found["literal"] or found["bare"])
        if not key:
            body.append(line)
        elif key in left:
            value = left.pop(key)
            body.append(line if value == old.get(key) else _line(key, value))
    place = next((at for at in range(len(body), 0, -1) if body[at - 1].strip()), 0)
    if place and not body[place - 1].endswith("\n"):
        body[place - 1] += "\n"
    body[place:place] = [_line(key, value) for key, value in left.items()]
    return "".join((*lines[:begin], lines[begin].rstrip("\n") + "\n", *body, *lines[end:]))


def _is_head(line: str, name: str) -> bool:
    return re.match(rf"""\s*\[\s*(?:"{re.escape(name)}"|'{re.escape(name)}'|{re.escape(name)})\s*\]""", line) is not None


def _line(key: str, value: Value) -> str:
    return f"{key} = {json.dumps(value, ensure_ascii=False)}\n"


def _replace(file: Path, text: str) -> None:
    try:
        kept = file.resolve()  # beside it, as a link may lead to another disk
        new = kept.with_name(f"{kept.name}.new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        with open(descriptor, "w", encoding="utf-8") as opened:
            os.fchmod(descriptor, _MODE)
            opened.write(text)
            opened.flush()
            os.fsync(descriptor)
        os.replace(new, kept)
    except OSError as error:
        raise ClientError(f"{file} cannot be written: {error.strerror}") from None
