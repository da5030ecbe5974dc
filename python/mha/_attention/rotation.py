"""The rotary embedding of one attention call (mha_attn_rope)."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._arrays.array import integers
from .._binding.abi import AttnRope, View
from .._binding.library import struct
from .._layers.rope import POSITIONS_MAX, Rope


def _positions(x: Any, name: str, batch: int, rows: int) -> tuple[np.ndarray, View]:
    """Returns positions [rows] or [batch, rows], and their View."""
    a = integers(x, name, dims=(1, 2))
    if a.max(initial=0) >= POSITIONS_MAX:
        raise ValueError(f"{name} must be below {POSITIONS_MAX} (got {a.max()})")
    if a.shape not in ((rows,), (batch, rows)):
        raise ValueError(f"{name} must be of shape ({rows},) or ({batch}, {rows}) (got {a.shape})")
    return a, View(a.ctypes.data, (ctypes.c_int64 * 4)(rows if a.ndim == 2 else 0, 1, 0, 0))


class BoundRope:
    """The tables and positions of one call; keeps their memory alive."""

    def __init__(self, rope: Any, wide: bool, head_dim: int) -> None:
        if not isinstance(rope, Rope):
            raise ValueError(f"rope must be of type mha.Rope (got {type(rope).__name__})")
        if rope.head_dim != head_dim:
            raise ValueError(f"rope.head_dim must be the head width {head_dim} (got {rope.head_dim})")
        self.rope, self.wide, self.length = rope, wide, 1
        self.alive: list[Any] = []
        self.ends: Sequence[int] = ()
        self.struct = struct(AttnRope, rotary_dim=rope.rotary_dim, interleaved=rope.options.interleaved)

    def place(self, name: str, x: Any, batch: int, rows: int, ends: Sequence[int]) -> None:
        """Sets q_positions or k_positions, unless x is None; `ends`: 1 + the largest default position of each sequence."""
        if x is not None:
            a, view = _positions(x, name, batch, rows)
            self.alive.append(a)
            setattr(self.struct, name, view)
            ends = [int(row.max(initial=-1)) + 1 for row in np.atleast_2d(a)]
        self.length = max(self.length, *ends, 1)
        self.ends = ends

    def require_one_length(self) -> None:
        """Raises ValueError if the angles depend on the length and the sequences, placed last, have different lengths."""
        if self.rope.depends_on_length and len(set(self.ends)) > 1:
            raise ValueError("rope.kind must not be 'dynamic' or 'longrope' for sequences of different lengths: pass one sequence per call "
                             f"(got lengths {list(self.ends)})")

    def pointer(self) -> Any:
        """Computes the tables for all positions, and returns the struct of the call."""
        cos, sin = self.rope.table(self.length, self.wide)
        self.alive += [cos, sin]
        self.struct.positions, self.struct.cos, self.struct.sin = len(cos), cos.ctypes.data, sin.ctypes.data
        return ctypes.pointer(self.struct)
