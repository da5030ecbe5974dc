"""mha.set_progress: progress of long calls, as bars of tqdm or by a function."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .abi import ProgressFn
from .long_call import interrupted, running

_function: Callable[[str, int, int], Any] | None = None


class _Bars:
    """One bar of tqdm for each kind of work of a call."""

    def __init__(self) -> None:
        from tqdm import tqdm
        self._tqdm, self._what = tqdm, ""
        self._bar: Any = None

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._bar is None or what != self._what or done < self._bar.n:
            self.close()
            self._bar, self._what = self._tqdm(total=total, desc=what), what
        self._bar.total = total
        self._bar.update(done - self._bar.n)
        if done >= total:
            self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def set_progress(progress: bool | Callable[[str, int, int], Any] | None) -> None:
    """Sets how long calls report their progress: True: as bars of tqdm; a function: called with (what, done, total); False or None: not.

    A true return value of the function ends the call with KeyboardInterrupt, and an exception ends it and is raised. Raises ImportError
    if tqdm is not installed.

        >>> import mha
        >>> seen = []
        >>> mha.set_progress(lambda what, done, total: seen.append((what, done, total)))
        >>> vectors = mha.Model().embed(["the cat", "a dog"])
        >>> seen[-1]
        ('embed', 2, 2)
        >>> mha.set_progress(None)
    """
    global _function
    _function = _Bars() if progress is True else progress or None


def _report(what: bytes, done: int, total: int) -> Any:
    if _function is None:
        return None
    close = getattr(_function, "close", None)
    guard = running()
    if close is not None and guard is not None and close not in guard.at_end:
        guard.at_end.append(close)
    return _function(what.decode("utf-8", "replace"), done, total)


def _on_progress(_user: Any, what: bytes, done: int, total: int) -> int:
    """Called by the library between steps of a long call, on the thread of the call."""
    guard = running()
    if guard is None:
        return int(interrupted())
    return guard.wrap(_report)(what, done, total)


PROGRESS = ProgressFn(_on_progress)
