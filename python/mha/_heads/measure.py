"""What each head does: mha.heads_measure and mha.heads_of_maps, with statistics, patterns and a label for every head."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays.array import choose, floats, integer, integers, number, view
from .._binding import abi
from .._binding.abi import HEAD_LABELS, HEAD_METRICS, HeadsOptions
from .._binding.context import context
from .._binding.library import create, lib, struct
from .._binding.long_call import call_long
from .._draw import figures
from .._models.model import Model
from .head_data import head_data, helps, keys, state_file


@dataclass
class HeadThresholds:
    """The thresholds of labels and of sinks; 0: the default (include/mha/heads.h)."""

    probe: float = 0.0
    single: float = 0.0
    local: float = 0.0
    block: float = 0.0
    broad: float = 0.0
    vertical: float = 0.0
    sink: float = 0.0

    def struct(self) -> abi.HeadThresholds:
        """Returns the struct of the library."""
        return abi.HeadThresholds(*(number(getattr(self, name), name) for name, *_ in abi.HeadThresholds._fields_))


@dataclass
class HeadMap:
    """The attention map of one head, float32 [tokens, tokens]: row = query. _repr_html_ shows it in a notebook, plot() draws it."""

    values: np.ndarray
    tokens: list[str]
    title: str

    def _repr_html_(self) -> str:
        return figures.html_map(self.values, self.tokens, self.title)

    def plot(self, ax: Any = None) -> Any:
        """Draws the map with matplotlib, in the colors of `mha draw`; returns the axes. Raises ImportError without matplotlib."""
        return figures.plot_map(self.values, self.tokens, self.title, ax)


@dataclass
class Heads:
    """The result of heads_measure. metrics: {name: array [layers, heads]}, with NaN for missing heads; metric_help() describes the
    names. labels: [layers][heads]. sink_rate: the fraction of heads that are attention sinks. received: {(layer, head): the weight
    that each position receives}. With keep_maps: maps {(layer, head): [n, n]}, tokens, and their ids."""

    metrics: dict[str, np.ndarray]
    labels: list[list[str]]
    sink_rate: float
    received: dict[tuple[int, int], np.ndarray]
    maps: dict[tuple[int, int], np.ndarray] | None = None
    tokens: list[int] | None = None
    texts: list[str] | None = None

    def map(self, layer: int, head: int) -> HeadMap:
        """Returns the map of one head, after a measurement with keep_maps=True."""
        if self.maps is None or self.tokens is None:
            raise ValueError("keep_maps must be True in heads_measure for maps")
        if (layer, head) not in self.maps:
            raise IndexError(f"the model must have the head (got layer {layer}, head {head})")
        names = self.texts or [str(id) for id in self.tokens]
        return HeadMap(self.maps[layer, head], names, f"layer {layer} head {head}: {self.labels[layer][head]}")

    def table(self, metric: str = "entropy") -> np.ndarray:
        """Returns a metric [layers, heads]."""
        return choose("metric", metric, self.metrics)

    def _repr_html_(self) -> str:
        return figures.html_table(self.table(), "entropy (bits) and label of each head", self.labels)

    def plot(self, metric: str = "entropy", ax: Any = None) -> Any:
        """Draws a metric of all heads with matplotlib; returns the axes. Raises ImportError without matplotlib."""
        return figures.plot_table(self.table(metric), metric, self.labels, ax)


def metric_help() -> dict[str, str]:
    """Returns {name: description} of the metrics of mha.heads_measure.

        >>> import mha
        >>> mha.metric_help()["prev"]
        'mass on the previous token'
    """
    return helps("mha_head_metric_key", "mha_head_metric_help", HEAD_METRICS)


def label_help() -> dict[str, str]:
    """Returns {label: rule} of the labels of mha.heads_measure.

        >>> import mha
        >>> mha.label_help()["mixed"]
        'no rule applies'
    """
    return helps("mha_head_label_key", "mha_head_label_help", HEAD_LABELS)


def read_heads(handle: c_void_p, keep_maps: bool) -> Heads:
    counts = [int(lib.mha_heads_count(handle, n)) for n in range(lib.mha_heads_layers(handle))]
    places = [(layer, head) for layer, count in enumerate(counts) for head in range(count)]
    metrics = {}
    for n, name in enumerate(keys("mha_head_metric_key", HEAD_METRICS)):
        table = metrics[name] = np.full((len(counts), max(counts, default=0)), np.nan)
        for place in places:
            table[place] = lib.mha_heads_value(handle, *place, n)
    names = list(keys("mha_head_label_key", HEAD_LABELS))
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


def _probe(ids: Any, first: Any, last: Any) -> abi.HeadProbe:
    """Returns the probe texts r r of the metrics dup_probe and induction_probe."""
    r = None if ids is None else integers(ids, "probe_ids", np.int32, dims=(2,))
    ends = [None if x is None else integers(x, name, np.int32) for name, x in (("probe_first", first), ("probe_last", last))]
    return struct(abi.HeadProbe, ids=r, texts=0 if r is None else r.shape[0], period=0 if r is None else r.shape[1], first=ends[0],
                  last=ends[1], first_count=0 if ends[0] is None else len(ends[0]), last_count=0 if ends[1] is None else len(ends[1]))


def heads_measure(model: Model, texts: Any, *, probe: bool = True, seed: int = 0, keep_maps: bool = False, state: Any = None,
                  thresholds: HeadThresholds | None = None, probe_ids: Any = None, probe_first: Any = None,
                  probe_last: Any = None) -> Heads:
    """Measures every head over texts (a list of str, or mha.HeadData, also of images), as `mha heads` does.

    probe: also measures repeated tokens, which the labels "induction" and "duplicate" require: random ones, or probe_ids [texts, period]
    between probe_first and probe_last. keep_maps: returns the maps of a single text. state: a file from which an interrupted
    measurement resumes.

        >>> import mha
        >>> found = mha.heads_measure(mha.Model(), ["the cat sat on the mat"], keep_maps=True)
        >>> found.metrics["entropy"].shape, found.labels[1][0], found.map(0, 0).tokens[:2]
        ((2, 8), 'induction', ['t', 'he'])
    """
    options = struct(HeadsOptions, no_probe=not probe, seed=integer(seed, "seed", 0, 2**64 - 1), keep_maps=bool(keep_maps),
                     state=state_file(state), probe=_probe(probe_ids, probe_first, probe_last),
                     thresholds=abi.HeadThresholds() if thresholds is None else thresholds.struct())
    handle, data = c_void_p(), head_data(model, texts)
    call_long("mha_heads_measure_data", data._vision or model._open(), data._open(), ctypes.byref(options), ctypes.byref(handle))
    try:
        found = read_heads(handle, keep_maps)
    finally:
        lib.mha_heads_free(handle)
    if found.tokens is not None:
        found.texts = _names(model, found.tokens)
    return found


def _names(model: Model, ids: list[int]) -> list[str]:
    """Returns the tokens of ids, or the ids as text for a model without a tokenizer."""
    try:
        return [model.token(id) or str(id) for id in ids]
    except ValueError:
        return [str(id) for id in ids]


def _queries(maps: list[np.ndarray], kinds: Sequence[Any], alive: list[Any]) -> Any:
    """Returns the array of queries of cross-attention; appends the arrays that it points to to `alive`."""
    if len(kinds) != len(maps):
        raise ValueError(f"query_kinds must have one entry per text: {len(maps)} (got {len(kinds)})")
    listed = (abi.HeadQueries * len(maps))()
    for n, (m, one) in enumerate(zip(maps, listed)):
        x = integers(kinds[n], f"query_kinds[{n}]", np.uint8)
        if len(x) != m.shape[2]:
            raise ValueError(f"query_kinds[{n}] must be of shape ({m.shape[2]},) (got {x.shape})")
        alive.append(x)
        one.tokens, one.kinds = m.shape[2], x.ctypes.data
    return listed


def heads_of_maps(maps: Sequence[Any], *, causal: bool = False, kinds: Sequence[Any] | None = None, segments: Sequence[Any] | None = None,
                  thresholds: HeadThresholds | None = None, query_kinds: Sequence[Any] | None = None) -> Heads:
    """Computes the metrics of mha.heads_measure from given maps, one array [layers, heads, n, n] per text, without a model.

    kinds, segments: for each text, None or [n]: sums of 1 (special), 2 (separator), 4 (punctuation); and segment numbers. The two
    probe metrics are NaN. query_kinds: [m] for each text, the kinds of the queries of cross-attention, whose maps are [layers, heads, m, n];
    metrics that compare the positions of queries and keys are then NaN.

        >>> import numpy as np, mha
        >>> found = mha.heads_of_maps([np.eye(4)[None, None]])
        >>> found.labels, float(found.metrics["self"][0, 0])
        ([['self']], 1.0)
    """
    if not maps:
        raise ValueError("maps must not be empty")
    p = [floats(m, f"maps[{n}]", (None, None, None, None)) for n, m in enumerate(maps)]
    alive: list[Any] = [p]
    listed = (abi.HeadMap * len(p))()
    queries = None if query_kinds is None else _queries(p, query_kinds, alive)
    for n, (m, one) in enumerate(zip(p, listed)):
        if m.shape[:2] != p[0].shape[:2] or (queries is None and m.shape[2] != m.shape[3]):
            raise ValueError(f"maps[{n}] must be of shape [{p[0].shape[0]}, {p[0].shape[1]}, n, n] (got {m.shape})")
        one.tokens, one.p = m.shape[3], m.ctypes.data
        for name, given, kind in (("kinds", kinds, np.uint8), ("segments", segments, np.int32)):
            if given is not None and given[n] is not None:
                x = integers(given[n], f"{name}[{n}]", kind)
                if len(x) != m.shape[3]:
                    raise ValueError(f"{name}[{n}] must be of shape ({m.shape[3]},) (got {x.shape})")
                alive.append(x)
                setattr(one, name, x.ctypes.data)
    options = struct(abi.HeadMaps, layers=p[0].shape[0], heads=p[0].shape[1], causal=bool(causal), count=len(p), text=listed, queries=queries,
                     thresholds=abi.HeadThresholds() if thresholds is None else thresholds.struct())
    handle = create("mha_heads_of_maps", context(), ctypes.byref(options))
    try:
        return read_heads(handle, False)
    finally:
        lib.mha_heads_free(handle)
