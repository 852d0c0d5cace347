"""Computing off the user interface's thread, where only the newest request matters."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")


class LatestOnly(Generic[Request, Result]):
    """One worker thread; a newer request cancels the one being computed and replaces any waiting.

    Results and failures are handed to the event loop that created this object, so that widgets
    change on one thread only; without a running loop they are handed over on the worker.

    Args:
        compute: called on the worker as `compute(request, cancelled)`; should return early, with
            anything, once the event `cancelled` is set.
        deliver: gets the result of every request that was not overtaken.
        fail: gets the exception of every request that was not overtaken.
    """

    def __init__(
        self,
        compute: Callable[[Request, threading.Event], Result],
        deliver: Callable[[Result], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._compute = compute
        self._deliver = deliver
        self._fail = fail
        self._loop = _running_loop()
        self._owner = threading.get_ident()
        self._changed = threading.Condition()
        self._waiting: list[Request] = []
        self._cancelled = threading.Event()
        self._busy = False
        self._thread: threading.Thread | None = None

    def submit(self, request: Request) -> None:
        """Compute this request next, instead of any other."""
        with self._changed:
            self._cancelled.set()
            self._waiting = [request]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drop(self) -> None:
        """Deliver nothing of what was asked for so far."""
        with self._changed:
            self._cancelled.set()
            self._waiting = []
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is being computed or waiting; False if that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy and not self._waiting, timeout)

    def hand_over(self, action: Callable[[], None]) -> None:
        """Run something where widgets may be changed; callable from any thread.

        At once on the thread that created this object: what waited for its event loop would come
        after whatever that thread does next.
        """
        is_elsewhere = threading.get_ident() != self._owner
        if is_elsewhere and self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(action)
        else:
            action()

    def _work(self) -> None:
        while True:
            request, cancelled = self._next()
            self._answer(request, cancelled)
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _next(self) -> tuple[Request, threading.Event]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            self._busy = True
            self._cancelled = threading.Event()
            return self._waiting.pop(), self._cancelled

    def _answer(self, request: Request, cancelled: threading.Event) -> None:
        try:
            result = self._compute(request, cancelled)
        except Exception as error:  # shown in the widget, whatever it is
            failure = error
            if not cancelled.is_set():
                self.hand_over(lambda: self._fail(failure))
            return
        if not cancelled.is_set():
            self.hand_over(lambda: self._deliver(result))


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
