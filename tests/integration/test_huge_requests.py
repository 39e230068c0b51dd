"""Requests with thousands of elements are worked off a little in each turn of the loop, and answered as if they had been done at once."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from types import CodeType, FrameType

import pytest

from ottla.broker.handlers.configs.config_resources import MAX_ENTRIES
from ottla.broker.handlers.table import SERVED, handlers_of
from ottla.broker.security.authorizer import AllowAll, Authorizer
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.schema.registry import INTER_BROKER_APIS
from tests.support.admin_requests import BROKER, a_topic, create
from tests.support.grants import Grants
from tests.support.huge_requests import huge_requests
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.pauses import every_pause_waits
from tests.support.wire_client import a_wire_client

ELEMENTS = 2000
MOST_CALLS = 1500
"""In one turn: less than one for each element."""
MOST_FREED = 2 * ELEMENTS + 200
"""Blocks of memory that a turn frees, besides small ones: 0.03 µs each. A request, its answer and what the handler has made in between have
10 and more for each element."""
MOST_CYCLES = ELEMENTS // 2
"""Objects that only the garbage collector frees. It looks at all objects so rarely that such a request fills the memory."""
FREED_TOGETHER = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.CREATE_TOPICS})
"""The first two free four for each element, which takes 20 ms for half a million. At most 10,000 topics are created."""
SECONDS = 60.0

APIS = sorted(SERVED - INTER_BROKER_APIS)
OF_MESSAGES = sorted(key for key in SERVED if handlers_of(key)[0] is not None)
"""All whose handlers get a message; the others read the frame part by part, whatever is in it."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with a_broker_in_process(
        tmp_path_factory.mktemp("broker"), auto_create_topics_enable="false", offsets_topic_num_partitions=1
    ) as started:
        yield started


def answer_to(broker: InProcessBroker, request: bytes) -> bytes:
    """The answer, empty when the connection is closed instead."""
    with socket.create_connection(("127.0.0.1", broker.port), SECONDS) as connection:
        try:
            connection.sendall(request)
            head = connection.recv(4, socket.MSG_WAITALL)
            return connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL) if head else b""
        except ConnectionError:
            return b""


class Turns:
    """Keeps the calls of that turn of the loop that made most, and the most objects that a turn freed.

    The first call of a turn ends it with the next one: an idle loop sleeps.
    """

    def __init__(self) -> None:
        self.most: list[CodeType] = []
        self.freed = 0
        self._blocks = 0
        self._in_turn: list[CodeType] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """Count the calls on this loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._blocks = sys.getallocatedblocks()
        sys.setprofile(self._on_event)

    def end(self) -> None:
        """Count no more."""
        sys.setprofile(None)
        self._turn()

    def worst(self) -> list[tuple[CodeType, int]]:
        """The code that called most often in that turn."""
        return Counter(self.most).most_common(5)

    def _turn(self) -> None:
        self.most = max(self.most, self._in_turn, key=len)
        self._in_turn = []
        blocks = sys.getallocatedblocks()
        self.freed, self._blocks = max(self.freed, self._blocks - blocks), blocks

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_call"):
            if not self._in_turn and self._loop is not None:
                self._loop.call_soon(self._turn)
            self._in_turn.append(frame.f_code)


def assert_no_turn_has_all_elements(
    broker: InProcessBroker, key: ApiKey, *, in_first_version: bool = False, leaves_nothing: bool = False
) -> None:
    """Ask before, too, so that all is compiled and imported: with few elements where an answer does not depend on the one before."""
    only = frozenset({key.name})
    for _, small in huge_requests(ELEMENTS // 10, only, in_first_version=in_first_version) if leaves_nothing else ():
        answer_to(broker, small)
    for name, request in huge_requests(ELEMENTS, only, in_first_version=in_first_version):
        if len(request) < 16 * 1024:
            continue
        if not leaves_nothing:
            answer_to(broker, request)
        broker.run(every_pause_waits)
        counted = Turns()
        gc.collect()
        gc.disable()
        try:
            broker.run(counted.begin)
            answer_to(broker, request)
            broker.run(counted.end)
        finally:
            gc.enable()
        assert gc.collect() < MOST_CYCLES, (name, "the request leaves objects that refer to each other")
        assert counted.freed < MOST_FREED or key in FREED_TOGETHER, (name, counted.freed)
        assert 0 < len(counted.most) < MOST_CALLS, (name, len(counted.most), counted.worst())


@pytest.mark.parametrize("key", APIS, ids=lambda key: key.name)
def test_no_turn_of_the_loop_works_on_all_elements_of_a_request(broker: InProcessBroker, key: ApiKey) -> None:
    assert_no_turn_has_all_elements(broker, key)


@pytest.mark.soak
@pytest.mark.parametrize("in_first_version", [False, True], ids=["last version", "first version"])
@pytest.mark.parametrize("key", OF_MESSAGES, ids=lambda key: key.name)
def test_no_turn_of_the_loop_refuses_all_elements_of_a_request(broker: InProcessBroker, key: ApiKey, in_first_version: bool) -> None:
    server = broker.broker.socket_server

    def authorize(authorizer: Authorizer) -> None:
        for processor in server.processors:
            processor.authorizer = authorizer

    broker.run(authorize, Grants())
    try:
        assert_no_turn_has_all_elements(broker, key, in_first_version=in_first_version, leaves_nothing=True)
    finally:
        broker.run(authorize, AllowAll())


def test_the_configurations_of_a_resource_that_are_described_are_limited(broker: InProcessBroker) -> None:
    keys = [f"key-{number}" for number in range(MAX_ENTRIES + 1)]
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="0", configuration_keys=keys)
    with a_wire_client(broker.port) as client:
        (described,) = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    assert described.error_code == ErrorCode.INVALID_REQUEST
    assert described.error_message == "2001 configurations of one resource; at most 2000 can be described at once."


def test_a_new_topic_has_a_limited_number_of_configurations(broker: InProcessBroker) -> None:
    with a_wire_client(broker.port) as client:
        (created,) = create(client, a_topic("much", configs={f"key-{number}": "1" for number in range(MAX_ENTRIES + 1)}))
    assert created.error_code == ErrorCode.INVALID_REQUEST
    assert created.error_message == "2001 configurations of one topic; at most 2000 can be set at once."
