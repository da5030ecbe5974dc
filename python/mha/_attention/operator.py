"""The attention operator: mha.attention and mha.attention_plan."""
from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Callable
from ctypes import c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar, cast

import numpy as np

from .._arrays.array import (
    BOOL,
    F32,
    F64,
    I64,
    U8,
    Array,
    array,
    choose,
    empty_like,
    integer,
    integers,
    lengths,
    number,
    operand,
    real,
)
from .._binding.abi import AttnArgs, AttnDesc, AttnStats, View, Window
from .._binding.context import context
from .._binding.library import call, struct
from .._layers.rope import MOST_POSITIONS, Rope
from .functions import BoundFunctions, Functions
from .plan import Plan, kept_plan
from .rotation import BoundRope

if TYPE_CHECKING:
    from typing_extensions import Unpack

_F = TypeVar("_F", bound=Callable[..., Any])


class Attention(NamedTuple):
    """The results of mha.attention; None for those that were not requested."""

    out: Any
    lse: Any
    probs: Any
    stats: dict[str, Any] | None
    scores: Any



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
_ALIGN_OFFSETS = 3
_PRECISION = dict.fromkeys((None, "f32", "split"))  # all of these values mean f32
_SCORES = {"raw": 0, "softcapped": 1, "biased": 2, "probs": 3}
_LAYOUT = {"bhld": (0, 1, 2, 3), "blhd": (0, 2, 1, 3)}  # axes of a [B, H, L, D] view
(KEEP, BIAS, Q_LENS, KV_LENS, CU_SEQLENS, PREFIX_LENS, BLOCK_KEEP, BLOCK_TABLE, SLOPES, SINKS, GATES, HEAD_LIST,
 DROPOUT_KEEP, MAP_HEADS, MAP_ROWS, FUNCTIONS, ROPE_Q, ROPE_K) = (1 << i for i in range(18))
_ROTATE = {"qk": ROPE_Q | ROPE_K, "q": ROPE_Q, "k": ROPE_K}
LSE, PROBS, STATS, SCORES, GRADS, ROWS = 1, 2, 4, 8, 16, 32


class _Call:
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
        self.give(FUNCTIONS, "functions", ctypes.pointer(self.functions.struct))

    def end(self) -> None:
        """Raises the exception of a user function that failed during the call."""
        if self.functions is not None:
            self.functions.check()

    def masked(self, flag: int, name: str, x: Any, types: tuple[int, ...]) -> Array:
        a = array(x, name)
        if a.dtype not in types:
            raise ValueError(f"{name} must be of {'type bool' if BOOL in types else 'a floating type'} (got {a.dtype_name})")
        self.alive.append(a)
        self.give(flag, name, a.broadcast(self.rows, name))
        return a

    def vector(self, flag: int, name: str, x: Any) -> None:
        """Sets slopes, sinks or gates: [H] or [B, H], float32, or float64 if q is float64."""
        a = np.ascontiguousarray(np.asarray(x), dtype=np.float64 if self.desc.dtype == F64 else np.float32)
        batch, heads = self.desc.batch, self.desc.heads
        if a.shape not in ((heads,), (batch, heads)):
            raise ValueError(f"{name} must be of shape ({heads},) or ({batch}, {heads}) (got {a.shape})")
        self.alive.append(a)
        self.give(flag, name, View(a.ctypes.data, (ctypes.c_int64 * 4)(heads if a.ndim == 2 else 0, 1, 0, 0)))


def _prepare(q: Any, k: Any, v: Any, *, scale: float | None = None, softcap: float = 0.0, causal: bool = False,
             align: str | None = None, offsets: Any = None, window: tuple[int, int] = (-1, -1), keep: Any = None, bias: Any = None,
             prefix_lens: Any = None, q_lens: Any = None, kv_lens: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None,
             block_keep: Any = None, block_size: tuple[int, int] | None = None, slopes: Any = None, sinks: Any = None,
             gates: Any = None, heads: Any = None, dropout: float = 0.0, seed: int = 0, dropout_keep: Any = None,
             precision: str | None = None, block_table: Any = None, map_heads: Any = None, map_rows: Any = None,
             functions: Functions | None = None, rope: Rope | None = None, rotate: str = "qk", q_positions: Any = None,
             k_positions: Any = None, layout: str = "bhld") -> _Call:
    packed = cu_seqlens_q is not None or cu_seqlens_k is not None
    call_ = _Call(q, k, v, layout, packed, block_table is not None)
    desc, args = call_.desc, call_.args
    if packed:
        _pack(call_, cu_seqlens_q, cu_seqlens_k)
    if block_table is not None:
        _page(call_, block_table)
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
        desc.align = _ALIGN_OFFSETS
        call_.give(0, "offsets", lengths(offsets, desc.batch, "offsets"))
    for flag, name, value in ((Q_LENS, "q_lens", q_lens), (KV_LENS, "kv_lens", kv_lens),
                              (PREFIX_LENS, "prefix_lens", prefix_lens)):
        if value is not None:
            call_.give(flag, name, lengths(value, desc.batch, name))
    if keep is not None:
        if np.shape(keep)[-1:] == (0,):  # masks every key; in the library, keep_keys = 0 means all keys
            keep = np.zeros((1, 1, 1, 1), bool)
        mask = call_.masked(KEEP, "keep", keep, (BOOL, U8))
        if mask.shape and mask.shape[-1] != 1:
            desc.keep_keys = mask.shape[-1]
    if bias is not None:
        desc.bias_dtype = call_.masked(BIAS, "bias", bias, (F32, 2, 3, F64)).dtype
    if dropout_keep is not None:
        call_.masked(DROPOUT_KEEP, "dropout_keep", dropout_keep, (BOOL, U8))
    for flag, name, value in ((SLOPES, "slopes", slopes), (SINKS, "sinks", sinks), (GATES, "gates", gates)):
        if value is not None:
            call_.vector(flag, name, real(value, name))
    _rarer(call_, block_keep, block_size, heads)
    _choose_maps(call_, map_heads, map_rows)
    if functions is not None:
        call_.use(functions)
    choose("rotate", rotate, _ROTATE)
    if rope is not None:
        _rotate(call_, rope, rotate, offsets, q_positions, k_positions)
    elif q_positions is not None or k_positions is not None or rotate != "qk":
        raise ValueError("rope must be given with q_positions, k_positions or rotate (got None)")
    return call_


def _rotate(call_: _Call, rope: Rope, rotate: str, offsets: Any, q_positions: Any, k_positions: Any) -> None:
    """Sets the rotary embedding of q, k or both."""
    desc, (batch, _, rows, keys) = call_.desc, call_.rows
    bound = BoundRope(rope, desc.dtype == F64, desc.head_dim)
    for operand_, name, x in (("q", "q_positions", q_positions), ("k", "k_positions", k_positions)):
        if operand_ in rotate:
            end = keys if operand_ == "k" else 0 if x is not None else _rows_end(desc, rows, keys, offsets)
            bound.place(name, x, batch, rows if operand_ == "q" else keys, [end])
        elif x is not None:
            raise ValueError(f"rotate must contain {operand_!r} if {name} is given (got {rotate!r})")
    call_.alive.append(bound)
    call_.give(_ROTATE[rotate], "rope", bound.pointer())


def _rows_end(desc: AttnDesc, rows: int, keys: int, offsets: Any) -> int:
    """Returns 1 + the largest default position of a row, or a larger number for short sequences."""
    if desc.align == _ALIGN["bottom_right"]:
        return keys
    last = 0 if offsets is None else int(np.max(offsets, initial=0))
    if last > MOST_POSITIONS - rows:
        raise ValueError(f"offsets must be at most {MOST_POSITIONS - rows} with rope (got {last})")
    return rows + last


def describe_queries(q: Any, batch: Any, kv_heads: Any, head_dim: Any, v_head_dim: Any, **options: Any) -> _Call:
    """Returns description and arguments for queries q [B, H, L, D] without keys, with the options that do not depend on keys."""
    a = operand(q, "q")
    if len(a.shape) != 4 or (a.shape[0], a.shape[3]) != (batch, head_dim) or not a.shape[1] or a.shape[1] % kv_heads:
        raise ValueError(f"q must be of shape [{batch}, a multiple of {kv_heads}, L, {head_dim}] (got {a.shape})")
    c = _prepare(q, *(np.empty((batch, kv_heads, 0, width), np.float32) for width in (head_dim, v_head_dim)), **options)
    c.desc.kv_dtype = 0
    return c


def _pair(name: str, value: Any, want: str) -> tuple[int, int]:
    """Returns a pair of integers."""
    try:
        first, second = value
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {want} (got {value!r})") from None
    return integer(first, name), integer(second, name)


def _pack(call_: _Call, cu_seqlens_q: Any, cu_seqlens_k: Any) -> None:
    """Sets cu_seqlens; keys are also packed, unless they are in pages."""
    if cu_seqlens_q is None or (cu_seqlens_k is None) == call_.packed_keys:
        raise ValueError("cu_seqlens_q and cu_seqlens_k must be given together, or, with block_table, only cu_seqlens_q")
    ends = integers(cu_seqlens_q, "cu_seqlens_q")
    if len(ends) < 2:
        raise ValueError(f"cu_seqlens_q must have at least 2 elements, one more than there are sequences (got {len(ends)})")
    call_.desc.batch = len(ends) - 1
    for name, longest, x in (("cu_seqlens_q", "max_q_len", cu_seqlens_q), ("cu_seqlens_k", "max_kv_len", cu_seqlens_k)):
        if x is None:
            continue
        ends = lengths(x, call_.desc.batch + 1, name)
        call_.give(CU_SEQLENS, name, ends)
        setattr(call_.desc, longest, max(0, int(np.diff(ends).max())))


def _choose_maps(call_: _Call, map_heads: Any, map_rows: Any) -> None:
    """Sets the heads and rows ([n], or [B, n] for each sequence) of probs and scores."""
    desc = call_.desc
    if map_heads is not None:
        chosen = integers(map_heads, "map_heads", np.int32)
        desc.map_heads = len(chosen)
        call_.give(MAP_HEADS, "map_heads", chosen)
    if map_rows is not None:
        chosen = integers(map_rows, "map_rows", dims=(1, 2))
        if chosen.ndim == 2 and len(chosen) != desc.batch:
            raise ValueError(f"map_rows must be of shape (n,) or ({desc.batch}, n) (got {chosen.shape})")
        desc.map_rows = chosen.shape[-1]
        call_.alive.append(chosen)
        stride = (ctypes.c_int64 * 4)(desc.map_rows if chosen.ndim == 2 else 0, 1, 0, 0)
        call_.give(MAP_ROWS, "map_rows", View(chosen.ctypes.data, stride))


def _page(call_: _Call, block_table: Any) -> None:
    """Sets block_table [B, n], the pages of each sequence; k and v are [pages, Hkv, page_size, width]."""
    desc = call_.desc
    table = integers(block_table, "block_table", np.int32, dims=(2,))
    if table.shape[0] != desc.batch:
        raise ValueError(f"block_table must be of shape ({desc.batch}, pages of a sequence) (got {table.shape})")
    desc.pages, desc.page_size = call_.k.shape[0], desc.kv_len
    desc.kv_len = table.shape[1] * desc.page_size
    call_.alive.append(table)
    call_.give(BLOCK_TABLE, "block_table", View(table.ctypes.data, (ctypes.c_int64 * 4)(table.shape[1], 1, 0, 0)))


def _rarer(call_: _Call, block_keep: Any, block_size: Any, heads: Any) -> None:
    desc = call_.desc
    if block_keep is not None:
        if block_size is None:
            raise ValueError("block_size must be (rows, keys) if block_keep is given (got None)")
        desc.block_q, desc.block_k = _pair("block_size", block_size, "(rows, keys)")
        if min(desc.block_q, desc.block_k) <= 0:
            raise ValueError(f"block_size must be two positive integers (got {tuple(block_size)})")
        blocks = array(block_keep, "block_keep")
        if blocks.dtype not in (BOOL, U8):
            raise ValueError(f"block_keep must be of type bool (got {blocks.dtype_name})")
        call_.alive.append(blocks)
        batch, heads_, rows, keys = call_.rows
        shape = (batch, heads_, -(-rows // desc.block_q), -(-keys // desc.block_k))
        call_.give(BLOCK_KEEP, "block_keep", blocks.broadcast(shape, "block_keep"))
    elif block_size is not None:
        raise ValueError(f"block_size must be None unless block_keep is given (got {block_size!r})")
    if heads is not None:
        listed = integers(heads, "heads", np.int32)
        desc.listed_heads = len(listed)
        call_.give(HEAD_LIST, "head_list", listed)


def _output(call_: _Call, like: Any, flag: int, name: str, dtype: int, shape: Any, axes: tuple[int, ...] = (0, 1, 2, 3)) -> Any:
    """Allocates a result, passes it to the call, and returns it."""
    result = empty_like(like, dtype, shape)
    call_.desc.outputs |= flag
    a = array(result, name)
    a.strides = a.strides + (0,) * (4 - len(a.strides))
    setattr(call_.args, name, a.view(axes))
    call_.alive.append(a)
    return result


def _map(call_: _Call, like: Any, flag: int, name: str, dtype: int) -> Any:
    """Allocates probs or scores. Rows beyond the end of a sequence are 0, since the library does not write them."""
    result = _output(call_, like, flag, name, dtype, call_.maps)
    result[...] = 0
    return result


def _described(function: _F) -> _F:
    """Adds the keywords of _prepare to the signature of `function`, for help() and for checks of keyword names."""
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    names = {p.name for p in own}
    passed = [p for p in inspect.signature(_prepare).parameters.values()
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


def _top_keys(n: Any, return_stats: bool) -> int:
    count: int = integer(n, "top_keys")
    if count and not return_stats:
        raise ValueError(f"top_keys must be 0 unless return_stats is True (got {count})")
    return count


def _stats(call_: _Call, like: Any, real: int, top_keys: int) -> dict[str, Any]:
    """Allocates all statistics, passes them to the call, and returns them as a dict."""
    rows = call_.results
    keys = (1 if call_.packed_keys else call_.desc.batch, rows[1], call_.desc.kv_len)
    kinds: dict[str, tuple[int, tuple[int, ...]]] = {"row_entropy": (real, rows), "row_max": (real, rows), "row_argmax": (I64, rows),
             "row_distance": (real, rows), "received": (real, keys)}
    if top_keys:
        kinds |= {"top_prob": (real, rows + (top_keys,)), "top_key": (I64, rows + (top_keys,))}
    call_.desc.outputs |= STATS
    call_.desc.top_keys = top_keys
    views, stats = struct(AttnStats), {}
    for name, (dtype, shape) in kinds.items():
        x = stats[name] = empty_like(like, dtype, shape)
        x[...] = 0  # the library does not write values of sequences without rows
        data = x.ctypes.data if isinstance(x, np.ndarray) else x.data_ptr()
        setattr(views, name, View(data, (ctypes.c_int64 * 4)()))
    call_.alive.append(views)
    call_.args.stats = ctypes.pointer(views)
    return stats


def _unpacked(call_: _Call, lse: Any, stats: Any) -> tuple[Any, Any]:
    """Removes the batch axis of lse and stats of packed sequences."""
    lse = None if lse is None else lse[0]
    return lse, stats and {name: x if name == "received" and not call_.packed_keys else x[0] for name, x in stats.items()}


@_described
def attention(q: Any, k: Any, v: Any, *, threads: int | None = None, return_lse: bool = False, return_probs: bool = False,
              return_stats: bool = False, top_keys: int = 0, scores: str | None = None, **description: Unpack[Description]) -> Any:
    """Computes softmax(softcap(scale * q k^T) + bias) v, with the softmax over the unmasked keys of each row.

    q [B, H, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv] with any strides (layout="blhd": [B, L, H, D]). Returns out, or
    Attention(out, lse, probs, stats, scores) if a return_ argument or scores is set; fields that were not requested are None.
    include/mha/attn.h defines the description (scale, softcap, causal, align, offsets, window, keep, bias, q_lens, kv_lens
    ...). keep (True: unmasked) and bias broadcast from the right to [B, H, Lq, Lk].

    With block_table [B, n] of int, k and v are pages [pages, Hkv, page_size, D or Dv]; -1 is a dropped page. With
    cu_seqlens_q and cu_seqlens_k the sequences are packed: q [Tq, H, D], k [Tk, Hkv, D], v [Tk, Hkv, Dv]; keep, bias and
    probs are [B, H, rows of the longest sequence, keys of the longest sequence]. With cu_seqlens_q and block_table, only the
    queries are packed, and kv_lens gives the number of keys in each sequence.

    stats is a dict of row_entropy (bits), row_max, row_argmax (-1: all keys masked), row_distance, and received (per key).
    top_keys=n adds the n largest probabilities of each row, top_prob, and their keys, top_key. row_distance is relative to
    the query positions of align or offsets; without either, query i is at key i, as with "top_left". scores="raw",
    "softcapped", "biased" or "probs" returns the scores [B, H, Lq, Lk] at that stage. map_heads and map_rows ([n], or [B, n]
    for each sequence; -1 is its last row) list the heads and rows of probs and scores; other rows are not computed.
    functions=Functions(...) applies user functions to scores and masks.

    rope=Rope(...) rotates q and k before the scores are computed, bitwise as rope.turn does; rotate="q" or "k" rotates only one
    of them. q_positions and k_positions ([L], or [B, L]) default to the positions of align or offsets, and to 0, 1, ... for keys.
    For the kinds "dynamic" and "longrope", the length is 1 + the largest position of all operands that are rotated.

    Raises ValueError for invalid and unsupported arguments.

        >>> import numpy as np, mha
        >>> q = np.random.default_rng(0).standard_normal((1, 8, 16, 64), dtype=np.float32)
        >>> out, lse, probs, *_ = mha.attention(q, q, q, causal=True, return_lse=True, return_probs=True)
        >>> out.shape, lse.shape, probs.shape
        ((1, 8, 16, 64), (1, 8, 16), (1, 8, 16, 16))
    """
    if not (return_probs or return_stats or top_keys or scores is not None):
        plan = kept_plan(q, k, v, threads, bool(return_lse), cast("dict[str, Any]", description))
        if plan is not None and plan.lock.acquire(blocking=False):  # False: another thread is using the plan
            try:
                return plan.run_known(q, k, v)
            finally:
                plan.lock.release()
    c = _prepare(q, k, v, **description)
    d = c.desc
    shape = [0] * 4
    for axis, n in zip(c.axes, c.results + (d.v_head_dim,)):
        shape[axis] = n
    out = _output(c, q, 0, "out", d.dtype, shape, c.axes)
    wide = F64 if d.dtype == F64 else F32
    lse = _output(c, q, LSE, "lse", wide, c.results) if return_lse else None
    probs = _map(c, q, PROBS, "probs", wide) if return_probs else None
    top_keys = _top_keys(top_keys, return_stats)
    stats = _stats(c, q, wide, top_keys) if return_stats else None
    written = None
    if scores is not None:
        d.scores = choose("scores", scores, _SCORES)
        written = _map(c, q, SCORES, "scores", wide)
    call("mha_attention", context(threads), ctypes.byref(d), ctypes.byref(c.args))
    c.end()
    if c.packed:
        out = out[0]
        lse, stats = _unpacked(c, lse, stats)
    if return_lse or return_probs or return_stats or scores is not None:
        return Attention(out, lse, probs, stats, written)
    return out


@_described
def attention_plan(q: Any, k: Any, v: Any, *, threads: int | None = None, return_lse: bool = False, return_probs: bool = False,
                   return_stats: bool = False, top_keys: int = 0, scores: str | None = None,
                   **description: Unpack[Description]) -> dict[str, Any]:
    """Returns the plan of attention() for these arguments: a dict with kernel, isa, workspace, flops, bytes, refused ...

        >>> import numpy as np, mha
        >>> q = np.ones((1, 2, 4, 8), np.float32)
        >>> mha.attention_plan(q, q, q)["kernel"]
        'fwd_few'
    """
    with Plan(q, k, v, threads=threads, return_lse=return_lse, return_probs=return_probs, return_stats=return_stats,
              top_keys=top_keys, scores=scores, **description) as plan:
        return plan.describe()
