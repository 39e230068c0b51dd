"""Runs the demonstration until Ctrl-C: `make demo`, or `python -m benchmarks.demo --help`."""

from __future__ import annotations

import io
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, cast

import click
from rich.console import Console
from rich.live import Live

from benchmarks.demo.brokers import CONSOLE, Brokers, CannotStart, brokers, console_default
from benchmarks.demo.film import film, picture
from benchmarks.demo.screen import WIDTH, Moment, Screen
from benchmarks.demo.spark_counts import SparkCounts
from benchmarks.demo.traffic import Traffic
from ottla.client import ClientError
from ottla.supervisor.control import NoSupervisor

_FRAME_SECONDS = 0.5
_RATE_FRAMES = 6
_HEIGHT = 34
_LINE_SECONDS = 5.0
"""Between two lines where the output is no terminal."""


Show = Callable[[Screen, Moment], None]


class Recording(io.TextIOBase):
    """Writes what a terminal gets into a file that asciinema plays (asciicast version 2), too."""

    def __init__(self, stream: IO[str], file: IO[str]) -> None:
        self._stream, self._file = stream, file
        self._begin = time.monotonic()
        file.write(json.dumps({"version": 2, "width": WIDTH, "height": _HEIGHT}) + "\n")

    def write(self, text: str) -> int:
        """Write to both."""
        drawn = text.replace("\n", "\r\n")  # as a terminal gets it
        self._file.write(json.dumps([round(time.monotonic() - self._begin, 3), "o", drawn], ensure_ascii=False) + "\n")
        return self._stream.write(text)

    def flush(self) -> None:
        """Flush the terminal."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Whether the output is a terminal."""
        return self._stream.isatty()


class Rates:
    """Events a second over the last frames."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=_RATE_FRAMES)

    def add(self, written: int, read: int) -> tuple[float, float]:
        """The rates after one more sample of both counts."""
        self._samples.append((time.monotonic(), written, read))
        (begin, written_before, read_before), (end, *_) = self._samples[0], self._samples[-1]
        seconds = max(end - begin, _FRAME_SECONDS)
        return (written - written_before) / seconds, (read - read_before) / seconds


@click.command()
@click.option("--brokers", "size", type=click.IntRange(3, 9), default=3, show_default=True, help="Brokers of the cluster.")
@click.option("--rate", type=click.IntRange(1, 20_000), default=500, show_default=True, help="Events a second.")
@click.option("--kill-every", type=click.FloatRange(5), default=60.0, show_default=True, metavar="SECONDS", help="Time between two kills.")
@click.option("--seconds", type=click.FloatRange(1), help="End by itself after this time.")
@click.option("--console", "console_address", help=f"The address of the console.  [default: {CONSOLE}, or a free port if that is in use]")
@click.option("--spark/--no-spark", default=True, show_default=True, help="Also count with Spark, if it is installed.")
@click.option("--record", type=click.File("w+", encoding="utf-8"), help="Also write the screen to a file for asciinema.")
@click.option(
    "--pictures",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write pictures of three moments to this folder, and with --record a film.",
)
def main(
    size: int,
    rate: int,
    kill_every: float,
    seconds: float | None,
    console_address: str | None,
    spark: bool,
    record: IO[str] | None,
    pictures: Path | None,
) -> None:
    """Show a cluster at work while its brokers are killed, one after the other. Status 1 if an event is lost, repeated or not shared."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # the latter when the terminal is closed
        signal.signal(number, _interrupt)
    directory = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    try:
        with ExitStack() as held:
            click.echo(f"starting {size} brokers below {directory}", err=True)
            running = held.enter_context(brokers(directory, size, console_address or console_default()))
            traffic = Traffic(running.bootstrap, rate)
            counts = SparkCounts(running.bootstrap, directory) if spark else None
            stage = Stage(running, traffic, counts, kill_every)
            stage.play(seconds, record, pictures)
            if record is not None and pictures is not None:
                record.seek(0)
                (pictures / "demo.svg").write_text(film(record), encoding="utf-8")
    except CannotStart as reason:
        raise SystemExit(f"ottla: {reason}") from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    lines = [f"{traffic.acknowledged:,} events were acknowledged, {traffic.missing:,} of them are missing, {traffic.repeated:,} repeated"]
    lines.append(
        f"a share group processed {traffic.shared:,} events, {traffic.not_shared:,} are left; {traffic.shared_again:,} were delivered again"
    )
    killed = "1 broker was" if stage.kills == 1 else f"{stage.kills} brokers were"
    lines.append(f"{killed} killed; the longest pause of the writer was {traffic.longest_pause:.1f} s")
    click.echo("\n".join(lines + traffic.failures))
    sys.exit(bool(traffic.missing or traffic.repeated or traffic.not_shared or traffic.failures))


class Stage:
    """Everything that runs. `kills` counts the brokers that were killed."""

    def __init__(self, running: Brokers, traffic: Traffic, counts: SparkCounts | None, kill_every: float) -> None:
        self._running, self._traffic, self._counts = running, traffic, counts
        self._kill_every = kill_every
        self._screen = Screen(running.bootstrap, running.console, traffic)
        self._rates = Rates()
        self._next_kill = time.monotonic() + kill_every
        self._is_over = False
        self.kills = 0

    def play(self, seconds: float | None, record: IO[str] | None, pictures: Path | None) -> None:
        """Run until Ctrl-C or for some seconds; then wait until all is read."""
        self._traffic.start()
        end = None if seconds is None else time.monotonic() + seconds
        try:
            with _shown(record) as show:
                self._loop(show, end, pictures)
        except KeyboardInterrupt:
            click.echo("\nwriting has ended; what was written is checked", err=True)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self._is_over = True
        self._traffic.stop()
        if self._counts is not None:
            self._counts.stop()
        if pictures is not None:
            self._picture(pictures / "demo-end.svg")

    def _loop(self, show: Show, end: float | None, pictures: Path | None) -> None:
        shot_at = None
        if pictures is not None:
            pictures.mkdir(parents=True, exist_ok=True)
        while end is None or time.monotonic() < end:
            show(self._screen, self._moment())
            time.sleep(_FRAME_SECONDS)
            now = time.monotonic()
            if pictures is not None and shot_at is not None and now >= shot_at:
                self._picture(pictures / "demo-kill.svg")
                shot_at = None
            if now >= self._next_kill:
                if pictures is not None and not self.kills:
                    self._picture(pictures / "demo-run.svg")
                self._kill()
                shot_at = time.monotonic()
                self._next_kill += self._kill_every

    def _kill(self) -> None:
        broker_id = self._running.ids[self.kills % len(self._running.ids)]
        try:
            self._running.kill(broker_id)
        except (NoSupervisor, TimeoutError) as error:
            self._screen.tell(str(error), "red")
            return
        self.kills += 1
        self._screen.tell(f"broker {broker_id} was killed (SIGKILL); the supervisor starts it again", "yellow")

    def _moment(self) -> Moment:
        written, read = self._rates.add(self._traffic.acknowledged, self._traffic.consumed)
        try:
            rows = self._running.rows()
        except (ClientError, NoSupervisor, TimeoutError) as error:
            self._screen.tell(str(error), "red")
            rows = []
        counts = self._counts
        return Moment(
            rows,
            written,
            read,
            "is switched off" if counts is None else counts.state,
            {} if counts is None else dict(counts.views),
            None if self._is_over else max(0.0, self._next_kill - time.monotonic()),
        )

    def _picture(self, path: Path) -> None:
        drawing = Console(record=True, width=WIDTH, file=io.StringIO())
        drawing.print(self._screen.draw(self._moment()))
        path.write_text(picture(drawing), encoding="utf-8")


@contextmanager
def _shown(record: IO[str] | None) -> Iterator[Show]:
    """Draws on a terminal that can; elsewhere prints a line now and then."""
    output: IO[str] = sys.stdout if record is None else cast("IO[str]", Recording(sys.stdout, record))
    if record is None and (not sys.stdout.isatty() or Console().is_dumb_terminal):
        yield _lines()
        return
    console = Console(file=output, force_terminal=True)
    if record is not None:  # which is played on terminals of which this one knows nothing
        console = Console(file=output, force_terminal=True, width=WIDTH, color_system="truecolor")
    with Live(console=console, auto_refresh=False, screen=record is None) as live:
        yield lambda screen, moment: live.update(screen.draw(moment), refresh=True)


def _lines() -> Show:
    next_line = 0.0

    def show(screen: Screen, moment: Moment) -> None:
        nonlocal next_line
        if time.monotonic() >= next_line:
            next_line = time.monotonic() + _LINE_SECONDS
            click.echo(screen.line(moment))

    return show


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End as at Ctrl-C."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
