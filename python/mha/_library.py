"""The shared library: its functions with the types of _abi.py, its errors as exceptions."""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from . import _places
from ._abi import ERR_CANCELLED, ERR_IO, ERR_MEMORY, FUNCTIONS, Error

if TYPE_CHECKING:
    from typing_extensions import Self

_Struct = TypeVar("_Struct", bound=ctypes.Structure)


class _Library:
    """Functions get their types when they are first used: there are hundreds, and a program uses a few."""

    def __init__(self) -> None:
        self._loaded = ctypes.CDLL(_places.library())  # CDLL: the interpreter lock is released during each call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._loaded, name)
        function.restype, function.argtypes = FUNCTIONS[name]
        setattr(self, name, function)
        return cast("Callable[..., Any]", function)


lib = _Library()
version: str = lib.mha_version().decode()

_EXCEPTIONS: dict[int, type[BaseException]] = {ERR_MEMORY: MemoryError, ERR_IO: OSError, ERR_CANCELLED: KeyboardInterrupt}
# Any other failure is the caller's input: ValueError.


def failure(error: Error) -> BaseException:
    """The exception for a failed call, with the message of the library."""
    return _EXCEPTIONS.get(error.status, ValueError)(error.message.decode("utf-8", "replace"))


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status; its failure is an exception."""
    error = Error()
    if getattr(lib, name)(*arguments, ctypes.byref(error)):
        raise failure(error)


class Owned(ctypes.c_void_p):
    """A pointer to an object of the library, freed with its last reference: a call that it is passed to is one, and so are the
    objects that need it (`parents` are those that this one needs)."""

    def __init__(self, value: int | None, free: Callable[..., Any], parents: tuple[Any, ...] = ()) -> None:
        super().__init__(value)
        self.free, self.parents = free, parents

    def __del__(self) -> None:
        self.free(self)


class Handle:
    """Something that owns an object of the library: freed by close(), at the end of a `with`, or with the last reference."""

    _owned: Owned | None = None

    def _own(self, handle: ctypes.c_void_p, free: str, *parents: Any) -> None:
        self._owned = Owned(handle.value, getattr(lib, free), parents)  # found now: at the end of the interpreter `lib` may be gone

    def _open(self) -> Owned:
        if self._owned is None:
            raise ValueError(f"mha.{type(self).__name__}: is closed")
        return self._owned

    @property
    def closed(self) -> bool:
        return self._owned is None

    def close(self) -> None:
        """Gives the object up: it is freed when nothing else needs it. May be called more than once."""
        self._owned = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Guard:
    """Functions of the user, called by the library: an exception must not pass through C. It ends the call, and is raised after it."""

    def __init__(self) -> None:
        self.raised: list[BaseException] = []

    def wrap(self, function: Callable[..., Any]) -> Callable[..., int]:
        def run(*arguments: Any) -> int:
            try:
                return int(bool(self.raised or function(*arguments)))
            except BaseException as error:  # KeyboardInterrupt too: it arrives here
                self.raised.append(error)
                return 1
        return run

    def call(self, name: str, *arguments: Any) -> None:
        """call(), or what a function of the user raised."""
        try:
            call(name, *arguments)
        except KeyboardInterrupt:
            if not self.raised:
                raise
        if self.raised:
            raise self.raised[0]


def struct(kind: type[_Struct], /, **fields: Any) -> _Struct:
    """A struct with `size` set, as every struct that is passed in wants it."""
    return kind(size=ctypes.sizeof(kind), **fields)


def callback(kind: type[ctypes.Structure], field: str, function: Callable[..., Any] | None) -> Any:
    """A function as the struct's field of function type takes it; None is NULL."""
    of: Any = {name: type_ for name, type_, *_ in kind._fields_}[field]
    return of(function) if function else of()
