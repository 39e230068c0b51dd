"""For all tests: processes that they start can be interrupted, whoever started the tests."""

import signal
from typing import Any

import pytest

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
