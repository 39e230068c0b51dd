"""Drives a headless Chromium by its DevTools protocol over a pipe, so that no driver and no WebSocket is needed."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 60.0
"""Time for an answer of the browser, and for what a page is to show, on a busy machine."""
_FIRST_DESCRIPTOR = 20
"""The pipe's ends are moved above 3 and 4, which Chromium reads and writes."""
_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=1200,800", "--no-first-run")

is_installed = shutil.which("chromium") is not None


class PageFailed(Exception):
    """The page or the browser answered with an error."""


class Page:
    """One page of a browser."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing
        self._received = b""
        self._number = 0
        self._session: str | None = None
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._ask("Page.enable")

    def open(self, address: str) -> None:
        """Load an address anew, even if only its hash differs: `wait_for` finds nothing of the page before."""
        self._ask("Page.navigate", url="about:blank")
        self._ask("Page.navigate", url=address)

    def run(self, code: str) -> Any:
        """The JSON value of an expression, which may be a promise."""
        found = self._ask("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise PageFailed(json.dumps(found["exceptionDetails"])[:2000])
        return found["result"].get("value")

    def wait_for(self, code: str, what: str = "") -> None:
        """Wait until an expression is true, or an element."""
        deadline = time.monotonic() + SECONDS
        while not self._is_true(code):
            assert time.monotonic() < deadline, f"{what or code} is not so; the page shows: {self.text()[:3000]}"
            time.sleep(0.02)

    def _is_true(self, code: str) -> bool:
        """Whether an expression is true; it is false between two pages, of which the first may take the question with it."""
        try:
            return bool(self.run(f"Boolean({code})"))
        except PageFailed as error:
            if "context" in str(error) or "navigated" in str(error):
                return False
            raise

    def wait_for_text(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.wait_for(f"(document.body?.innerText ?? '').includes({json.dumps(text)})", f"the text {text!a}")

    def text(self) -> str:
        """The text that the page shows."""
        return str(self.run("document.body?.innerText ?? ''"))

    def press(self, key: str, count: int = 1) -> None:
        """Press a key by its name, as `Tab`, `Enter` or `ArrowDown`."""
        code = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "End": 35}.get(key, 0)
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for _ in range(count):
            for kind in ("keyDown", "keyUp"):
                shown = {"text": text} if text and kind == "keyDown" else {}
                self._ask("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **shown)

    def type(self, text: str) -> None:
        """Type a text into the element that has the focus."""
        self._ask("Input.insertText", text=text)

    def click(self, selector: str, text: str = "") -> None:
        """Click on the first element that a selector finds, of those with a text."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})].find((one) => one.innerText.includes({json.dumps(text)}))"
        self.wait_for(found, f"{selector} with {text!a}")
        self.run(f"{found}.click()")

    def fill(self, label: str, value: str) -> None:
        """Set the field with a label, as a user who types it."""
        find = f"[...document.querySelectorAll('label')].findLast((one) => one.innerText.startsWith({json.dumps(label)}))"
        self.wait_for(find, f"a field {label!a}")
        self.run(
            f"(() => {{ const field = {find}.querySelector('input, select, textarea'); field.value = {json.dumps(value)}; "
            "field.dispatchEvent(new Event('input', { bubbles: true })); field.dispatchEvent(new Event('change', { bubbles: true })); })()"
        )

    def colours(self, scheme: str) -> None:
        """Prefer `light` or `dark`."""
        self._ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def size(self, width: int, height: int) -> None:
        """Give the window this size, pixels."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, file: Path) -> None:
        """Write a PNG of the page."""
        file.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self._writing, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise PageFailed(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self) -> Any:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._reading], [], [], max(deadline - time.monotonic(), 0))
            part = os.read(self._reading, 1 << 20) if ready else b""
            if not part:
                raise PageFailed("the browser does not answer")
            self._received += part
        message, _, self._received = self._received.partition(b"\0")
        return json.loads(message)


@contextmanager
def a_page(directory: Path) -> Iterator[Page]:
    """A page of a new browser, whose profile is in the directory."""
    their_reading, writing = (_high(each) for each in os.pipe())
    reading, their_writing = (_high(each) for each in os.pipe())
    command = [
        "bash",
        "-c",
        f'exec "$@" 3<&{their_reading} 4>&{their_writing}',
        "bash",
        "chromium",
        *_OPTIONS,
        f"--user-data-dir={directory}",
    ]
    browser = subprocess.Popen(
        command, pass_fds=(their_reading, their_writing), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        os.close(their_reading)
        os.close(their_writing)
        yield Page(reading, writing)
    finally:
        browser.terminate()
        browser.wait(SECONDS)
        os.close(reading)
        os.close(writing)


def _high(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
    os.close(descriptor)
    return moved
