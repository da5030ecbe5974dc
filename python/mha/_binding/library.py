"""Loads the shared library, adds the types of abi.py to its functions, and raises its errors as exceptions."""
from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import c_char_p, c_void_p
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from . import places
from .abi import ERR_CANCELED, ERR_IO, ERR_MEMORY, FUNCTIONS, Error
from .exclusive import Exclusive

if TYPE_CHECKING:
    from typing_extensions import Self

_Struct = TypeVar("_Struct", bound=ctypes.Structure)


class _Library:
    """The shared library. Sets the types of a function at its first use: the library has hundreds of functions, a program uses few."""

    def __init__(self) -> None:
        self._loaded = ctypes.CDLL(places.library())  # CDLL releases the interpreter lock during each call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._loaded, name)
        function.restype, function.argtypes = FUNCTIONS[name]
        setattr(self, name, function)
        return cast("Callable[..., Any]", function)

    def untyped(self, name: str) -> Callable[..., int]:
        """Returns a function that returns a status, without argument types, whose checks take longer than a short call. All arguments
        must be ctypes objects of the types that the function expects."""
        return cast("Callable[..., int]", self._loaded[name])  # a new object, so the function with argument types is unchanged


lib = _Library()
version: str = lib.mha_version().decode()

_EXCEPTIONS: dict[int, type[BaseException]] = {ERR_MEMORY: MemoryError, ERR_IO: OSError, ERR_CANCELED: KeyboardInterrupt}
# All other errors are caused by the caller's input and raise ValueError.


def failure(error: Error) -> BaseException:
    """Returns the exception for an error, with the message of the library."""
    return _EXCEPTIONS.get(error.status, ValueError)(error.message.decode("utf-8", "replace"))


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status; raises an exception if it fails."""
    error = Error()
    if getattr(lib, name)(*arguments, ctypes.byref(error)):
        raise failure(error)


class Owned(ctypes.c_void_p):
    """A pointer to an object of the library, freed with its last reference. Running calls and dependent objects hold references;
    `parents` are the objects on which this object depends. The garbage collector finalizes the objects of a cycle in any order: an
    object whose children are not freed yet is freed by the last of them."""

    def __init__(self, value: int | None, free: Callable[..., Any], parents: tuple[Any, ...] = ()) -> None:
        super().__init__(value)
        self.free, self.parents = free, parents
        self._children: set[int] = set()
        self._finalized, self._kept = False, [True]
        for parent in self._owners():
            parent._children.add(id(self))

    def _owners(self) -> list[Owned]:
        return [x for x in self.parents if isinstance(x, Owned)]

    def __del__(self) -> None:
        self._finalized = True
        self._release()

    def _release(self) -> None:
        if not self._finalized or self._children:
            return
        try:
            self._kept.pop()  # the first of several threads frees the object
        except IndexError:
            return
        self.free(self)
        for parent in self._owners():
            parent._children.discard(id(self))
            parent._release()


class Handle:
    """Base of classes that own an object of the library, freed by close(), at the end of `with`, or with the last reference."""

    _owned: Owned | None = None

    def _own(self, handle: ctypes.c_void_p, free: str | Callable[..., Any], *parents: Any) -> None:
        release = getattr(lib, free) if isinstance(free, str) else free  # looked up here, since `lib` may be None at interpreter exit
        self._owned = Owned(handle.value, release, parents)
        self._exclusive = Exclusive(type(self).__name__)  # see exclusive()

    def _open(self) -> Owned:
        if self._owned is None:
            raise ValueError(f"mha.{type(self).__name__} is closed")
        return self._owned

    @property
    def closed(self) -> bool:
        return self._owned is None

    def close(self) -> None:
        """Releases the object, which is freed once no other object needs it. May be called more than once."""
        self._owned = None

    def __reduce__(self) -> Any:
        raise TypeError(f"mha.{type(self).__name__} cannot be copied or pickled")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def struct(kind: type[_Struct], /, **fields: Any) -> _Struct:
    """Creates a struct with its field `size`, if it has one. Arrays become pointers to their elements, which must be contiguous; the
    struct keeps them alive."""
    if kind._fields_[0][0] == "size":
        fields["size"] = ctypes.sizeof(kind)
    made = kind(**{name: x.ctypes.data if isinstance(x, np.ndarray) else x for name, x in fields.items()})
    made.__dict__["alive"] = fields
    return made


def create(name: str, *arguments: Any) -> c_void_p:
    """Calls a function whose last argument before the error is a new object; returns the object."""
    handle = c_void_p()
    call(name, *arguments, ctypes.byref(handle))
    return handle


def utf8(x: Any, name: str = "text") -> bytes:
    """Encodes a str as UTF-8."""
    if not isinstance(x, str):
        raise ValueError(f"{name} must be a str (got {type(x).__name__})")
    return x.encode("utf-8", "surrogatepass")


def _terminated(data: bytes, name: str) -> bytes:
    """Returns the bytes of a string of C, which a NUL character would end."""
    if b"\0" in data:
        raise ValueError(f"{name} must not contain a NUL character (got {data.decode('utf-8', 'replace')!r:.80})")
    return data


def string(x: Any, name: str) -> bytes:
    """Encodes a str as UTF-8 without NUL characters, as strings of C."""
    return _terminated(utf8(x, name), name)


def path_bytes(x: Any, name: str = "path") -> bytes:
    """Encodes a path without NUL characters, as strings of C."""
    return _terminated(os.fsencode(x), name)


def strings(values: Any, name: str) -> Any:
    """Encodes a list of str as an array of strings of C."""
    if isinstance(values, str):
        raise ValueError(f"{name} must be a list of str (got one str)")
    data = [string(x, f"{name}[{n}]") for n, x in enumerate(values)]
    return (c_char_p * len(data))(*data)


def callback(kind: type[ctypes.Structure], field: str, function: Callable[..., Any] | None) -> Any:
    """Converts a function to the type of the struct's field; None becomes NULL."""
    of: Any = {name: type_ for name, type_, *_ in kind._fields_}[field]
    return of(function) if function else of()
