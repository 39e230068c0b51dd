"""Finds promtool, which checks expressions and rules of Prometheus, and fetches it from Debian's package without installing that.

The package would start a server and bring the libraries of its pages.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

_CACHED = Path.home() / ".cache" / "ottla-tests" / "promtool"


def find_promtool() -> Path | None:
    """Its path, on the PATH or where `fetch_promtool` put it."""
    found = shutil.which("promtool") or shutil.which(_CACHED)
    return None if found is None else Path(found)


def fetch_promtool(errors: int | None) -> None:
    """Take it out of the package `prometheus`, which apt downloads. `errors` is where apt prints errors. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        download = ["apt-get", "download", "--quiet=2", "prometheus"]
        subprocess.run(download, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors, check=True)
        (package,) = Path(folder).glob("prometheus_*.deb")
        subprocess.run(["dpkg-deb", "--extract", package.name, "content"], cwd=folder, check=True)
        _CACHED.parent.mkdir(parents=True, exist_ok=True)
        # Renamed, so that a test which looks meanwhile finds all of it or nothing.
        shutil.copy(Path(folder, "content", "usr", "bin", "promtool"), _CACHED.with_suffix(".new"))
        _CACHED.with_suffix(".new").rename(_CACHED)
