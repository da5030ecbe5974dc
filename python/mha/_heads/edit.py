"""Pruning and regrouping of heads: mha.prune, mha.regroup, and their result mha.Edit."""
from __future__ import annotations

import ctypes
import os
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays.array import choose, flags, floats, integer, number
from .._arrays.tensors import taken
from .._binding.abi import (
    REGROUP_METHODS,
    EditEvaluation,
    ModelInfo,
    PruneJointOptions,
    PruneOptions,
    PruneRule,
    RegroupOptions,
)
from .._binding.library import Handle, call, lib, string, struct
from .._binding.long_call import call_long
from .._draw import figures
from .._models.model import Model
from .diversity import ModelsComparison, comparison
from .head_data import head_data, helps, keys


@dataclass
class Evaluation:
    """The result of Edit.evaluate. Pairs are (source model, edited model). comparison is None without texts. broken_rule is the
    reason why transformers cannot load the edited model, or None if it can."""

    heads: tuple[int, int]
    key_heads: tuple[int, int]
    value_heads: tuple[int, int]
    parameters: tuple[int, int]
    bytes: tuple[int, int]
    kv_bytes_per_token: tuple[int, int]
    tokens_per_second: tuple[float, float]
    comparison: ModelsComparison | None
    broken_rule: str | None

    def _repr_html_(self) -> str:
        rows = {name: getattr(self, name) for name in ("heads", "key_heads", "value_heads", "parameters", "bytes", "kv_bytes_per_token",
                                                       "tokens_per_second")}
        if self.comparison is not None:
            rows |= {"loss": self.comparison.loss, "mean cosine of embeddings": ("", self.comparison.mean_cosine)}
        return figures.html_rows("before and after the edit", ("", "source", "edited"), [(name, *x) for name, x in rows.items()])


def evaluation(out: EditEvaluation) -> Evaluation:
    """Copies an evaluation of the library."""
    compared = comparison(out.comparison, np.empty(0), np.empty((2, 0))) if out.comparison.texts else None
    pairs = {name: tuple(getattr(out, name)) for name in ("heads", "key_heads", "value_heads", "parameters", "bytes",
                                                          "kv_bytes_per_token", "tokens_per_second")}
    return Evaluation(comparison=compared, broken_rule=None if out.broken_rule is None else out.broken_rule.decode(), **pairs)


class Edit(Handle):
    """An edited model in memory, created by mha.prune or mha.regroup. open() returns the model, save() writes it to a folder."""

    def __init__(self, handle: c_void_p, model: Model) -> None:
        self._own(handle, "mha_model_edit_free", model._open())
        self._source = model

    def open(self) -> Model:
        """Returns the edited model, without a tokenizer."""
        handle = c_void_p()
        call("mha_model_edit_open", self._open(), ctypes.byref(handle))
        return Model._of(handle, self._open())

    def tensors(self) -> dict[str, np.ndarray]:
        """Returns copies of the modified tensors, float32, by their names in the checkpoint."""
        count = c_int64()
        found = lib.mha_model_edit_tensors(self._open(), ctypes.byref(count))
        return taken(found, count.value)

    def evaluate(self, held_out: Any = None) -> Evaluation:
        """Compares the sizes of both models and, if held_out (a list of str, or mha.HeadData) is given, also their results
        and speed."""
        out, data = EditEvaluation(), None if held_out is None else head_data(self._source, held_out)
        call_long("mha_model_edit_evaluate", self._open(), data and data._open(), ctypes.byref(out))
        return evaluation(out)

    def note(self, quality_json: str) -> None:
        """Adds measurements, as a JSON object, to the record of the edit in config.json."""
        call("mha_model_edit_note", self._open(), quality_json.encode())

    def save(self, folder: Any, overwrite: bool = False) -> None:
        """Writes the edited model and its tokenizer as a checkpoint folder; if writing fails, no folder is left."""
        call_long("mha_model_edit_save", self._open(), os.fsencode(folder), bool(overwrite))


def head_number(model: Model, layer: int, head: int) -> int:
    """Returns the number of a head in the unpruned model; -1 if the head does not exist.

        >>> import mha
        >>> mha.head_number(mha.Model(), 1, 3)
        3
    """
    return int(lib.mha_head_number(model._open(), layer, head))


def head_place(model: Model, layer: int, number_: int) -> int:
    """Returns the current position of the head with this number in the unpruned model; -1 if it was removed.

        >>> import mha
        >>> mha.head_place(mha.Model(), 1, 8)
        -1
    """
    return int(lib.mha_head_place(model._open(), layer, number_))


def cross_head_number(model: Model, layer: int, head: int) -> int:
    """Returns head_number of a head of the cross-attention in an encoder-decoder; -1 for other models.

        >>> import mha
        >>> mha.cross_head_number(mha.Model(), 1, 3)
        -1
    """
    return int(lib.mha_cross_head_number(model._open(), layer, head))


def cross_head_place(model: Model, layer: int, number_: int) -> int:
    """Returns head_place of a head of the cross-attention in an encoder-decoder; -1 for other models.

        >>> import mha
        >>> mha.cross_head_place(mha.Model(), 1, 3)
        -1
    """
    return int(lib.mha_cross_head_place(model._open(), layer, number_))


def _rule(ratio: float, count: int, per_layer: bool, floor: int) -> PruneRule:
    return struct(PruneRule, ratio=number(ratio, "ratio"), count=integer(count, "count"), per_layer=bool(per_layer),
                  floor=integer(floor, "floor"))


@dataclass
class Kept:
    """The heads to keep of an encoder-decoder, each bool [layers, heads]: those of the decoder, of its cross-attention and of the
    encoder; the arguments keep, cross_keep and encoder_keep of mha.prune."""

    keep: np.ndarray
    cross: np.ndarray
    encoder: np.ndarray


def kinds(model: Model, rule: PruneRule) -> tuple[np.ndarray, ...]:
    """Returns the lists of heads that a choice writes: of the model and, in an encoder-decoder, of the other kinds, which are set in the
    rule."""
    info = _part(model, None)[1]
    own = np.zeros((info.layers, info.heads), np.uint8)
    if not info.encoder_decoder:
        return (own,)
    encoder = _part(model, "encoder")[1]
    lists = own, np.zeros_like(own), np.zeros((encoder.layers, encoder.heads), np.uint8)
    rule.cross_keep, rule.encoder_keep = lists[1].ctypes.data, lists[2].ctypes.data
    return lists


def prune_most(model: Model, *, per_layer: bool = False, floor: int = 0) -> int:
    """Returns the largest number of heads that prune_choose can remove.

        >>> import mha
        >>> mha.prune_most(mha.Model()), mha.prune_most(mha.Model(), floor=6)
        (14, 4)
    """
    return int(lib.mha_prune_most(model._open(), ctypes.byref(_rule(0.0, 0, per_layer, floor))))


def _scores(model: Model, scores: Any) -> np.ndarray:
    info = model.info
    return floats(scores, "scores", (info["layers"], info["heads"]), np.float64)


def prune_choose(model: Model, scores: Any, *, ratio: float = 0.0, count: int = 0, per_layer: bool = False,
                 floor: int = 0) -> np.ndarray:
    """Returns the heads to keep, bool [layers, heads], if the heads with the lowest scores [layers, heads] are removed.

    count or ratio: the number of heads to remove, or their fraction. per_layer: applies both to each layer. floor: the smallest
    number of heads that remain in a layer.

        >>> import numpy as np, mha
        >>> scores = np.arange(16.0).reshape(2, 8)
        >>> mha.prune_choose(mha.Model(), scores, count=3)[0].tolist()
        [False, False, False, True, True, True, True, True]
    """
    table, rule = _scores(model, scores), _rule(ratio, count, per_layer, floor)
    keep = np.zeros(table.shape, np.uint8)
    call("mha_prune_choose", model._open(), table.ctypes.data, ctypes.byref(rule), keep.ctypes.data)
    return keep.astype(bool)


def _all_kinds(model: Model, rule: PruneRule) -> tuple[np.ndarray, ...]:
    """Same as kinds, but refuses models without cross-attention."""
    lists = kinds(model, rule)
    if len(lists) == 1:
        raise ValueError(f"model must be an encoder-decoder (got {model.info['family']})")
    return lists


def _scores_of_kinds(scores: Any) -> tuple[Any, Any, Any]:
    if not isinstance(scores, dict):
        if scores.cross is None or scores.encoder is None:
            raise ValueError("scores must be measured on mha.HeadData.of_pairs (got no scores of cross-attention and encoder heads)")
        return scores.values, scores.cross.values, scores.encoder.values
    for kind in ("decoder", "cross", "encoder"):
        if kind not in scores:
            raise ValueError(f"scores must have the keys decoder, cross and encoder (got no {kind})")
    return scores["decoder"], scores["cross"], scores["encoder"]


def prune_choose_kinds(model: Model, scores: Any, *, ratio: float = 0.0, count: int = 0, per_layer: bool = False,
                       floor: int = 0) -> Kept:
    """Returns the heads of all kinds to keep in an encoder-decoder, chosen as by prune_choose. scores: an mha.Importance, or a dict with
    the scores [layers, heads] of the "decoder", "cross" and "encoder" heads, for example read from a file.

        >>> import mha
        >>> mha.prune_choose_kinds(mha.Model(), None, count=1)
        Traceback (most recent call last):
        ValueError: model must be an encoder-decoder (got llama)
    """
    rule = _rule(ratio, count, per_layer, floor)
    lists = _all_kinds(model, rule)
    tables = [floats(x, "scores", keep.shape, np.float64) for x, keep in zip(_scores_of_kinds(scores), lists)]
    rule.cross_scores, rule.encoder_scores = tables[1].ctypes.data, tables[2].ctypes.data
    call("mha_prune_choose", model._open(), tables[0].ctypes.data, ctypes.byref(rule), lists[0].ctypes.data)
    return Kept(*(x.astype(bool) for x in lists))


def prune_choose_joint_kinds(model: Model, pairs: Any, *, ratio: float = 0.0, count: int = 0, per_layer: bool = False, floor: int = 0,
                             rounds: int = 0, fill: bool = False) -> Kept:
    """Returns the heads of all kinds to keep in an encoder-decoder, chosen jointly on mha.HeadData.of_pairs.

        >>> import mha
        >>> mha.prune_choose_joint_kinds(mha.Model(), [], count=1)
        Traceback (most recent call last):
        ValueError: model must be an encoder-decoder (got llama)
    """
    rule = _rule(ratio, count, per_layer, floor)
    lists = _all_kinds(model, rule)
    data = head_data(model, pairs)
    options = struct(PruneJointOptions, rounds=integer(rounds, "rounds"), fill=bool(fill))
    call_long("mha_prune_choose_joint", model._open(), data._open(), ctypes.byref(rule), ctypes.byref(options), lists[0].ctypes.data)
    return Kept(*(x.astype(bool) for x in lists))


def prune_choose_joint(model: Model, texts: Any, *, ratio: float = 0.0, count: int = 0, per_layer: bool = False, floor: int = 0,
                       rounds: int = 0, fill: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Chooses heads jointly on texts. Returns keep as prune_choose does, and order [layers, heads]: the step of removal from 1; 0: kept.

        >>> import mha
        >>> keep, order = mha.prune_choose_joint(mha.Model(), ["the cat sat on the mat"], count=2)
        >>> int(keep.sum()), sorted(order[order > 0].tolist())
        (14, [1, 2])
    """
    shape, data = (model.info["layers"], model.info["heads"]), head_data(model, texts)
    keep, order = np.zeros(shape, np.uint8), np.zeros(shape, np.int32)
    options = struct(PruneJointOptions, rounds=integer(rounds, "rounds"), fill=bool(fill), order=order.ctypes.data)
    call_long("mha_prune_choose_joint", model._open(), data._open(), ctypes.byref(_rule(ratio, count, per_layer, floor)),
         ctypes.byref(options), keep.ctypes.data)
    return keep.astype(bool), order


def prune_options(model: Model, fill: Any, refit: Any, ridge: float, compatible: bool = False,
                  chosen_by: str | None = None) -> PruneOptions:
    """Returns the options of a pruning; they keep their texts alive."""
    data = [None if x is None else head_data(model, x) for x in (fill, refit)]
    options = struct(PruneOptions, fill=data[0] and data[0]._open(), refit=data[1] and data[1]._open(), ridge=number(ridge, "ridge"),
                     compatible=bool(compatible), chosen_by=None if chosen_by is None else string(chosen_by, "chosen_by"))
    options.__dict__["data"] = data
    return options


def _part(model: Model, part: str | None) -> tuple[Any, ModelInfo]:
    """Returns a part of a model, and its description."""
    handle: Any = model._open()
    parts = {"encoder": lib.mha_model_encoder, "image": lib.mha_model_vision}
    if part is not None:
        handle = parts[part](handle) if part in parts else None
        if not handle:
            raise ValueError(f"part must be 'encoder' for an encoder-decoder, or 'image' for a model with images (got {part!r})")
    info: ModelInfo = lib.mha_model_describe(handle).contents
    return handle, info


def prune(model: Model, keep: Any, *, fill: Any = None, refit: Any = None, ridge: float = 0.0, compatible: bool = False,
          chosen_by: str | None = None, cross_keep: Any = None, encoder_keep: Any = None, part: str | None = None) -> Edit:
    """Removes the heads whose element of keep [layers, heads] is false.

    fill: texts on which the mean output of each removed head is measured, to be added to the output bias. refit: texts on which the
    output projections are refitted. compatible: keeps shapes that transformers can load. In an encoder-decoder, keep are the heads of
    the decoder, cross_keep those of its cross-attention, and encoder_keep those of the encoder; None: all. part "encoder", "image":
    keep are the heads of the encoder, or of the image tower of a CLIP model.

        >>> import mha
        >>> model = mha.Model()
        >>> scores = mha.importance_measure(model, ["the cat sat on the mat"], by="gate").values
        >>> with mha.prune(model, mha.prune_choose(model, scores, count=4)) as edit:
        ...     edit.evaluate().heads
        (16, 12)
    """
    side, info = _part(model, part)
    kept = flags(keep, "keep", (info.layers, info.heads))
    options = prune_options(model, fill, refit, ridge, compatible, chosen_by)
    lists = []
    if cross_keep is not None:
        lists.append(flags(cross_keep, "cross_keep", (info.layers, info.heads)))
        options.cross_keep = lists[-1].ctypes.data
    if encoder_keep is not None:
        encoder = _part(model, "encoder")[1]
        lists.append(flags(encoder_keep, "encoder_keep", (encoder.layers, encoder.heads)))
        options.encoder_keep = lists[-1].ctypes.data
    handle = c_void_p()
    call_long("mha_prune", side, kept.ctypes.data, ctypes.byref(options), ctypes.byref(handle))
    return Edit(handle, model)


def regroup_method_help() -> dict[str, str]:
    """Returns {method: description} of the methods of mha.regroup.

        >>> import mha
        >>> list(mha.regroup_method_help())
        ['closed', 'mean', 'values']
    """
    return helps("mha_regroup_method_key", "mha_regroup_method_help", REGROUP_METHODS)


def regroup(model: Model, key_heads: int = 0, value_heads: int = 0, *, method: str = "closed", fit: Any = None,
            contiguous: bool = False, uncentered: bool = False, ridge: float = 0.0, compatible: bool = False, scores: Any = None,
            weighted_by: str | None = None) -> Edit:
    """Shares keys and values between heads: every layer keeps key_heads key heads and value_heads value heads (0: unchanged).

    method: "closed" and "values" are fitted on the texts `fit`; "mean" needs no texts. scores [layers, heads] are weights of heads.

        >>> import mha
        >>> model = mha.Model()
        >>> with mha.regroup(model, 4, 4, method="mean") as edit:
        ...     edit.evaluate().key_heads
        (8, 4)
    """
    table = None if scores is None else _scores(model, scores)
    data = None if fit is None else head_data(model, fit)
    options = struct(RegroupOptions, key_heads=integer(key_heads, "key_heads"), value_heads=integer(value_heads, "value_heads"),
                     method=choose("method", method, keys("mha_regroup_method_key", REGROUP_METHODS)), fit=data and data._open(),
                     contiguous=bool(contiguous), uncentered=bool(uncentered), ridge=number(ridge, "ridge"),
                     compatible=bool(compatible), scores=None if table is None else table.ctypes.data,
                     weighted_by=None if weighted_by is None else weighted_by.encode())
    handle = c_void_p()
    call_long("mha_regroup", model._open(), ctypes.byref(options), ctypes.byref(handle))
    return Edit(handle, model)
