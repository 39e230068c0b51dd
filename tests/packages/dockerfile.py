"""Reads a Dockerfile and a .dockerignore, as far as ours go, and carries out the steps in roots.

A container engine is not used. The base image is a root by debootstrap, a step runs in a chroot with namespaces of its own, and a layer is
the upper folder of an overlay.
"""

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import NamedTuple

from tests.packages import host
from tests.packages.roots import PATH, How, Root, remove

KNOWN = {
    "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "CMD", "ENTRYPOINT",
}  # fmt: skip
CHANGING = {"RUN", "COPY"}
"""Instructions that change files; the others change settings. A folder that WORKDIR names must exist already."""


class Instruction(NamedTuple):
    """A line of a Dockerfile, continuations included."""

    name: str
    rest: str


class Stage(NamedTuple):
    """What begins with FROM."""

    base: str
    name: str
    instructions: list[Instruction]


class HealthCheck(NamedTuple):
    """A HEALTHCHECK; times are seconds."""

    command: list[str]
    interval: float
    timeout: float
    start_period: float


class Settings:
    """What the instructions of a stage say of its containers."""

    def __init__(self) -> None:
        self.environment = {"PATH": PATH}
        self.user = "root"
        self.folder = "/"
        self.command: list[str] = []
        self.health: HealthCheck | None = None
        self.stop_signal = "SIGTERM"
        self.volumes: list[str] = []
        self.ports: list[int] = []

    @property
    def how(self) -> How:
        """How commands of its containers are carried out."""
        return How(self.user, self.folder, self.environment)


def parse(text: str) -> list[Stage]:
    """The stages. Raises ValueError for what is not understood."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    stages: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if not line.strip():
            continue
        name, _, rest = line.strip().partition(" ")
        if name not in KNOWN:
            raise ValueError(f"the instruction {name} is not known")
        if name == "FROM":
            found = re.fullmatch(r"(\S+)(?: AS (\S+))?", rest)
            if found is None:
                raise ValueError(f"FROM {rest} is not understood")
            stages.append(Stage(found[1], found[2] or "", []))
        elif not stages:
            raise ValueError(f"{name} stands before the first FROM")
        else:
            stages[-1].instructions.append(Instruction(name, rest))
    return stages


def apply(settings: Settings, instruction: Instruction) -> None:
    """Carry out an instruction that only changes settings. Raises ValueError for what is not understood."""
    name, rest = instruction
    if name == "ENV":
        for word in shlex.split(rest):
            variable, _, value = word.partition("=")
            settings.environment[variable] = Template(value).substitute(settings.environment)
    elif name == "USER":
        settings.user = rest
    elif name == "WORKDIR":
        settings.folder = rest
    elif name == "VOLUME":
        settings.volumes += rest.split()
    elif name == "EXPOSE":
        settings.ports += [int(port) for port in rest.split()]
    elif name == "STOPSIGNAL":
        settings.stop_signal = rest
    elif name == "HEALTHCHECK":
        settings.health = _health_check(rest)
    elif name in ("CMD", "ENTRYPOINT"):
        settings.command += json.loads(rest)
    else:
        raise ValueError(f"{name} is no setting")


def _health_check(rest: str) -> HealthCheck:
    options, _, command = rest.partition("CMD ")
    seconds = {name: float(value) for name, value in re.findall(r"--([a-z-]+)=(\d+)s(?= )", options)}
    return HealthCheck(json.loads(command), seconds["interval"], seconds["timeout"], seconds["start-period"])


def context_files(folder: Path, dockerignore: str) -> list[Path]:
    """The files of a build's context, relative to the folder, in order."""
    rules = []
    for line in dockerignore.splitlines():
        if line.strip() and not line.startswith("#"):
            is_kept, pattern = line.startswith("!"), line.removeprefix("!").strip("/")
            expression = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
            rules.append((is_kept, re.compile(f"{expression}(?:/.*)?")))
    return sorted(_kept(folder, Path(), rules))


def _kept(folder: Path, below: Path, rules: list[tuple[bool, re.Pattern[str]]]) -> Iterator[Path]:
    """Files below a folder that the last fitting rule keeps. Exceptions of our file name folders at the top, so others are passed over."""
    for entry in os.scandir(folder / below):
        path = below / entry.name
        fitting = [is_kept for is_kept, expression in rules if expression.fullmatch(str(path))]
        if fitting and not fitting[-1]:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _kept(folder, path, rules)
        else:
            yield path


class Image(NamedTuple):
    """The outcome of a Dockerfile: a root whose layers containers have below their own."""

    root: Root
    settings: Settings


def build(context: Path, base: Path, work: Path) -> Image:
    """Carry out all stages, each on `base`, and return the last. Raises StepFailed, and ValueError for what is not understood."""
    is_built = (work / "complete").exists()
    if not is_built:
        remove(work)
    made: dict[str, Image] = {}
    for number, stage in enumerate(parse((context / "Dockerfile").read_text(encoding="utf-8"))):
        if stage.base != f"debian:{host.SUITE}-slim":
            raise ValueError(f"FROM {stage.base}: debootstrap makes {host.SUITE} only")
        image = Image(Root(work / f"stage-{number}", [base]), Settings())
        for instruction in stage.instructions:
            if instruction.name not in CHANGING:
                apply(image.settings, instruction)
            elif not is_built:
                _change(instruction, image, made, context)
        made[stage.name] = image
    (work / "complete").touch()
    return image


def _change(instruction: Instruction, image: Image, earlier: dict[str, Image], context: Path) -> None:
    """Carry out an instruction that changes files."""
    root, settings = image
    if instruction.name == "RUN":
        how = settings.how
        root.run("/bin/sh", "-c", instruction.rest, how=how._replace(environment={**host.environment(), **how.environment}))
    else:
        _copy(instruction.rest, root, earlier, context)


def _copy(rest: str, root: Root, earlier: dict[str, Image], context: Path) -> None:
    """COPY of a folder, from the context or from an earlier stage. Raises ValueError for another form."""
    found = re.fullmatch(r"(?:--from=(\S+) )?(/\S+|\.) (/\S+)", rest)
    if found is None or (found[1] is None) != (found[2] == "."):
        raise ValueError(f"COPY {rest} is not understood")
    stage, source, target = found.groups()
    if stage is None:
        dockerignore = (context / ".dockerignore").read_text(encoding="utf-8")
        for file in context_files(context, dockerignore):
            place = root.changes / target.lstrip("/") / file
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(context / file, place, follow_symlinks=False)
        return
    root.volumes = {"/from-stage": earlier[stage].root.folder / "copied"}
    (root.changes / "from-stage").mkdir()
    try:
        other = earlier[stage].root
        other.volumes = {"/to-stage": other.folder / "copied"}
        (other.changes / "to-stage").mkdir()
        (other.folder / "copied").mkdir()
        other.run("cp", "--archive", source, "/to-stage/content")
        root.run("cp", "--archive", "--no-target-directory", "/from-stage/content", target)
    finally:
        root.volumes = {}
        (root.changes / "from-stage").rmdir()
