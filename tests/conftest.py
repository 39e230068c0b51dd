"""For all tests: processes that they start can be interrupted, whoever started the tests, and no log has a secret of a test."""

import signal
from collections.abc import Generator
from typing import Any

import pytest

SECRETS = ("alice-secret", "admin-secret", "store-secret", "token-secret")
"""Passwords that tests give to brokers. No broker may log them, whatever the test is about."""

# A shell's background job ignores SIGINT, and nohup SIGHUP. So would every process that is started from it, but handlers are not inherited.
for number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Only where no other way was asked for."""
    if config.getoption("dist") != "load":
        return None
    from tests.support.scheduling import ModuleScheduling

    return ModuleScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail each test during which a secret was logged."""
    report = yield
    told = {secret for name, text in report.sections if "log" in name for secret in SECRETS if secret in text}
    if told and report.outcome == "passed":
        report.outcome, report.longrepr = "failed", f"the log has the secrets {sorted(told)}"
    return report
