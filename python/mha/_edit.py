"""Removing and regrouping heads: mha.prune, mha.regroup, and the mha.Edit that both make."""
from __future__ import annotations

import ctypes
import os
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._abi import REGROUP_METHODS, EditEvaluation, PruneJointOptions, PruneOptions, PruneRule, RegroupOptions
from ._array import integer, number, view
from ._heads import ModelsComparison, _choose, _data, _keys, comparison
from ._library import Handle, call, lib, struct
from ._model import Model


@dataclass
class Evaluation:
    """The source model and the edited one, in pairs. comparison is None without texts; broken_rule: why transformers cannot load the
    edited model, None if it can."""

    heads: tuple[int, int]
    key_heads: tuple[int, int]
    value_heads: tuple[int, int]
    parameters: tuple[int, int]
    bytes: tuple[int, int]
    kv_bytes_per_token: tuple[int, int]
    tokens_per_second: tuple[float, float]
    comparison: ModelsComparison | None
    broken_rule: str | None


class Edit(Handle):
    """An edited model that is not written yet: open() runs it, save() writes it. Made by mha.prune and mha.regroup."""

    def __init__(self, handle: c_void_p, model: Model) -> None:
        self._own(handle, "mha_model_edit_free", model._open())
        self._source = model

    def open(self) -> Model:
        """The edited model, without a tokenizer."""
        handle = c_void_p()
        call("mha_model_edit_open", self._open(), ctypes.byref(handle))
        return Model._of(handle, self._open())

    def tensors(self) -> dict[str, np.ndarray]:
        """The tensors that change, float32, copied, by their names in the checkpoint."""
        count = c_int64()
        found = lib.mha_model_edit_tensors(self._open(), ctypes.byref(count))
        return {t.name.decode(): view(t.data, np.float32, tuple(t.shape[:t.rank])).copy() for t in found[:count.value]}

    def evaluate(self, held_out: Any = None) -> Evaluation:
        """Sizes, and with texts (a list of str, or mha.HeadData) what the edit changes on them, and the speed of both models."""
        out, data = EditEvaluation(), None if held_out is None else _data(self._source, held_out)
        call("mha_model_edit_evaluate", self._open(), data and data._open(), ctypes.byref(out))
        compared = comparison(out.comparison, np.empty(0), np.empty((2, 0))) if out.comparison.texts else None
        pairs = {name: tuple(getattr(out, name)) for name in ("heads", "key_heads", "value_heads", "parameters", "bytes",
                                                              "kv_bytes_per_token", "tokens_per_second")}
        return Evaluation(comparison=compared, broken_rule=None if out.broken_rule is None else out.broken_rule.decode(), **pairs)

    def note(self, quality_json: str) -> None:
        """Adds measurements, a JSON object, to the record in config.json."""
        call("mha_model_edit_note", self._open(), quality_json.encode())

    def save(self, folder: Any, overwrite: bool = False) -> None:
        """Writes the edited model with its tokenizer as a checkpoint folder, whole or not at all."""
        call("mha_model_edit_save", self._open(), os.fsencode(folder), bool(overwrite))


def head_number(model: Model, layer: int, head: int) -> int:
    """The number that a head had in the unpruned model; -1 if there is no such head."""
    return int(lib.mha_head_number(model._open(), layer, head))


def head_place(model: Model, layer: int, number_: int) -> int:
    """The position of the head that had this number in the unpruned model; -1 if it is gone."""
    return int(lib.mha_head_place(model._open(), layer, number_))


def _rule(ratio: float, count: int, per_layer: bool, floor: int) -> PruneRule:
    return struct(PruneRule, ratio=number(ratio, "ratio"), count=integer(count, "count"), per_layer=bool(per_layer),
                  floor=integer(floor, "floor"))


def prune_most(model: Model, *, per_layer: bool = False, floor: int = 0) -> int:
    """The most heads that prune_choose can remove."""
    return int(lib.mha_prune_most(model._open(), ctypes.byref(_rule(0.0, 0, per_layer, floor))))


def _scores(model: Model, scores: Any) -> np.ndarray:
    info, table = model.info, np.ascontiguousarray(scores, np.float64)
    if table.shape != (info["layers"], info["heads"]):
        raise ValueError(f"scores must be of shape {(info['layers'], info['heads'])} (got {table.shape})")
    return table


def prune_choose(model: Model, scores: Any, *, ratio: float = 0.0, count: int = 0, per_layer: bool = False,
                 floor: int = 0) -> np.ndarray:
    """Which heads stay, bool [layers, heads], if those of the lowest scores [layers, heads] go: `count` of them, or a fraction `ratio`.

    per_layer: of each layer; floor: heads that stay in every layer.
    """
    table = _scores(model, scores)
    keep = np.zeros(table.shape, np.uint8)
    call("mha_prune_choose", model._open(), table.ctypes.data, ctypes.byref(_rule(ratio, count, per_layer, floor)), keep.ctypes.data)
    return keep.astype(bool)


def prune_choose_joint(model: Model, texts: Any, *, ratio: float = 0.0, count: int = 0, per_layer: bool = False, floor: int = 0,
                       rounds: int = 0, fill: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The same choice on texts, for all heads together: (keep, order), order[layer, head] when the head goes, from 1; 0: it stays."""
    shape, data = (model.info["layers"], model.info["heads"]), _data(model, texts)
    keep, order = np.zeros(shape, np.uint8), np.zeros(shape, np.int32)
    options = struct(PruneJointOptions, rounds=integer(rounds, "rounds"), fill=bool(fill), order=order.ctypes.data)
    call("mha_prune_choose_joint", model._open(), data._open(), ctypes.byref(_rule(ratio, count, per_layer, floor)),
         ctypes.byref(options), keep.ctypes.data)
    return keep.astype(bool), order


def prune(model: Model, keep: Any, *, fill: Any = None, refit: Any = None, ridge: float = 0.0, compatible: bool = False,
          chosen_by: str | None = None) -> Edit:
    """Removes the heads whose keep [layers, heads] is false.

    fill: texts whose mean output of a removed head is added to the output bias; refit: texts on which the output projections are
    fitted again; compatible: shapes that transformers loads.

        >>> import mha
        >>> model = mha.Model()
        >>> scores = mha.importance_measure(model, ["the cat sat on the mat"], by="gate").values
        >>> with mha.prune(model, mha.prune_choose(model, scores, count=4)) as edit:
        ...     edit.evaluate().heads
        (16, 12)
    """
    info, kept = model.info, np.ascontiguousarray(np.asarray(keep) != 0, np.uint8)
    if kept.shape != (info["layers"], info["heads"]):
        raise ValueError(f"keep must be of shape {(info['layers'], info['heads'])} (got {kept.shape})")
    data = [None if x is None else _data(model, x) for x in (fill, refit)]
    options = struct(PruneOptions, fill=data[0] and data[0]._open(), refit=data[1] and data[1]._open(), ridge=number(ridge, "ridge"),
                     compatible=bool(compatible), chosen_by=None if chosen_by is None else chosen_by.encode())
    handle = c_void_p()
    call("mha_prune", model._open(), kept.ctypes.data, ctypes.byref(options), ctypes.byref(handle))
    return Edit(handle, model)


def regroup(model: Model, key_heads: int = 0, value_heads: int = 0, *, method: str = "closed", fit: Any = None,
            contiguous: bool = False, uncentered: bool = False, ridge: float = 0.0, compatible: bool = False, scores: Any = None,
            weighted_by: str | None = None) -> Edit:
    """Makes heads share keys and values: key_heads and value_heads of every layer remain (0: unchanged).

    method: "closed" and "values" need texts, `fit`; "mean" needs none. scores [layers, heads] weigh the heads.
    """
    table = None if scores is None else _scores(model, scores)
    data = None if fit is None else _data(model, fit)
    options = struct(RegroupOptions, key_heads=integer(key_heads, "key_heads"), value_heads=integer(value_heads, "value_heads"),
                     method=_choose("method", method, _keys("mha_regroup_method_key", REGROUP_METHODS)), fit=data and data._open(),
                     contiguous=bool(contiguous), uncentered=bool(uncentered), ridge=number(ridge, "ridge"),
                     compatible=bool(compatible), scores=None if table is None else table.ctypes.data,
                     weighted_by=None if weighted_by is None else weighted_by.encode())
    handle = c_void_p()
    call("mha_regroup", model._open(), ctypes.byref(options), ctypes.byref(handle))
    return Edit(handle, model)
