"""Zero-copy access to arrays: pointer, type, shape and strides of NumPy arrays and of objects that support DLPack."""
from __future__ import annotations

import ctypes
import math
import operator
import sys
from collections.abc import Iterable, Mapping
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, TypeVar

import numpy as np

from .._binding.abi import View

_T = TypeVar("_T")

# values of mha_dtype
F32, BF16, F16, F64, Q8_0, BOOL, U8, I64 = 1, 2, 3, 4, 5, 6, 7, 14  # I64: results only; Q8_0: weights and caches only
Q4_0, F8_E4M3 = 16, 17  # caches only
_NAMES = {"float32": F32, "bfloat16": BF16, "float16": F16, "float64": F64, "bool": BOOL, "uint8": U8}
_TYPES = {np.dtype(name): x for name, x in _NAMES.items() if name != "bfloat16"}  # by dtype, because a.dtype.name takes microseconds
_DLPACK = {(2, 32): F32, (4, 16): BF16, (2, 16): F16, (2, 64): F64, (6, 8): BOOL, (1, 8): U8}  # by (type code, bits) of DLPack
_NUMPY = {F32: np.float32, F16: np.float16, F64: np.float64, I64: np.int64}
DTYPES = {"f32": F32, "bf16": BF16, "f16": F16, "f64": F64, "q8_0": Q8_0, "q4_0": Q4_0, "f8_e4m3": F8_E4M3}  # the names of the library


def dtype_name(dtype: int) -> str:
    """Returns the name of an mha_dtype in NumPy and PyTorch."""
    return next(name for name, x in _NAMES.items() if x == dtype)


def dtype_error(name: str, dtype: Any, known: Iterable[Any] = tuple(_NAMES)) -> ValueError:
    """Returns the error for an array of a dtype that is not known."""
    return ValueError(f"{name}.dtype must be one of {', '.join(map(str, known))} (got {dtype})")


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8),
                ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]
_CPU = 1


class Array:
    """A strided array whose memory `owner` keeps alive; strides are in elements."""

    def __init__(self, owner: Any, data: int, dtype: int, shape: Any, strides: Any) -> None:
        self.owner, self.data, self.dtype, self.shape, self.strides = owner, data, dtype, tuple(shape), tuple(strides)

    @property
    def dtype_name(self) -> str:
        return dtype_name(self.dtype)

    def view(self, axes: tuple[int, ...] | None = None) -> View:
        """Returns a View whose four strides are those of `axes`, in this order."""
        strides = self.strides if axes is None else [self.strides[a] for a in axes]
        return View(self.data, (c_int64 * 4)(*strides))

    def broadcast(self, target: tuple[int, ...], name: str, first_keys: bool = False) -> View:
        """Returns a View broadcast from the right to the four-dimensional shape `target`. first_keys: the last axis may be shorter, as
        in a mask that covers only the first keys."""
        if len(self.shape) > 4:
            raise ValueError(f"{name}.ndim must be at most 4 (got {len(self.shape)})")
        missing = 4 - len(self.shape)
        shape, strides = (1,) * missing + self.shape, [0] * missing + list(self.strides)
        for axis, (have, want) in enumerate(zip(shape, target)):
            if have == 1:
                strides[axis] = 0
            elif have != want and not (axis == 3 and have < want and first_keys):
                raise ValueError(f"{name} must be of a shape that broadcasts to {tuple(target)} (got {self.shape})")
        return View(self.data, (c_int64 * 4)(*strides))


def _from_numpy(a: Any, name: str) -> Array:
    dtype = _TYPES.get(a.dtype) or _NAMES.get(a.dtype.name)
    if dtype is None or not a.dtype.isnative:
        raise dtype_error(name, a.dtype)
    size, strides = a.itemsize, a.strides
    if any(s % size for s in strides):
        raise ValueError(f"{name} must have strides that are multiples of the element size {size} (got {strides})")
    return Array(a, a.ctypes.data, dtype, a.shape, [s // size for s in strides])


def _resolved(x: Any, name: str) -> Any:
    """Returns a PyTorch tensor detached from its gradient, with negation and conjugation applied. PyTorch stores both as
    flags of the tensor, which DLPack does not export."""
    if getattr(x, "requires_grad", False):
        if sys.modules["torch"].is_grad_enabled():
            raise ValueError(f"{name} must not require a gradient: use mha.torch.attention, pass {name}.detach(), or call "
                             "under torch.no_grad()")
        x = x.detach()
    if hasattr(x, "is_neg") and (x.is_neg() or x.is_conj()):
        x = x.resolve_conj().resolve_neg()  # both methods copy the tensor only if its flag is set
    return x


def _exported(x: Any, name: str) -> Any:
    try:
        return x.__dlpack__()
    except (BufferError, RuntimeError, TypeError) as reason:  # the tensor is not strided, or has no memory
        raise ValueError(f"{name}: {reason}") from None


def _from_dlpack(x: Any, name: str) -> Array:
    x = _resolved(x, name)
    capsule = _exported(x, name)
    t = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    if t.device_type != _CPU:
        raise ValueError(f"{name} must be in CPU memory (got DLPack device type {t.device_type})")
    dtype = _DLPACK.get((t.code, t.bits))
    if dtype is None or t.lanes != 1:
        dtype_text = getattr(x, "dtype", f"DLPack type code {t.code} with {t.bits} bits")
        raise dtype_error(name, dtype_text)
    shape = t.shape[:t.ndim]
    if t.strides:
        strides = t.strides[:t.ndim]
    else:  # in DLPack, NULL strides mean contiguous
        strides = [int(np.prod(shape[i + 1:], dtype=np.int64)) for i in range(t.ndim)]
    return Array((x, capsule), (t.data or 0) + t.byte_offset, dtype, shape, strides)


def array(x: Any, name: str) -> Array:
    """Returns an Array of a NumPy array or an object with DLPack. Lists are refused, because they would have to be copied."""
    if isinstance(x, np.ndarray):
        return _from_numpy(x, name)
    if hasattr(x, "__dlpack__"):
        return _from_dlpack(x, name)
    raise ValueError(f"{name} must be a NumPy array or an object with __dlpack__ (got {type(x).__name__})")


def operand(x: Any, name: str) -> Array:
    """Returns an Array of x for an argument of the library in which zero strides mean contiguous. A tensor expanded from one element, such
    as the gradient of a sum, has zero strides and is copied."""
    a = array(x, name)
    if any(a.strides) or all(n <= 1 for n in a.shape):
        return a
    return contiguous(x, name)


def contiguous(x: Any, name: str) -> Array:
    """Returns an Array of x whose elements are contiguous; copies x if they are not."""
    if isinstance(x, np.ndarray):
        return array(np.asarray(x, order="C"), name)
    a = array(x, name)
    dense = [math.prod(a.shape[i + 1:]) for i in range(len(a.shape))]
    if all(have == want or n == 1 for have, want, n in zip(a.strides, dense, a.shape)):
        return a
    if not hasattr(x, "contiguous"):
        raise ValueError(f"{name} must be contiguous (got strides {a.strides})")
    return array(x.contiguous(), name)


def is_bfloat16(x: Any) -> bool:
    """Returns true if x is an array or tensor of bfloat16."""
    if isinstance(x, np.ndarray):
        return x.dtype not in _TYPES and x.dtype.name == "bfloat16"
    return str(getattr(x, "dtype", None)) in ("bfloat16", "torch.bfloat16")


def readable(x: Any, name: str) -> Any:
    """Converts a PyTorch tensor so that NumPy can read it (detached, bfloat16 as float32); returns other objects unchanged."""
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack__"):
        return x
    x = _resolved(x, name)
    _exported(x, name)
    return x.float() if str(x.dtype) == "torch.bfloat16" else x


def real(x: Any, name: str) -> Any:
    """Like readable(), but returns an array, and requires real numbers, since NumPy would silently discard imaginary parts."""
    x = readable(x, name)
    a = np.asarray(x)
    if a.dtype.kind not in "biufV":  # V: types that NumPy does not define, such as bfloat16
        raise ValueError(f"{name} must hold real numbers (got {getattr(x, 'dtype', type(x).__name__)})")
    return a


def integers(x: Any, name: str, dtype: Any = np.int64, dims: tuple[int, ...] = (1,)) -> np.ndarray:
    """Returns a contiguous array of integers, with a number of axes in `dims`; values are never rounded or wrapped."""
    x = readable(x, name)
    try:
        a = np.asarray(x)
    except ValueError:
        raise ValueError(f"{name} must have rows of equal length: pad shorter rows and pass a mask") from None
    beyond = a.dtype.kind == "O" and all(isinstance(n, int) for n in a.flat)  # NumPy has no type for integers beyond 64 bits
    if a.dtype.kind not in "iu" and a.size and not beyond:
        raise ValueError(f"{name} must hold integers (got {a.dtype})")
    if a.ndim not in dims:
        raise ValueError(f"{name}.ndim must be {' or '.join(map(str, dims))} (got shape {a.shape})")
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if a.size and not (low <= int(a.min()) and int(a.max()) <= high):
        raise ValueError(f"{name} must be from {low} to {high} (got {a.min()} to {a.max()})")
    return np.ascontiguousarray(a, dtype=dtype)


def floats(x: Any, name: str, shape: tuple[int | None, ...] | None = None, dtype: Any = np.float32) -> np.ndarray:
    """Returns a contiguous array of real numbers. None in `shape` stands for any length."""
    a = np.ascontiguousarray(real(x, name), dtype=dtype)
    if shape is not None and (a.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, a.shape))):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"{name} must be of shape ({wanted}) (got {a.shape})")
    return a


def flags(x: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Returns a contiguous array of bytes: 1 where x is true or not 0."""
    a = np.ascontiguousarray(np.asarray(readable(x, name)) != 0, dtype=np.uint8)
    if a.shape != shape:
        raise ValueError(f"{name} must be of shape {shape} (got {a.shape})")
    return a


def choose(name: str, value: Any, table: Mapping[Any, _T]) -> _T:
    """Returns the value of a key in the table."""
    try:
        return table[value]
    except (KeyError, TypeError):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, table))} (got {value!r})") from None


def lengths(x: Any, count: int, name: str) -> np.ndarray:
    """Returns a contiguous int64 array of `count` integers."""
    a = integers(x, name)
    if a.shape != (count,):
        raise ValueError(f"{name} must hold {count} integers (got {len(a)})")
    return a


def integer(x: Any, name: str, low: int = -2**63, high: int = 2**63 - 1) -> int:
    """Returns x as an integer from low to high."""
    try:
        value = operator.index(x)
    except TypeError:
        raise ValueError(f"{name} must be an integer (got {x!r})") from None
    if not low <= value <= high:
        raise ValueError(f"{name} must be from {low} to {high} (got {value})")
    return value


def number(x: Any, name: str) -> float:
    """Returns x as a float."""
    try:
        return float(x)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(f"{name} must be a number (got {x!r})") from None


def view(address: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Returns C memory as an array without a copy, valid as long as the memory is valid; None for NULL."""
    if not address:
        return None
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)


def strided(address: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Returns C memory with strides in elements as an array without a copy, valid as long as the memory is valid."""
    size = sum((n - 1) * s for n, s in zip(shape, strides)) + 1 if math.prod(shape) else 0
    whole = view(address, dtype, (size,))
    return np.lib.stride_tricks.as_strided(whole, shape, tuple(s * whole.itemsize for s in strides))


def empty_like(x: Any, dtype: int, shape: Any, name: str = "q") -> Any:
    """Returns a new contiguous array with the given shape and mha_dtype: a PyTorch tensor if x is a PyTorch tensor, otherwise NumPy.
    Errors name the argument x `name`."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        names = {F32: torch.float32, BF16: torch.bfloat16, F16: torch.float16, F64: torch.float64, I64: torch.int64}
        return torch.empty(shape, dtype=names[dtype])
    if dtype in _NUMPY:
        return np.empty(shape, dtype=_NUMPY[dtype])
    types = sys.modules.get("ml_dtypes")  # imported if x is an array of its bfloat16
    if types is None:
        raise ValueError(f"{name} must be a PyTorch tensor, or an array of ml_dtypes.bfloat16, for results of bfloat16")
    return np.empty(shape, dtype=types.bfloat16)
