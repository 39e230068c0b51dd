"""Retries the work of the active controller that failed because the metadata store refused a write, or because of a fault.

Events come only when something changes, so a new topic would have no leaders until then. After a refusal the whole
state of the cluster is checked again: brokers that came and went, states that were written and not sent, partitions
without a leader, deletions, interrupted and complete reassignments, brokers without metadata. The context holds that
state, whichever write was refused.
`Controller` starts the timer and ends it when it resigns.
"""

import asyncio

from ottla.controller.events.broker_changes import BrokerChanges
from ottla.controller.events.reassignment import Reassignments
from ottla.controller.state.core import ControllerCore
from ottla.controller.state.request_batch import EVERY_BROKER
from ottla.controller.znodes.pauses import slices

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


class RefusedWrites:
    """The timer of one controller. The pauses double as long as writes are refused."""

    def __init__(self, core: ControllerCore, brokers: BrokerChanges, reassignments: Reassignments) -> None:
        self._core = core
        self._brokers = brokers
        self._reassignments = reassignments
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    def on_refused(self) -> None:
        """An event failed, or could not write all states."""
        if self._core.is_active and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause_seconds, self._put)
            self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)

    def end(self) -> None:
        """This controller is no longer active, or stops: its successor checks the whole state anyway."""
        self._pause_seconds = FIRST_PAUSE_SECONDS
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _put(self) -> None:
        self._timer = None
        self._core.put("RefusedWrites", self._try_again)

    async def _try_again(self) -> None:
        core, context = self._core, self._core.context
        await self._brokers.on_broker_change()  # of several changes at once, those after the refusal were not handled
        batch = core.batch()
        batch.update_metadata(EVERY_BROKER, ())
        unsent = [partition for partition in context.unsent if not context.is_being_deleted(partition.topic)]
        await core.elections.send_states(((partition, context.replicas(partition)) for partition in unsent), batch)
        await core.elections.elect_where_needed(batch)
        await batch.send()
        await core.deletion.resume(batch)
        await batch.send()
        await self._reassignments.on_order()
        await self._reassignments.resume_interrupted()
        for some in slices(context.partitions):
            self._reassignments.on_isr_changed(some)
            await core.pause()
        if self._timer is None:  # no write was refused this time
            self._pause_seconds = FIRST_PAUSE_SECONDS
