"""Serves LeaveGroup (api 13), versions 0-5: many members at once, and static ones, from 3 (KIP-345), the reason from 5 (KIP-800).

Members of a group of the new protocol have left when the group's records are replicated.
"""

from collections.abc import Sequence
from functools import partial

from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import DelayedAnswer, RequestContext
from ottla.coordination.groups.effects import LeaveResult
from ottla.coordination.groups.membership import Leaving
from ottla.coordination.groups.rebalance import reason_of
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.protocol.schema.message import Message

FIRST_VERSION_WITH_MANY_MEMBERS = 3
MEMBERS_TOGETHER = 500
"""Members that leave together; so many take a millisecond."""


async def handle_leave_group(request: LeaveGroupRequest, context: RequestContext) -> Message | Answer:
    """Take members out of their group at once, without waiting for their sessions to end."""
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    leaving = []
    if context.api_version < FIRST_VERSION_WITH_MANY_MEMBERS:
        leaving.append(Leaving(request.member_id, None))
    else:
        for each in request.members:
            leaving.append(Leaving(each.member_id, each.group_instance_id, reason_of(each.reason)))
            await pause()
    parts = [leaving[begin : begin + MEMBERS_TOGETHER] for begin in range(0, len(leaving) or 1, MEMBERS_TOGETHER)]
    left = _Left(parts, context)
    for number, part in enumerate(parts):
        context.broker.coordinators.groups.leave(request.group_id, part, partial(left.on_left, number))
        await pause()
    return await left.response() if left.is_complete else left.wait()


class _Left:
    """The members of one request, in parts, and their results."""

    __slots__ = ("_answer", "_api_version", "_parts", "_results", "_waits")

    def __init__(self, parts: Sequence[Sequence[Leaving]], context: RequestContext) -> None:
        self._parts = parts
        self._api_version = context.api_version
        self._results: dict[int, LeaveResult] = {}
        self._answer = DelayedAnswer(context)
        self._waits = False

    @property
    def is_complete(self) -> bool:
        """Whether all results are known."""
        return len(self._results) == len(self._parts)

    def wait(self) -> Message | Answer:
        """The answer, which the last result completes."""
        self._waits = True
        return self._answer.answer()

    def on_left(self, number: int, result: LeaveResult) -> None:
        """The result of a part is known."""
        self._results[number] = result
        if self._waits and self.is_complete:
            self._answer.complete_by(self.response())

    async def response(self) -> LeaveGroupResponse:
        """The response, when all results are known."""
        response = LeaveGroupResponse(error_code=next((result.error for result in self._results.values() if result.error), ErrorCode.NONE))
        if response.error_code:
            return response
        if self._api_version < FIRST_VERSION_WITH_MANY_MEMBERS:
            response.error_code = self._results[0].errors[0]
            return response
        for number, part in enumerate(self._parts):
            response.members += [
                MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
                for each, code in zip(part, self._results[number].errors, strict=True)
            ]
            await pause()
        return response
