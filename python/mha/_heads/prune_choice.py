"""Selection of the heads to remove: mha.prune_choose by scores, mha.prune_choose_joint by their joint effect."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays.array import floats, integer, number
from .._binding.abi import ModelInfo, PruneJointOptions, PruneRule
from .._binding.library import call, lib, struct
from .._binding.long_call import call_long
from .._models.model import Model
from .head_data import head_data


def part_of(model: Model, part: str | None) -> tuple[Any, ModelInfo]:
    """Returns a part of a model, and its description."""
    handle: Any = model._open()
    parts = {"encoder": lib.mha_model_encoder, "image": lib.mha_model_vision}
    if part is not None:
        handle = parts[part](handle) if part in parts else None
        if not handle:
            raise ValueError(f"part must be 'encoder' for an encoder-decoder, or 'image' for a model with images (got {part!r})")
    info: ModelInfo = lib.mha_model_describe(handle).contents
    return handle, info


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
    info = part_of(model, None)[1]
    own = np.zeros((info.layers, info.heads), np.uint8)
    if not info.encoder_decoder:
        return (own,)
    encoder = part_of(model, "encoder")[1]
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


def head_scores(model: Model, scores: Any) -> np.ndarray:
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
    table, rule = head_scores(model, scores), _rule(ratio, count, per_layer, floor)
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
