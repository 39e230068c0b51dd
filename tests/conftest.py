"""For all tests: processes that they start can be interrupted, whoever started the tests, and nothing shows a secret of a test."""

import gc
import os
import signal
from collections.abc import Generator
from typing import Any

import pytest

# A shell's background job ignores SIGINT, and nohup SIGHUP. So would every process that is started from it, but handlers are not inherited.
for number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Let properties be tested on a busy machine: no example has a deadline, nor has its making. Options of the command line come later."""
    from hypothesis import HealthCheck, settings

    settings.register_profile("without-deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("without-deadline")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Spare the collector the tests themselves: some hundred thousand objects that live to the end."""
    from tests.support.collecting import import_from_own_place

    gc.disable()
    try:
        import_from_own_place(session.config.args, session.config.rootpath)
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give property tests fewer examples where that is asked for, and skip what only `make soak` runs."""
    from tests.support.examples import maybe_reduce

    maybe_reduce([item for item in items if isinstance(item, pytest.Function)])
    if "OTTLA_SOAK" not in os.environ:
        for item in items:
            if item.get_closest_marker("soak") is not None:
                item.add_marker(pytest.mark.skip(reason="make soak runs it"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Only where no other way was asked for."""
    if config.getoption("dist") != "load":
        return None
    from tests.support.scheduling import ModuleScheduling

    return ModuleScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail each test during which a secret was printed or logged. `BrokerProcess` and its like look into their own logs."""
    from tests.support.secrets import secrets_in

    report = yield
    told = [secret for _, text in report.sections for secret in secrets_in(text)]
    if told and report.outcome == "passed":
        report.outcome, report.longrepr = "failed", f"what was printed or logged shows the secrets {sorted(set(told))}"
    return report
