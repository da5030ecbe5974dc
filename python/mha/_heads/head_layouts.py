"""Head layouts of a new model: its cost in parameters, operations, cache and time, and a recommendation."""
from __future__ import annotations

import ctypes
from ctypes import c_int
from dataclasses import dataclass
from typing import Any

from .._arrays.array import DTYPES, choose, integer, number
from .._binding import abi
from .._binding.abi import HEAD_LAYOUT_VARIANTS, HEAD_LAYOUTS
from .._binding.context import context
from .._binding.library import call, struct
from .._draw import figures
from .head_data import helps, keys

_DTYPES = {name: DTYPES[name] for name in ("f32", "bf16", "f16")}


@dataclass
class HeadLayoutOptions:
    """The planned model: d_model, and its other sizes; 0: the default of include/mha/head_layouts.h. dtype: the type of keys and values."""

    d_model: int
    heads: int = 0
    layers: int = 0
    vocab: int = 0
    seq: int = 0
    batch: int = 0
    dtype: str = "f32"
    parameters: int = 0
    prune: float = 0.0
    experts: int = 0
    top_k: int = 0

    def struct(self) -> abi.HeadLayoutOptions:
        """Returns the struct of the library."""
        sizes = {name: integer(getattr(self, name), name) for name in _SIZES}
        return struct(abi.HeadLayoutOptions, dtype=choose("dtype", self.dtype, _DTYPES), prune=number(self.prune, "prune"), **sizes)


_SIZES = ("d_model", "heads", "layers", "vocab", "seq", "batch", "parameters", "experts", "top_k")


@dataclass
class HeadLayout:
    """A head layout. left_out: why the model cannot have it, or None; refused: why the library cannot run it, or None. weights, biases:
    {"q", "k", "v", "out", "extra", "total"}, elements of one layer. prefill, decode: seconds, after head_layout_measure."""

    variant: str
    left_out: str | None
    refused: str | None
    heads: int
    head_dim: int
    kv_groups: int
    kv_heads: int
    weights: dict[str, int]
    biases: dict[str, int]
    reduction: float
    project_flops: float
    attend_flops: float
    kv_bytes: int
    prefill: float
    decode: float
    raw: Any = None


class HeadLayouts(list[HeadLayout]):
    """A list of head layouts, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [(r.variant, r.heads, r.head_dim, r.kv_heads, r.weights["total"], r.kv_bytes, r.left_out or r.refused or "") for r in self]
        return figures.html_rows("head layouts", ("variant", "heads", "head_dim", "kv_heads", "weights of a layer", "cache [bytes]", ""), rows)


@dataclass
class HeadLayoutAdvice:
    """The recommended layout, and why."""

    variant: str
    heads: int
    kv_heads: int
    experts: int
    top_k: int
    parameters: int
    reason: str


def _row(r: abi.HeadLayout) -> HeadLayout:
    def counts(p: abi.HeadLayoutParameters) -> dict[str, int]:
        return {name: getattr(p, name) for name, *_ in p._fields_}

    left_out, refused = (None if x is None else x.decode() for x in (r.left_out, r.refused))
    return HeadLayout(list(keys("mha_head_layout_variant_key", HEAD_LAYOUT_VARIANTS))[r.variant], left_out, refused, r.heads, r.head_dim, r.kv_groups,
                   r.kv_heads, counts(r.weights), counts(r.biases), r.reduction, r.project_flops, r.attend_flops, r.kv_bytes, r.prefill,
                   r.decode, r)


def head_layout_variant_help() -> dict[str, str]:
    """Returns {variant: description} of the variants of head_layout_variants.

        >>> import mha
        >>> mha.head_layout_variant_help()["gqa"]
        'each group of query heads shares one key/value head'
    """
    return helps("mha_head_layout_variant_key", "mha_head_layout_variant_help", HEAD_LAYOUT_VARIANTS)


def head_layout_resolve(options: HeadLayoutOptions) -> HeadLayoutOptions:
    """Checks the options and returns them with all defaults.

        >>> import mha
        >>> mha.head_layout_resolve(mha.HeadLayoutOptions(768)).heads
        12
    """
    found = abi.HeadLayoutOptions()
    call("mha_head_layout_resolve", ctypes.byref(options.struct()), ctypes.byref(found))
    names = {code: name for name, code in _DTYPES.items()}
    return HeadLayoutOptions(dtype=names[found.dtype], prune=found.prune, **{name: getattr(found, name) for name in _SIZES})


def head_layouts(options: HeadLayoutOptions) -> HeadLayouts:
    """Returns all layouts with 1 to 64 heads in groups of 1, 2, 4 or 8, by ascending number of parameters.

        >>> import mha
        >>> row = mha.head_layouts(mha.HeadLayoutOptions(768))[0]
        >>> row.variant, row.heads, row.weights["total"]
        ('mqa', 8, 1327104)
    """
    rows, count = (abi.HeadLayout * HEAD_LAYOUTS)(), c_int()
    call("mha_head_layouts", ctypes.byref(options.struct()), rows, ctypes.byref(count))
    return HeadLayouts(_row(r) for r in rows[:count.value])


def head_layout_variants(options: HeadLayoutOptions) -> HeadLayouts:
    """Returns one row per variant of multi-head attention.

        >>> import mha
        >>> [row.variant for row in mha.head_layout_variants(mha.HeadLayoutOptions(768))][:4]
        ['mha', 'pruned', 'dynamic', 'gqa']
    """
    rows = (abi.HeadLayout * HEAD_LAYOUT_VARIANTS)()
    call("mha_head_layout_variants", ctypes.byref(options.struct()), rows)
    return HeadLayouts(map(_row, rows))


def head_layout_measure(options: HeadLayoutOptions, row: HeadLayout, seconds: float = 1.0) -> HeadLayout:
    """Measures the times of a row on this machine, in about `seconds`; returns the row with prefill and decode.

        >>> import mha
        >>> options = mha.HeadLayoutOptions(64, layers=1, seq=16)
        >>> mha.head_layout_measure(options, mha.head_layouts(options)[0], 0.01).prefill > 0
        True
    """
    raw = abi.HeadLayout.from_buffer_copy(row.raw)
    call("mha_head_layout_measure", context(), ctypes.byref(options.struct()), ctypes.byref(raw), number(seconds, "seconds"))
    return _row(raw)


def head_layout_advise(options: HeadLayoutOptions) -> HeadLayoutAdvice:
    """Returns the recommended layout.

        >>> import mha
        >>> mha.head_layout_advise(mha.HeadLayoutOptions(4096, layers=32)).variant
        'gqa'
    """
    found = abi.HeadLayoutAdvice()
    call("mha_head_layout_advise", ctypes.byref(options.struct()), ctypes.byref(found))
    variant = list(keys("mha_head_layout_variant_key", HEAD_LAYOUT_VARIANTS))[found.variant]
    return HeadLayoutAdvice(variant, found.heads, found.kv_heads, found.experts, found.top_k, found.parameters, found.reason.decode())
