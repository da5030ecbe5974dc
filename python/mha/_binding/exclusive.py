"""Objects whose calls must not overlap: calls of other threads wait, and a call in a callback of the object's own call is an error."""
from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Self = TypeVar("_Self", bound=Any)
_thread = threading.local()


class Exclusive:
    """The lock of one object. Its name is that of the object in messages. A signal handler, which may interrupt a call, may use the
    object, for example to save a trainer: it runs before or after the library's call, not during it."""

    def __init__(self, name: str) -> None:
        self.name, self.lock = name, threading.RLock()

    def nested(self) -> RuntimeError:
        """Returns the error of a call in a callback."""
        return RuntimeError(f"mha.{self.name} must not be used in a callback of its own call")

    def run(self, function: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        """Calls a function while no other call of the object runs."""
        if self in getattr(_thread, "lent", ()):
            raise self.nested()
        before = held()
        with self.lock:
            try:
                _thread.held = (*before, self)
                return function(*arguments, **options)
            finally:
                _thread.held = before


def held() -> tuple[Exclusive, ...]:
    """Returns the locks of the calls that this thread runs, or for which it runs a callback."""
    found: tuple[Exclusive, ...] = getattr(_thread, "held", ())
    return found


@contextmanager
def lent(locks: tuple[Exclusive, ...]) -> Iterator[None]:
    """Runs a callback, perhaps in another thread, of a call that holds these locks."""
    before = held(), getattr(_thread, "lent", ())
    _thread.held = _thread.lent = locks
    try:
        yield
    finally:
        _thread.held, _thread.lent = before


def exclusive(method: Callable[Concatenate[_Self, _P], _T]) -> Callable[Concatenate[_Self, _P], _T]:
    """Makes the calls of a method exclude those of the object's other exclusive methods."""
    @functools.wraps(method)
    def run(self: _Self, /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        self._open()  # a closed object has no lock
        found: _T = self._exclusive.run(method, self, *arguments, **options)
        return found
    return run


def with_cache(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Makes the calls of a method with an argument `cache` exclude other calls of the cache."""
    @functools.wraps(method)
    def run(*arguments: _P.args, **options: _P.kwargs) -> _T:
        cache: Any = options.get("cache")
        if cache is None:
            return method(*arguments, **options)
        cache._open()
        found: _T = cache._exclusive.run(method, *arguments, **options)
        return found
    return run
