"""Handles ListTransactions (api 66), versions 0-2.

KIP-664: lists the transactions that this broker coordinates, from 1 also only those older than a duration (KIP-994), from 2 those
whose id matches a regular expression as a whole (KIP-1152).

A thread compiles and evaluates the expression, over the ids that the client may describe: the time of an answer tells nothing of others.
"""

from __future__ import annotations

from ottla.broker.request.context import RequestContext
from ottla.coordination.groups.consumer.regexes import matching_of
from ottla.coordination.transactions.metadata import STATES_BY_LABEL
from ottla.pauses import how_often, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState

NO_DURATION = -1


async def handle_list_transactions(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    """List the transactional ids that pass all filters and that the client may describe."""
    coordinators = context.broker.coordinators
    error, found = coordinators.transactions.list()
    response = ListTransactionsResponse(error_code=error)
    if error:
        return response
    state_names = await how_often(request.state_filters)
    states = set()
    for name in state_names:
        state = STATES_BY_LABEL.get(name)
        if state is None:
            response.unknown_state_filters.append(name)
        else:
            states.add(state)
        await pause()
    producer_ids = await how_often(request.producer_id_filters)
    duration_ms = request.duration_filter
    now_ms = context.broker.clock.now_ms()
    for txn in found:
        if (
            (not state_names or txn.state in states)
            and (not producer_ids or txn.producer_id in producer_ids)
            and (duration_ms <= NO_DURATION or now_ms - txn.start_ms > duration_ms)
            and context.is_authorized(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, txn.transactional_id)
        ):
            response.transaction_states.append(
                TransactionState(transactional_id=txn.transactional_id, producer_id=txn.producer_id, transaction_state=txn.state.label)
            )
        await pause()
    pattern = request.transactional_id_pattern
    if not pattern:
        return response
    context.broker.running.on_wait()  # a hostile expression must not keep the slot of another request
    ids = [listed.transactional_id for listed in response.transaction_states]
    matching = await coordinators.groups.regex_threads.run(matching_of, pattern, ids)
    if matching is None:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    wanted = await how_often(matching)
    matched = []
    for listed in response.transaction_states:
        if listed.transactional_id in wanted:
            matched.append(listed)
        await pause()
    response.transaction_states = matched
    return response
