"""Finds the files of the checkout that a build reads, and tells one state of them from another."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
OTHERS = ("tests/", ".ci/", "pytest-ottla/", "Dockerfile", "Makefile", "CONTRIBUTING.md")
"""What has no part in the package."""


def sources() -> list[Path]:
    """What git knows and what it would take in, relative to the checkout: files and links, without those of other purposes."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(Path(name) for name in names if not name.startswith(OTHERS) and ((ROOT / name).is_file() or (ROOT / name).is_symlink()))


def digest_of(files: Iterable[Path]) -> str:
    """Sixteen digits for names and contents, and for the choice not to compile."""
    found = hashlib.sha256(os.environ.get("OTTLA_PURE_PYTHON", "").encode())
    for file in files:
        path = ROOT / file
        content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        found.update(f"{file}\n{path.lstat().st_mode:o}\n".encode() + content)
    return found.hexdigest()[:16]


def copy_to(folder: Path, files: Iterable[Path]) -> None:
    """Copy files of the checkout below a folder."""
    for file in files:
        place = folder / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, place, follow_symlinks=False)


def only(work: Path, kind: str, digest: str) -> Path:
    """The folder of what was made of these sources. What was made of others is removed."""
    folder = work / f"{kind}-{digest}"
    for other in work.glob(f"{kind}-*"):
        if other != folder:
            shutil.rmtree(other)
    folder.mkdir(exist_ok=True)
    return folder
