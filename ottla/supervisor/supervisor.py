"""Supervises the brokers of one directory: starts them together, restarts those that die, and carries out commands.

The supervisor holds the directory's lock as long as it lives, so there is only one at a time. It ends its brokers
before itself. If it is killed, the kernel signals the brokers to stop (`child`), and the next supervisor of the
directory waits for those that have not ended yet.

One thread does what needs the disk, in order. So a disk that answers late delays neither the watchdog of the service manager nor commands
about other brokers.
"""

import asyncio
import fcntl
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ottla.broker.process import ending_signals
from ottla.broker.service_manager import ServiceManager
from ottla.config.errors import ConfigError
from ottla.protocol.client_security import ClientSecurity
from ottla.supervisor import control, state_file
from ottla.supervisor.host_endpoint import BrokerFacts, HostEndpoint
from ottla.supervisor.layout import Layout
from ottla.supervisor.layout_check import check_ids, check_layout
from ottla.supervisor.metadata_convergence import wait_until_converged, without_rack
from ottla.supervisor.processes import BrokerProcess, Outputs
from ottla.supervisor.restarts import Effect, NotNow, State, Supervised
from ottla.supervisor.template import Template

logger = logging.getLogger(__name__)

Found = TypeVar("Found")

STOP_SECONDS = 60.0
"""Time for a broker to stop before it is killed, seconds."""
LEFTOVER_SECONDS = 40.0
CONVERGENCE_SECONDS = 10.0
PATIENCE, PATIENCE_WITH_ZOOKEEPER = 3, 12
"""Failed starts in a row before a broker is given up. After a crash ZooKeeper allows no registration until the old
session times out; twelve starts take longer than the default timeout."""

_SIGNALS = {Effect.KILL: signal.SIGKILL, Effect.TERMINATE: signal.SIGTERM, Effect.PAUSE: signal.SIGSTOP, Effect.RESUME: signal.SIGCONT}


class CannotSupervise(Exception):
    """The cluster cannot be started; the text is one line for the operator."""


class Supervisor:
    """See the module. `run` is called once."""

    def __init__(self, layout: Layout, security: ClientSecurity) -> None:
        """`security` is that of connections to the brokers' ports."""
        self._layout = layout
        self._security = security
        self._patience = PATIENCE_WITH_ZOOKEEPER if layout.uses_zookeeper else PATIENCE
        self._brokers = {broker_id: Supervised(broker_id, self._patience) for broker_id in layout.broker_ids}
        self._processes: dict[int, BrokerProcess] = {}
        self._outputs: dict[int, Outputs] = {}
        self._launching: dict[int, signal.Signals | None] = {}
        """The brokers whose files are being written for a start, with the signal that came meanwhile."""
        self._disk = ThreadPoolExecutor(1, "disk")
        self._tasks: set[asyncio.Task[None]] = set()
        self._metrics: dict[int, str] = {}
        """The address of the metrics of each broker that serves some."""
        self._growing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._ending = asyncio.Event()
        self._name = state_file.name_of(os.getpid())
        self._writing: asyncio.Task[None] | None = None
        self._is_stale = False
        """Whether something has changed since the state file was written."""
        self._unwritten: str | None = None
        """Why the state file is not up to date; None if it is."""

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Run until a signal or command ends the supervisor, and all brokers have ended. `on_ready` is called once all serve.
        Raises CannotSupervise."""
        lock = take_lock(self._layout.directory)
        manager = ServiceManager(os.environ, self._progress)
        manager.on_starting()
        endpoint = None if self._layout.metrics is None else HostEndpoint(self._layout.metrics, self._facts)
        try:
            await self._await_leftovers()
            await check_ids(self._layout, self._layout.broker_ids)
            if endpoint is not None:
                await endpoint.start()
                logger.info("metrics of all brokers are at http://%s/metrics", endpoint.address)
            server = control.ControlServer(self._layout.directory, self._on_request)
            await server.start()
            loop = asyncio.get_running_loop()
            for number in ending_signals():
                loop.add_signal_handler(number, self._ending.set)
            try:
                await self._start_all(on_ready, manager)
                await self._ending.wait()
            finally:
                manager.on_stopping()
                await self._stop_all()
                await server.close()
        except ConfigError as error:
            raise CannotSupervise(str(error)) from None
        finally:
            if endpoint is not None:
                await endpoint.close()
            manager.close()
            await asyncio.gather(*self._tasks)
            self._disk.shutdown()
            os.close(lock)

    # -- all brokers
    # ---------------------------------------------------------------------------------------------------------

    async def _start_all(self, on_ready: Callable[[], None], manager: ServiceManager) -> None:
        for broker in self._brokers.values():
            self._carry_out(broker, broker.on_start())
        while not self._ending.is_set():
            states = {broker.state for broker in self._brokers.values()}
            if State.FAILED in states:
                raise CannotSupervise(
                    "\n".join(f"broker {each.broker_id} {each.reason}" for each in self._brokers.values() if each.state is State.FAILED)
                )
            if states == {State.READY}:
                await self._await_convergence()
                manager.on_ready()
                on_ready()
                return
            await self._next_change()

    async def _await_convergence(self) -> None:
        ready = [broker_id for broker_id, broker in self._brokers.items() if broker.state is State.READY]
        addresses = [self._layout.address(broker_id) for broker_id in ready]
        answer = await asyncio.to_thread(wait_until_converged, ready, addresses, CONVERGENCE_SECONDS, self._security)
        if answer is None:
            logger.warning("after %d s not every broker's metadata lists all brokers; see their logs", CONVERGENCE_SECONDS)
        elif missing := without_rack(answer):
            logger.warning(
                "brokers %s have no rack, and others have one: no topic can be created; set broker.rack for all brokers, or for none",
                ", ".join(map(str, missing)),
            )

    async def _stop_all(self) -> None:
        """Stop all brokers at once: in any order, the last one could not move its partitions to another broker."""
        deadline = time.monotonic() + STOP_SECONDS
        for broker in self._brokers.values():
            if broker.state is State.PAUSED:
                self._carry_out(broker, broker.on_resume())
            if broker.state is not State.STOPPED:
                self._carry_out(broker, broker.on_stop())
        while any(broker.state.has_process for broker in self._brokers.values()):
            if time.monotonic() > deadline:
                for process in self._processes.values():
                    logger.warning("process %d does not end within %d s; killed", process.name.pid, STOP_SECONDS)
                    process.send(signal.SIGKILL)
            await self._next_change(1.0)

    async def _await_leftovers(self) -> None:
        """Wait for brokers of a supervisor that was killed; a suspended one is resumed so that it can end."""
        written = state_file.read(self._layout.directory)
        left = {
            broker_id: name
            for broker_id, name in written.processes().items()
            if name.is_alive and name.was_started_with(self._layout.properties_file(broker_id))
        }
        for broker_id, name in left.items():
            logger.warning("broker %d (process %d) of the last supervisor still runs; waiting for its end", broker_id, name.pid)
            name.send(signal.SIGTERM)
            name.send(signal.SIGCONT)
        deadline = time.monotonic() + LEFTOVER_SECONDS
        while any(name.is_alive for name in left.values()):
            if time.monotonic() > deadline:
                pids = ", ".join(str(name.pid) for name in left.values() if name.is_alive)
                raise CannotSupervise(f"brokers of the last supervisor do not end: processes {pids}; kill them")
            await asyncio.sleep(0.02)

    # -- one broker
    # ----------------------------------------------------------------------------------------------------------

    def _carry_out(self, broker: Supervised, effect: Effect) -> None:
        if effect is Effect.LAUNCH:
            self._launch(broker)
        elif effect is Effect.WAIT:
            asyncio.get_running_loop().call_later(broker.pause_seconds, self._on_pause_over, broker, broker.restarts)
        elif effect in _SIGNALS:
            process = self._processes.get(broker.broker_id)
            if process is not None:
                process.send(_SIGNALS[effect])
            elif broker.broker_id in self._launching:
                self._launching[broker.broker_id] = _SIGNALS[effect]
            # Else the process has ended already, and why is being read.
        self._note_change()

    def _launch(self, broker: Supervised) -> None:
        self._launching[broker.broker_id] = None
        self._begin(self._start_process(broker))

    async def _start_process(self, broker: Supervised) -> None:
        broker_id, layout = broker.broker_id, self._layout

        def prepare() -> tuple[list[str], Outputs]:
            command = layout.command(broker_id, self._name.pid)
            return command, Outputs(layout.error_file(broker_id), layout.log_file(broker_id))

        try:
            try:
                command, outputs = await self._on_disk(prepare)
            finally:
                number = self._launching.pop(broker_id)
            try:
                if number is None:
                    self._processes[broker_id] = BrokerProcess(
                        command, outputs.standard_error, partial(self._on_ready, broker), partial(self._on_exit, broker)
                    )
                    self._outputs[broker_id] = outputs
            finally:
                os.close(outputs.standard_error)
        except OSError as error:  # no memory, no process, or no file for its properties or its output
            self._on_end(broker, 1, f"its process cannot be started: {error}")
            return
        if number is not None:
            self._on_end(broker, 0 if number is signal.SIGTERM else -number, "")
        self._note_change()

    def _on_ready(self, broker: Supervised, found: dict[str, Any]) -> None:
        if found.get("metrics"):
            self._metrics[broker.broker_id] = str(found["metrics"]).removeprefix("http://").removesuffix("/metrics")
        self._carry_out(broker, broker.on_ready(time.monotonic()))
        logger.info("broker %d is ready, process %d", broker.broker_id, self._processes[broker.broker_id].name.pid)

    def _on_exit(self, broker: Supervised, status: int) -> None:
        del self._processes[broker.broker_id]
        outputs = self._outputs.pop(broker.broker_id)
        self._metrics.pop(broker.broker_id, None)
        if status > 0:
            self._begin(self._read_end(broker, status, outputs))
        else:
            self._on_end(broker, status, "")

    async def _read_end(self, broker: Supervised, status: int, outputs: Outputs) -> None:
        self._on_end(broker, status, await self._on_disk(outputs.last_log_line))

    def _on_end(self, broker: Supervised, status: int, said: str) -> None:
        effect = broker.on_exit(status, said, time.monotonic())
        if effect is Effect.WAIT:
            logger.warning("broker %d %s; started again in %.1f s", broker.broker_id, broker.reason, broker.pause_seconds)
        elif broker.state is State.FAILED:
            logger.error(
                "broker %d %s; given up: repair the cause, then `ottla cluster start %d`",
                broker.broker_id,
                broker.reason,
                broker.broker_id,
            )
        else:
            logger.info("broker %d ended with status %d", broker.broker_id, status)
        self._carry_out(broker, effect)

    def _on_pause_over(self, broker: Supervised, restarts: int) -> None:
        # An operator may have started and stopped it meanwhile; the pause then belongs to an earlier start.
        if broker.restarts == restarts:
            self._carry_out(broker, broker.on_pause_over())

    # -- observers
    # -----------------------------------------------------------------------------------------------------------

    def _note_change(self) -> None:
        self._is_stale = True
        if self._writing is None or self._writing.done():
            self._writing = self._begin(self._write_state())
        self._changed.set()
        self._changed = asyncio.Event()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let it run; the supervisor does not end before it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _on_disk(self, work: Callable[[], Found]) -> Found:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)

    def _progress(self) -> str:
        """The state of all brokers in a line, for the service manager."""
        ready = sum(broker.state is State.READY for broker in self._brokers.values())
        return f"{ready} of {len(self._brokers)} brokers are ready"

    async def _facts(self) -> list[BrokerFacts]:
        return [
            BrokerFacts(broker_id, broker.state.value, broker.state is State.READY, broker.restarts, self._metrics.get(broker_id, ""))
            for broker_id, broker in self._brokers.items()
        ]

    async def _write_state(self) -> None:
        """Write the state file until it is up to date. A full disk must not end the supervisor: commands ask it as long as it lives, and
        do not read the file."""
        while self._is_stale:
            self._is_stale = False
            file, state = self._layout.directory / state_file.NAME, self.status()
            try:
                await self._on_disk(partial(state_file.write, file.parent, self._name, state, self._layout.command_config))
            except OSError as error:
                reason = error.strerror or str(error)
                if reason != self._unwritten:
                    logger.warning("%s cannot be written: %s; it is tried again with each change", file, reason)
                self._unwritten = reason
            else:
                self._unwritten = None

    async def _next_change(self, seconds: float | None = None) -> None:
        """Wait until something has changed, the supervisor is ending, or `seconds` have passed."""
        waits = [asyncio.ensure_future(self._changed.wait())]
        if not self._ending.is_set():
            waits.append(asyncio.ensure_future(self._ending.wait()))
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    def status(self) -> list[dict[str, Any]]:
        """The state of each broker, in the form for the state file and for answers."""
        found = []
        for broker_id, broker in self._brokers.items():
            process = self._processes.get(broker_id)
            found.append(
                {
                    "id": broker_id,
                    "pid": None if process is None else process.name.pid,
                    "process_started": None if process is None else process.name.started,
                    "host": self._layout.host,
                    "port": self._layout.port(broker_id),
                    "rack": self._layout.rack(broker_id),
                    "state": broker.state.value,
                    "restarts": broker.restarts,
                    "reason": broker.reason,
                }
            )
        return found

    # -- commands
    # ------------------------------------------------------------------------------------------------------------

    async def _on_request(self, request: control.Answer) -> control.Answer:
        """Carry out one command; answers when it is done."""
        command = request.get("command")
        if command == "status":
            return {"brokers": self.status(), "supervisor": self._name.pid}
        if command == "down":
            self._ending.set()
            while any(broker.state.has_process for broker in self._brokers.values()):
                await self._next_change()
            return {}
        if command == "grow":
            return await self._grow(int(request.get("brokers", 0)))
        broker = self._brokers.get(request.get("id", -1))
        if broker is None:
            return {"error": f"there is no broker {request.get('id')}; there are {min(self._brokers)} to {max(self._brokers)}"}
        if self._ending.is_set():
            return {"error": "the cluster is going down"}
        try:
            return await self._command(broker, str(command), bool(request.get("stays_down")))
        except (NotNow, ConfigError) as error:
            return {"error": str(error)}

    async def _grow(self, count: int) -> control.Answer:
        """Start brokers after the last one, one after the other, until there are `count`. One that does not start is forgotten."""
        if self._growing.locked():
            return {"error": "another command starts brokers of this cluster already; wait for its end"}
        started: list[dict[str, Any]] = []
        async with self._growing:
            while len(self._brokers) < count and not self._ending.is_set():
                broker_id = self._layout.first_id + len(self._brokers)
                try:
                    await self._reload()
                    layout = self._layout.of_size(len(self._brokers) + 1)
                    await self._on_disk(partial(check_layout, layout))
                    await check_ids(layout, [broker_id])
                    if self._ending.is_set():  # "down" has told all brokers to stop meanwhile, and would wait for a new one
                        break
                    self._layout = layout
                    self._brokers[broker_id] = Supervised(broker_id, self._patience)
                    answer = await self._command(self._brokers[broker_id], "start", False)
                except (NotNow, ConfigError) as error:  # the file may have changed during the checks
                    answer = {"error": str(error)}
                if "error" in answer:
                    new = self._brokers.get(broker_id)
                    if new is not None and not new.state.has_process and not self._ending.is_set():
                        await self._forget(broker_id)
                    return {**answer, "started": started}
                started.append({"id": broker_id, "address": self._layout.address(broker_id)})
            await self._await_convergence()
        return {"error": "the cluster is going down", "started": started} if self._ending.is_set() else {"started": started}

    async def _forget(self, broker_id: int) -> None:
        """The last broker, which has no process, is no longer one of the cluster, also for a start without the state file."""
        del self._brokers[broker_id]
        file = self._layout.properties_file(broker_id)
        self._layout = self._layout.of_size(len(self._brokers))
        self._note_change()
        with suppress(OSError):
            await self._on_disk(partial(file.unlink, missing_ok=True))

    async def _command(self, broker: Supervised, command: str, stays_down: bool) -> control.Answer:
        if command == "start":
            await self._reload()
            if self._ending.is_set():  # "down" has come meanwhile, and waits for no broker that starts after it
                return {"error": "the cluster is going down"}
            self._carry_out(broker, broker.on_start())
            while broker.state in {State.STARTING, State.WAITING}:
                await self._next_change()
            return {} if broker.state is State.READY else {"error": f"broker {broker.broker_id} {broker.reason or broker.state.value}"}
        if command == "stop":
            if broker.state is State.PAUSED:
                self._carry_out(broker, broker.on_resume())
            self._carry_out(broker, broker.on_stop())
            while broker.state is State.STOPPING:
                await self._next_change()
            return {}
        if command == "restart":
            await self._reload()  # before the stop: with a configuration that is invalid by now the broker goes on
            await self._command(broker, "stop", False)
            return await self._command(broker, "start", False)
        if command == "remove":
            if broker.state not in {State.STOPPED, State.FAILED} or broker.broker_id != max(self._brokers) or len(self._brokers) == 1:
                return {"error": f"broker {broker.broker_id} is {broker.state.value}; only the last one can be removed, when it is stopped"}
            await self._forget(broker.broker_id)
            return {}
        if command == "kill":
            process = self._processes.get(broker.broker_id)
            self._carry_out(broker, broker.on_kill(stays_down))
            while process is not None and self._processes.get(broker.broker_id) is process:
                await self._next_change()
            return {}
        if command == "pause":
            self._carry_out(broker, broker.on_pause())
            return {}
        if command == "resume":
            self._carry_out(broker, broker.on_resume())
            return {}
        return {"error": f"the supervisor has no command {command}"}

    async def _reload(self) -> None:
        """Read the template again, so that a restart by an operator applies its changes. Raises ConfigError, and keeps the old one then."""
        layout = self._layout
        if layout.template.file is not None:

            def read() -> Template:
                reloaded = layout.reloaded(os.environ)
                check_layout(reloaded)
                return reloaded.template

            template = await self._on_disk(read)
            self._layout = replace(self._layout, template=template)  # whose size may have changed meanwhile


def take_lock(directory: Path) -> int:
    """The descriptor that locks the directory until it is closed. Raises CannotSupervise when another supervisor holds
    the lock, and when the file belongs to another user."""
    path = directory / ".supervisor.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CannotSupervise(
            f"{path} cannot be opened: {error.strerror}; start the cluster as the user who owns its files, or set another --dir"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise CannotSupervise(f"{directory} has a supervisor already; `ottla cluster status --dir {directory}` shows it") from None
    return descriptor
