"""Starts a broker with ACLs, a topic of hostile records, and a group with a hostile name, for the tests of the console."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.acl_requests import ANONYMOUS, AUTHORIZER
from tests.support.command_line import CommandLine
from tests.support.judged_broker import JudgedBroker, a_judged_broker

HOSTILE = '<img src=x onerror="document.title=1">\u202e\x00&amp;'
GROUP = "<b>group</b>/\u202e"


@contextmanager
def a_broker_of_hostile_records(directory: Path, values: Sequence[str]) -> Iterator[JudgedBroker]:
    """Topic `t` has two partitions; each value is in partition 1, of a producer of its own. The group has read two of them."""
    with a_judged_broker(directory, authorizer_class_name=AUTHORIZER, super_users=ANONYMOUS) as running:
        line = CommandLine(running.bootstrap)
        line("topics", "create", "t", "-p", "2")
        for value in values:
            line("produce", "-J", "-p", "1", "t", input=json.dumps({"key": HOSTILE, "value": value, "headers": [[HOSTILE, "x"]]}))
        line("consume", "-G", GROUP, "-e", "-c", "2", "t")
        yield running
