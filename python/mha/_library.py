"""The shared library: its functions with the types of _abi.py, its errors as exceptions."""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

from . import _places
from ._abi import ERR_CANCELLED, ERR_IO, ERR_MEMORY, FUNCTIONS, Error

_Struct = TypeVar("_Struct", bound=ctypes.Structure)


class _Library:
    """Functions get their types when they are first used: there are hundreds, and a program uses a few."""

    def __init__(self) -> None:
        self._loaded = ctypes.CDLL(_places.library())  # CDLL: the interpreter lock is released during each call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._loaded, name)
        function.restype, function.argtypes = FUNCTIONS[name]
        setattr(self, name, function)
        return function


lib = _Library()
version: str = lib.mha_version().decode()

_EXCEPTIONS: dict[int, type[BaseException]] = {ERR_MEMORY: MemoryError, ERR_IO: OSError, ERR_CANCELLED: KeyboardInterrupt}
# Any other failure is the caller's input: ValueError.


def failure(error: Error) -> BaseException:
    """The exception for a failed call, with the library's sentence."""
    return _EXCEPTIONS.get(error.status, ValueError)(error.message.decode("utf-8", "replace"))


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status; its failure is an exception."""
    error = Error()
    if getattr(lib, name)(*arguments, ctypes.byref(error)):
        raise failure(error)


def struct(kind: type[_Struct], /, **fields: Any) -> _Struct:
    """A struct with `size` set, as every struct that is passed in wants it."""
    return kind(size=ctypes.sizeof(kind), **fields)


def callback(kind: type[ctypes.Structure], field: str, function: Callable[..., Any] | None) -> Any:
    """A function as the struct's field of function type takes it; None is NULL."""
    of = dict((name, type_) for name, type_, *_ in kind._fields_)[field]
    return of(function) if function else of()
