"""What a large request and its handler have made is freed one element in a step."""

from __future__ import annotations

from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request.context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.pauses import steps_of

MANY = 300


def a_resource(number: int, configs: int = 1) -> AlterConfigsResource:
    entries = [AlterableConfig(name=f"key-{each}", value="1") for each in range(configs)]
    return AlterConfigsResource(resource_type=2, resource_name=f"topic-{number}", configs=entries)


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
