"""One call of the attention operator: its operands and their shapes, its description and arguments, and the memory that they refer to."""
from __future__ import annotations

import ctypes
from ctypes import c_void_p
from typing import Any

import numpy as np

from .._arrays.array import BOOL, F64, Array, array, choose, operand
from .._binding.abi import ATTN_FUNCTIONS, AttnArgs, AttnDesc, View
from .._binding.library import struct
from .functions import BoundFunctions, Functions

_LAYOUT = {"bhld": (0, 1, 2, 3), "blhd": (0, 2, 1, 3)}  # axes of a [B, H, L, D] view


class Call:
    """Description and arguments of one call; keeps their memory alive."""

    def __init__(self, q: Any, k: Any, v: Any, layout: str, packed: bool, paged: bool) -> None:
        self.desc, self.args = struct(AttnDesc), struct(AttnArgs)
        self.alive: list[Any] = []
        self.functions: BoundFunctions | None = None
        axes = choose("layout", layout, _LAYOUT)
        self.packed, self.packed_keys = packed, packed and not paged
        self.axes, self.key_axes = _LAYOUT["blhd"] if packed else axes, _LAYOUT["blhd"] if self.packed_keys else axes
        self.q = self._operand(q, "q", packed)
        self.k, self.v = self._operand(k, "k", self.packed_keys), self._operand(v, "v", self.packed_keys)
        self._shapes(paged)
        for name, axes in (("q", self.axes), ("k", self.key_axes), ("v", self.key_axes)):
            setattr(self.args, name, getattr(self, name).view(axes))

    def _operand(self, x: Any, name: str, packed: bool) -> Array:
        a = operand(x, name)
        if len(a.shape) != (3 if packed else 4):
            raise ValueError(f"{name}.ndim must be {3 if packed else 4} (got shape {a.shape})")
        if packed:  # [T, H, D] is [1, T, H, D]
            a.shape, a.strides = (1,) + a.shape, (0,) + a.strides
        return a

    def _shapes(self, paged: bool) -> None:
        q = [self.q.shape[x] for x in self.axes]
        k, v = ([a.shape[x] for x in self.key_axes] for a in (self.k, self.v))
        if k[:3] != v[:3] or (q[0] != k[0] and not paged) or q[3] != k[3]:
            raise ValueError("q, k and v must agree in batch, key/value heads, keys and head width "
                             f"(got {self.q.shape}, {self.k.shape}, {self.v.shape})")
        if self.k.dtype != self.v.dtype:
            raise ValueError(f"k and v must have the same dtype (got {self.k.dtype_name} and {self.v.dtype_name})")
        if 0 in (q[1], q[3], k[1], v[3]):  # in the library, 0 means the default
            raise ValueError(f"q, k and v must have heads of width at least 1 (got {self.q.shape}, {self.k.shape}, {self.v.shape})")
        d = self.desc
        d.batch, d.heads, d.q_len, d.head_dim = q
        d.kv_heads, d.kv_len, d.v_head_dim = k[1], k[2], v[3]
        d.dtype, d.kv_dtype = self.q.dtype, self.k.dtype

    @property
    def rows(self) -> tuple[int, int, int, int]:
        """The shape (batch, heads, rows, keys) of inputs such as masks."""
        d = self.desc
        return d.batch, d.heads, d.max_q_len or d.q_len, d.max_kv_len or d.kv_len

    @property
    def maps(self) -> tuple[int, int, int, int]:
        """The shape (batch, heads, rows, keys) of probs and scores."""
        d, (batch, heads, rows, keys) = self.desc, self.rows
        return batch, d.map_heads or d.listed_heads or heads, d.map_rows or rows, keys

    @property
    def results(self) -> tuple[int, int, int]:
        """The axes (batch, heads, rows) of out."""
        d = self.desc
        return 1 if self.packed else d.batch, d.listed_heads or d.heads, d.q_len

    def give(self, flag: int, name: str, value: Any) -> None:
        """Sets an argument and its flag in the description."""
        self.desc.inputs |= flag
        if isinstance(value, np.ndarray):
            self.alive.append(value)
            value = c_void_p(value.ctypes.data)
        setattr(self.args, name, value)

    def use(self, functions: Any) -> None:
        """Sets user functions of scores and masks."""
        if not isinstance(functions, Functions):
            raise ValueError(f"functions must be of type mha.Functions (got {type(functions).__name__})")
        self.functions = BoundFunctions(functions, np.float64 if self.desc.dtype == F64 else np.float32)
        self.give(ATTN_FUNCTIONS, "functions", ctypes.pointer(self.functions.struct))

    def end(self) -> None:
        """Raises the exception of a user function that failed during the call."""
        if self.functions is not None:
            self.functions.check()

    def masked(self, flag: int, name: str, x: Any, types: tuple[int, ...]) -> Array:
        a = array(x, name)
        if a.dtype not in types:
            raise ValueError(f"{name} must be of {'type bool' if BOOL in types else 'a floating type'} (got {a.dtype_name})")
        self.alive.append(a)
        self.give(flag, name, a.broadcast(self.rows, name, first_keys=BOOL in types))
        return a

    def vector(self, flag: int, name: str, x: Any) -> None:
        """Sets slopes, sinks or gates: [H] or [B, H], float32, or float64 if q is float64."""
        a = np.ascontiguousarray(np.asarray(x), dtype=np.float64 if self.desc.dtype == F64 else np.float32)
        batch, heads = self.desc.batch, self.desc.heads
        if a.shape not in ((heads,), (batch, heads)):
            raise ValueError(f"{name} must be of shape ({heads},) or ({batch}, {heads}) (got {a.shape})")
        self.alive.append(a)
        self.give(flag, name, View(a.ctypes.data, (ctypes.c_int64 * 4)(heads if a.ndim == 2 else 0, 1, 0, 0)))
