"""Head layouts of a new model: its cost in parameters, operations, cache and time, and a recommendation."""
from __future__ import annotations

import ctypes
from ctypes import c_int
from dataclasses import dataclass
from typing import Any

from .._arrays.array import DTYPES, choose, integer, number
from .._binding import abi
from .._binding.abi import PLAN_LAYOUTS, PLAN_VARIANTS
from .._binding.context import context
from .._binding.library import call, struct
from .._draw import figures
from .head_data import helps, keys

_DTYPES = {name: DTYPES[name] for name in ("f32", "bf16", "f16")}


@dataclass
class PlanOptions:
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

    def struct(self) -> abi.PlanOptions:
        """Returns the struct of the library."""
        sizes = {name: integer(getattr(self, name), name) for name in _SIZES}
        return struct(abi.PlanOptions, dtype=choose("dtype", self.dtype, _DTYPES), prune=number(self.prune, "prune"), **sizes)


_SIZES = ("d_model", "heads", "layers", "vocab", "seq", "batch", "parameters", "experts", "top_k")


@dataclass
class PlanRow:
    """A head layout. left_out: why the model cannot have it, or None; refused: why the library cannot run it, or None. weights, biases:
    {"q", "k", "v", "out", "extra", "total"}, elements of one layer. prefill, decode: seconds, after plan_measure."""

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


class PlanRows(list[PlanRow]):
    """A list of head layouts, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [(r.variant, r.heads, r.head_dim, r.kv_heads, r.weights["total"], r.kv_bytes, r.left_out or r.refused or "") for r in self]
        return figures.html_rows("head layouts", ("variant", "heads", "head_dim", "kv_heads", "weights of a layer", "cache [bytes]", ""), rows)


@dataclass
class PlanAdvice:
    """The recommended layout, and why."""

    variant: str
    heads: int
    kv_heads: int
    experts: int
    top_k: int
    parameters: int
    reason: str


def _row(r: abi.PlanRow) -> PlanRow:
    def counts(p: abi.PlanParameters) -> dict[str, int]:
        return {name: getattr(p, name) for name, *_ in p._fields_}

    left_out, refused = (None if x is None else x.decode() for x in (r.left_out, r.refused))
    return PlanRow(list(keys("mha_plan_variant_key", PLAN_VARIANTS))[r.variant], left_out, refused, r.heads, r.head_dim, r.kv_groups,
                   r.kv_heads, counts(r.weights), counts(r.biases), r.reduction, r.project_flops, r.attend_flops, r.kv_bytes, r.prefill,
                   r.decode, r)


def plan_variant_help() -> dict[str, str]:
    """Returns {variant: description} of the variants of plan_variants.

        >>> import mha
        >>> mha.plan_variant_help()["gqa"]
        'each group of query heads shares one key/value head'
    """
    return helps("mha_plan_variant_key", "mha_plan_variant_help", PLAN_VARIANTS)


def plan_resolve(options: PlanOptions) -> PlanOptions:
    """Checks the options and returns them with all defaults.

        >>> import mha
        >>> mha.plan_resolve(mha.PlanOptions(768)).heads
        12
    """
    found = abi.PlanOptions()
    call("mha_plan_resolve", ctypes.byref(options.struct()), ctypes.byref(found))
    names = {code: name for name, code in _DTYPES.items()}
    return PlanOptions(dtype=names[found.dtype], prune=found.prune, **{name: getattr(found, name) for name in _SIZES})


def plan_layouts(options: PlanOptions) -> PlanRows:
    """Returns all layouts with 1 to 64 heads in groups of 1, 2, 4 or 8, by ascending number of parameters.

        >>> import mha
        >>> row = mha.plan_layouts(mha.PlanOptions(768))[0]
        >>> row.variant, row.heads, row.weights["total"]
        ('mqa', 8, 1327104)
    """
    rows, count = (abi.PlanRow * PLAN_LAYOUTS)(), c_int()
    call("mha_plan_layouts", ctypes.byref(options.struct()), rows, ctypes.byref(count))
    return PlanRows(_row(r) for r in rows[:count.value])


def plan_variants(options: PlanOptions) -> PlanRows:
    """Returns one row per variant of multi-head attention.

        >>> import mha
        >>> [row.variant for row in mha.plan_variants(mha.PlanOptions(768))][:4]
        ['mha', 'pruned', 'dynamic', 'gqa']
    """
    rows = (abi.PlanRow * PLAN_VARIANTS)()
    call("mha_plan_variants", ctypes.byref(options.struct()), rows)
    return PlanRows(map(_row, rows))


def plan_measure(options: PlanOptions, row: PlanRow, seconds: float = 1.0) -> PlanRow:
    """Measures the times of a row on this machine, in about `seconds`; returns the row with prefill and decode.

        >>> import mha
        >>> options = mha.PlanOptions(64, layers=1, seq=16)
        >>> mha.plan_measure(options, mha.plan_layouts(options)[0], 0.01).prefill > 0
        True
    """
    raw = abi.PlanRow.from_buffer_copy(row.raw)
    call("mha_plan_measure", context(), ctypes.byref(options.struct()), ctypes.byref(raw), number(seconds, "seconds"))
    return _row(raw)


def plan_advise(options: PlanOptions) -> PlanAdvice:
    """Returns the recommended layout.

        >>> import mha
        >>> mha.plan_advise(mha.PlanOptions(4096, layers=32)).variant
        'gqa'
    """
    found = abi.PlanAdvice()
    call("mha_plan_advise", ctypes.byref(options.struct()), ctypes.byref(found))
    variant = list(keys("mha_plan_variant_key", PLAN_VARIANTS))[found.variant]
    return PlanAdvice(variant, found.heads, found.kv_heads, found.experts, found.top_k, found.parameters, found.reason.decode())
