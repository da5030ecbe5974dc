"""mha.Plan, an attention call that is checked once and run many times, and the cache of plans of mha.attention."""
from __future__ import annotations

import ctypes
import json
import math
import sys
import threading
from collections.abc import Callable
from ctypes import c_char, c_void_p
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .._arrays.array import F32, F64, Array, array, choose, dtype_name, empty_like, operand
from .._binding.abi import ATTN_LSE, ATTN_PROBS, ATTN_SCORES, ATTN_STATS, Error, View
from .._binding.context import context
from .._binding.exclusive import Exclusive, held
from .._binding.library import call, failure, lib
from .description import Description, prepare
from .results import SCORE_STAGES, Attention, checked_top_keys, map_output, statistics, unpacked

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

_from_buffer, _addressof = c_char.from_buffer, ctypes.addressof


def _address(x: Any) -> int:
    """Returns the address of the elements. For arrays, ctypes.addressof takes a quarter of the time of x.ctypes.data."""
    if type(x) is not np.ndarray:
        return int(x.data_ptr())
    try:
        return _addressof(_from_buffer(cast(Any, x)))
    except (TypeError, ValueError, BufferError):  # the array is read-only, not contiguous, or empty
        return x.ctypes.data


def _signature(x: Any) -> Any:
    """Returns (shape, strides, dtype) of an array or tensor; None if a plan must check it further, or copy it (see operand)."""
    if type(x) is np.ndarray:
        strides = x.strides
        return (x.shape, strides, x.dtype.num if x.dtype.isnative else None) if any(strides) or x.size <= 1 else None
    torch = sys.modules.get("torch")
    if torch is None or type(x) is not torch.Tensor or x.is_neg() or not x.is_cpu or (x.requires_grad and torch.is_grad_enabled()):
        return None
    strides = x.stride()
    return (x.shape, strides, x.dtype) if any(strides) or x.numel() <= 1 else None


class _Slot:
    """An operand of the plan: its View in the arguments, and the shape, strides and dtype that arrays must have."""

    read = staticmethod(operand)

    def __init__(self, name: str, view: View, like: Any, a: Array) -> None:
        self.name, self.view, self.dtype, self.shape, self.strides = name, view, a.dtype, a.shape, a.strides
        self.signature = _signature(like)
        self.last: Any = None  # the object that keeps the memory at the address of the View

    def put(self, x: Any) -> None:
        """Points the View at x."""
        if self.signature is not None and _signature(x) == self.signature:
            self.view.data = _address(x)
            self.last = x if type(x) is np.ndarray else None  # the memory of a tensor may be replaced
            return
        self.last = None
        a = self.read(x, self.name)
        shape, strides = ((1, *a.shape), (0, *a.strides)) if len(a.shape) == len(self.shape) - 1 else (a.shape, a.strides)
        if (a.dtype, shape) != (self.dtype, self.shape):
            raise ValueError(f"{self.name} must be of the shape and dtype that the plan was made for, {self.shape} of "
                             f"{dtype_name(self.dtype)} (got {a.shape} of {a.dtype_name})")
        if any(s != t for s, t, n in zip(strides, self.strides, shape) if n > 1):
            raise ValueError(f"{self.name} must have the strides that the plan was made for, {self.strides} (got {strides})")
        self.view.data, self.last = a.data, a


class _Result(_Slot):
    """A contiguous result of the plan, for which a call allocates an array."""

    read = staticmethod(array)

    def __init__(self, name: str, view: View, first: Any, a: Array) -> None:
        super().__init__(name, view, first, a)
        if type(first) is np.ndarray:
            self.empty: Callable[[], Any] = partial(np.empty, first.shape, first.dtype)
        else:  # torch.empty_like takes half the time of torch.empty; this pattern has only one element of memory
            torch = sys.modules["torch"]
            pattern = first.new_empty(1).expand(first.shape)
            self.empty = partial(torch.empty_like, pattern, memory_format=torch.contiguous_format)

    def put(self, x: Any) -> None:
        if type(x) is np.ndarray and not x.flags.writeable:
            raise ValueError(f"{self.name} must be writable")
        super().put(x)

    def new(self) -> Any:
        """Returns a new array, to which the View points."""
        x = self.empty()
        self.view.data, self.last = _address(x), None
        return x


class Plan:
    """Attention for operands of one shape, checked once and run many times.

    The arguments are those of mha.attention. q, k and v define shapes, dtypes and strides; the constructor does not read them.
    Masks, lengths and other arrays of the description are read at each call, so their values may change in place.

        >>> import numpy as np, mha
        >>> q = np.ones((1, 2, 4, 8), np.float32)
        >>> plan = mha.Plan(q, q, q, causal=True)
        >>> plan(q, q, q).shape
        (1, 2, 4, 8)
        >>> out = np.empty_like(q)
        >>> plan(q, q, q, out=out) is out
        True
        >>> plan.describe()["kernel"]
        'fwd_decode'

    The plan keeps references to the arrays of the last call. Calls from several threads run one after another. Raises ValueError if
    the description is invalid, or if operands differ from those of the plan in shape, strides or dtype, and RuntimeError for a call in
    one of its own functions.
    """

    def __init__(self, q: Any, k: Any, v: Any, *, threads: int | None = None, return_lse: bool = False, return_probs: bool = False,
                 return_stats: bool = False, top_keys: int = 0, scores: str | None = None,
                 **description: Unpack[Description]) -> None:
        self._handle: c_void_p | None = None
        self._workspace = c_void_p()
        self.lock, self._busy = Exclusive("Plan"), False  # busy: a call of the thread that holds the lock reads the arguments
        c = self._call = prepare(q, k, v, **description)
        d = c.desc
        self._wide = F64 if d.dtype == F64 else F32
        self._stage = scores
        d.top_keys = checked_top_keys(top_keys, return_stats)
        d.scores = 0 if scores is None else choose("scores", scores, SCORE_STAGES)
        d.outputs = (ATTN_LSE * bool(return_lse) | ATTN_PROBS * bool(return_probs) | ATTN_STATS * bool(return_stats)
                     | ATTN_SCORES * (scores is not None))
        self._more, self._packed = bool(d.outputs), c.packed
        ctx, handle = context(threads), c_void_p()
        call("mha_attn_plan_create", ctx, ctypes.byref(d), ctypes.byref(handle))
        self._handle = handle
        self._forward, self._free, self._plan_free = lib.untyped("mha_attn_forward"), lib.mha_free, lib.mha_attn_plan_free
        self._ctx, self._bytes = ctx, lib.mha_attn_plan_workspace(handle)
        if self._bytes:
            self._workspace = c_void_p(lib.mha_alloc(ctx, self._bytes))
            if not self._workspace:
                raise MemoryError(f"mha.Plan: cannot allocate a workspace of {self._bytes} bytes")
        self._slots = [_Slot(name, getattr(c.args, name), x, getattr(c, name)) for name, x in (("q", q), ("k", k), ("v", v))]
        self._results(q)
        del c.q, c.k, c.v  # drop the references to the arrays of the constructor
        self._error = Error()
        self._arguments = handle, ctypes.byref(c.args), self._workspace, ctypes.c_size_t(self._bytes), ctypes.byref(self._error)

    def _results(self, q: Any) -> None:
        """Sets the slots of out, which has the layout of q, and of lse."""
        c, torch = self._call, cast(Any, sys.modules.get("torch"))
        shape = [0] * 4
        for axis, n in zip(c.axes, (*c.results, c.desc.v_head_dim)):
            shape[axis] = n
        self._like = torch.empty(0) if torch is not None and isinstance(q, torch.Tensor) else np.empty(0)  # results have its type
        self._out = self._result("out", c.desc.dtype, shape, c.axes)
        self._lse = self._result("lse", self._wide, c.results, (0, 1, 2, 3)) if c.desc.outputs & ATTN_LSE else None

    def _result(self, name: str, dtype: int, shape: Any, axes: tuple[int, ...]) -> _Result:
        args, first = self._call.args, empty_like(self._like, dtype, tuple(shape))
        a = array(first, name)
        a.strides += (0,) * (4 - len(a.strides))
        setattr(args, name, a.view(axes))
        return _Result(name, getattr(args, name), first, a)

    @property
    def workspace(self) -> int:
        """The bytes of the workspace, which the plan owns."""
        return int(self._bytes)

    @property
    def weights(self) -> str:
        """The type that probabilities are rounded to before the product with v: "float32", "float64" or "bfloat16"."""
        return dtype_name(lib.mha_attn_plan_weights(self._open()))

    def describe(self) -> dict[str, Any]:
        """Returns the description of the plan: kernel, isa, workspace, flops, bytes, refused ... (mha_attn_plan_describe)."""
        size = lib.mha_attn_plan_describe(self._open(), 1, None, 0) + 1
        text = ctypes.create_string_buffer(size)
        lib.mha_attn_plan_describe(self._open(), 1, text, size)
        found: dict[str, Any] = json.loads(text.value)
        return found

    def _open(self) -> c_void_p:
        if self._handle is None:
            raise ValueError("mha.Plan is closed")
        return self._handle

    def __reduce__(self) -> Any:
        raise TypeError("mha.Plan cannot be copied or pickled")

    def __call__(self, q: Any, k: Any, v: Any, out: Any = None) -> Any:
        """Returns out, or Attention(out, lse, probs, stats, scores) if a return_ argument or scores was passed to the constructor.

        out: a contiguous array of the dtype of q for the output, which may be q itself. None: a new array.
        """
        if self._call.functions is not None:
            return self.lock.run(self._run_alone, q, k, v, out)
        with self.lock.lock:  # as run() does, in half the time, but without functions that may call the plan in other threads
            return self._run_alone(q, k, v, out)

    def _run_alone(self, q: Any, k: Any, v: Any, out: Any) -> Any:
        if self._busy:  # a signal handler, or an attribute of an operand, calls the plan
            raise self.lock.nested()
        try:
            self._busy = True
            if self._more:
                return self._run_more(q, k, v, out)
            self._place(q, k, v)
            return self._run(out)
        finally:
            self._busy = False

    def _place(self, q: Any, k: Any, v: Any) -> None:
        """Points the arguments at q, k and v."""
        if self._handle is None:
            self._open()
        of_q, of_k, of_v = self._slots
        if q is not of_q.last:
            of_q.put(q)
        if k is not of_k.last:
            of_k.put(k)
        if v is not of_v.last:
            of_v.put(v)

    def run_known(self, q: Any, k: Any, v: Any) -> Any:
        """Runs a call whose operands have the signatures of the plan; returns None if another call uses the plan."""
        lock = self.lock.lock
        if self._busy or not lock.acquire(blocking=False):
            return None
        try:
            self._busy = True
            for slot, x in zip(self._slots, (q, k, v)):
                slot.view.data = _address(x)
            lse = None if self._lse is None else self._lse.new()
            out = self._run(None)
        finally:
            self._busy = False
            lock.release()
        return out if lse is None else Attention(out, lse[0] if self._packed else lse, None, None, None)

    def _run(self, out: Any) -> Any:
        if out is None:
            out = self._out.new()
        elif out is not self._out.last:
            self._out.put(out)
        functions = self._call.functions
        if functions is not None:
            functions.held = held()
        if self._forward(*self._arguments):
            raise failure(self._error)
        if functions is not None:
            functions.check()
        return out[0] if self._packed and len(out.shape) == 4 else out

    def _run_more(self, q: Any, k: Any, v: Any, out: Any) -> Any:
        c, outputs = self._call, self._call.desc.outputs
        held = len(c.alive)
        try:
            lse = None if self._lse is None else self._lse.new()
            probs = map_output(c, self._like, ATTN_PROBS, "probs", self._wide) if outputs & ATTN_PROBS else None
            stats = statistics(c, self._like, self._wide, c.desc.top_keys) if outputs & ATTN_STATS else None
            scores = map_output(c, self._like, ATTN_SCORES, "scores", self._wide) if outputs & ATTN_SCORES else None
            self._place(q, k, v)
            out = self._run(out)
        finally:
            del c.alive[held:]
        if c.packed:
            lse, stats = unpacked(c, lse, stats)
        return Attention(out, lse, probs, stats, scores)

    def close(self) -> None:
        """Frees the plan and its workspace. May be called more than once."""
        if getattr(self, "_handle", None) is not None:
            self.lock.run(self._close)  # waits for a call in another thread

    def _close(self) -> None:
        if self._busy:
            raise self.lock.nested()
        handle, self._handle = self._handle, None
        if handle is not None:
            self._free(self._ctx, self._workspace)
            self._plan_free(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


# ---- the plan cache of mha.attention ----

_PLAIN = frozenset((bool, int, float, str, type(None)))
_KEPT = 32  # maximum number of cached plans
_KEPT_ELEMENTS, _KEPT_BYTES = 1 << 18, 1 << 18  # limits of a cached plan; the time to validate larger calls is negligible
_plans: dict[Any, Plan] = {}
_plans_lock = threading.RLock()  # a finalizer may call the package


def kept_plan(q: Any, k: Any, v: Any, threads: int | None, return_lse: bool, description: dict[str, Any]) -> Plan | None:
    """Returns a cached or new plan for a call with plain options; None if the call cannot use a plan."""
    for value in description.values():
        if type(value) not in _PLAIN and not (type(value) is tuple and all(type(x) is int for x in value)):
            return None
    a, b, c = _signature(q), _signature(k), _signature(v)
    if a is None or b is None or c is None or None in (a[2], b[2], c[2]) or math.prod(a[0]) > _KEPT_ELEMENTS:
        return None
    key = a, b, c, context(threads).value, return_lse, *description.items()
    plan = _plans.get(key)
    if plan is None:
        plan = Plan(q, k, v, threads=threads, return_lse=return_lse, **cast("Description", description))
        if plan.workspace > _KEPT_BYTES:
            return plan
        with _plans_lock:
            if len(_plans) >= _KEPT:
                del _plans[next(iter(_plans))]
            _plans[key] = plan
    return plan
