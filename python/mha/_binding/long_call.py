"""Long calls: callbacks of the user, progress, and Ctrl-C, which end a call in order."""
from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .exclusive import held, lent
from .library import call

_running = threading.local()  # `guard` is that of the call that runs in this thread
_interrupts: list[tuple[int, Any]] = []  # the signals received during a call of the main thread


def _note(number: int, frame: Any) -> None:
    _interrupts.append((number, frame))


@contextmanager
def _held_interrupts() -> Iterator[None]:
    """Holds Ctrl-C back until the call has ended. Python would otherwise run the handler on entry to a callback, where its exception
    would be lost in C; instead, the next callback ends the call."""
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(before) or before is _note:
        yield
        return
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        noted = list(_interrupts)
        _interrupts.clear()
        if noted:
            before(*noted[0])


def interrupted() -> bool:
    """Returns whether Ctrl-C was pressed during the running call of the main thread."""
    return bool(_interrupts) and threading.current_thread() is threading.main_thread()


def running() -> Guard | None:
    """Returns the guard of the call that runs in this thread."""
    found: Guard | None = getattr(_running, "guard", None)
    return found


class Guard:
    """Wraps callbacks of the user: an exception, which must not pass through C, ends the call and is raised afterwards."""

    def __init__(self) -> None:
        self.raised: list[BaseException] = []
        self.at_end: list[Callable[[], Any]] = []
        self.held = held()

    def wrap(self, function: Callable[..., Any]) -> Callable[..., int]:
        def run(*arguments: Any) -> int:
            try:
                with lent(self.held):
                    return int(bool(self.raised or interrupted() or function(*arguments)))
            except BaseException as error:
                self.raised.append(error)
                return 1
        return run

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that returns a status; raises the exception of a callback, KeyboardInterrupt after Ctrl-C, or the error."""
        self.held = held()
        outer, _running.guard = running(), self
        try:
            with _held_interrupts():
                call(name, *arguments)
        except KeyboardInterrupt:
            if not self.raised:
                raise
        finally:
            _running.guard = outer
            for finish in self.at_end:
                finish()
        if self.raised:
            raise self.raised[0]


def call_long(name: str, *arguments: Any) -> None:
    """Like call(), for a function that may take long: reports progress, and ends in order on Ctrl-C."""
    Guard().call(name, *arguments)
