"""Counts every error code of every answer, NONE included: Kafka's ErrorsPerSec.

A counter for an answer's class is compiled when the first request arrives: it visits the fields that are error codes,
and the structures that contain some. It runs in `Route.encode`, through which only answers made of messages pass.
Produce, Fetch and OffsetCommit write their answers themselves, and count into the same dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from ottla.pauses import in_slices
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.fields import ArrayOf, StructOf
from ottla.protocol.schema.registry import api

if TYPE_CHECKING:
    from ottla.broker.network.request_channel import Completion
    from ottla.broker.serving.route import Route
    from ottla.protocol.schema.fields import Field
    from ottla.protocol.schema.message import Message


class ErrorCounts:
    """Number of answers with each error, by api."""

    __slots__ = ("counts",)

    def __init__(self, counts: dict[int, int]) -> None:
        """`counts`: see `Services.error_counts`."""
        self.counts = counts

    def items(self) -> Iterator[tuple[int, str, int]]:
        """(api key, name of the error, count)."""
        for key, count in self.counts.copy().items():
            code = key & 0xFFFF
            if count:
                yield key >> 16, ErrorCode.of(code - 0x10000 if code & 0x8000 else code).name, count


Walk = Callable[[Any, dict[int, int], int], None]
"""(structure, counts, api key << 16) -> adds its error codes to the counts."""


StepWalk = Callable[[Any, dict[int, int], int], Generator[None, None, None]]
"""Like `Walk`, as a generator."""


def count_answers(route: Route, errors: ErrorCounts) -> None:
    """Make the route's encoders count the error codes of every answer first."""
    encode = route.encode
    encode_in_slices = route.encode_in_slices
    api_key = int(route.api_key)
    counts = errors.counts
    walk = walker(api(route.api_key).response)
    walk_steps: StepWalk | None = None

    def encode_and_count(correlation_id: int, response: Message) -> Completion:
        walk(response, counts, api_key << 16)
        return encode(correlation_id, response)

    async def encode_and_count_in_slices(correlation_id: int, response: Message) -> Completion:
        nonlocal walk_steps
        if walk_steps is None:
            walk_steps = step_walker(api(route.api_key).response)
        await in_slices(walk_steps(response, counts, api_key << 16))
        return await encode_in_slices(correlation_id, response)

    route.encode = encode_and_count
    route.encode_in_slices = encode_and_count_in_slices


def walker(response: type[Message]) -> Walk:
    """A function that counts the error codes of such answers; straight-line source, because a recursive one takes three
    times as long."""
    return _compiled(response, in_steps=False)  # type: ignore[no-any-return]  # made by exec


def step_walker(response: type[Message]) -> StepWalk:
    """Like `walker`, as a generator for answers that take long."""
    return _compiled(response, in_steps=True)  # type: ignore[no-any-return]  # made by exec


def _compiled(response: type[Message], *, in_steps: bool) -> Any:
    lines = ["def count(v0, counts, key):", "    get = counts.get", *_lines(response.SCHEMA.fields, "v0", 1, in_steps=in_steps)]
    if in_steps:
        lines.append("    yield")
    namespace: dict[str, Any] = {}
    exec(compile("\n".join(lines), f"<error codes of {response.SCHEMA.name}>", "exec"), namespace)
    return namespace["count"]


def _lines(fields: tuple[Field, ...], name: str, depth: int, *, in_steps: bool) -> Iterator[str]:
    """The statements that count the error codes of the structure in the variable `name`."""
    indent = "    " * depth
    inner = f"v{depth}"
    for field in fields:
        if field.name == "error_code":
            yield f"{indent}code = key | {name}.error_code & 0xFFFF"
            yield f"{indent}counts[code] = get(code, 0) + 1"
        is_array = isinstance(field.type, ArrayOf)
        element = field.type.element if isinstance(field.type, ArrayOf) else field.type
        within = list(_lines(element.fields, inner, depth + 1, in_steps=in_steps)) if isinstance(element, StructOf) else []
        if within:
            yield f"{indent}for {inner} in {name}.{field.name} or ():" if is_array else f"{indent}if ({inner} := {name}.{field.name}):"
            yield from within
            if in_steps and is_array:
                yield f"{indent}    yield"
