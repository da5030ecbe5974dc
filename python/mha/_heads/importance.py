"""How much each head matters: mha.importance_measure and mha.importance_pairs."""
from __future__ import annotations

import ctypes
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays.array import choose, integer, integers, number, view
from .._binding import abi
from .._binding.abi import IMPORTANCE_SCORES, HeadsOptions, ImportanceHeads, ImportanceOptions
from .._binding.library import lib, struct
from .._binding.long_call import call_long
from .._draw import figures
from .._models.model import Model
from .head_data import HeadData, head_data, helps, keys, state_file
from .measure import Heads, read_heads


@dataclass
class HeadScores:
    """Scores [layers, heads] of one kind of heads, with their 95 % confidence intervals over texts."""

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass
class Importance:
    """The result of importance_measure. values: [layers, heads]; low and high: the 95 % confidence interval over texts. halves: the rank
    correlation between the scores on two halves of the texts. loss: the mean loss, or NaN for scores without a loss. In an
    encoder-decoder, values are those of the self-attention of the decoder, and cross and encoder are those of the other heads; None for
    other models. heads: the statistics of all heads, if they were requested."""

    by: str
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    halves: float
    loss: float
    saturated: bool
    texts_used: int
    identity: float
    cross: HeadScores | None = None
    encoder: HeadScores | None = None
    heads: Heads | None = None

    def _repr_html_(self) -> str:
        return figures.html_table(self.values, f"importance by {self.by}, with 95 % intervals", figures.intervals(self.low, self.high))

    def plot(self, ax: Any = None) -> Any:
        """Draws the scores of all heads with their intervals, highest first, with matplotlib; returns the axes."""
        return figures.plot_scores(self.values, self.low, self.high, f"importance by {self.by}", ax)


def score_help() -> dict[str, str]:
    """Returns {name: description} of the scores of mha.importance_measure.

        >>> import mha
        >>> "gate" in mha.score_help()
        True
    """
    return helps("mha_importance_score_key", "mha_importance_score_help", IMPORTANCE_SCORES)


def score_needs_loss(by: str) -> bool:
    """Returns whether a score of mha.importance_measure needs a loss.

        >>> import mha
        >>> mha.score_needs_loss("gate"), mha.score_needs_loss("jacobian")
        (True, False)
    """
    return bool(lib.mha_importance_score_needs_loss(choose("by", by, keys("mha_importance_score_key", IMPORTANCE_SCORES))))


def _importance_options(data: HeadData | None, by: str, loss: str, loss_scale: float, probes: int, batch_texts: int, labels: Any, seed: int,
                        settle: float, state: Any) -> tuple[ImportanceOptions, Any]:
    given = None if labels is None else integers(labels, "labels", np.int32)
    if given is not None and data is not None:
        count, unit = (data.count, "image") if data._vision else (data.tokens, "token")
        if given.size != count:
            raise ValueError(f"labels must have an element for each {unit}, {count} in all (got {given.size})")
    return struct(ImportanceOptions, by=choose("by", by, keys("mha_importance_score_key", IMPORTANCE_SCORES)),
                  loss=choose("loss", loss, keys("mha_head_loss_key", abi.LOSS_CLASSES + 1)),
                  loss_scale=number(loss_scale, "loss_scale"), probes=integer(probes, "probes"),
                  batch_texts=integer(batch_texts, "batch_texts"), labels=None if given is None else given.ctypes.data,
                  seed=integer(seed, "seed", 0, 2**64 - 1), settle=number(settle, "settle"), state=state_file(state)), given


def _kind(handle: c_void_p, kind: int) -> HeadScores | None:
    """Returns copies of the scores of a kind of heads; None if the model does not have the kind."""
    found = ImportanceHeads()
    if not lib.mha_importance_kind(handle, kind, ctypes.byref(found)):
        return None
    shape = (found.layers, found.heads)
    return HeadScores(*(view(x, np.float64, shape).copy() for x in (found.values, found.low, found.high)))


def _measured(model: Model, data: HeadData | None) -> tuple[Any, tuple[int, int]]:
    """Returns the model whose heads are measured, for images that of the images, and the shape [layers, heads] of its scores."""
    measured = (data and data._vision) or model._open()
    info = lib.mha_model_describe(measured).contents
    return measured, (info.layers, info.heads)


def importance_measure(model: Model, texts: Any, by: str = "jacobian_probe", *, loss: str = "auto", loss_scale: float = 0.0,
                       probes: int = 0, batch_texts: int = 0, labels: Any = None, seed: int = 0, settle: float = 0.0,
                       state: Any = None, heads: bool = False) -> Importance:
    """Computes the importance score `by` of every head on texts (a list of str, or mha.HeadData; None for scores of weights only).

    score_help() lists the scores. The losses are "auto", "none", "lm", "mlm", "pairs" and "classes" (include/mha/importance.h). labels: a
    class per image of mha.HeadData.of_pixels, or an id per token of the texts. The scores of images are those of the image tower. An
    encoder-decoder requires mha.HeadData.of_pairs; the result then contains the scores of all its heads. heads: also measures the
    statistics that mha.heads_measure returns, in float32 usually in the same passes.

        >>> import mha
        >>> found = mha.importance_measure(mha.Model(), ["the cat sat on the mat", "a dog ran home"], by="gate")
        >>> found.values.shape, bool((found.low <= found.values).all())
        ((2, 8), True)
        >>> mha.importance_measure(mha.Model(), ["the cat sat"], by="gate", heads=True).heads.metrics["entropy"].shape
        (2, 8)
    """
    data, handle, statistics = None if texts is None else head_data(model, texts), c_void_p(), c_void_p()
    options, alive = _importance_options(data, by, loss, loss_scale, probes, batch_texts, labels, seed, settle, state)
    measured, shape = _measured(model, data)
    given = (measured, data and data._open(), ctypes.byref(options))
    if heads:
        call_long("mha_importance_with_heads", *given, ctypes.byref(struct(HeadsOptions, seed=options.seed)), ctypes.byref(handle),
                  ctypes.byref(statistics))
    else:
        call_long("mha_importance_measure", *given, ctypes.byref(handle))
    del alive
    try:
        count = c_int64()
        values = view(lib.mha_importance_values(handle, ctypes.byref(count)), np.float64, shape).copy()
        low, high = np.empty(shape), np.empty(shape)
        for place in np.ndindex(*shape):
            low[place] = lib.mha_importance_low(handle, *place)
            high[place] = lib.mha_importance_high(handle, *place)
        return Importance(by, values, low, high, lib.mha_importance_halves(handle), lib.mha_importance_loss(handle),
                          bool(lib.mha_importance_saturated(handle)), lib.mha_importance_texts_used(handle),
                          lib.mha_importance_identity(handle), _kind(handle, abi.HEADS_CROSS), _kind(handle, abi.HEADS_ENCODER),
                          read_heads(statistics, False) if heads else None)
    finally:
        lib.mha_importance_free(handle)
        lib.mha_heads_free(statistics)


def importance_pairs(model: Model, texts: Any, by: str = "loo", *, loss: str = "auto", batch_texts: int = 0,
                     labels: Any = None) -> np.ndarray:
    """Returns the change in the loss (or embedding) without both heads of each pair, [N, N] for N heads; diagonal: without one head.

        >>> import mha
        >>> mha.importance_pairs(mha.Model(), ["the cat sat"], by="loo_loss").shape
        (16, 16)
    """
    data = head_data(model, texts)
    options, alive = _importance_options(data, by, loss, 0.0, 0, batch_texts, labels, 0, 0.0, None)
    measured, (layers, heads) = _measured(model, data)
    out = np.empty((layers * heads, layers * heads))
    call_long("mha_importance_pairs", measured, data._open(), ctypes.byref(options), out.ctypes.data)
    del alive
    return out
