"""The description of an attention call: its keywords, and the C structs and arrays that they become."""
from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar, cast

import numpy as np

from .._arrays.array import BOOL, F32, F64, U8, array, choose, integer, integers, lengths, number, operand, real
from .._binding.abi import (
    ALIGN_OFFSETS,
    ATTN_BIAS,
    ATTN_BLOCK_KEEP,
    ATTN_BLOCK_TABLE,
    ATTN_CU_SEQLENS,
    ATTN_DROPOUT_KEEP,
    ATTN_GATES,
    ATTN_HEAD_LIST,
    ATTN_KEEP,
    ATTN_KV_LENS,
    ATTN_MAP_HEADS,
    ATTN_MAP_ROWS,
    ATTN_PREFIX_LENS,
    ATTN_Q_LENS,
    ATTN_ROPE_K,
    ATTN_ROPE_Q,
    ATTN_SINKS,
    ATTN_SLOPES,
    AttnDesc,
    View,
    Window,
)
from .._layers.rope import POSITIONS_MAX, Rope
from .attention_call import Call
from .functions import Functions
from .rotation import BoundRope

_F = TypeVar("_F", bound=Callable[..., Any])


class Description(TypedDict, total=False):
    """The keywords that describe a call; include/mha/attn.h defines them."""

    scale: float | None
    softcap: float
    causal: bool
    align: str | None
    offsets: Any
    window: tuple[int, int]
    keep: Any
    bias: Any
    prefix_lens: Any
    q_lens: Any
    kv_lens: Any
    cu_seqlens_q: Any
    cu_seqlens_k: Any
    block_keep: Any
    block_size: tuple[int, int] | None
    slopes: Any
    sinks: Any
    gates: Any
    heads: Any
    dropout: float
    seed: int
    dropout_keep: Any
    precision: str | None
    block_table: Any
    map_heads: Any
    map_rows: Any
    functions: Functions | None
    rope: Rope | None
    rotate: str
    q_positions: Any
    k_positions: Any
    layout: str


_CAUSAL = {False: 0, True: 1}
_ALIGN = {None: 0, "top_left": 1, "bottom_right": 2}
_PRECISION = dict.fromkeys((None, "f32", "split"))  # all of these values mean f32
_ROTATE = {"qk": ATTN_ROPE_Q | ATTN_ROPE_K, "q": ATTN_ROPE_Q, "k": ATTN_ROPE_K}


def prepare(q: Any, k: Any, v: Any, *, scale: float | None = None, softcap: float = 0.0, causal: bool = False,
             align: str | None = None, offsets: Any = None, window: tuple[int, int] = (-1, -1), keep: Any = None, bias: Any = None,
             prefix_lens: Any = None, q_lens: Any = None, kv_lens: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None,
             block_keep: Any = None, block_size: tuple[int, int] | None = None, slopes: Any = None, sinks: Any = None,
             gates: Any = None, heads: Any = None, dropout: float = 0.0, seed: int = 0, dropout_keep: Any = None,
             precision: str | None = None, block_table: Any = None, map_heads: Any = None, map_rows: Any = None,
             functions: Functions | None = None, rope: Rope | None = None, rotate: str = "qk", q_positions: Any = None,
             k_positions: Any = None, layout: str = "bhld") -> Call:
    packed = cu_seqlens_q is not None or cu_seqlens_k is not None
    c = Call(q, k, v, layout, packed, block_table is not None)
    desc, args = c.desc, c.args
    if packed:
        _pack(c, cu_seqlens_q, cu_seqlens_k)
    if block_table is not None:
        _page(c, block_table)
    desc.scale = 0.0 if scale is None else number(scale, "scale")
    if scale is not None and not desc.scale:
        raise ValueError(f"scale must be a number other than 0, or None for 1/sqrt(head_dim) (got {scale!r})")
    desc.softcap, desc.causal = number(softcap, "softcap"), choose("causal", causal, _CAUSAL)
    desc.align = choose("align", align, _ALIGN)
    choose("precision", precision, _PRECISION)
    desc.dropout, args.dropout_seed = number(dropout, "dropout"), integer(seed, "seed", 0, 2**64 - 1)
    left, right = _pair("window", window, "(left, right)")
    if (left, right) != (-1, -1):
        desc.window = Window(1, left, right)
    if offsets is not None:
        if align is not None:
            raise ValueError(f"align must be None if offsets are given (got {align!r})")
        desc.align = ALIGN_OFFSETS
        c.give(0, "offsets", lengths(offsets, desc.batch, "offsets"))
    for flag, name, value in ((ATTN_Q_LENS, "q_lens", q_lens), (ATTN_KV_LENS, "kv_lens", kv_lens),
                              (ATTN_PREFIX_LENS, "prefix_lens", prefix_lens)):
        if value is not None:
            c.give(flag, name, lengths(value, desc.batch, name))
    if keep is not None:
        if np.shape(keep)[-1:] == (0,):  # masks every key; in the library, keep_keys = 0 means all keys
            keep = np.zeros((1, 1, 1, 1), bool)
        mask = c.masked(ATTN_KEEP, "keep", keep, (BOOL, U8))
        if mask.shape and mask.shape[-1] != 1:
            desc.keep_keys = mask.shape[-1]
    if bias is not None:
        desc.bias_dtype = c.masked(ATTN_BIAS, "bias", bias, (F32, 2, 3, F64)).dtype
    if dropout_keep is not None:
        c.masked(ATTN_DROPOUT_KEEP, "dropout_keep", dropout_keep, (BOOL, U8))
    for flag, name, value in ((ATTN_SLOPES, "slopes", slopes), (ATTN_SINKS, "sinks", sinks), (ATTN_GATES, "gates", gates)):
        if value is not None:
            c.vector(flag, name, real(value, name))
    _keep_blocks(c, block_keep, block_size)
    if heads is not None:
        listed = integers(heads, "heads", np.int32)
        desc.listed_heads = len(listed)
        c.give(ATTN_HEAD_LIST, "head_list", listed)
    _choose_maps(c, map_heads, map_rows)
    if functions is not None:
        c.use(functions)
    choose("rotate", rotate, _ROTATE)
    if rope is not None:
        _rotate(c, rope, rotate, offsets, q_positions, k_positions)
    elif q_positions is not None or k_positions is not None or rotate != "qk":
        raise ValueError("rope must be given with q_positions, k_positions or rotate (got None)")
    return c


def _rotate(c: Call, rope: Rope, rotate: str, offsets: Any, q_positions: Any, k_positions: Any) -> None:
    """Sets the rotary embedding of q, k or both."""
    desc, (batch, _, rows, keys) = c.desc, c.rows
    bound = BoundRope(rope, desc.dtype == F64, desc.head_dim)
    for operand_, name, x in (("q", "q_positions", q_positions), ("k", "k_positions", k_positions)):
        if operand_ in rotate:
            end = keys if operand_ == "k" else 0 if x is not None else _rows_end(desc, rows, keys, offsets)
            bound.place(name, x, batch, rows if operand_ == "q" else keys, [end])
        elif x is not None:
            raise ValueError(f"rotate must contain {operand_!r} if {name} is given (got {rotate!r})")
    c.alive.append(bound)
    c.give(_ROTATE[rotate], "rope", bound.pointer())


def _rows_end(desc: AttnDesc, rows: int, keys: int, offsets: Any) -> int:
    """Returns 1 + the largest default position of a row, or a larger number for short sequences."""
    if desc.align == _ALIGN["bottom_right"]:
        return keys
    last = 0 if offsets is None else int(np.max(offsets, initial=0))
    if last > POSITIONS_MAX - rows:
        raise ValueError(f"offsets must be at most {POSITIONS_MAX - rows} with rope (got {last})")
    return rows + last


def describe_queries(q: Any, batch: Any, kv_heads: Any, head_dim: Any, v_head_dim: Any, **options: Any) -> Call:
    """Returns description and arguments for queries q [B, H, L, D] without keys, with the options that do not depend on keys."""
    a = operand(q, "q")
    if len(a.shape) != 4 or (a.shape[0], a.shape[3]) != (batch, head_dim) or not a.shape[1] or a.shape[1] % kv_heads:
        raise ValueError(f"q must be of shape [{batch}, a multiple of {kv_heads}, L, {head_dim}] (got {a.shape})")
    c = prepare(q, *(np.empty((batch, kv_heads, 0, width), np.float32) for width in (head_dim, v_head_dim)), **options)
    c.desc.kv_dtype = 0
    return c


def _pair(name: str, value: Any, want: str) -> tuple[int, int]:
    """Returns a pair of integers."""
    try:
        first, second = value
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {want} (got {value!r})") from None
    return integer(first, name), integer(second, name)


def _pack(c: Call, cu_seqlens_q: Any, cu_seqlens_k: Any) -> None:
    """Sets cu_seqlens; keys are also packed, unless they are in pages."""
    if cu_seqlens_q is None or (cu_seqlens_k is None) == c.packed_keys:
        raise ValueError("cu_seqlens_q and cu_seqlens_k must be given together, or, with block_table, only cu_seqlens_q")
    ends = integers(cu_seqlens_q, "cu_seqlens_q")
    if len(ends) < 2:
        raise ValueError(f"cu_seqlens_q must have at least 2 elements, one more than there are sequences (got {len(ends)})")
    c.desc.batch = len(ends) - 1
    for name, longest, x in (("cu_seqlens_q", "max_q_len", cu_seqlens_q), ("cu_seqlens_k", "max_kv_len", cu_seqlens_k)):
        if x is None:
            continue
        ends = lengths(x, c.desc.batch + 1, name)
        c.give(ATTN_CU_SEQLENS, name, ends)
        setattr(c.desc, longest, max(0, int(np.diff(ends).max())))


def _choose_maps(c: Call, map_heads: Any, map_rows: Any) -> None:
    """Sets the heads and rows ([n], or [B, n] for each sequence) of probs and scores."""
    desc = c.desc
    if map_heads is not None:
        chosen = integers(map_heads, "map_heads", np.int32)
        desc.map_heads = len(chosen)
        c.give(ATTN_MAP_HEADS, "map_heads", chosen)
    if map_rows is not None:
        chosen = integers(map_rows, "map_rows", dims=(1, 2))
        if chosen.ndim == 2 and len(chosen) != desc.batch:
            raise ValueError(f"map_rows must be of shape (n,) or ({desc.batch}, n) (got {chosen.shape})")
        desc.map_rows = chosen.shape[-1]
        c.alive.append(chosen)
        stride = (ctypes.c_int64 * 4)(desc.map_rows if chosen.ndim == 2 else 0, 1, 0, 0)
        c.give(ATTN_MAP_ROWS, "map_rows", View(chosen.ctypes.data, stride))


def _page(c: Call, block_table: Any) -> None:
    """Sets block_table [B, n], the pages of each sequence; k and v are [pages, Hkv, page_size, width]."""
    desc = c.desc
    table = integers(block_table, "block_table", np.int32, dims=(2,))
    if table.shape[0] != desc.batch:
        raise ValueError(f"block_table must be of shape ({desc.batch}, pages of a sequence) (got {table.shape})")
    desc.pages, desc.page_size = c.k.shape[0], desc.kv_len
    desc.kv_len = table.shape[1] * desc.page_size
    c.alive.append(table)
    c.give(ATTN_BLOCK_TABLE, "block_table", View(table.ctypes.data, (ctypes.c_int64 * 4)(table.shape[1], 1, 0, 0)))


def _keep_blocks(c: Call, block_keep: Any, block_size: Any) -> None:
    """Sets the mask of blocks of rows and keys."""
    desc = c.desc
    if block_keep is not None:
        if block_size is None:
            raise ValueError("block_size must be (rows, keys) if block_keep is given (got None)")
        desc.block_q, desc.block_k = _pair("block_size", block_size, "(rows, keys)")
        if min(desc.block_q, desc.block_k) <= 0:
            raise ValueError(f"block_size must be two positive integers (got {tuple(block_size)})")
        blocks = array(block_keep, "block_keep")
        if blocks.dtype not in (BOOL, U8):
            raise ValueError(f"block_keep must be of type bool (got {blocks.dtype_name})")
        c.alive.append(blocks)
        batch, heads_, rows, keys = c.rows
        shape = (batch, heads_, -(-rows // desc.block_q), -(-keys // desc.block_k))
        c.give(ATTN_BLOCK_KEEP, "block_keep", blocks.broadcast(shape, "block_keep"))
    elif block_size is not None:
        raise ValueError(f"block_size must be None unless block_keep is given (got {block_size!r})")


def described(function: _F) -> _F:
    """Adds the keywords of prepare to the signature of `function`, for help() and for checks of keyword names."""
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    names = {p.name for p in own}
    passed = [p for p in inspect.signature(prepare).parameters.values()
              if p.kind is p.KEYWORD_ONLY and p.name not in names]
    signature = inspect.Signature(own + passed)
    known = frozenset(signature.parameters)

    @functools.wraps(function)
    def checked(*arguments: Any, **keywords: Any) -> Any:
        if not known.issuperset(keywords):  # signature.bind() raises TypeError; it is slower than a short attention call
            signature.bind(*arguments, **keywords)
        return function(*arguments, **keywords)

    cast(Any, checked).__signature__ = signature
    return cast(_F, checked)
