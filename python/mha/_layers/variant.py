"""mha.Variant: the published variants of multi-head attention as one layer, and mha.Trace, the record of a forward call."""
from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_int64
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from .._arrays.array import F32, F64, choose, flags, floats, integer, integers, strided, view
from .._arrays.rng import Rng
from .._arrays.tensors import put, taken
from .._binding import abi
from .._binding.abi import Mask, StepView, VariantGradient, VariantInput
from .._binding.context import context
from .._binding.library import Handle, call, create, lib, struct

if TYPE_CHECKING:
    from typing import Literal


class VariantGradients(NamedTuple):
    """The gradients of the inputs of a layer; None for those that were not requested or given."""

    query: np.ndarray | None
    key: np.ndarray | None
    value: np.ndarray | None
    past_key: np.ndarray | None
    past_value: np.ndarray | None


_STEPS = {"q": abi.STEP_Q, "k": abi.STEP_K, "v": abi.STEP_V, "scores": abi.STEP_SCORES, "weights": abi.STEP_WEIGHTS,
          "context": abi.STEP_CONTEXT, "mixed": abi.STEP_MIXED, "logits": abi.STEP_LOGITS, "gates": abi.STEP_GATES}
_STAGES = {"raw": 0, "softcapped": 1, "biased": 2, "probs": 3}
_TYPES: dict[str, tuple[int, Any]] = {"f32": (F32, np.float32), "f64": (F64, np.float64)}


def _mask(x: Any, name: str, dtype: Any) -> Mask:
    if x is None:
        return Mask()
    shape = np.shape(x)
    if not 2 <= len(shape) <= 4:
        raise ValueError(f"{name}.ndim must be from 2 to 4 (got shape {shape})")
    data = flags(x, name, shape) if dtype is np.uint8 else floats(x, name, dtype=dtype)
    return struct(Mask, data=data, rank=len(shape), shape=(c_int64 * 4)(*shape))


class Trace(Handle):
    """The record of a forward call of a layer: its intermediate values, and the input of its backward pass."""

    def __init__(self, layer: Variant) -> None:
        self._own(create("mha_trace_create", context()), "mha_trace_free", layer._open())
        self.input: VariantInput = struct(VariantInput)
        self._dtype = layer.dtype

    def step(self, name: str) -> np.ndarray | None:
        """Returns a copy of a step: "q", "k", "v" [B, H, L, D], "scores", "weights" [B, n, Lq, Lk], "context" [B, Lq, n D], "mixed",
        "logits" [B, choices], "gates" [B, n]; None if the call has no such step."""
        found = StepView()
        if not lib.mha_trace_step(self._open(), choose("name", name, _STEPS), ctypes.byref(found)):
            return None
        return strided(found.data or 0, self._dtype, tuple(found.shape[:found.rank]), tuple(found.stride[:found.rank])).copy()

    def steps(self) -> dict[str, np.ndarray]:
        """Returns copies of all steps of the call."""
        return {name: x for name in _STEPS if (x := self.step(name)) is not None}

    def chosen(self, sample: int) -> list[int] | None:
        """Returns the heads or experts that the text of a sample selected, by descending logit, or the index of the option of an adaptive
        layer; None if the layer selects nothing."""
        count = c_int64()
        found = lib.mha_trace_chosen(self._open(), integer(sample, "sample"), ctypes.byref(count))
        return None if not found else list(view(found, np.int32, (count.value,)).tolist())

    def heads(self, sample: int) -> int:
        """Returns the number of heads that a sample used."""
        return int(lib.mha_trace_heads(self._open(), integer(sample, "sample")))

    @property
    def flops(self) -> int:
        """The floating-point operations of the matrix products of the call."""
        return int(lib.mha_trace_flops(self._open()))


class Variant(Handle):
    """Base of the published variants of multi-head attention; its subclasses construct them (include/mha/variants.h).

    Any number of threads may call forward(). init(), load(), backward() and zero_gradients() need exclusive access.
    """

    def _create(self, name: str, kind: type[ctypes.Structure], d_in: int, d_out: int, dtype: str, /, **fields: Any) -> None:
        code, self.dtype = choose("dtype", dtype, _TYPES)
        options = self._options = struct(kind, dtype=code, **fields)  # keeps the arrays of the options alive
        self._own(create(name, context(), ctypes.byref(options)), "mha_variant_free")
        self.d_in, self.d_out = d_in, d_out

    # ---- parameters ----

    @property
    def parameter_count(self) -> int:
        """The number of elements of all parameters."""
        return int(lib.mha_variant_parameter_count(self._open()))

    def init(self, rng: Rng | None = None) -> None:
        """Initializes the parameters as PyTorch's constructors would, from `rng`; None: zeros."""
        call("mha_variant_init", self._open(), None if rng is None else rng.pointer())

    def _list(self, function: str) -> tuple[Any, int]:
        count = c_int64()
        found = getattr(lib, function)(self._open(), ctypes.byref(count))
        return found, count.value

    def parameters(self) -> dict[str, np.ndarray]:
        """Returns copies of the parameters by name: "q_proj.weight" [out, in], "heads.1.k_proj.bias" [out] ...; zeros before init()."""
        return taken(*self._list("mha_variant_parameters"))

    def load(self, parameters: Mapping[str, Any]) -> None:
        """Replaces all parameters with arrays of the same names and shapes."""
        found, count = self._list("mha_variant_parameters")
        if count and not found[0].data:
            self.init()
        put(found, count, parameters, "parameters")
        call("mha_variant_update", self._open())

    def gradients(self) -> dict[str, np.ndarray]:
        """Returns copies of the gradients that backward() accumulated, by the names of the parameters."""
        return taken(*self._list("mha_variant_gradients"))

    def zero_gradients(self) -> None:
        """Sets the gradients to 0."""
        call("mha_variant_zero_gradients", self._open())

    # ---- forward and backward pass ----

    @overload
    def forward(self, query: Any, key: Any = None, value: Any = None, *, trace: Literal[False] = False, **options: Any) -> np.ndarray: ...

    @overload
    def forward(self, query: Any, key: Any = None, value: Any = None, *, trace: Literal[True],
                **options: Any) -> tuple[np.ndarray, Trace]: ...

    def forward(self, query: Any, key: Any = None, value: Any = None, *, trace: bool = False, **options: Any) -> Any:
        """Returns the output [B, Lq, d_out] for query [B, Lq, d_in], or (output, Trace) with trace=True.

        key, value [B, Lk, d_in]: None: query and key. The options are:

            keep, additive, blocked    masks [q, k], [B, q, k] or [B, H, q, k]; keep: True is visible; additive: added to the scores;
                                       blocked: multiplied by -1e10 and added
            positions                  [B, Lq] for rotation
            past_key, past_value       [B, Hkv, P, D] cached keys and values: steps "k" and "v" of earlier calls
            training                   True: dropout, sampled from `rng` as in PyTorch, from `dropout_seed`, or given as
                                       dropout_keep [B, H, Lq, Lk]
            weights                    True: the trace has the step "weights"
            scores                     "raw", "softcapped", "biased" or "probs": the trace has the step "scores" at this stage

        Raises ValueError for an option that this variant does not have, and if the layer has no parameters.
        """
        made = Trace(self)
        given = made.input = self._input(query, key, value, **options)
        out = np.empty((given.batch, given.q_len, self.d_out), self.dtype)
        call("mha_variant_forward", self._open(), ctypes.byref(given), out.ctypes.data, made._open())
        return (out, made) if trace else out

    def _input(self, query: Any, key: Any, value: Any, *, keep: Any = None, additive: Any = None, blocked: Any = None,
               positions: Any = None, past_key: Any = None, past_value: Any = None, training: bool = False, dropout_keep: Any = None,
               rng: Rng | None = None, dropout_seed: int = 0, weights: bool = False, scores: str | None = None) -> VariantInput:
        q = floats(query, "query", (None, None, self.d_in), self.dtype)
        k = None if key is None else floats(key, "key", (len(q), None, self.d_in), self.dtype)
        keys = q.shape[1] if k is None else k.shape[1]
        if k is not None and keys == 0:  # the library reads kv_len = 0 as q_len
            raise ValueError(f"key must have at least one token (got shape {k.shape})")
        v = None if value is None else floats(value, "value", (len(q), keys, self.d_in), self.dtype)
        if k is None and v is not None:
            raise ValueError("value must be None unless key is given")
        if (past_key is None) != (past_value is None):
            raise ValueError("past_key and past_value must be given together")
        pasts = [None if x is None else floats(x, name, (len(q), self.past_shape[0], None, self.past_shape[1]), self.dtype)
                 for name, x in (("past_key", past_key), ("past_value", past_value))]
        if pasts[0] is not None and pasts[1] is not None and pasts[0].shape != pasts[1].shape:
            raise ValueError(f"past_value must be of shape {pasts[0].shape} (got {pasts[1].shape})")
        at = None if positions is None else integers(positions, "positions", dims=(2,))
        if at is not None and at.shape != q.shape[:2]:
            raise ValueError(f"positions must be of shape {q.shape[:2]} (got {at.shape})")
        dropped = None if dropout_keep is None else flags(dropout_keep, "dropout_keep", self._map_shape(q, keys, pasts[0]))
        return struct(VariantInput, batch=q.shape[0], q_len=q.shape[1], kv_len=keys, query=q, key=k, value=v,
                      keep=_mask(keep, "keep", np.uint8), additive=_mask(additive, "additive", self.dtype),
                      blocked=_mask(blocked, "blocked", self.dtype), positions=at, past_key=pasts[0], past_value=pasts[1],
                      past_len=0 if pasts[0] is None else pasts[0].shape[2], training=bool(training), dropout_keep=dropped,
                      rng=None if rng is None else rng.pointer(), dropout_seed=integer(dropout_seed, "dropout_seed", 0, 2**64 - 1),
                      want_weights=bool(weights), want_scores=scores is not None,
                      score_stage=0 if scores is None else choose("scores", scores, _STAGES))

    num_heads = 1
    past_shape: tuple[int | None, int | None] = (None, None)  # key/value heads and their width, of variants that accept past tokens

    def _map_shape(self, query: np.ndarray, keys: int, past: np.ndarray | None) -> tuple[int, int, int, int]:
        return len(query), self.num_heads, query.shape[1], keys + (0 if past is None else past.shape[2])

    def backward(self, trace: Trace, output: Any, wanted: tuple[str, ...] = ("query", "key", "value")) -> VariantGradients:
        """Adds the gradients of the parameters to gradients(), and returns those of the inputs that `wanted` names: VariantGradients(query,
        key, value, past_key, past_value), None for others and for inputs that the call did not have.

        `output` [B, Lq, d_out] is the gradient of the output of the forward call that returned `trace`.
        """
        given = trace.input
        dy = floats(output, "output", (given.batch, given.q_len, self.d_out), self.dtype)
        inputs = {name: given.__dict__["alive"].get(name) for name in VariantGradients._fields}
        for name in wanted:
            choose("wanted", name, inputs)
        made = {name: np.zeros_like(x) for name, x in inputs.items() if name in wanted and x is not None}
        call("mha_variant_backward", self._open(), ctypes.byref(given), trace._open(),
             ctypes.byref(struct(VariantGradient, output=dy, **made)))
        return VariantGradients(*(made.get(name) for name in VariantGradients._fields))
