"""Processes that choose ports for servers at the same time are given different ones."""

import subprocess
import sys

from tests.support.apache_kafka.ports import free_ports

OTHER = "from tests.support.apache_kafka.ports import free_ports; print(*free_ports(100))"


def test_no_port_is_given_twice_while_others_remain() -> None:
    # A process has 200 ports or more, and programs of others may use a few of them.
    assert len({port for _ in range(50) for port in free_ports(2)}) == 100


def test_another_process_is_given_other_ports() -> None:
    ours = {port for _ in range(100) for port in free_ports(2)}
    others = subprocess.run([sys.executable, "-c", OTHER], check=True, capture_output=True, text=True, timeout=60).stdout
    assert len(set(others.split())) == 100
    assert not ours & {int(port) for port in others.split()}
