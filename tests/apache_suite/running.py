"""Runs classes of Apache Kafka's tests, each in a JVM of its own, and reads the outcomes from JUnit's report.

A class has a folder below `build/apache-suite`, with the report, the output of the JVM and the logs of the brokers. Data and temporary
files are removed after the run. Everything listens on the loopback interface, on ports that no other test is given.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from ottla.broker.metrics.endpoint import FAMILIES
from tests.apache_suite.expectations import Outcome
from tests.apache_suite.stand_in_classes import stand_in, stand_in_4
from tests.support.apache_kafka import free_ports, process_guard
from tests.support.apache_kafka.java import QUICK_OPTIONS
from tests.support.neighbours.artifacts import LOG4J

_SERVE = Path(__file__).with_name("serve.py")
_REPORT = "TEST-junit-jupiter.xml"
_METRICS = "metrics.tsv"
_PORTS = 200
_TEST_SECONDS = 180
_CLASS_SECONDS = 3600
_STOP_SECONDS = 60.0


class DidNotRunError(RuntimeError):
    """JUnit wrote no report of a class; the message has the end of its output."""


class Suite:
    """Runs classes with the jars in `libs`, below the folder `results`. With `judge` the servers are Apache Kafka's own.

    With `is_4` the classes are those of Apache Kafka 4.
    """

    def __init__(self, libs: Path, results: Path, judge: bool = False, *, is_4: bool = False) -> None:
        self._results = results
        self._is_4 = is_4
        self._judge = judge
        if is_4:
            first = [] if judge else [stand_in_4(libs)]
        else:
            extension, server = stand_in(libs)
            first = [extension] if judge else [extension, server]
        self._class_path = os.pathsep.join(map(str, (*first, libs / "*")))
        self._ports = ",".join(map(str, free_ports(_PORTS)))

    def run(self, class_name: str, methods: str = ".*") -> list[Outcome]:
        """The outcomes of the tests of a class whose methods match the expression. Raises DidNotRunError."""
        folder = (self._results / class_name).absolute()
        shutil.rmtree(folder, ignore_errors=True)
        scratch = folder / "scratch"
        scratch.mkdir(parents=True)
        (folder / _METRICS).write_text(metric_names(), encoding="utf-8")
        output = folder / "output.txt"
        process_guard().remove_tree(scratch)
        with output.open("wb") as written:
            process = subprocess.Popen(
                self._command(class_name, methods, folder, scratch), cwd=scratch, stdin=subprocess.DEVNULL, stdout=written, stderr=written
            )
        process_guard().watch(process.pid)
        try:
            process.wait(_CLASS_SECONDS)
        except subprocess.TimeoutExpired as late:
            raise DidNotRunError(f"{class_name} did not end within {_CLASS_SECONDS} s") from late
        finally:
            process_guard().end(process, signal.SIGTERM, _STOP_SECONDS)
            shutil.rmtree(scratch, ignore_errors=True)
        report = folder / "junit" / _REPORT
        if not report.exists():
            end = output.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
            raise DidNotRunError(f"{class_name} has no report: " + "\n".join(end))
        return read_report(report)

    def _command(self, class_name: str, methods: str, folder: Path, scratch: Path) -> list[str]:
        properties = {
            "ottla.python": sys.executable,
            "ottla.serve": str(_SERVE),
            "ottla.logs": str(folder / "brokers"),
            "ottla.ports": self._ports,
            "ottla.metrics": str(folder / _METRICS),
            "ottla.methods": methods,
            "ottla.judge": str(self._judge).lower(),
            "java.io.tmpdir": str(scratch),
            "log4j.configuration": f"file:{LOG4J}",
            "org.slf4j.simpleLogger.defaultLogLevel": "warn",
            "junit.jupiter.extensions.autodetection.enabled": "true",
            "junit.jupiter.execution.timeout.testable.method.default": f"{_TEST_SECONDS} s",
            "junit.jupiter.execution.timeout.lifecycle.method.default": f"{_TEST_SECONDS} s",
        }
        options = [*QUICK_OPTIONS, "-Xmx1g", *(f"-D{name}={value}" for name, value in properties.items()), "-cp", self._class_path]
        launcher = ["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner", "--disable-ansi-colors"]
        if self._is_4:  # the launcher of 3.9 has no such option
            launcher.append(f"--include-methodname=.*#({methods})")
        return ["java", *options, *launcher, "--include-classname=.*", f"--reports-dir={folder / 'junit'}", f"--select-class={class_name}"]


def metric_names() -> str:
    """The metrics of a broker that Apache Kafka has, too: a line for each, with its name, type, labels and MBean."""
    return "".join(f"{each.name}\t{each.kind.value}\t{','.join(each.labels)}\t{each.mbean}\n" for each in FAMILIES if each.mbean)


def read_report(path: Path) -> list[Outcome]:
    """The outcomes in a report of JUnit, without those of skipped tests."""
    outcomes = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("skipped") is None:
            failure = case.find("failure")
            failure = case.find("error") if failure is None else failure
            outcomes.append(Outcome(case.attrib["name"], None if failure is None else _first_line(failure)))
    return outcomes


def _first_line(failure: ElementTree.Element) -> str:
    lines = (failure.text or "").strip().splitlines()
    return lines[0] if lines else failure.attrib.get("type", "no reason")
