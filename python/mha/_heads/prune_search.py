"""mha.prune_search: how many heads a model can lose, by pruning it to fewer and fewer heads and evaluating each result."""
from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays.array import floats, integer, number, view
from .._binding.abi import PrunePoint as _Point
from .._binding.abi import PruneRule, PruneSearchOptions
from .._binding.library import callback, lib, struct
from .._binding.long_call import Guard
from .._draw import figures
from .._models.model import Model
from .edit import Evaluation, evaluation, prune_options
from .head_data import head_data
from .prune_choice import kinds


@dataclass
class PrunePoint:
    """A pruned model: the removed heads, keep [layers, heads] for mha.prune, and the increase of the loss per token (without a loss,
    1 - the mean cosine of embeddings); within: it is at most max_increase. In an encoder-decoder, cross_keep and encoder_keep are also
    arguments for mha.prune."""

    count: int
    keep: np.ndarray
    increase: float
    within: bool
    evaluation: Evaluation
    cross_keep: np.ndarray | None = None
    encoder_keep: np.ndarray | None = None


@dataclass
class PruneCurve:
    """The result of prune_search: points in ascending order of removed heads, and the best within the limit, or None."""

    points: list[PrunePoint]
    best: PrunePoint | None

    def _repr_html_(self) -> str:
        rows = [(p.count, f"{p.increase:.6g}", "yes" if p.within else "no", p.evaluation.parameters[1]) for p in self.points]
        return figures.html_rows("increase of the loss by removed heads", ("removed", "increase", "within the limit", "parameters"), rows)

    def plot(self, ax: Any = None) -> Any:
        """Draws the increase by removed heads with matplotlib; returns the axes."""
        return figures.plot_line([p.count for p in self.points], [p.increase for p in self.points], "removed heads", "increase of the loss", ax)


def _point(p: _Point, shapes: list[tuple[int, int]]) -> PrunePoint:
    keep = [view(x, np.uint8, shape).astype(bool) for x, shape in zip((p.keep, p.cross_keep, p.encoder_keep), shapes)]
    return PrunePoint(p.count, keep[0], p.increase, bool(p.within), evaluation(p.evaluation), *keep[1:])


def prune_search(model: Model, held_out: Any, *, scores: Any = None, learn: Any = None, per_layer: bool = False, floor: int = 0,
                 fill: Any = None, refit: Any = None, ridge: float = 0.0, max_increase: float = math.inf,
                 on_point: Callable[[PrunePoint], Any] | None = None) -> PruneCurve:
    """Prunes the model to fewer and fewer heads and evaluates each on the texts held_out (a list of str, or mha.HeadData).

    Heads with the lowest scores [layers, heads] are removed, or, without scores, heads chosen jointly on the texts `learn`. fill, refit
    and ridge are those of mha.prune. In an encoder-decoder, scores are an mha.Importance, texts are mha.HeadData.of_pairs, and heads of
    all kinds are removed. on_point is called after each point; a true return value ends the search with KeyboardInterrupt.

        >>> import mha
        >>> model, texts = mha.Model(), ["the cat sat on the mat", "a dog ran home"]
        >>> scores = mha.importance_measure(model, texts, by="gate").values
        >>> curve = mha.prune_search(model, texts, scores=scores, max_increase=0.5)
        >>> curve.points[0].count, curve.best.increase <= 0.5
        (0, True)
    """
    guard, shapes = Guard(), [x.shape for x in kinds(model, struct(PruneRule))]
    given = [] if scores is None else [scores] if len(shapes) == 1 else [scores.values, scores.cross.values, scores.encoder.values]
    tables = dict(zip(("scores", "cross_scores", "encoder_scores"),
                      (floats(x, "scores", shape, np.float64) for x, shape in zip(given, shapes))))
    data = [None if x is None else head_data(model, x) for x in (held_out, learn)]

    def see(_user: Any, point: Any) -> Any:
        return on_point and on_point(_point(point.contents, shapes))
    options = struct(PruneSearchOptions, held_out=data[0] and data[0]._open(), learn=data[1] and data[1]._open(), **tables,
                     per_layer=bool(per_layer), floor=integer(floor, "floor"), max_increase=number(max_increase, "max_increase"),
                     prune=ctypes.pointer(prune_options(model, fill, refit, ridge)),
                     on_point=callback(PruneSearchOptions, "on_point", guard.wrap(see)))
    handle, count = c_void_p(), c_int64()
    guard.call("mha_prune_search", model._open(), ctypes.byref(options), ctypes.byref(handle))
    try:
        points = [_point(p, shapes) for p in lib.mha_prune_curve_points(handle, ctypes.byref(count))[:count.value]]
        found = lib.mha_prune_curve_best(handle)
        return PruneCurve(points, _point(found.contents, shapes) if found else None)
    finally:
        lib.mha_prune_curve_free(handle)
