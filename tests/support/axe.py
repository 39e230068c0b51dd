"""Checks the accessibility of a page in Chromium with axe-core, which npm fetches once."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.chromium import Page

PACKAGE = "axe-core@4.14.1"
_SECONDS = 200


def axe_source() -> str:
    """The program that a page runs. Skips the test if npm cannot fetch it."""
    npm = shutil.which("npm")
    folder = Path.home() / ".cache" / "ottla" / "node" / PACKAGE
    file = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not file.exists():
        if npm is None:
            pytest.skip("there is no Node.js (Debian: apt-get install npm)")
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode != 0:
            pytest.skip(f"npm cannot fetch {PACKAGE}: {done.stderr.strip()[-500:]}")
    return file.read_text(encoding="utf-8")


def violations(page: Page, source: str) -> list[str]:
    """Each rule that the page breaks, with the elements that break it."""
    page.run(f"{source}; 0" if not page.run("typeof axe === 'object'") else "0")
    found = page.run("axe.run(document, { resultTypes: ['violations'] }).then((found) => JSON.stringify(found.violations))")
    return [
        f"{each['id']}: {each['help']}: " + " ".join(f"{node['html'][:200]} {node['failureSummary'][:300]}" for node in each["nodes"][:3])
        for each in json.loads(found)
    ]
