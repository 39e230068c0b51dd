"""Runs the checks that take longer than the tests, or need more of the machine: `python -m tests.suites NAME`; without a name, lists them.

`make NAME` installs what the tests need, and does the same. Variables of the environment, which `make` passes on, are in the descriptions.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FLOORS = ("broker", "coordination", "controller", "replication", "storage", "protocol", "config", "ottla")
SANITIZED = ROOT / "build" / "sanitize"
OF_TEXTS = tuple(f"tests/unit/test_{name}.py" for name in ("house", "prose", "docs", "deploy"))
"""Tests that are the same with and without compiled modules."""


class Step(NamedTuple):
    """A module of Python to run, and the variables that it gets."""

    module: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    folder: Path = ROOT


class Suite(NamedTuple):
    """`programs` are looked for before: a tuple without names stands for all that `make test` looks for."""

    description: str
    steps: Callable[[], Iterator[Step]]
    programs: tuple[str, ...] | None = None


def words(variable: str, default: str = "") -> tuple[str, ...]:
    """The arguments that a variable of the environment holds."""
    return tuple(shlex.split(os.environ.get(variable) or default))


def under(folder: str, *names: str) -> tuple[str, ...]:
    """The paths of files of tests, whose names begin with `test_`."""
    return tuple(f"{folder}/test_{name}.py" for name in names)


def of_pytest(*arguments: str, workers: int = 0, folder: Path = ROOT, **variables: str) -> Step:
    """A run of pytest. With PYTHONDONTWRITEBYTECODE each process would rewrite the assertions of all tests, which takes 8 s each."""
    parallel = ("-n", str(workers)) if workers else ()
    return Step("pytest", (*words("PYTEST_ARGS"), *parallel, *arguments), {"PYTHONDONTWRITEBYTECODE": "", **variables}, folder)


def many() -> int:
    """Two processes more than processors, because tests of brokers and of Java wait for a third of their time."""
    return int(os.environ.get("WORKERS") or (os.cpu_count() or 1) + 2)


def medium() -> Iterator[Step]:
    yield of_pytest("-m", "not java and not cluster", "tests/integration", workers=many())


def pure() -> Iterator[Step]:
    ignored = [f"--ignore={each}" for each in OF_TEXTS]
    chosen = ("tests/simulation/test_planted_faults.py", "tests/integration/test_fetch_frames.py", "tests/unit", "tests/wire")
    variables = {"OTTLA_PURE_PYTHON": "1", "OTTLA_FEW_EXAMPLES": "1"}
    yield of_pytest("--timeout", "60", *ignored, *chosen, workers=os.cpu_count() or 1, **variables)


def sanitize() -> Iterator[Step]:
    """-fwrapv, with which Debian builds Python, hides overflows from UBSan. Python's own allocator hides what is freed from ASan."""
    shutil.rmtree(SANITIZED, ignore_errors=True)
    without = shutil.ignore_patterns("*.so", "compiled.*.digest", "__pycache__")
    for name in (*FLOORS, "benchmarks", "declarations", "tests"):
        shutil.copytree(ROOT / name, SANITIZED / name, symlinks=True, ignore=without)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, SANITIZED)
    for report in SANITIZED.glob("report.*"):
        report.unlink()
    flags = "-fsanitize=address,undefined"
    build = {"CFLAGS": f"-O1 -g -fno-wrapv {flags} -fno-sanitize-recover=undefined", "LDFLAGS": flags}
    run([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], build, SANITIZED)
    libraries = [subprocess.check_output(["gcc", f"-print-file-name=lib{name}.so"], text=True).strip() for name in ("asan", "ubsan")]
    sanitizers = {
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": f"detect_leaks=0:log_path={SANITIZED}/report",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={SANITIZED}/report",
        "LD_PRELOAD": " ".join(libraries),
        "PYTHONPATH": str(SANITIZED),
    }
    run([sys.executable, "-c", "from ottla.protocol.compiled import IS_COMPILED; assert IS_COMPILED"], sanitizers, SANITIZED)
    chosen = (
        *under("tests/wire", "hostile_bytes", "golden_bad_lengths", "message_sets", "produce_cursor", "fetch_cursor"),
        *under("tests/wire", "fetch_answer_reader", "offset_commit_cursor", "txn_offset_commit_cursor"),
        *under("tests/unit/groups", "commit_requests", "txn_commit_requests"),
        *under("tests/unit/broker", "fetch_handler", "follower_fetch", "produce_handler", "produce_splits", "produce_together"),
        *under("tests/unit/storage", "append", "follower_append", "indexes", "log_append", "log_read", "validation"),
        "tests/unit/network",
    )
    yield of_pytest("-p", "no:cacheprovider", *chosen, workers=many(), folder=SANITIZED, **sanitizers)


def judge() -> Iterator[Step]:
    yield of_pytest(
        "tests/integration/transactions", *under("tests/integration", "console", "console_browser"), workers=many(), OTTLA_JUDGE="1"
    )
    long = (*under("tests/cluster/transactions", "copiers", "streams"), *under("tests/integration/transactions", "franz_go"))
    yield of_pytest(*long, "-k", "copiers or short or franz", OTTLA_JUDGE="1", OTTLA_SOAK="1")
    batches = (*under("tests/integration", "odd_batches"), *under("tests/integration/apache_kafka/one_pair", "mutated_batches"))
    yield of_pytest(*batches, OTTLA_JUDGE="1")


def soak() -> Iterator[Step]:
    yield Step("tests.soak", words("SOAK_ARGS"))
    yield Step("tests.simulation", ("--minutes", *words("SIMULATED", "10")))
    yield Step("tests.simulation", ("--shares", "--minutes", *words("SIMULATED_SHARES", "5")))
    yield Step("tests.simulation", ("--tiered", "--minutes", *words("SIMULATED", "10")))
    yield Step("tests.chaos.fault_matrix")
    yield Step("tests.soak.attacks")
    yield of_pytest("-m", "soak", "tests", OTTLA_SOAK="1")
    yield of_pytest("tests/unit", "tests/wire", "tests/chaos/test_idempotent_producers.py", OTTLA_SOAK="1")
    yield of_pytest(*under("tests/simulation", "transaction_faults", "lost_decisions", "tiered", "tiered_elections"), OTTLA_SOAK="1")
    yield of_pytest("--timeout", "3600", "tests/integration/test_hostile_clients.py", OTTLA_SOAK="1000000")


def validate() -> Iterator[Step]:
    rows = ("--rows", *words("ROWS", "10000000"), "--record-bytes", *words("RECORD_BYTES", "100"))
    yield Step("benchmarks.comparisons.spark_validation", (*rows, *words("VALIDATE_ARGS")))
    yield of_pytest("--timeout", "900", "tests/integration/spark", OTTLA_VALIDATE_DEEP="1")


def bench_quick() -> Iterator[Step]:
    yield Step("benchmarks.bench", ("--quick", *words("BENCH_ARGS")))


def bench_long() -> Iterator[Step]:
    yield Step("benchmarks.bench", ("--long", *words("BENCH_ARGS")))


def neighbours() -> Iterator[Step]:
    yield of_pytest("--durations=20", "tests/neighbours", OTTLA_NEIGHBOURS="1")


def apache_suite() -> Iterator[Step]:
    yield Step("tests.apache_suite", words("CLASSES"))


def dist(*chosen: str) -> Iterator[Step]:
    """The package ziglang is a C compiler for wheels of aarch64."""
    install = (
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "install",
        "--constraint",
        "constraints.txt",
        "ziglang",
    )
    if subprocess.run(install, cwd=ROOT, check=False).returncode != 0:
        print("missing: the package ziglang, for wheels of aarch64", file=sys.stderr)
    yield Step("tests.distributions", chosen, {"OTTLA_SOURCE_URL": os.environ.get("SOURCE_URL", "")})


def dist_test() -> Iterator[Step]:
    units = "broker controller coordination groups network quotas replication security storage supervisor transactions"
    yield from dist(*words("DIST_TESTS", "tests/wire " + " ".join(f"tests/unit/{name}" for name in units.split())))


def package_test() -> Iterator[Step]:
    yield of_pytest("tests/packages", OTTLA_PACKAGES="1")


SUITES = {
    "test-medium": Suite("one broker and real clients, without Java (minutes)", medium, ("cc", "kcat")),
    "test-pure": Suite("the unit and wire tests without compiled modules, with fewer examples of each property", pure),
    "sanitize": Suite("tests of hostile bytes, frames and appends, compiled with ASan and UBSan (minutes)", sanitize),
    "validate": Suite(
        "Spark through Apache Kafka 3.9.1 and Ottla in turns, with a check of every record (ROWS=, RECORD_BYTES=, VALIDATE_ARGS=)", validate
    ),
    "bench-quick": Suite("all parts of `make bench` in a few minutes, as a check that they work (BENCH_ARGS=)", bench_quick),
    "bench-long": Suite("`make bench` with more and longer turns (BENCH_ARGS=)", bench_long),
    "judge": Suite("the tests of transactions and of the console against Apache Kafka 3.9.1 instead of Ottla (minutes)", judge),
    "neighbours": Suite(
        "Kafka Connect, MirrorMaker 2, Kafka Streams 4, a schema registry, Flink, Debezium, faust, Go, Node; minutes each", neighbours, ()
    ),
    "apache-suite": Suite(
        "Apache Kafka's own integration tests with Ottla as their server (CLASSES=); an hour for all", apache_suite, ("java", "mvn")
    ),
    "soak": Suite(
        "random work with kill -9 against a model, simulated clusters, the fault matrix, long tests; hours (SOAK_ARGS=, SIMULATED=)", soak
    ),
    "dist": Suite("wheels for the Pythons at hand and aarch64, a pure one, pytest-ottla, an archive of the sources (SOURCE_URL=)", dist),
    "dist-test": Suite("the same, and the fast tests with each wheel as installed, without a compiler (DIST_TESTS=)", dist_test),
    "package-test": Suite(
        "the Debian package, the Dockerfile and the compose file, tried in chroots in build/packages, as root (some minutes)",
        package_test, ("debootstrap", "ip", "java"),
    ),
}  # fmt: skip


def run(command: list[str], variables: Mapping[str, str], folder: Path) -> None:
    """Ends this process with the status of a command that fails."""
    status = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, check=False).returncode
    if status:
        for report in folder.glob("report.*"):
            print(report.read_text(errors="replace"))
        sys.exit(status)


def main(names: list[str]) -> None:
    """Run these suites, or list all."""
    for name in names or SUITES:
        if name not in SUITES:
            sys.exit(f"no suite {name}: there are {', '.join(SUITES)}")
        suite = SUITES[name]
        if not names:
            print(f"{name:<14}{suite.description}")
            continue
        if suite.programs is not None:
            run([sys.executable, "-m", "tests.support.prerequisites", *suite.programs], {}, ROOT)
        for step in suite.steps():
            print(f"python -m {shlex.join((step.module, *step.arguments))}", flush=True)
            run([sys.executable, "-m", step.module, *step.arguments], step.variables, step.folder)


if __name__ == "__main__":
    main(sys.argv[1:])
