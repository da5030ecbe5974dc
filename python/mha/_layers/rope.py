"""mha.Rope: rotary position embedding, with the scalings of published checkpoints."""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_double
from typing import Any

import numpy as np

from .._arrays.array import integer, integers, number, real
from .._binding.abi import ROPE_DEFAULT, ROPE_DYNAMIC, ROPE_LINEAR, ROPE_LLAMA3, ROPE_LONGROPE, ROPE_YARN, RopeOptions
from .._binding.context import context
from .._binding.library import call, struct

_KINDS = {"default": ROPE_DEFAULT, "linear": ROPE_LINEAR, "dynamic": ROPE_DYNAMIC, "llama3": ROPE_LLAMA3, "yarn": ROPE_YARN,
          "longrope": ROPE_LONGROPE}
_SCALING: dict[str, Callable[[Any, str], Any]] = {
    "factor": number, "max_positions": integer, "original_positions": integer, "low_freq": number, "high_freq": number, "beta_fast": number,
    "beta_slow": number, "no_truncate": lambda x, _name: bool(x), "gain": number, "mscale": number, "mscale_all": number}
POSITIONS_MAX = 2**31 - 1  # of a table, as in the library


class Rope:
    """Rotates queries and keys by their positions. The options are the fields of mha_rope_options (include/mha/rope.h).

        >>> import numpy as np, mha
        >>> rope = mha.Rope(8, theta=10000)
        >>> x = np.ones((1, 2, 4, 8), np.float32)          # [B, H, L, D]
        >>> y = rope.turn(x)
        >>> bool((y[:, :, 0] == x[:, :, 0]).all()), y.shape   # position 0 is not rotated
        (True, (1, 2, 4, 8))
        >>> bool(np.allclose(rope.turn(y, back=True), x, atol=1e-6))
        True
    """

    def __init__(self, head_dim: int, *, rotary_dim: int = 0, interleaved: bool = False, theta: float = 0.0, kind: str = "default",
                 short_by: Any = None, long_by: Any = None, **scaling: float) -> None:
        if kind not in _KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, _KINDS))} (got {kind!r})")
        for name in scaling:
            if name not in _SCALING:
                raise TypeError(f"Rope() got an unexpected keyword argument {name!r}; the options of scalings are {', '.join(_SCALING)}")
        self.head_dim = integer(head_dim, "head_dim", 0)
        self.rotary_dim = integer(rotary_dim, "rotary_dim", 0) or self.head_dim
        self._factors = [None if x is None else np.ascontiguousarray(x, np.float64) for x in (short_by, long_by)]
        for name, x in zip(("short_by", "long_by"), self._factors):
            if x is not None and x.shape != (self.rotary_dim // 2,):
                raise ValueError(f"{name} must be of shape ({self.rotary_dim // 2},) (got {x.shape})")
        short, long = (None if x is None else x.ctypes.data for x in self._factors)
        self.options = struct(RopeOptions, head_dim=self.head_dim, rotary_dim=rotary_dim, interleaved=bool(interleaved),
                               theta=number(theta, "theta"), kind=_KINDS[kind], short_by=short, long_by=long,
                               **{name: _SCALING[name](x, name) for name, x in scaling.items()})
        self._tables: dict[bool, tuple[np.ndarray, np.ndarray]] = {}
        self.frequencies(1)  # this call raises ValueError for invalid options

    def layer_options(self) -> RopeOptions:
        """The options for a layer, which sets size and head_dim itself."""
        options = RopeOptions.from_buffer_copy(self.options)
        options.size = options.head_dim = 0
        options.__dict__["alive"] = self
        return options

    @property
    def depends_on_length(self) -> bool:
        """True for the kinds "dynamic" and "longrope", whose angles depend on the length of the text."""
        return self.options.kind in (ROPE_DYNAMIC, ROPE_LONGROPE)

    def frequencies(self, length: int = 1) -> tuple[np.ndarray, float]:
        """Returns the angle per position of each pair of elements, float64 [rotary_dim / 2], and the gain, for texts of `length` tokens."""
        found, gain = np.empty(self.rotary_dim // 2), c_double()
        call("mha_rope_frequencies", ctypes.byref(self.options), integer(length, "length"), found.ctypes.data, ctypes.byref(gain))
        return found, gain.value

    def angles(self, positions: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns cos and sin of `positions`, times the gain: float32 [n, rotary_dim / 2]. An integer n means 0 to n - 1."""
        at = np.arange(integer(positions, "positions", 0, POSITIONS_MAX)) if isinstance(positions, int) else integers(positions, "positions")
        cos, sin = (np.empty((len(at), self.rotary_dim // 2), np.float32) for _ in range(2))
        call("mha_rope_angles", ctypes.byref(self.options), at.ctypes.data, len(at), cos.ctypes.data, sin.ctypes.data)
        return cos, sin

    def table(self, positions: int, wide: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Returns cos and sin of positions 0 to positions - 1, float32, or float64 if `wide`. The last table is kept for later calls."""
        positions = integer(positions, "positions", 0, POSITIONS_MAX)
        kept = self._tables.get(wide)
        if kept is None or len(kept[0]) < positions or (len(kept[0]) != positions and self.depends_on_length):
            if wide:
                found, gain = self.frequencies(positions)
                angles = np.arange(positions)[:, None] * found
                kept = gain * np.cos(angles), gain * np.sin(angles)
            else:
                kept = self.angles(positions)
            self._tables[wide] = kept
        return kept

    def turn(self, x: Any, positions: Any = None, *, back: bool = False, layout: str = "bhld") -> np.ndarray:
        """Rotates x [B, H, L, D] by its positions; returns a new float32 array. layout "blhd": x is [B, L, H, D].

        positions [L] or [B, L]; None: 0 to L - 1. back: rotates by the negative angle, as the backward pass requires.
        """
        y = np.array(real(x, "x"), np.float32, order="C")
        if y.ndim != 4 or y.shape[3] != self.head_dim:
            raise ValueError(f"x must be of shape [B, H, L, {self.head_dim}] (got {y.shape})")
        if layout not in ("bhld", "blhd"):
            raise ValueError(f"layout must be one of 'bhld', 'blhd' (got {layout!r})")
        batch, first, second, width = y.shape
        heads, rows = (first, second) if layout == "bhld" else (second, first)
        row_stride, head_stride = (width, rows * width) if layout == "bhld" else (heads * width, width)
        at = np.arange(rows) if positions is None else integers(positions, "positions", dims=(1, 2))
        if at.shape not in ((rows,), (batch, rows)):
            raise ValueError(f"positions must be of shape ({rows},) or ({batch}, {rows}) (got {at.shape})")
        for n in range(batch):
            cos, sin = self.angles(at[n] if at.ndim == 2 else at)
            call("mha_rope_turn", context(), ctypes.byref(self.options), cos.ctypes.data, sin.ctypes.data, rows, heads,
                 y[n].ctypes.data, row_stride, head_stride, back)
        return y
