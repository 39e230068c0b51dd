"""What a large request and its handler have made is freed one element in a step, also if the request is malformed."""

from __future__ import annotations

import pytest

from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request.context import RequestContext
from ottla.broker.request.malformed import MALFORMED, discard_half_read
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.pauses import steps_of

MANY = 300


def a_resource(number: int, configs: int = 1) -> AlterConfigsResource:
    entries = [AlterableConfig(name=f"key-{each}", value="1") for each in range(configs)]
    return AlterConfigsResource(resource_type=2, resource_name=f"topic-{number}", configs=entries)


@pytest.mark.parametrize(
    "resources", [[a_resource(number) for number in range(MANY)], [a_resource(0, MANY)]], ids=["many resources", "one with much"]
)
def test_what_was_read_of_a_malformed_request_is_freed_one_element_in_a_step(resources: list[AlterConfigsResource]) -> None:
    data = AlterConfigsRequest(resources=resources).encode(2)
    with pytest.raises(MALFORMED) as raised:
        for _ in AlterConfigsRequest.decode_steps(data[:-3], 2):
            pass
    steps, _ = steps_of(discard_half_read(raised.value))
    assert steps >= MANY


@on_a_loop
async def test_what_a_handler_needs_until_the_answer_is_emptied_one_element_in_a_step() -> None:
    bench = HandlerBench()
    context = RequestContext(ApiKey.ALTER_CONFIGS, 2, 0, None, bench.connection, bench.services, lambda _, __: CLOSE)
    items: list[int] = context.scratch(list(range(MANY)))
    times: dict[int, int] = context.scratch(dict.fromkeys(range(MANY), 1))
    request = context.scratch(AlterConfigsRequest(resources=[a_resource(number) for number in range(MANY)]))
    steps, _ = steps_of(context.discard_scratches())
    assert steps >= 3 * MANY
    assert (items, times, request.resources) == ([], {}, [])
