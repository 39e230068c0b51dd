"""Runs what a container engine would run of an image: its command as its user, with its variables, its volumes and its health check."""

import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.packages.dockerfile import HealthCheck, Image
from tests.packages.networks import Place
from tests.packages.roots import POLL_SECONDS, Root, Running, StepFailed

HEALTHY_SECONDS = 120.0
"""Time for a container to become healthy, seconds; a start takes less than five on an idle machine."""
LOCAL = "127.0.0.1 localhost\n"


@contextmanager
def container(
    image: Image, folder: Path, place: Place, variables: Mapping[str, str], hosts: str = "", command: Sequence[str] = ()
) -> Iterator[Running]:
    """Start the image's command, or another one. Volumes are beside the folder, and stay when the container is gone."""
    settings = image.settings
    root = Root(folder, image.root.all_layers)
    root.write("/etc/hosts", hosts or f"{LOCAL}127.0.0.1 {place.name}\n")
    for path in settings.volumes:
        root.volumes[path] = volume_of(image, folder, path)
    how = settings.how._replace(environment={**settings.environment, **variables})
    with Running(root, place, command or settings.command, how) as running:
        yield running


def volume_of(image: Image, folder: Path, path: str) -> Path:
    """The folder behind a volume. A new one gets the owner and the rights that the path has in the image."""
    volume = folder.with_name(f"{folder.name}-volume{path.replace('/', '-')}")
    if not volume.exists():
        volume.mkdir()
        there = next(layer / path.lstrip("/") for layer in image.root.all_layers if (layer / path.lstrip("/")).is_dir())
        owner = there.stat()
        os.chown(volume, owner.st_uid, owner.st_gid)
        shutil.copymode(there, volume)
    return volume


def is_healthy(running: Running, check: HealthCheck) -> bool:
    """What the health check finds now."""
    try:
        running.run("timeout", f"{check.timeout:g}", *check.command)
    except StepFailed:
        return False
    return True


def wait_until_healthy(running: Running, check: HealthCheck | None) -> None:
    """Check until it is healthy. Raises StepFailed with its output."""
    assert check is not None, "the image has no health check"
    deadline = time.monotonic() + HEALTHY_SECONDS
    while not is_healthy(running, check):
        if time.monotonic() > deadline:
            raise StepFailed(f"not healthy after {HEALTHY_SECONDS:g} s:\n{running.said()}")
        time.sleep(POLL_SECONDS)


def stop(running: Running, image: Image, seconds: float = 60) -> int:
    """Send the image's stop signal; the exit status."""
    return running.stop(signal.Signals[image.settings.stop_signal], seconds)
