"""The backward pass of the attention operator: mha.attention_backward."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._arrays.array import F32, F64, Array, array, dtype_name, empty_like, operand
from .._binding.abi import ATTN_BIAS, ATTN_GATES, ATTN_GRADS, ATTN_SINKS, ATTN_SLOPES, AttnGrads, View
from .._binding.context import context
from .._binding.library import call, struct
from .attention_call import Call
from .description import Description, described, prepare

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Gradients(NamedTuple):
    """The gradients of mha.attention_backward; None for absent inputs."""

    dq: Any
    dk: Any
    dv: Any
    dbias: Any
    dsinks: Any
    dslopes: Any
    dgates: Any



def _read(c: Call, name: str, x: Any, shape: tuple[int, ...], axes: tuple[int, ...] | None) -> Array:
    """Returns an Array of x, which must have `shape`, the shape of a result; for packed sequences, x has no batch axis."""
    a = operand(x, name)
    if c.packed:
        a.shape, a.strides = (1,) + a.shape, (0,) + a.strides
    want = tuple(shape[i] for i in axes) if axes else tuple(shape)
    if a.shape != want:
        raise ValueError(f"{name} must be of shape {want[c.packed:]} (got {a.shape[c.packed:]})")
    a.strides = tuple(a.strides) + (0,) * (4 - len(a.strides))
    c.alive.append(a)
    return a


def _empty(c: Call, like: Any, dtype: int, shape: Any) -> tuple[Any, Array]:
    """Returns a new result and its Array. The result is filled with zeros, since the library does not write results with an empty
    axis."""
    x = empty_like(like, dtype, shape)
    x[...] = 0
    c.alive.append(x)
    return x, array(x, "a gradient")


def _dense(c: Call, like: Any, given: Any, axes: tuple[int, ...], packed: bool) -> tuple[Any, View]:
    """Returns a new array for the gradient of the operand `given` (an Array with four axes), and its View."""
    x, a = _empty(c, like, given.dtype, given.shape)
    return (x[0] if packed else x), a.view(axes)


def _reduced(c: Call, like: Any, dtype: int, x: Any, target: tuple[int, ...], name: str) -> tuple[Any, View]:
    """Returns a new array for the gradient of the input x, which broadcasts to `target`, and its View."""
    result, a = _empty(c, like, dtype, tuple(x.shape))
    return result, a.broadcast(target, name)


def _per_head(c: Call, like: Any, dtype: int, x: Any) -> tuple[Any, View]:
    """Returns a new array for the gradient of slopes, sinks or gates, [H] or [B, H], and its View."""
    result, a = _empty(c, like, dtype, np.shape(x))
    data = a.data
    return result, View(data, (ctypes.c_int64 * 4)(c.desc.heads if len(a.shape) == 2 else 0, 1, 0, 0))


def _gradients(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, dlse: Any, wanted: Any, threads: int | None,
               description: dict[str, Any]) -> Gradients:
    """Computes the fields of Gradients that `wanted` names."""
    c = prepare(q, k, v, **description)
    d, grads, results = c.desc, struct(AttnGrads), {}
    real = F64 if d.dtype == F64 else F32
    d.outputs = ATTN_GRADS
    shape = c.results + (d.v_head_dim,)
    for name, x in (("dout", dout), ("out", out)):
        a = _read(c, name, x, shape, c.axes)
        if a.dtype != d.dtype:
            raise ValueError(f"{name} must have the dtype of q, {dtype_name(d.dtype)} (got {a.dtype_name})")
        setattr(grads, name, a.view(c.axes))
    for name, x in (("lse", lse), ("dlse", dlse)):
        if x is None:
            continue
        a = _read(c, name, x, c.results, None)
        if a.dtype != real:
            raise ValueError(f"{name} must be of dtype {dtype_name(real)} (got {a.dtype_name})")
        setattr(grads, name, a.view())
    for name, given in (("dq", c.q), ("dk", c.k), ("dv", c.v)):
        if name in wanted:
            own = (c.axes, c.packed) if name == "dq" else (c.key_axes, c.packed_keys)
            results[name], view = _dense(c, q, given, *own)
            setattr(grads, name, view)
    if "dbias" in wanted and d.inputs & ATTN_BIAS:
        results["dbias"], grads.dbias = _reduced(c, q, real, description["bias"], c.rows, "dbias")
    for name, flag, source in (("dsinks", ATTN_SINKS, "sinks"), ("dslopes", ATTN_SLOPES, "slopes"), ("dgates", ATTN_GATES, "gates")):
        if name in wanted and d.inputs & flag:
            results[name], view = _per_head(c, q, real, description[source])
            setattr(grads, name, view)
    call("mha_attention_backward", context(threads), ctypes.byref(d), ctypes.byref(c.args), ctypes.byref(grads))
    c.end()
    return Gradients(*(results.get(name) for name in Gradients._fields))


@described
def attention_backward(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *, dlse: Any = None, threads: int | None = None,
                       **description: Unpack[Description]) -> Gradients:
    """Computes the gradients of attention(q, k, v, return_lse=True, **description), which returned out and lse.

    dout is the gradient of out, dlse the gradient of lse (None: zeros). Returns Gradients(dq, dk, dv, dbias, dsinks,
    dslopes, dgates); the gradient of an absent input is None. Each gradient has the shape of its input, summed over
    broadcast axes; with block_table, dk and dv are pages. dq, dk and dv have the dtypes of q, k and v; the others are float32, or float64 if q is float64.

        >>> import numpy as np, mha
        >>> q = np.random.default_rng(0).standard_normal((1, 2, 4, 8), dtype=np.float32)
        >>> out, lse, *_ = mha.attention(q, q, q, causal=True, return_lse=True)
        >>> mha.attention_backward(np.ones_like(out), q, q, q, out, lse, causal=True).dv.shape
        (1, 2, 4, 8)
    """
    return _gradients(dout, q, k, v, out, lse, dlse, Gradients._fields, threads, dict(description))
