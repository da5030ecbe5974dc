"""The building blocks of a transformer on rows of float32: linear, norm, activation, embedding and loss, forward and backward."""
from __future__ import annotations

import ctypes
from ctypes import c_double, c_int64
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._arrays.array import (
    BF16,
    DTYPES,
    array,
    choose,
    contiguous,
    empty_like,
    floats,
    integer,
    integers,
    is_bfloat16,
    number,
)
from .._binding import abi
from .._binding.context import context
from .._binding.library import Handle, call, create, string, struct


class LinearGradients(NamedTuple):
    """The gradients of linear_backward."""

    dx: np.ndarray
    dweight: np.ndarray
    dbias: np.ndarray | None


class NormGradients(NamedTuple):
    """The gradients of norm_backward."""

    dx: np.ndarray
    dweight: np.ndarray
    dbias: np.ndarray | None


class CrossEntropy(NamedTuple):
    """The loss of cross_entropy, the number of counted rows, and the gradient of the logits."""

    loss: float
    counted: int
    dlogits: np.ndarray | None



ACTIVATIONS = {"none": abi.ACT_NONE, "gelu": abi.ACT_GELU, "gelu_tanh": abi.ACT_GELU_TANH, "relu": abi.ACT_RELU, "tanh": abi.ACT_TANH,
               "silu": abi.ACT_SILU, "quick_gelu": abi.ACT_QUICK_GELU, "sigmoid": abi.ACT_SIGMOID, "softplus": abi.ACT_SOFTPLUS}
_NORMS = {"layer": abi.NORM_LAYER, "rms": abi.NORM_RMS}
_PACKED = {name: DTYPES[name] for name in ("f32", "bf16", "f16", "q8_0")}


def _rows(x: Any, name: str, width: int | None = None) -> np.ndarray:
    """Returns x [..., width] as float32; all axes but the last are rows."""
    a = floats(x, name)
    _check_width(a, name, width)
    return a


def _check_width(a: Any, name: str, width: int | None) -> None:
    if not a.shape or width not in (None, a.shape[-1]):
        raise ValueError(f"{name} must be of shape [..., {'width' if width is None else width}] (got {a.shape})")


def _count(x: Any) -> int:
    return int(np.prod(x.shape[:-1], dtype=np.int64))


# ---- activation ----

def activation_forward(activation: str, x: Any) -> np.ndarray:
    """Returns the activation of x [..., width], float32.

    activation: "none", "gelu", "gelu_tanh", "relu", "tanh", "silu", "quick_gelu", "sigmoid" or "softplus".

        >>> import mha
        >>> mha.activation_forward("relu", [-1.0, 2.0]).tolist()
        [0.0, 2.0]
    """
    y = _rows(x, "x").copy()
    call("mha_activation_forward", context(), choose("activation", activation, ACTIVATIONS), _count(y), y.shape[-1], y.ctypes.data)
    return y


def activation_backward(activation: str, x: Any, dy: Any) -> np.ndarray:
    """Returns the gradient of x, the input of the activation, for the gradient dy of its output.

        >>> import mha
        >>> mha.activation_backward("relu", [-1.0, 2.0], [5.0, 5.0]).tolist()
        [0.0, 5.0]
    """
    a = _rows(x, "x")
    b, dx = floats(dy, "dy", a.shape), np.empty_like(a)
    call("mha_activation_backward", context(), choose("activation", activation, ACTIVATIONS), _count(a), a.shape[-1], a.ctypes.data,
         b.ctypes.data, dx.ctypes.data)
    return dx


# ---- linear ----

@dataclass
class Matrix:
    """A weight [out, in], or [in, out] if transposed (Conv1D of GPT-2), and its bias [out]. packed: the type of the packed weights, "f32",
    "bf16", "f16" or "q8_0". many_rows: most calls have at least 64 rows; in f32, layers of at least 256 inputs are then faster on amx."""

    weight: Any
    bias: Any = None
    transposed: bool = False
    packed: str = "f32"
    many_rows: bool = False

    def struct(self, name: str, in_: int | None = None) -> Any:
        """Returns the struct of the library; raises ValueError unless the weight has the width `in_`."""
        w = floats(self.weight, f"{name}.weight", (None, None))
        rows = w.shape[1 if self.transposed else 0]
        b = None if self.bias is None else floats(self.bias, f"{name}.bias", (rows,))
        made = struct(abi.Matrix, weight=w, bias=b, transposed=bool(self.transposed), out=rows,
                      packed=choose("packed", self.packed, _PACKED), many_rows=bool(self.many_rows))
        if in_ is not None:
            require_inputs(made, name, in_)
        return made


def inputs(matrix: Any) -> int:
    """Returns the number of inputs of a struct of Matrix."""
    return int(matrix.alive["weight"].shape[0 if matrix.transposed else 1])


def require_inputs(matrix: Any, name: str, count: int) -> None:
    """Raises ValueError unless a struct of Matrix has `count` inputs."""
    if inputs(matrix) != count:
        raise ValueError(f"{name}.weight must have {count} inputs (got shape {matrix.alive['weight'].shape})")


class Linear(Handle):
    """y = activation(x W^T + b), with packed weights; several matrices are stacked: y = [x W0^T + b0 | x W1^T + b1 | ...].

        >>> import numpy as np, mha
        >>> layer = mha.Linear(mha.Matrix(np.eye(3), np.ones(3)))
        >>> layer.forward(np.zeros((2, 3), np.float32)).tolist()
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    def __init__(self, *parts: Matrix, activation: str = "none") -> None:
        if not parts:
            raise ValueError("parts must be at least one mha.Matrix (got none)")
        first = parts[0].struct("parts[0]")
        self.in_ = inputs(first)
        made = [first, *(part.struct(f"parts[{n}]", self.in_) for n, part in enumerate(parts) if n)]
        self.out = sum(m.out for m in made)
        if len(made) == 1 and not first.transposed and parts[0].packed == "f32" and activation == "none" and not first.many_rows:
            handle = create("mha_linear_create", context(), self.in_, self.out, first.weight, first.bias)
        else:
            handle = create("mha_linear_create_stack", context(), self.in_, (abi.Matrix * len(made))(*made), len(made),
                            choose("activation", activation, ACTIVATIONS))
        self._own(handle, "mha_linear_free")

    def forward(self, x: Any) -> Any:
        """Returns y [..., out] for x [..., in], as float32. If x is bfloat16, y is the float32 result rounded to bfloat16: a tensor if x is a
        PyTorch tensor, otherwise an array."""
        if is_bfloat16(x):
            return self._forward_bf16(x)
        a = _rows(x, "x", self.in_)
        y = np.empty((*a.shape[:-1], self.out), np.float32)
        call("mha_linear_forward", self._open(), a.ctypes.data, _count(a), y.ctypes.data)
        return y

    def _forward_bf16(self, x: Any) -> Any:
        a = contiguous(x, "x")
        _check_width(a, "x", self.in_)
        y = empty_like(x, BF16, (*a.shape[:-1], self.out), "x")
        call("mha_linear_forward_bf16", self._open(), a.data, _count(a), array(y, "y").data)
        return y


def linear_backward(x: Any, dy: Any, matrix: Matrix) -> LinearGradients:
    """Returns the gradients (dx, dweight, dbias) of y = x W^T + b for the gradient dy [..., out]; dbias is None without a bias.

        >>> import numpy as np, mha
        >>> dx, dweight, dbias = mha.linear_backward(np.ones((4, 3)), np.ones((4, 2)), mha.Matrix(np.eye(2, 3), np.zeros(2)))
        >>> dx[0].tolist(), dweight.shape, dbias.tolist()
        ([1.0, 1.0, 0.0], (2, 3), [4.0, 4.0])
    """
    m = matrix.struct("matrix")
    w, b = m.alive["weight"], m.alive["bias"]
    a = _rows(x, "x", inputs(m))
    d = floats(dy, "dy", (*a.shape[:-1], m.out))
    dx, dweight, dbias = np.zeros_like(a), np.zeros_like(w), None if b is None else np.zeros_like(b)
    call("mha_linear_backward", context(), ctypes.byref(struct(abi.LinearGradient, rows=_count(a), in_=a.shape[-1], matrix=m, x=a, dy=d,
                                                               dx=dx, dweight=dweight, dbias=dbias)))
    return LinearGradients(dx, dweight, dbias)


# ---- norm ----

@dataclass
class Norm:
    """LayerNorm (kind "layer") or RMSNorm ("rms", without a bias) over the last axis."""

    weight: Any
    bias: Any = None
    eps: float = 1e-5
    kind: str = "layer"

    def struct(self, name: str, width: int | None = None) -> Any:
        """Returns the struct of the library; raises ValueError unless the weight has `width` elements."""
        w = floats(self.weight, f"{name}.weight", (width,))
        b = None if self.bias is None else floats(self.bias, f"{name}.bias", w.shape)
        return struct(abi.Norm, weight=w, bias=b, eps=number(self.eps, "eps"), kind=choose("kind", self.kind, _NORMS))


def norm_forward(norm: Norm, x: Any, residual: Any = None) -> np.ndarray:
    """Returns norm(x + residual) over each row of x [..., width], float32.

        >>> import numpy as np, mha
        >>> mha.norm_forward(mha.Norm(np.ones(2), kind="rms", eps=1e-12), [[3.0, 4.0]]).round(3).tolist()
        [[0.8489999771118164, 1.13100004196167]]
    """
    n = norm.struct("norm")
    a = _rows(x, "x", len(n.alive["weight"]))
    r, y = None if residual is None else floats(residual, "residual", a.shape), np.empty_like(a)
    call("mha_norm_forward", context(), ctypes.byref(n), _count(a), a.shape[-1], a.ctypes.data, None if r is None else r.ctypes.data,
         y.ctypes.data)
    return y


def norm_backward(norm: Norm, x: Any, dy: Any) -> NormGradients:
    """Returns the gradients (dx, dweight, dbias) of norm(x) for the gradient dy; dbias is None without a bias.

        >>> import numpy as np, mha
        >>> found = mha.norm_backward(mha.Norm(np.ones(4), np.zeros(4)), np.eye(4), np.ones((4, 4)))
        >>> bool(np.abs(found.dx).max() < 1e-6), found.dbias.tolist()
        (True, [4.0, 4.0, 4.0, 4.0])
    """
    n = norm.struct("norm")
    w, b = n.alive["weight"], n.alive["bias"]
    a = _rows(x, "x", len(w))
    d, dx, dweight, dbias = floats(dy, "dy", a.shape), np.zeros_like(a), np.zeros_like(w), None if b is None else np.zeros_like(b)
    call("mha_norm_backward", context(), ctypes.byref(n), ctypes.byref(struct(
        abi.NormGradient, rows=_count(a), width=a.shape[-1], x=a, dy=d, dx=dx, dweight=dweight, dbias=dbias)))
    return NormGradients(dx, dweight, dbias)


# ---- loss and embedding ----

def cross_entropy(logits: Any, labels: Any, *, scale: float = 0.0, gradient: bool = True) -> CrossEntropy:
    """Returns (loss, counted, dlogits) of logits [rows, classes] and labels [rows]; rows with the label -100 do not count.

    scale: factor of the sum; 0: 1 / counted, the mean. gradient=False: dlogits is None.

        >>> import mha
        >>> loss, counted, dlogits = mha.cross_entropy([[0.0, 0.0], [5.0, 1.0]], [1, -100])
        >>> round(loss, 6), counted, dlogits.tolist()
        (0.693147, 1, [[0.5, -0.5], [0.0, 0.0]])
    """
    a = floats(logits, "logits", (None, None))
    b = integers(labels, "labels", np.int32)
    if len(b) != len(a):
        raise ValueError(f"labels must be of shape ({len(a)},) (got {b.shape})")
    loss, counted, dlogits = c_double(), c_int64(), np.empty_like(a) if gradient else None
    call("mha_cross_entropy", context(), ctypes.byref(struct(abi.CrossEntropyArgs, rows=a.shape[0], classes=a.shape[1], logits=a, labels=b,
                                                             scale=number(scale, "scale"), dlogits=dlogits)),
         ctypes.byref(loss), ctypes.byref(counted))
    return CrossEntropy(loss.value, counted.value, dlogits)


def _ids(ids: Any) -> np.ndarray:
    found: np.ndarray = integers(ids, "ids", np.int32, dims=(1, 2))
    return found


def embedding_forward(table: Any, ids: Any, add: Any = None, what: str = "ids") -> np.ndarray:
    """Returns the rows of table [count, width] for ids [rows] or [B, L], plus `add` of the same shape if given, float32.

        >>> import mha
        >>> mha.embedding_forward([[1, 2], [3, 4]], [1, 1, 0]).tolist()
        [[3.0, 4.0], [3.0, 4.0], [1.0, 2.0]]
    """
    t, at = floats(table, "table", (None, None)), _ids(ids)
    shape = (*at.shape, t.shape[1])
    y = np.empty(shape, np.float32) if add is None else floats(add, "add", shape).copy()
    call("mha_embedding_forward", string(what, "what"), t.ctypes.data, *t.shape, at.ctypes.data, at.size, add is not None, y.ctypes.data)
    return y


def embedding_backward(ids: Any, dy: Any, count: int, what: str = "ids") -> np.ndarray:
    """Returns the gradient [count, width] of the table for the gradient dy of embedding_forward(table, ids).

        >>> import mha
        >>> mha.embedding_backward([1, 1], [[1, 2], [3, 4]], 3).tolist()
        [[0.0, 0.0], [4.0, 6.0], [0.0, 0.0]]
    """
    at = _ids(ids)
    d = floats(dy, "dy", (*at.shape, None))
    dtable = np.zeros((integer(count, "count", 0), d.shape[-1]), np.float32)
    call("mha_embedding_backward", string(what, "what"), dtable.ctypes.data, *dtable.shape, at.ctypes.data, at.size, d.ctypes.data)
    return dtable

