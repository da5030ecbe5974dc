"""The attention operator: mha.attention and mha.attention_plan."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, cast

from .._arrays.array import F32, F64, choose
from .._binding.abi import ATTN_LSE, ATTN_PROBS, ATTN_SCORES
from .._binding.context import context
from .._binding.library import call
from .description import Description, described, prepare
from .plan import Plan, kept_plan
from .results import SCORE_STAGES, Attention, checked_top_keys, map_output, output, statistics, unpacked

if TYPE_CHECKING:
    from typing_extensions import Unpack


@described
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
        found = None if plan is None else plan.run_known(q, k, v)
        if found is not None:
            return found
    c = prepare(q, k, v, **description)
    d = c.desc
    shape = [0] * 4
    for axis, n in zip(c.axes, c.results + (d.v_head_dim,)):
        shape[axis] = n
    out = output(c, q, 0, "out", d.dtype, shape, c.axes)
    wide = F64 if d.dtype == F64 else F32
    lse = output(c, q, ATTN_LSE, "lse", wide, c.results) if return_lse else None
    probs = map_output(c, q, ATTN_PROBS, "probs", wide) if return_probs else None
    top_keys = checked_top_keys(top_keys, return_stats)
    stats = statistics(c, q, wide, top_keys) if return_stats else None
    written = None
    if scores is not None:
        d.scores = choose("scores", scores, SCORE_STAGES)
        written = map_output(c, q, ATTN_SCORES, "scores", wide)
    call("mha_attention", context(threads), ctypes.byref(d), ctypes.byref(c.args))
    c.end()
    if c.packed:
        out = out[0]
        lse, stats = unpacked(c, lse, stats)
    if return_lse or return_probs or return_stats or scores is not None:
        return Attention(out, lse, probs, stats, written)
    return out


@described
def attention_plan(q: Any, k: Any, v: Any, *, threads: int | None = None, return_lse: bool = False, return_probs: bool = False,
                   return_stats: bool = False, top_keys: int = 0, scores: str | None = None,
                   **description: Unpack[Description]) -> dict[str, Any]:
    """Returns the plan of attention() for these arguments: a dict with kernel, isa, workspace, flops, bytes, refused ...

        >>> import numpy as np, mha
        >>> q = np.ones((1, 2, 4, 8), np.float32)
        >>> mha.attention_plan(q, q, q)["kernel"]
        'fwd_decode'
    """
    with Plan(q, k, v, threads=threads, return_lse=return_lse, return_probs=return_probs, return_stats=return_stats,
              top_keys=top_keys, scores=scores, **description) as plan:
        return plan.describe()
