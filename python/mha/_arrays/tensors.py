"""Lists of named tensors, as the library reads and returns them, converted from and to dicts of arrays."""
from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int64
from typing import Any

import numpy as np

from .._binding.abi import BF16, F16, F32, F64, I8, I16, I32, I64, Q8_0, U8, U16, U32, U64, NamedTensor
from .._binding.abi import BOOL as BOOL_
from .._binding.library import string
from .array import dtype_error, readable, view

NUMPY = {F32: np.float32, F64: np.float64, F16: np.float16, BF16: np.uint16, Q8_0: np.uint8, BOOL_: np.bool_, U8: np.uint8, I8: np.int8,
          U16: np.uint16, I16: np.int16, U32: np.uint32, I32: np.int32, U64: np.uint64, I64: np.int64}
CODES = {np.dtype(kind): code for code, kind in NUMPY.items() if code not in (BF16, Q8_0, U16)} | {np.dtype(np.uint16): BF16}


def taken(found: Any, count: int) -> dict[str, np.ndarray]:
    """Returns copies of the tensors of a list of the library; bfloat16 as uint16, and a tensor without data as zeros."""
    tensors = {}
    for t in found[:count]:
        shape, kind = tuple(t.shape[:t.rank]), NUMPY[t.dtype]
        tensors[(t.name or b"").decode()] = view(t.data, kind, shape).copy() if t.data else np.zeros(shape, kind)
    return tensors


def given(tensors: Mapping[str, Any], name: str, dtype: Any = None) -> Any:
    """Returns a list for the library of a dict of arrays, which it keeps alive. dtype: the type to convert them to; None: unchanged."""
    kept = [np.ascontiguousarray(readable(x, f"{name}[{key!r}]"), dtype=dtype) for key, x in tensors.items()]
    for key, x in zip(tensors, kept):
        if x.ndim > 4:
            raise ValueError(f"{name}[{key!r}].ndim must be at most 4 (got {x.ndim})")
        if x.dtype not in CODES:
            raise dtype_error(f"{name}[{key!r}]", x.dtype, CODES)
    made = (NamedTensor * len(kept))(*(NamedTensor(string(key, "name"), CODES[x.dtype], x.ndim, (c_int64 * 4)(*x.shape), x.ctypes.data)
                                       for key, x in zip(tensors, kept)))
    made.__dict__["alive"] = kept
    return made


def put(found: Any, count: int, tensors: Mapping[str, Any], name: str) -> None:
    """Copies arrays to the memory of a list of the library. Requires exactly its names and shapes."""
    memory = {(t.name or b"").decode(): view(t.data, NUMPY[t.dtype], tuple(t.shape[:t.rank])) for t in found[:count]}
    if set(memory) != set(tensors):
        missing, other = sorted(set(memory) - set(tensors)), sorted(set(tensors) - set(memory))
        raise ValueError(f"{name} must have exactly the names {', '.join(memory)} (missing: {missing}, unknown: {other})")
    arrays = {key: np.asarray(readable(x, f"{name}[{key!r}]")) for key, x in tensors.items()}
    for key, x in arrays.items():
        if x.shape != memory[key].shape:
            raise ValueError(f"{name}[{key!r}] must be of shape {memory[key].shape} (got {x.shape})")
    for key, x in arrays.items():
        memory[key][...] = x
