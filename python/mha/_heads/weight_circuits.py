"""What heads can compute, from the weights alone: mha.weight_circuits_measure."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from dataclasses import dataclass

import numpy as np

from .._arrays.array import choose, integer, view
from .._binding import abi
from .._binding.abi import CIRCUITS, WeightCircuitsOptions
from .._binding.library import lib, struct
from .._binding.long_call import call_long
from .._models.model import Model
from .head_data import helps, keys


@dataclass
class WeightCircuits:
    """The result of weight_circuits_measure; heads that a layer lacks are NaN. singular: {"qk", "qk_previous", "ov": [layers, heads, D]} in
    descending order, and directions: {...: [layers, heads]}, how many of them carry the circuit. copying, copying_centred and trace:
    [layers, heads], or None. composition: {"compose_q", "compose_k", "compose_v": [layers, heads, layers, heads]}, sender first; compare with
    baseline, the value of random heads. reasons: {name: why a measure is not defined for the model}."""

    singular: dict[str, np.ndarray]
    directions: dict[str, np.ndarray]
    copying: np.ndarray | None
    copying_centred: np.ndarray | None
    trace: np.ndarray | None
    composition: dict[str, np.ndarray]
    baseline: float
    reasons: dict[str, str]


def circuit_help() -> dict[str, str]:
    """Returns {name: description} of the measures of mha.weight_circuits_measure.

        >>> import mha
        >>> "copying" in mha.circuit_help()
        True
    """
    return helps("mha_circuit_key", "mha_circuit_help", CIRCUITS)


def head_weights(model: Model, layer: int, head: int) -> dict[str, np.ndarray]:
    """Returns the projections of a head as the checkpoint stores them: {"q", "k", "v", "o": [D, E]}, where o is the transpose of the head's
    columns of the output projection, and {"q_bias", "k_bias", "v_bias": [D], "o_bias": [E]}, zeros without a bias. Heads that share keys
    and values have equal k and v.

        >>> import mha
        >>> mha.head_weights(mha.Model(), 0, 3)["q"].shape
        (32, 128)
    """
    place = integer(layer, "layer"), integer(head, "head")
    result: dict[str, np.ndarray] = {}
    width, hidden = int(model.info["head_dim"]), int(model.info["hidden"])
    for which, name in enumerate("qkvo"):
        weight = np.empty((width, hidden), np.float32)
        bias = np.empty(hidden if name == "o" else width, np.float32)
        call_long("mha_head_weights", model._open(), *place, which, weight.ctypes.data, bias.ctypes.data)
        result[name], result[f"{name}_bias"] = weight, bias
    return result


def _singular(handle: c_void_p, kind: int, layers: int, heads: int, width: int) -> np.ndarray:
    out, count = np.full((layers, heads, width), np.nan), c_int64()
    for layer, head in np.ndindex(layers, heads):
        values = view(lib.mha_weight_circuits_singular(handle, kind, layer, head, ctypes.byref(count)), np.float64, (width,))
        if values is not None:
            out[layer, head] = values
    return out


def weight_circuits_measure(model: Model, what: Sequence[str] = (), *, raw: bool = False) -> WeightCircuits:
    """Measures the QK and OV circuits of all heads (include/mha/weight_circuits.h). what: names of circuit_help(); empty: all that are
    defined for the model. raw: the weights as stored, without folding the norms; required for post-norm models such as BERT.

        >>> import mha
        >>> found = mha.weight_circuits_measure(mha.Model())
        >>> bool(found.copying_centred[1, 3] > 0.3), found.composition["compose_k"].shape
        (True, (2, 8, 2, 8))
    """
    known = keys("mha_circuit_key", CIRCUITS)
    chosen = [choose("what", name, known) for name in what]
    options = struct(WeightCircuitsOptions, what=sum(1 << n for n in set(chosen)), raw=bool(raw))
    handle = c_void_p()
    call_long("mha_weight_circuits_measure", model._open(), ctypes.byref(options), ctypes.byref(handle))
    try:
        layers, heads = int(model.info["layers"]), int(model.info["heads"])
        reasons = {name: lib.mha_weight_circuits_reason(handle, n) for name, n in known.items()}
        made = {name: n for name, n in known.items() if (n in chosen or not chosen) and not reasons[name]}
        each = {name: n for name, n in made.items() if n <= abi.CIRCUIT_OV}
        copies = "copying" in made

        def per_head(function: str, *extra: int) -> np.ndarray:
            return np.array([[getattr(lib, function)(handle, *extra[:1], layer, head, *extra[1:]) for head in range(heads)]
                             for layer in range(layers)])

        return WeightCircuits(
            {name: _singular(handle, n, layers, heads, int(model.info["head_dim"])) for name, n in each.items()},
            {name: per_head("mha_weight_circuits_directions", n) for name, n in each.items()},
            _copying(handle, layers, heads, 0) if copies else None, _copying(handle, layers, heads, 1) if copies else None,
            per_head("mha_weight_circuits_trace") if copies else None,
            {name: np.array([lib.mha_weight_circuits_composition(handle, n, *place) for place in np.ndindex(layers, heads, layers, heads)])
             .reshape(layers, heads, layers, heads) for name, n in made.items() if n >= abi.CIRCUIT_COMPOSE_Q},
            lib.mha_weight_circuits_baseline(handle), {name: text.decode() for name, text in reasons.items() if text})
    finally:
        lib.mha_weight_circuits_free(handle)


def _copying(handle: c_void_p, layers: int, heads: int, centred: int) -> np.ndarray:
    return np.array([[lib.mha_weight_circuits_copying(handle, layer, head, centred) for head in range(heads)] for layer in range(layers)])
