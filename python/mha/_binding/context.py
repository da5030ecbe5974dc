"""Creates the contexts of the library: one per (threads, ISA), on first use."""
from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings
from typing import Any

from .._arrays.array import integer
from .abi import CtxOptions, LogFn
from .library import call, lib, string, struct
from .progress import PROGRESS

_lock = threading.RLock()  # a log callback may call the package
_made: dict[tuple[int, str | None], ctypes.c_void_p] = {}
_threads, _isa = 0, None  # 0, None: MHA_THREADS, MHA_ISA; if unset, all CPUs and the newest ISA


_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


def _outside() -> int:
    """Returns the stack level, counted from the caller, of the line that called mha."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


def _on_log(_user: Any, level: int, message: bytes) -> None:
    if level == 0:  # a warning
        warnings.warn(message.decode("utf-8", "replace"), stacklevel=_outside())


_LOG = LogFn(_on_log)


def _count(threads: int | None, name: str = "threads") -> int:
    return integer(threads, name, -2**31, 2**31 - 1)  # the library checks the range


def context(threads: int | None = None) -> ctypes.c_void_p:
    """Returns the handle of the context with the current settings; `threads`, if given, replaces the number of threads."""
    key = (_threads if threads is None else _count(threads), _isa)
    with _lock:
        if key not in _made:
            handle = ctypes.c_void_p()
            options = struct(CtxOptions, threads=key[0], isa=string(key[1], "isa") if key[1] else None, log=_LOG, progress=PROGRESS)
            call("mha_ctx_create", ctypes.byref(options), ctypes.byref(handle))
            _made[key] = handle
        return _made[key]


def isa() -> str:
    """Returns the instruction set in use: scalar, avx2, avx512 ...

        >>> import mha
        >>> mha.isa() in mha.isa_list()
        True
    """
    name: bytes = lib.mha_ctx_isa(context())
    return name.decode()


def set_isa(name: str | None) -> None:
    """Limits the instruction set of later calls; None: the newest of this CPU. Raises ValueError if it is unknown or unavailable.

        >>> import mha
        >>> mha.set_isa("scalar")
        >>> mha.isa()
        'scalar'
        >>> mha.set_isa(None)
    """
    global _isa
    before, _isa = _isa, name
    try:
        context()
    except Exception:
        _isa = before
        raise


def set_threads(n: int) -> None:
    """Sets the number of threads of later calls; 0: all CPUs of the process. Results are bitwise identical for any number of threads.

        >>> import mha
        >>> mha.set_threads(1)
        >>> mha.threads()
        1
        >>> mha.set_threads(0)
    """
    global _threads
    before, _threads = _threads, _count(n, "n")
    try:
        context()
    except Exception:
        _threads = before
        raise
