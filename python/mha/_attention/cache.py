"""mha.Cache, the KV cache of one layer, and mha.attn_merge, which merges attention results over disjoint keys."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_void_p
from typing import Any

import numpy as np

from .._arrays.array import DTYPES, array, choose, empty_like, integer, lengths, operand
from .._arrays.tensors import given, taken
from .._binding.abi import (
    ATTN_LSE,
    ATTN_ROPE_Q,
    BF16,
    CACHE_ALL,
    CACHE_TENSORS,
    F32,
    F64,
    Q4_0,
    U16,
    AttnMergeArgs,
    AttnPart,
    CacheDesc,
    CacheTokens,
    NamedTensor,
)
from .._binding.context import context
from .._binding.exclusive import exclusive
from .._binding.library import Handle, call, lib, struct
from .._layers.rope import Rope
from .attention_call import Call
from .description import describe_queries
from .results import Attention, output
from .rotation import BoundRope


class Cache(Handle):
    """A paged cache of keys and values of `batch` sequences. Decoding token by token is bitwise identical to one pass over all tokens.

    dtype is the stored type: "f32", "f64", "bf16", "f16", "q8_0" (8 bits), "q4_0" (4 bits, rotated; head_dim must be a multiple of 32) or
    "f8_e4m3". include/mha/cache.h defines page_size, capacity, window and keep_first.

        >>> import numpy as np, mha
        >>> x = np.random.default_rng(0).standard_normal((1, 2, 6, 8), dtype=np.float32)
        >>> whole = mha.attention(x, x, x, causal=True)
        >>> with mha.Cache(batch=1, kv_heads=2, head_dim=8) as cache:
        ...     for i in range(6):
        ...         token = x[:, :, i:i + 1]
        ...         cache.append(token, token)
        ...         out = cache.attention(token)
        ...         assert (out == whole[:, :, i:i + 1]).all()
        >>> cache.closed
        True
    """

    def __init__(self, batch: int, kv_heads: int, head_dim: int, *, v_head_dim: int | None = None, dtype: str = "f32",
                 page_size: int = 0, capacity: int = 0, window: int = 0, keep_first: int = 0) -> None:
        code = choose("dtype", dtype, DTYPES)
        fields = {"batch": batch, "kv_heads": kv_heads, "head_dim": head_dim, "v_head_dim": v_head_dim or 0,
                  "page_size": page_size, "capacity": capacity, "window": window, "keep_first": keep_first}
        desc = struct(CacheDesc, dtype=code, **{name: integer(x, name) for name, x in fields.items()})
        handle = c_void_p()
        call("mha_cache_create", context(), ctypes.byref(desc), ctypes.byref(handle))
        self._own(handle, "mha_cache_free")
        self._desc = desc

    @property
    def capacity(self) -> int:
        """The number of keys reserved for all sequences, in whole pages; 0: unlimited."""
        return int(self._desc.capacity)

    # ---- appending and removing tokens ----

    @exclusive
    def append(self, k: Any, v: Any, *, sequence: int | None = None, counts: Sequence[int] | None = None, rope: Rope | None = None,
               positions: Any = None) -> None:
        """Appends keys k [n, Hkv, L, D] and values v [n, Hkv, L, Dv] to all sequences (n = batch), or to one sequence (n = 1).

        counts: the number of tokens in each sequence, at most L; None: L. rope rotates the keys by their positions in the sequence, or by
        positions ([L] or [n, L]); None: keys are stored as given. The kinds "dynamic" and "longrope" use the length of the sequence after
        the call, and require one sequence or sequences of equal lengths. Raises MemoryError if the capacity is exhausted; after an error, the
        cache is unchanged.
        """
        tokens, _alive = self._tokens(k, v, sequence, counts, rope, positions)
        call("mha_cache_append", self._open(), self._sequence(sequence), ctypes.byref(tokens))

    def _tokens(self, k: Any, v: Any, sequence: int | None, counts: Sequence[int] | None, rope: Rope | None,
                positions: Any) -> tuple[CacheTokens, Any]:
        """Returns the description of new tokens, and objects that must live as long."""
        a, b = operand(k, "k"), operand(v, "v")
        d, n = self._desc, self._desc.batch if sequence is None else 1
        for name, x, width in (("k", a, d.head_dim), ("v", b, d.v_head_dim or d.head_dim)):
            want = (n, d.kv_heads, a.shape[2] if len(a.shape) == 4 else 0, width)
            if x.shape != want:
                raise ValueError(f"{name} must be of shape {want} (got {x.shape})")
        if a.dtype != b.dtype:
            raise ValueError(f"v must have the dtype of k, {a.dtype_name} (got {b.dtype_name})")
        each = None if counts is None else lengths(counts, n, "counts")
        tokens = struct(CacheTokens, count=a.shape[2], counts=None if each is None else each.ctypes.data, dtype=a.dtype,
                        k=a.view(), v=b.view())
        bound = None
        if rope is not None:
            bound = BoundRope(rope, a.dtype == F64, d.head_dim)
            bound.place("k_positions", positions, n, a.shape[2], self._ends(sequence, each, a.shape[2]))
            bound.require_one_length()
            tokens.rope = bound.pointer()
        elif positions is not None:
            raise ValueError("rope must be given with positions (got None)")
        return tokens, (a, b, each, bound)

    def _ends(self, sequence: int | None, counts: Any, count: int) -> list[int]:
        """Returns the lengths after `counts` more tokens of the sequences that receive tokens; None: `count` more tokens for each."""
        before = self.lengths if sequence is None else [self.length(sequence)]
        added = [count] * len(before) if counts is None else [min(int(n), count) for n in counts]
        return [length + n for length, n in zip(before, added) if n > 0 or counts is None]

    def _rotate_queries(self, c: Call, rope: Rope | None, q_positions: Any, ends: list[int]) -> None:
        """Sets the rotary embedding of queries; `ends`: 1 + the largest default position of each sequence."""
        if rope is None:
            if q_positions is not None:
                raise ValueError("rope must be given with q_positions (got None)")
            return
        bound = BoundRope(rope, c.desc.dtype == F64, self._desc.head_dim)
        bound.place("q_positions", q_positions, c.desc.batch, c.desc.q_len, ends)
        bound.require_one_length()
        c.alive.append(bound)
        c.give(ATTN_ROPE_Q, "rope", bound.pointer())

    @exclusive
    def truncate(self, length: int, *, sequence: int | None = None) -> None:
        """Removes all tokens from position `length` to the end, in one sequence or in all sequences that are longer."""
        call("mha_cache_truncate", self._open(), self._sequence(sequence), integer(length, "length"))

    @exclusive
    def fork(self, from_: int, to: int, length: int | None = None) -> None:
        """Replaces sequence `to` with the first `length` tokens of sequence `from_` (None: all tokens); both sequences share the memory of
        these tokens."""
        length = self.length(from_) if length is None else integer(length, "length")
        call("mha_cache_fork", self._open(), integer(from_, "from_"), integer(to, "to"), length)

    @exclusive
    def clear(self, *, sequence: int | None = None) -> None:
        """Removes all tokens of one sequence, or of all sequences."""
        call("mha_cache_clear", self._open(), self._sequence(sequence))

    def length(self, sequence: int) -> int:
        """Returns the number of tokens appended to a sequence; raises IndexError if the sequence does not exist."""
        found = int(lib.mha_cache_length(self._open(), integer(sequence, "sequence")))
        if found < 0:
            raise IndexError(f"sequence must be from 0 to {self._desc.batch - 1} (got {sequence})")
        return found

    @property
    def lengths(self) -> list[int]:
        """The number of tokens in each sequence."""
        return [self.length(n) for n in range(self._desc.batch)]

    @property
    def bytes(self) -> int:
        """The bytes allocated by the cache."""
        return int(lib.mha_cache_bytes(self._open()))

    @property
    def pages(self) -> int:
        """The number of pages in use."""
        return int(lib.mha_cache_pages(self._open()))

    # ---- attention ----

    @exclusive
    def attention(self, q: Any, *, sequence: int | None = None, q_lens: Sequence[int] | None = None, rope: Rope | None = None,
                  q_positions: Any = None, causal: bool = True, scale: float | None = None, softcap: float = 0.0,
                  window: tuple[int, int] = (-1, -1), slopes: Any = None, sinks: Any = None, gates: Any = None, return_lse: bool = False, threads: int | None = None) -> Any:
        """Computes attention for queries q [n, H, L, D] of the last L tokens; row i of a sequence has position length - L + i.

        q_lens: the number of queries in each sequence, at most L; None: L. rope rotates the queries by their positions, or by q_positions
        ([L] or [n, L]); keys are rotated when they are appended. Returns out [n, H, L, Dv], or Attention(out, lse, None, None, None). The
        options are those of mha.attention.

            >>> import numpy as np, mha
            >>> x = np.random.default_rng(0).standard_normal((1, 2, 6, 8), dtype=np.float32)
            >>> rope = mha.Rope(8)
            >>> with mha.Cache(batch=1, kv_heads=2, head_dim=8) as cache:
            ...     cache.append(x, x, rope=rope)
            ...     out = cache.attention(x, rope=rope)
            >>> bool((out == mha.attention(x, x, x, causal=True, rope=rope)).all())
            True
        """
        d, n = self._desc, self._desc.batch if sequence is None else 1
        c = describe_queries(q, n, d.kv_heads, d.head_dim, d.v_head_dim or d.head_dim, scale=scale, softcap=softcap, causal=causal,
                             window=window, slopes=slopes, sinks=sinks, gates=gates)
        rows = None if q_lens is None else lengths(q_lens, n, "q_lens")
        stored = self.lengths if sequence is None else [self.length(sequence)]
        ends = [length or c.desc.q_len for length, count in zip(stored, [1] * n if rows is None else rows) if count > 0]
        self._rotate_queries(c, rope, q_positions, ends)
        call("mha_cache_bind", self._open(), self._sequence(sequence), None if rows is None else rows.ctypes.data,
             ctypes.byref(c.desc), ctypes.byref(c.args))
        out, lse = self._results(c, q, return_lse)
        call("mha_attention", context(threads), ctypes.byref(c.desc), ctypes.byref(c.args))
        return Attention(out, lse, None, None, None) if return_lse else out

    @exclusive
    def attend(self, q: Any, k: Any, v: Any, *, sequence: int | None = None, counts: Sequence[int] | None = None,
               rope: Rope | None = None, causal: bool = True, scale: float | None = None, softcap: float = 0.0,
               window: tuple[int, int] = (-1, -1), slopes: Any = None, sinks: Any = None, gates: Any = None,
               return_lse: bool = False, threads: int | None = None) -> Any:
        """Appends k and v, and computes attention for queries q [n, H, L, D] of these tokens: append() and attention() in one call.

        rope rotates q and k by their positions in the sequence; the kinds "dynamic" and "longrope" require sequences of equal lengths.
        Returns out, or Attention(out, lse, None, None, None). If the call fails, no token is stored.

            >>> import numpy as np, mha
            >>> x = np.random.default_rng(0).standard_normal((1, 2, 6, 8), dtype=np.float32)
            >>> rope = mha.Rope(8)
            >>> whole = mha.attention(x, x, x, causal=True, rope=rope)
            >>> with mha.Cache(batch=1, kv_heads=2, head_dim=8) as cache:
            ...     rows = [cache.attend(*[x[:, :, i:i + 1]] * 3, rope=rope) for i in range(6)]
            >>> bool((np.concatenate(rows, 2) == whole).all())
            True
        """
        d, n = self._desc, self._desc.batch if sequence is None else 1
        width = d.v_head_dim or d.head_dim
        tokens, _alive = self._tokens(k, v, sequence, counts, rope, None)
        c = describe_queries(q, n, d.kv_heads, d.head_dim, width, scale=scale, softcap=softcap, causal=causal, window=window,
                             slopes=slopes, sinks=sinks, gates=gates)
        self._rotate_queries(c, rope, None, self._ends(sequence, counts, tokens.count))
        out, lse = self._results(c, q, return_lse)
        call("mha_cache_attend", context(threads), self._open(), self._sequence(sequence), ctypes.byref(tokens), ctypes.byref(c.desc),
             ctypes.byref(c.args))
        return Attention(out, lse, None, None, None) if return_lse else out

    def _results(self, c: Call, q: Any, return_lse: bool) -> tuple[Any, Any]:
        """Allocates out and, if requested, lse."""
        d = c.desc
        out = output(c, q, 0, "out", d.dtype, (d.batch, d.heads, d.q_len, self._desc.v_head_dim or self._desc.head_dim))
        lse = output(c, q, ATTN_LSE, "lse", F64 if d.dtype == F64 else F32, (d.batch, d.heads, d.q_len)) if return_lse else None
        return out, lse

    # ---- saving and loading ----

    @exclusive
    def tensors(self) -> dict[str, np.ndarray]:
        """Returns a copy of the contents: "lengths" [B], "pages" [B, n], "k" and "v" [pages, Hkv, page_size, width].

        bfloat16 is returned as uint16, q8_0 as uint8, q4_0 as uint16 (9 per block of 32 elements), f8_e4m3 as int8.
        """
        found = (NamedTensor * CACHE_TENSORS)()
        lib.mha_cache_save(self._open(), found)
        return taken(found, CACHE_TENSORS)

    @exclusive
    def load(self, tensors: dict[str, np.ndarray]) -> None:
        """Replaces the contents with the tensors() of a cache with the same description."""
        named = given(tensors, "tensors")
        for each in named:
            if self._desc.dtype == Q4_0 and each.dtype == BF16:  # blocks, not bfloat16
                each.dtype = U16
        call("mha_cache_load", self._open(), named, len(named))

    @staticmethod
    def _sequence(sequence: int | None) -> int:
        return CACHE_ALL if sequence is None else integer(sequence, "sequence", 0)


def attn_merge(parts: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Merges attention results of the same queries over disjoint sets of keys; returns (out, lse) over all keys.

    Each part is a pair (out [B, H, L, Dv], lse [B, H, L]). All parts must be float32, or all float64. Rows with lse = -infinity have no
    effect.

        >>> import numpy as np, mha
        >>> x = np.random.default_rng(0).standard_normal((1, 2, 6, 8), dtype=np.float32)
        >>> halves = [mha.attention(x, x[:, :, s], x[:, :, s], return_lse=True)[:2] for s in (slice(0, 3), slice(3, 6))]
        >>> out, lse = mha.attn_merge(halves)
        >>> bool(np.allclose(out, mha.attention(x, x, x), atol=1e-6))
        True
    """
    if not parts:
        raise ValueError("parts must not be empty")
    outs = [operand(out, f"parts[{n}].out") for n, (out, _) in enumerate(parts)]
    lses = [operand(lse, f"parts[{n}].lse") for n, (_, lse) in enumerate(parts)]
    shape, dtype = outs[0].shape, outs[0].dtype
    for n, (a, b) in enumerate(zip(outs, lses)):
        if len(shape) != 4 or a.shape != shape or b.shape != shape[:3]:
            raise ValueError(f"parts[{n}] must be of shapes [B, H, L, Dv] and [B, H, L], as all other parts (got {a.shape} and {b.shape})")
        if dtype not in (F32, F64) or {a.dtype, b.dtype} != {dtype}:
            raise ValueError(f"parts[{n}] must be of float32 or float64, as all other parts (got {a.dtype_name} and {b.dtype_name})")
        b.strides = (*b.strides, 0)
    out, lse = empty_like(parts[0][0], dtype, shape), empty_like(parts[0][0], dtype, shape[:3])
    to_out, to_lse = array(out, "out"), array(lse, "lse")
    to_lse.strides = (*to_lse.strides, 0)
    listed = (AttnPart * len(outs))(*(AttnPart(a.view(), b.view()) for a, b in zip(outs, lses)))
    args = struct(AttnMergeArgs, batch=shape[0], heads=shape[1], q_len=shape[2], v_head_dim=shape[3], dtype=dtype,
                  count=len(outs), parts=listed, out=to_out.view(), lse=to_lse.view())
    call("mha_attn_merge", context(), ctypes.byref(args))
    return out, lse
