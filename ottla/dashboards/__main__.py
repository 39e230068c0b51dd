"""Writes `deploy/grafana` and `deploy/prometheus`: `python -m ottla.dashboards`. A test compares both with the declarations."""

from pathlib import Path

from ottla.dashboards.files import files

if __name__ == "__main__":
    for name, text in files().items():
        Path(name).write_text(text, encoding="utf-8")
