"""How similar heads and models are: mha.diversity_measure, mha.head_rollout and mha.models_compare."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._arrays.array import choose, integer, view
from .._binding.abi import DIVERSITIES, Comparison, DiversityOptions
from .._binding.library import lib, struct
from .._binding.long_call import call_long
from .._draw import figures
from .._models.model import Model
from .head_data import head_data, helps, keys, state_file


@dataclass
class Diversity:
    """The result of diversity_measure. values: {name: [N, N]} for the N heads of all layers; measures within a layer are NaN across
    layers. layers: {name: [layers]}, the diversity of each layer. map: [N, 2], the heads as points; merges: [N - 1, 4], as in
    scipy.cluster.hierarchy.linkage. Both are None without "js"."""

    values: dict[str, np.ndarray]
    layers: dict[str, np.ndarray]
    rows: int
    map: np.ndarray | None
    eigenvalues: np.ndarray | None
    merges: np.ndarray | None
    heads: list[tuple[int, int]] = field(default_factory=list)

    def plot(self, ax: Any = None) -> Any:
        """Draws the heads as points, similar ones close together, with matplotlib; returns the axes."""
        if self.map is None:
            raise ValueError("what must include 'js' for a map of the heads")
        return figures.plot_points(self.map, [f"{layer}.{head}" for layer, head in self.heads], "similarity of heads", ax)


def diversity_help() -> dict[str, str]:
    """Returns {name: description} of the measures of mha.diversity_measure.

        >>> import mha
        >>> "js" in mha.diversity_help()
        True
    """
    return helps("mha_diversity_key", "mha_diversity_help", DIVERSITIES)


def diversity_measure(model: Model, texts: Any, what: Sequence[str] = (), *, max_rows: int = 0, state: Any = None) -> Diversity:
    """Measures the similarity of all heads on texts. what: names of diversity_help(); empty: all measures.

        >>> import mha
        >>> found = mha.diversity_measure(mha.Model(), ["the cat sat on the mat"], ["js"])
        >>> found.values["js"].shape, found.map.shape
        ((16, 16), (16, 2))
    """
    known = keys("mha_diversity_key", DIVERSITIES)
    names = list(known)
    chosen = [choose("what", name, known) for name in what] or list(range(len(names)))
    options = struct(DiversityOptions, what=sum(1 << n for n in set(chosen)), max_rows=integer(max_rows, "max_rows"), state=state_file(state))
    handle, data = c_void_p(), head_data(model, texts)
    call_long("mha_diversity_measure", model._open(), data._open(), ctypes.byref(options), ctypes.byref(handle))
    try:
        counts = model.info["heads_per_layer"]
        places = [(layer, head) for layer, count in enumerate(counts) for head in range(count)]
        count = int(lib.mha_diversity_heads(handle))
        values = {names[n]: np.array([[lib.mha_diversity_value(handle, n, *a, *b) for b in places] for a in places]) for n in chosen}
        layers = {names[n]: np.array([lib.mha_diversity_layer(handle, n, layer) for layer in range(len(counts))]) for n in chosen}
        points, eigenvalues = (None if x is None else x.copy() for x in (
            view(lib.mha_diversity_map(handle), np.float64, (count, 2)), view(lib.mha_diversity_eigenvalues(handle), np.float64, (2,))))
        found = lib.mha_diversity_merges(handle)
        merges = np.array([(m.a, m.b, m.height, m.size) for m in found[:count - 1]]) if found else None
        return Diversity(values, layers, lib.mha_diversity_rows(handle), points, eigenvalues, merges, places)
    finally:
        lib.mha_diversity_free(handle)


def head_rollout(model: Model, texts: Any, text: int = 0) -> np.ndarray:
    """Returns the attention rollout of one text, float32 [n, n]: row i has the contribution of each input token to position i.

        >>> import mha
        >>> mha.head_rollout(mha.Model(), ["the cat sat"]).shape
        (5, 5)
    """
    data = head_data(model, texts)
    n = len(data.ids(text))
    out = np.empty((n, n), np.float32)
    call_long("mha_head_rollout", data._vision or model._open(), data._open(), integer(text, "text"), out.ctypes.data)
    return out


@dataclass
class ModelsComparison:
    """Two models on the same texts: cosines [texts] of their embeddings, and losses [2, texts]."""

    texts: int
    tokens: int
    mean_cosine: float
    min_cosine: float
    worst: int
    loss: tuple[float, float]
    predicted: int
    cosines: np.ndarray
    losses: np.ndarray


def comparison(c: Comparison, cosines: np.ndarray, losses: np.ndarray) -> ModelsComparison:
    return ModelsComparison(c.texts, c.tokens, c.mean_cosine, c.min_cosine, c.worst, (c.loss[0], c.loss[1]), c.predicted, cosines, losses)


def models_compare(a: Model, b: Model, texts: Any) -> ModelsComparison:
    """Compares the embeddings and losses of two models with the same vocabulary; the texts should be held out.

        >>> import mha
        >>> model = mha.Model()
        >>> mha.models_compare(model, model, ["the cat sat on the mat"]).mean_cosine
        1.0
    """
    data, out = head_data(a, texts), Comparison()
    cosines, losses = np.empty(data.count), np.empty((2, data.count))
    call_long("mha_models_compare", a._open(), b._open(), data._open(), cosines.ctypes.data, losses.ctypes.data, ctypes.byref(out))
    return comparison(out, cosines, losses)
