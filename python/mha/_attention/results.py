"""The results of an attention call: their arrays, which are allocated and passed to the call."""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from .._arrays.array import I64, array, empty_like, integer
from .._binding.abi import ATTN_STATS, AttnStats, View
from .._binding.library import struct
from .attention_call import Call

SCORE_STAGES = {"raw": 0, "softcapped": 1, "biased": 2, "probs": 3}


class Attention(NamedTuple):
    """The results of mha.attention; None for those that were not requested."""

    out: Any
    lse: Any
    probs: Any
    stats: dict[str, Any] | None
    scores: Any


def output(c: Call, like: Any, flag: int, name: str, dtype: int, shape: Any, axes: tuple[int, ...] = (0, 1, 2, 3)) -> Any:
    """Allocates a result, passes it to the call, and returns it."""
    result = empty_like(like, dtype, shape)
    c.desc.outputs |= flag
    a = array(result, name)
    a.strides = a.strides + (0,) * (4 - len(a.strides))
    setattr(c.args, name, a.view(axes))
    c.alive.append(a)
    return result


def map_output(c: Call, like: Any, flag: int, name: str, dtype: int) -> Any:
    """Allocates probs or scores. Rows beyond the end of a sequence are 0, since the library does not write them."""
    result = output(c, like, flag, name, dtype, c.maps)
    result[...] = 0
    return result


def checked_top_keys(n: Any, return_stats: bool) -> int:
    count: int = integer(n, "top_keys")
    if count and not return_stats:
        raise ValueError(f"top_keys must be 0 unless return_stats is True (got {count})")
    return count


def statistics(c: Call, like: Any, real: int, top_keys: int) -> dict[str, Any]:
    """Allocates all statistics, passes them to the call, and returns them as a dict."""
    rows = c.results
    keys = (1 if c.packed_keys else c.desc.batch, rows[1], c.desc.kv_len)
    kinds: dict[str, tuple[int, tuple[int, ...]]] = {"row_entropy": (real, rows), "row_max": (real, rows), "row_argmax": (I64, rows),
             "row_distance": (real, rows), "received": (real, keys)}
    if top_keys:
        kinds |= {"top_prob": (real, rows + (top_keys,)), "top_key": (I64, rows + (top_keys,))}
    c.desc.outputs |= ATTN_STATS
    c.desc.top_keys = top_keys
    views, stats = struct(AttnStats), {}
    for name, (dtype, shape) in kinds.items():
        x = stats[name] = empty_like(like, dtype, shape)
        x[...] = 0  # the library does not write values of sequences without rows
        data = x.ctypes.data if isinstance(x, np.ndarray) else x.data_ptr()
        setattr(views, name, View(data, (ctypes.c_int64 * 4)()))
    c.alive.append(views)
    c.args.stats = ctypes.pointer(views)
    return stats


def unpacked(c: Call, lse: Any, stats: Any) -> tuple[Any, Any]:
    """Removes the batch axis of lse and stats of packed sequences."""
    lse = None if lse is None else lse[0]
    return lse, stats and {name: x if name == "received" and not c.packed_keys else x[0] for name, x in stats.items()}
