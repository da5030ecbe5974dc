"""mha.Functions: user functions of scores and masks, compiled or in Python (include/mha/score_functions.h)."""
from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from ctypes import c_void_p
from typing import Any, cast

import numpy as np

from .._arrays.array import integer
from .._binding.abi import AttnFunctions
from .._binding.exclusive import Exclusive, held, lent
from .._binding.library import struct

_NAMES = ("score", "score_back", "keep", "block")
_TYPES = {name: kind for name, kind, *_ in AttnFunctions._fields_ if name in _NAMES}
_BLOCKS = {"some": 0, "none": 1, "all": 2}


def _address(function: Any) -> int | None:
    """Returns the address of a compiled function, or None for a Python function."""
    if isinstance(function, int):
        return integer(function, "function", 0, 2**64 - 1)
    if isinstance(function, cast(Any, ctypes)._CFuncPtr):
        return ctypes.cast(function, c_void_p).value or 0
    if type(function).__module__ == "_cffi_backend":
        backend: Any = importlib.import_module("_cffi_backend")
        return int(backend.FFI().cast("uintptr_t", function))
    address = getattr(function, "address", None)  # of numba.cfunc
    return address if isinstance(address, int) else None


class Functions:
    """User functions of scores and masks for mha.attention(..., functions=...).

    Each function is compiled (the result of numba.cfunc, a cffi or ctypes function pointer, or an address as int, with the
    signatures of include/mha/score_functions.h and `user` as its first argument), or a Python function on NumPy arrays, which
    is slow: it is called once per row and 128 keys.

        score(s, b, h, i, j)           returns the new scores of row i and keys j; s and j are arrays
        score_back(s, ds, b, h, i, j)  returns the gradient of s, given the gradient ds of the new scores
        keep(b, h, i, j)               returns a boolean array: True if row i may attend to key j
        block(b, h, i, rows, j, keys)  returns "none", "some" or "all" for a block of pairs

    i is a position among the keys, which `align` or `offsets` defines. score_added=True states that score only adds terms
    that do not depend on s, so that score_back is not required. An exception in a Python function is raised after the call.

        >>> import numpy as np, mha
        >>> q = np.random.default_rng(0).standard_normal((1, 2, 6, 8), dtype=np.float32)
        >>> causal = mha.Functions(keep=lambda b, h, i, j: j <= i)
        >>> bool(np.array_equal(mha.attention(q, q, q, functions=causal), mha.attention(q, q, q, causal=True)))
        True
    """

    def __init__(self, *, score: Any = None, score_back: Any = None, keep: Any = None, block: Any = None, score_added: bool = False,
                 user: int | None = None) -> None:
        self.score, self.score_back, self.keep, self.block = score, score_back, keep, block
        self.score_added = bool(score_added)
        self.user = None if user is None else integer(user, "user", 0, 2**64 - 1)
        for name in _NAMES:
            function = getattr(self, name)
            if function is None:
                continue
            if isinstance(function, bool) or (_address(function) is None and not callable(function)):
                raise ValueError(f"{name} must be a function, a compiled callback or an address (got {type(function).__name__})")
            if _address(function) == 0:
                raise ValueError(f"{name} must not be a null pointer (got address 0)")


class BoundFunctions:
    """The functions of one call, as the library calls them."""

    def __init__(self, functions: Functions, real: Any) -> None:
        self.given, self.real = functions, real
        self.raised: list[BaseException] = []
        self.held: tuple[Exclusive, ...] = held()  # the locks of the call, whose functions run in several threads
        self.struct = struct(AttnFunctions)
        self.struct.user, self.struct.score_added = functions.user, int(functions.score_added)
        for name in _NAMES:
            function = getattr(functions, name)
            if function is not None:
                setattr(self.struct, name, self._pointer(name, function))

    def _pointer(self, name: str, function: Any) -> Any:
        address = _address(function)
        kind = cast(Any, _TYPES[name])
        return kind(address) if address is not None else kind(self._guarded(getattr(self, "_" + name)))

    def _guarded(self, function: Callable[..., int | None]) -> Callable[..., int | None]:
        """An exception must not pass through C; it is raised after the call."""
        def run(*arguments: Any) -> int | None:
            try:
                with lent(self.held):
                    return None if self.raised else function(*arguments[1:])
            except BaseException as reason:
                self.raised.append(reason)
                return None
        return lambda *arguments: run(*arguments) or 0

    def _array(self, address: int, count: int) -> Any:
        kind = ctypes.c_double if self.real == np.float64 else ctypes.c_float
        return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(kind)), (count,))

    def _score(self, b: int, h: int, i: int, j0: int, count: int, scores: int) -> None:
        s = self._array(scores, count)
        s[:] = self.given.score(s, b, h, i, np.arange(j0, j0 + count))

    def _score_back(self, b: int, h: int, i: int, j0: int, count: int, scores: int, dscores: int) -> None:
        ds = self._array(dscores, count)
        ds[:] = self.given.score_back(self._array(scores, count), ds, b, h, i, np.arange(j0, j0 + count))

    def _keep(self, b: int, h: int, i: int, j0: int, count: int, keep: int) -> None:
        to = np.ctypeslib.as_array(ctypes.cast(keep, ctypes.POINTER(ctypes.c_uint8)), (count,))
        to[:] = np.asarray(self.given.keep(b, h, i, np.arange(j0, j0 + count)), bool)

    def _block(self, b: int, h: int, i: int, rows: int, j: int, keys: int) -> int:
        kind = self.given.block(b, h, i, rows, j, keys)
        if kind not in _BLOCKS:
            raise ValueError(f"block must return 'none', 'some' or 'all' (got {kind!r})")
        return _BLOCKS[kind]

    def check(self) -> None:
        """Raises the exception of a Python function, if there was one."""
        if self.raised:
            reason = self.raised[0]
            self.raised.clear()
            raise reason
