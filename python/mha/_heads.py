"""Measures, importance and similarity of heads: mha.HeadData, mha.heads_measure, mha.importance_measure ..."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._abi import (
    DIVERSITIES,
    HEAD_LABELS,
    HEAD_METRICS,
    IMPORTANCE_SCORES,
    Comparison,
    DiversityOptions,
    HeadDataOptions,
    HeadsOptions,
    ImportanceOptions,
)
from ._array import integer, integers, number, view
from ._library import Handle, lib, strings, struct
from ._long_call import call_long
from ._model import Model


def _keys(function: str, count: int) -> tuple[str, ...]:
    return tuple(getattr(lib, function)(n).decode() for n in range(count))


def _choose(name: str, value: str, known: Sequence[str]) -> int:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))} (got {value!r})")
    return known.index(value)


def _file(state: Any) -> bytes | None:
    import os
    return None if state is None else os.fsencode(state)


class HeadData(Handle):
    """Tokenized texts for head measurements; one object may be passed to all of them.

    texts: a list of str, or, with ids=True, a list of lists of token ids, for models without a tokenizer. max_tokens truncates the
    texts; None: the model's maximum.

        >>> import mha
        >>> data = mha.HeadData(mha.Model(), ["the cat sat on the mat", "a dog"])
        >>> data.count
        2
    """

    def __init__(self, model: Model, texts: Sequence[Any], *, ids: bool = False, max_tokens: int | None = None,
                 segments: Any = None, special: Any = None, batch_tokens: int = 0) -> None:
        given = [None if x is None else integers(x, name, np.int32) for name, x in (("segments", segments), ("special", special))]
        options = struct(HeadDataOptions, max_tokens=max_tokens or 0, batch_tokens=batch_tokens,
                         segments=None if given[0] is None else given[0].ctypes.data,
                         special=None if given[1] is None else given[1].ctypes.data,
                         special_count=0 if given[1] is None else len(given[1]))
        handle = c_void_p()
        if ids:
            rows = [integers(x, f"texts[{n}]", np.int32) for n, x in enumerate(texts)]
            all_ids = np.concatenate(rows) if rows else np.empty(0, np.int32)
            starts = np.cumsum([0] + [len(x) for x in rows], dtype=np.int64)
            call_long("mha_head_data_of_ids", model._open(), all_ids.ctypes.data, starts.ctypes.data, len(rows), ctypes.byref(options),
                 ctypes.byref(handle))
        else:
            data = strings(texts, "texts")
            call_long("mha_head_data_of_texts", model._open(), data, len(data), ctypes.byref(options), ctypes.byref(handle))
        self._own(handle, "mha_head_data_free")

    @property
    def count(self) -> int:
        """The number of texts."""
        return int(lib.mha_head_data_count(self._open()))

    @property
    def tokens(self) -> int:
        """The number of tokens in all texts."""
        return int(lib.mha_head_data_tokens(self._open()))

    def ids(self, text: int) -> list[int]:
        """Returns the token ids of one text; raises IndexError if the text does not exist."""
        length = c_int64()
        found = lib.mha_head_data_ids(self._open(), integer(text, "text"), ctypes.byref(length))
        if not found:
            raise IndexError(f"text must be from 0 to {self.count - 1} (got {text})")
        return list(view(found, np.int32, (length.value,)).tolist())


def _data(model: Model, texts: Any) -> HeadData:
    return texts if isinstance(texts, HeadData) else HeadData(model, texts)


@dataclass
class Heads:
    """The result of heads_measure. metrics: {name: array [layers, heads]}, with NaN for missing heads; metric_help() describes the
    metrics. labels: [layers][heads]. sink_rate: the fraction of heads that are attention sinks. received: {(layer, head): the weight
    that each position receives}."""

    metrics: dict[str, np.ndarray]
    labels: list[list[str]]
    sink_rate: float
    received: dict[tuple[int, int], np.ndarray]
    maps: dict[tuple[int, int], np.ndarray] | None = None
    tokens: list[int] | None = None


def metric_help() -> dict[str, str]:
    """Returns {name: description} of the metrics of mha.heads_measure."""
    return {lib.mha_head_metric_key(n).decode(): lib.mha_head_metric_help(n).decode() for n in range(HEAD_METRICS)}


def label_help() -> dict[str, str]:
    """Returns {label: rule} of the labels of mha.heads_measure."""
    return {lib.mha_head_label_key(n).decode(): lib.mha_head_label_help(n).decode() for n in range(HEAD_LABELS)}


def _read_heads(handle: c_void_p, keep_maps: bool) -> Heads:
    counts = [int(lib.mha_heads_count(handle, n)) for n in range(lib.mha_heads_layers(handle))]
    places = [(layer, head) for layer, count in enumerate(counts) for head in range(count)]
    metrics = {}
    for n, name in enumerate(_keys("mha_head_metric_key", HEAD_METRICS)):
        table = metrics[name] = np.full((len(counts), max(counts, default=0)), np.nan)
        for place in places:
            table[place] = lib.mha_heads_value(handle, *place, n)
    names = _keys("mha_head_label_key", HEAD_LABELS)
    labels = [[names[lib.mha_heads_label(handle, layer, head)] for head in range(count)] for layer, count in enumerate(counts)]
    received, length = {}, c_int64()
    for place in places:
        found = lib.mha_heads_received(handle, *place, ctypes.byref(length))
        if found:
            received[place] = view(found, np.float64, (length.value,)).copy()
    result = Heads(metrics, labels, float(lib.mha_heads_sink_rate(handle)), received)
    if keep_maps:
        tokens = lib.mha_heads_tokens(handle).contents
        n = tokens.count
        result.tokens = view(tokens.ids, np.int32, (n,)).tolist()
        result.maps = {place: view(lib.mha_heads_map(handle, *place), np.float32, (n, n)).copy() for place in places}
    return result


def heads_measure(model: Model, texts: Any, *, probe: bool = True, seed: int = 0, keep_maps: bool = False, state: Any = None) -> Heads:
    """Measures every head over texts (a list of str, or mha.HeadData), as `mha heads` does.

    probe: also measures repeated random tokens, which the labels "induction" and "duplicate" require. keep_maps: also returns the
    attention maps, for a single text. state: a file from which an interrupted measurement resumes.

        >>> import mha
        >>> found = mha.heads_measure(mha.Model(), ["the cat sat on the mat"])
        >>> found.metrics["entropy"].shape, found.labels[1][0]
        ((2, 8), 'induction')
    """
    options = struct(HeadsOptions, no_probe=not probe, seed=integer(seed, "seed", 0, 2**64 - 1), keep_maps=bool(keep_maps),
                     state=_file(state))
    handle, data = c_void_p(), _data(model, texts)
    call_long("mha_heads_measure_data", model._open(), data._open(), ctypes.byref(options), ctypes.byref(handle))
    try:
        return _read_heads(handle, keep_maps)
    finally:
        lib.mha_heads_free(handle)


# ---- importance ----

_LOSSES = ("auto", "none", "lm", "mlm", "pairs")


@dataclass
class Importance:
    """The result of importance_measure. values: [layers, heads]; low and high: the 95 % confidence interval over texts. halves: the rank
    correlation between the scores on two halves of the texts. loss: the mean loss, or NaN for scores without a loss."""

    by: str
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    halves: float
    loss: float
    saturated: bool
    texts_used: int
    identity: float


def score_help() -> dict[str, str]:
    """Returns {name: description} of the scores of mha.importance_measure."""
    return {lib.mha_importance_score_key(n).decode(): lib.mha_importance_score_help(n).decode() for n in range(IMPORTANCE_SCORES)}


def _importance_options(by: str, loss: str, loss_scale: float, probes: int, batch_texts: int, labels: Any, seed: int, settle: float,
                        state: Any) -> tuple[ImportanceOptions, Any]:
    given = None if labels is None else integers(labels, "labels", np.int32)
    return struct(ImportanceOptions, by=_choose("by", by, _keys("mha_importance_score_key", IMPORTANCE_SCORES)),
                  loss=_choose("loss", loss, _LOSSES), loss_scale=number(loss_scale, "loss_scale"), probes=integer(probes, "probes"),
                  batch_texts=integer(batch_texts, "batch_texts"), labels=None if given is None else given.ctypes.data,
                  seed=integer(seed, "seed", 0, 2**64 - 1), settle=number(settle, "settle"), state=_file(state)), given


def importance_measure(model: Model, texts: Any, by: str = "jacobian_probe", *, loss: str = "auto", loss_scale: float = 0.0,
                       probes: int = 0, batch_texts: int = 0, labels: Any = None, seed: int = 0, settle: float = 0.0,
                       state: Any = None) -> Importance:
    """Computes the importance score `by` of every head on texts (a list of str, or mha.HeadData; None for scores of weights only).

    score_help() lists the scores. The losses are "auto", "none", "lm", "mlm" and "pairs" (include/mha/importance.h).

        >>> import mha
        >>> found = mha.importance_measure(mha.Model(), ["the cat sat on the mat", "a dog ran home"], by="gate")
        >>> found.values.shape, bool((found.low <= found.values).all())
        ((2, 8), True)
    """
    options, alive = _importance_options(by, loss, loss_scale, probes, batch_texts, labels, seed, settle, state)
    data, handle = None if texts is None else _data(model, texts), c_void_p()
    call_long("mha_importance_measure", model._open(), data and data._open(), ctypes.byref(options), ctypes.byref(handle))
    del alive
    try:
        info, count = model.info, c_int64()
        shape = info["layers"], info["heads"]
        values = view(lib.mha_importance_values(handle, ctypes.byref(count)), np.float64, shape).copy()
        low, high = np.empty(shape), np.empty(shape)
        for place in np.ndindex(*shape):
            low[place] = lib.mha_importance_low(handle, *place)
            high[place] = lib.mha_importance_high(handle, *place)
        return Importance(by, values, low, high, lib.mha_importance_halves(handle), lib.mha_importance_loss(handle),
                          bool(lib.mha_importance_saturated(handle)), lib.mha_importance_texts_used(handle),
                          lib.mha_importance_identity(handle))
    finally:
        lib.mha_importance_free(handle)


def importance_pairs(model: Model, texts: Any, by: str = "loo", *, loss: str = "auto", batch_texts: int = 0,
                     labels: Any = None) -> np.ndarray:
    """Returns the change of the loss (or embedding) without both heads of each pair, [N, N] for N heads; diagonal: without a single
    head."""
    options, alive = _importance_options(by, loss, 0.0, 0, batch_texts, labels, 0, 0.0, None)
    count = model.info["layers"] * model.info["heads"]
    out, data = np.empty((count, count)), _data(model, texts)
    call_long("mha_importance_pairs", model._open(), data._open(), ctypes.byref(options), out.ctypes.data)
    del alive
    return out


# ---- similarity ----

@dataclass
class Diversity:
    """The result of diversity_measure. values: {name: [N, N]} for the N heads of all layers; a measure defined within a layer is NaN for
    heads of different layers. layers: {name: [layers]}, the diversity of each layer. map: [N, 2], the heads as points; merges: [N - 1, 4],
    as in scipy.cluster.hierarchy.linkage. map and merges are None unless "js" is measured."""

    values: dict[str, np.ndarray]
    layers: dict[str, np.ndarray]
    rows: int
    map: np.ndarray | None
    eigenvalues: np.ndarray | None
    merges: np.ndarray | None


def diversity_help() -> dict[str, str]:
    """Returns {name: description} of the measures of mha.diversity_measure."""
    return {lib.mha_diversity_key(n).decode(): lib.mha_diversity_help(n).decode() for n in range(DIVERSITIES)}


def diversity_measure(model: Model, texts: Any, what: Sequence[str] = (), *, max_rows: int = 0, state: Any = None) -> Diversity:
    """Measures the similarity of all heads on texts. what: names of diversity_help(); empty: all measures.

        >>> import mha
        >>> found = mha.diversity_measure(mha.Model(), ["the cat sat on the mat"], ["js"])
        >>> found.values["js"].shape, found.map.shape
        ((16, 16), (16, 2))
    """
    names = _keys("mha_diversity_key", DIVERSITIES)
    chosen = [_choose("what", name, names) for name in what] or list(range(len(names)))
    options = struct(DiversityOptions, what=sum(1 << n for n in set(chosen)), max_rows=integer(max_rows, "max_rows"), state=_file(state))
    handle, data = c_void_p(), _data(model, texts)
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
        return Diversity(values, layers, lib.mha_diversity_rows(handle), points, eigenvalues, merges)
    finally:
        lib.mha_diversity_free(handle)


def head_rollout(model: Model, texts: Any, text: int = 0) -> np.ndarray:
    """Returns the attention rollout of one text, float32 [n, n]: row i contains the contribution of each input token to position i."""
    data = _data(model, texts)
    n = len(data.ids(text))
    out = np.empty((n, n), np.float32)
    call_long("mha_head_rollout", model._open(), data._open(), text, out.ctypes.data)
    return out


@dataclass
class ModelsComparison:
    """The result of models_compare. cosines [texts]: the cosine similarity of the two embeddings of each text; losses [2, texts]."""

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
    data, out = _data(a, texts), Comparison()
    cosines, losses = np.empty(data.count), np.empty((2, data.count))
    call_long("mha_models_compare", a._open(), b._open(), data._open(), cosines.ctypes.data, losses.ctypes.data, ctypes.byref(out))
    return comparison(out, cosines, losses)
