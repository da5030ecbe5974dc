"""Pruning and regrouping of heads: mha.prune, mha.regroup, and their result mha.Edit."""
from __future__ import annotations

import ctypes
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays.array import choose, flags, integer, number
from .._arrays.tensors import taken
from .._binding.abi import (
    REGROUP_METHODS,
    EditEvaluation,
    PruneOptions,
    RegroupOptions,
)
from .._binding.exclusive import exclusive
from .._binding.library import Handle, call, lib, path_bytes, string, struct
from .._binding.long_call import call_long
from .._draw import figures
from .._models.model import Model
from .diversity import ModelsComparison, comparison
from .head_data import head_data, helps, keys
from .prune_choice import head_scores, part_of


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

    @exclusive
    def open(self) -> Model:
        """Returns the edited model, without a tokenizer."""
        handle = c_void_p()
        call("mha_model_edit_open", self._open(), ctypes.byref(handle))
        return Model._of(handle, self._open())

    @exclusive
    def tensors(self) -> dict[str, np.ndarray]:
        """Returns copies of the modified tensors, float32, by their names in the checkpoint."""
        count = c_int64()
        found = lib.mha_model_edit_tensors(self._open(), ctypes.byref(count))
        return taken(found, count.value)

    @exclusive
    def evaluate(self, held_out: Any = None) -> Evaluation:
        """Compares the sizes of both models and, if held_out (a list of str, or mha.HeadData) is given, also their results
        and speed."""
        out, data = EditEvaluation(), None if held_out is None else head_data(self._source, held_out)
        call_long("mha_model_edit_evaluate", self._open(), data and data._open(), ctypes.byref(out))
        return evaluation(out)

    @exclusive
    def note(self, quality_json: str) -> None:
        """Adds measurements, as a JSON object, to the record of the edit in config.json."""
        call("mha_model_edit_note", self._open(), string(quality_json, "quality_json"))

    @exclusive
    def save(self, folder: Any, overwrite: bool = False) -> None:
        """Writes the edited model and its tokenizer as a checkpoint folder; if writing fails, no folder is left."""
        call_long("mha_model_edit_save", self._open(), path_bytes(folder, "folder"), bool(overwrite))


def head_number(model: Model, layer: int, head: int) -> int:
    """Returns the number of a head in the unpruned model; -1 if the head does not exist.

        >>> import mha
        >>> mha.head_number(mha.Model(), 1, 3)
        3
    """
    return int(lib.mha_head_number(model._open(), integer(layer, "layer"), integer(head, "head")))


def head_place(model: Model, layer: int, number_: int) -> int:
    """Returns the current position of the head with this number in the unpruned model; -1 if it was removed.

        >>> import mha
        >>> mha.head_place(mha.Model(), 1, 8)
        -1
    """
    return int(lib.mha_head_place(model._open(), integer(layer, "layer"), integer(number_, "number_")))


def cross_head_number(model: Model, layer: int, head: int) -> int:
    """Returns head_number of a head of the cross-attention in an encoder-decoder; -1 for other models.

        >>> import mha
        >>> mha.cross_head_number(mha.Model(), 1, 3)
        -1
    """
    return int(lib.mha_cross_head_number(model._open(), integer(layer, "layer"), integer(head, "head")))


def cross_head_place(model: Model, layer: int, number_: int) -> int:
    """Returns head_place of a head of the cross-attention in an encoder-decoder; -1 for other models.

        >>> import mha
        >>> mha.cross_head_place(mha.Model(), 1, 3)
        -1
    """
    return int(lib.mha_cross_head_place(model._open(), integer(layer, "layer"), integer(number_, "number_")))


def prune_options(model: Model, fill: Any, refit: Any, ridge: float, compatible: bool = False,
                  chosen_by: str | None = None) -> PruneOptions:
    """Returns the options of a pruning; they keep their texts alive."""
    data = [None if x is None else head_data(model, x) for x in (fill, refit)]
    options = struct(PruneOptions, fill=data[0] and data[0]._open(), refit=data[1] and data[1]._open(), ridge=number(ridge, "ridge"),
                     compatible=bool(compatible), chosen_by=None if chosen_by is None else string(chosen_by, "chosen_by"))
    options.__dict__["data"] = data
    return options


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
    side, info = part_of(model, part)
    kept = flags(keep, "keep", (info.layers, info.heads))
    options = prune_options(model, fill, refit, ridge, compatible, chosen_by)
    lists = []
    if cross_keep is not None:
        lists.append(flags(cross_keep, "cross_keep", (info.layers, info.heads)))
        options.cross_keep = lists[-1].ctypes.data
    if encoder_keep is not None:
        encoder = part_of(model, "encoder")[1]
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


def regroup(model: Model, key_heads: int = 0, value_heads: int = 0, *, method: str | None = None, fit: Any = None,
            contiguous: bool = False, uncentered: bool = False, ridge: float = 0.0, compatible: bool = False, scores: Any = None,
            weighted_by: str | None = None) -> Edit:
    """Shares keys and values between heads: every layer keeps key_heads key heads and value_heads value heads (0: unchanged).

    method: "closed" and "values" are fitted on the texts `fit`; "mean" needs no texts. None: "closed", or "values" if keys are merged
    that are rotated or normalized. scores [layers, heads] are weights of heads.

        >>> import mha
        >>> model = mha.Model()
        >>> with mha.regroup(model, 4, 4, method="mean") as edit:
        ...     edit.evaluate().key_heads
        (8, 4)
    """
    table = None if scores is None else head_scores(model, scores)
    data = None if fit is None else head_data(model, fit)
    merged = integer(key_heads, "key_heads")
    if method is None:
        how = lib.mha_regroup_default(model._open(), merged)
    else:
        how = choose("method", method, keys("mha_regroup_method_key", REGROUP_METHODS))
    options = struct(RegroupOptions, key_heads=merged, value_heads=integer(value_heads, "value_heads"), method=how,
                     fit=data and data._open(), contiguous=bool(contiguous), uncentered=bool(uncentered),
                     ridge=number(ridge, "ridge"), compatible=bool(compatible), scores=None if table is None else table.ctypes.data,
                     weighted_by=None if weighted_by is None else string(weighted_by, "weighted_by"))
    handle = c_void_p()
    call_long("mha_regroup", model._open(), ctypes.byref(options), ctypes.byref(handle))
    return Edit(handle, model)
