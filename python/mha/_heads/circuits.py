"""What the parts of a model do to its answer: mha.PromptPair."""
from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from .._arrays.array import choose, floats, integer, integers, number, view
from .._binding import abi
from .._binding.abi import AttentionEdge, ModelInput, ModelOutput, PatchPart, PathEdge, PromptPairOptions
from .._binding.library import Handle, lib, struct
from .._binding.long_call import call_long
from .._models.model import Model
from .head_data import state_file

_METRICS = 3  # logit_diff, logprob, kl
_BY = {"position": abi.BY_POSITION, "head": abi.BY_HEAD, "head_position": abi.BY_HEAD_POSITION}
_DIRECTIONS = {"denoise": abi.DENOISE, "noise": abi.NOISE}
_ESTIMATES = {"attr": abi.ESTIMATE_ATTR, "ig": abi.ESTIMATE_IG, "qkfix": abi.ESTIMATE_QKFIX}
_RECEIVERS = {"q": abi.PATH_Q, "k": abi.PATH_K, "v": abi.PATH_V, "logits": abi.PATH_LOGITS}
_MODES = {"renorm": abi.KNOCKOUT_RENORM, "zero": abi.KNOCKOUT_ZERO}
_SWEEPS = {"head": abi.KNOCKOUT_HEAD, "layer": abi.KNOCKOUT_LAYER, "all": abi.KNOCKOUT_ALL, "column": abi.KNOCKOUT_COLUMN,
           "row": abi.KNOCKOUT_ROW}
_RUNS = {"clean": abi.RUN_CLEAN, "corrupted": abi.RUN_CORRUPTED}


def _sites() -> dict[str, int]:
    return {lib.mha_site_name(n).decode(): n for n in range(abi.SITES)}


def _node(layer: int, head: int, end: str) -> str:
    return end if layer < 0 else f"mlp {layer}" if head < 0 else f"{layer}.{head}"


def _metrics() -> np.ndarray:
    return np.zeros(_METRICS)


def _edges(edges: Iterable[tuple[int, int, int, int]]) -> Any:
    listed = [AttentionEdge(*(integer(n, "edges") for n in edge)) for edge in edges]
    return (AttentionEdge * len(listed))(*listed)


def knockout_logits(model: Model, ids: Any, edges: Iterable[tuple[int, int, int, int]]) -> np.ndarray:
    """Returns the logits [tokens, logit_width] of one sequence without edges (layer, head, query, key), removed before the softmax; -1: all.

        >>> import mha
        >>> model = mha.Model()
        >>> ids = model.tokenize(" red cat key boat hat drum red cat key")
        >>> before, after = (mha.knockout_logits(model, ids, edges)[-1] for edges in ([], [(1, -1, 8, 3)]))
        >>> bool(after[ids[3]] < before[ids[3]] - 1)
        True
    """
    tokens, listed = integers(ids, "ids", np.int32), _edges(edges)
    out = np.zeros((len(tokens), model.info["logit_width"]), np.float32)
    given = struct(ModelInput, batch=1, length=len(tokens), ids=tokens)
    wanted = struct(ModelOutput, logits=out)
    call_long("mha_knockout_forward", model._open(), ctypes.byref(given), ctypes.byref(wanted), listed, len(listed))
    return out


class PromptPair(Handle):
    """A model, a clean and a corrupted prompt of the same number of tokens, and the activations of both runs (mha/circuits.h).

    clean, corrupted: token ids. answer, wrong: the right token and the token to compare with. position: the token whose logits are
    measured; None: the last. noise: [tokens, width] added to the word embeddings of the corrupted prompt (prompt_noise). Results begin
    with an axis of the three metrics logit_diff, logprob and kl, in nats.

        >>> import mha
        >>> model = mha.Model()
        >>> clean = model.tokenize(" red cat key boat hat drum red cat key")
        >>> corrupted = model.tokenize(" red cat key ring hat drum red cat key")
        >>> pair = mha.PromptPair(model, clean, corrupted, clean[3], corrupted[3])
        >>> effect = pair.patch("z", "head")[0]
        >>> best = mha.patch_normalized(effect, *(pair.metrics(run)[0] for run in ("clean", "corrupted")))
        >>> best.shape, round(float(best[0, 1]), 2)
        ((2, 8), 0.38)
    """

    def __init__(self, model: Model, clean: Any, corrupted: Any, answer: int, wrong: int, *, position: int | None = None,
                 noise: Any = None) -> None:
        first, second = integers(clean, "clean", np.int32), integers(corrupted, "corrupted", np.int32)
        if first.shape != second.shape:
            raise ValueError(f"corrupted must have as many tokens as clean (got {second.shape[0]} and {first.shape[0]})")
        width = lib.mha_prompt_noise_width(model._open())
        added = None if noise is None else floats(noise, "noise", (first.shape[0], width))
        place = None if position is None else np.array([integer(position, "position")], np.int64)
        options = struct(PromptPairOptions, clean=first, corrupted=second, length=first.shape[0], answer=integer(answer, "answer"),
                         wrong=integer(wrong, "wrong"), position=place, noise=added)
        handle = ctypes.c_void_p()
        call_long("mha_prompt_pair_create", model._open(), ctypes.byref(options), ctypes.byref(handle))
        self._own(handle, "mha_prompt_pair_free", model._open())
        self._model = model

    @property
    def length(self) -> int:
        """The number of tokens."""
        return int(lib.mha_prompt_pair_length(self._open()))

    @property
    def position(self) -> int:
        """The token whose logits are measured."""
        return int(lib.mha_prompt_pair_position(self._open()))

    def metrics(self, run: str = "clean") -> np.ndarray:
        """Returns the metrics [3] of the "clean" or "corrupted" run, unchanged."""
        out = _metrics()
        call_long("mha_prompt_pair_metrics", self._open(), choose("run", run, _RUNS), out.ctypes.data)
        return out

    def logits(self, run: str = "clean") -> np.ndarray:
        """Returns the logits [vocab] of an unchanged run at the position."""
        address = lib.mha_prompt_pair_logits(self._open(), choose("run", run, _RUNS))
        return np.array(view(address, np.float32, (self._model.info["vocab"],)))

    def map(self, layer: int, head: int, run: str = "clean") -> np.ndarray:
        """Returns the attention map [tokens, tokens] of a head in an unchanged run."""
        address = lib.mha_prompt_pair_map(self._open(), choose("run", run, _RUNS), integer(layer, "layer"), integer(head, "head"))
        if not address:
            raise IndexError(f"layer and head must name a head of the model (got {layer}.{head})")
        return np.array(view(address, np.float32, (self.length, self.length)))

    def _shape(self, site: int, by: int) -> tuple[int, ...]:
        shape = np.zeros(3, np.int64)
        rank = lib.mha_patch_shape(self._open(), site, by, shape.ctypes.data)
        if rank == 0:
            raise ValueError("q, k, v, z and pattern are patched by head or head_position, other sites by position")
        return tuple(int(n) for n in shape[:rank])

    def passes(self, site: str, by: str, direction: str = "denoise") -> int:
        """Returns the number of passes that patch() runs."""
        return int(lib.mha_patch_passes(self._open(), choose("site", site, _sites()), choose("by", by, _BY),
                                        choose("direction", direction, _DIRECTIONS)))

    def patch(self, site: str = "z", by: str = "head", direction: str = "denoise", state: Any = None) -> np.ndarray:
        """Repeats the base run with each part of a site replaced by its value in the other run; returns the metrics [3, layers, ...].

        An interrupted run resumes from the file `state`.
        """
        which, parts = choose("site", site, _sites()), choose("by", by, _BY)
        out = np.zeros((_METRICS, *self._shape(which, parts)))
        run = choose("direction", direction, _DIRECTIONS)
        if state is None:
            call_long("mha_patch", self._open(), which, parts, run, out.ctypes.data)
        else:
            call_long("mha_patch_resume", self._open(), which, parts, run, state_file(state), out.ctypes.data)
        return out

    def patch_together(self, parts: Iterable[tuple[str, int, int, int]], direction: str = "denoise") -> np.ndarray:
        """Replaces several parts (site, layer, head, position) in one run; -1: all heads or tokens. Returns the metrics [3]."""
        sites = _sites()
        listed = [PatchPart(choose("site", site, sites), integer(layer, "layer"), integer(head, "head"), integer(at, "position"))
                  for site, layer, head, at in parts]
        out = _metrics()
        call_long("mha_patch_together", self._open(), choose("direction", direction, _DIRECTIONS), (PatchPart * len(listed))(*listed),
                  len(listed), out.ctypes.data)
        return out

    def attribution(self, site: str = "z", by: str = "head", direction: str = "denoise", estimate: str = "attr") -> np.ndarray:
        """Estimates the changes that patch() measures, from gradients: "attr", "ig" or "qkfix"; returns changes [3, layers, ...]."""
        which, parts = choose("site", site, _sites()), choose("by", by, _BY)
        out = np.zeros((_METRICS, *self._shape(which, parts)))
        call_long("mha_attribution", self._open(), choose("estimate", estimate, _ESTIMATES), which, parts,
                  choose("direction", direction, _DIRECTIONS), out.ctypes.data)
        return out

    def path_patch(self, to: str = "k", direction: str = "denoise") -> np.ndarray:
        """Changes only the direct path from one head to another: metrics [3, senders, receivers] for q, k and v, [3, senders] for logits."""
        which = choose("to", to, _RECEIVERS)
        senders = self._model.info["layers"] * self._model.info["heads"]
        receivers = 1 if to == "logits" else math.prod(self._shape(_sites()[to], abi.BY_HEAD))
        out = np.zeros((_METRICS, senders, receivers))
        call_long("mha_path_patch", self._open(), which, choose("direction", direction, _DIRECTIONS),
                  out.ctypes.data)
        return out[:, :, 0] if to == "logits" else out

    def path_edges(self, direction: str = "denoise") -> tuple[list[tuple[str, str, str]], np.ndarray]:
        """Patches every direct path from the embedding, a head or a feed-forward part to heads, feed-forward parts and the logits.

        Returns the edges (sender, receiver, what it reads), such as ("0.5", "1.0", "k") or ("mlp 0", "logits", "logits"), and metrics [3, edges].
        """
        count = int(lib.mha_path_edge_count(self._open()))
        listed, out = (PathEdge * count)(), np.zeros((_METRICS, count))
        call_long("mha_path_edges", self._open(), choose("direction", direction, _DIRECTIONS), listed, out.ctypes.data)
        reads = {value: name for name, value in (*_RECEIVERS.items(), ("mlp", abi.PATH_MLP))}
        return [(_node(e.from_layer, e.from_head, "embedding"), _node(e.to_layer, e.to_head, "logits"), reads[e.to]) for e in listed], out

    def knockout(self, edges: Iterable[tuple[int, int, int, int]], mode: str = "renorm", run: str = "clean") -> np.ndarray:
        """Removes edges (layer, head, query, key) together; -1: all. Returns the metrics [3]."""
        listed = _edges(edges)
        out = _metrics()
        call_long("mha_knockout", self._open(), choose("run", run, _RUNS), choose("mode", mode, _MODES), listed, len(listed),
                  out.ctypes.data)
        return out

    def knockout_each(self, sweep: str = "head", mode: str = "renorm") -> np.ndarray:
        """Removes one part after another in the clean run: "head", "layer", "all", "column" or "row"; returns metrics [3, ...]."""
        shape = np.zeros(3, np.int64)
        which = choose("sweep", sweep, _SWEEPS)
        rank = lib.mha_knockout_shape(self._open(), which, shape.ctypes.data)
        out = np.zeros((_METRICS, *(int(n) for n in shape[:rank])))
        call_long("mha_knockout_each", self._open(), choose("mode", mode, _MODES), which, out.ctypes.data)
        return out


def prompt_noise(model: Model, length: int, positions: Any, *, times_std: float = 3.0, seed: int = 0) -> np.ndarray:
    """Returns noise [length, width] for mha.PromptPair: normal draws at the positions, times_std standard deviations of the embeddings.

        >>> import mha
        >>> noise = mha.prompt_noise(mha.Model(), 5, [2])
        >>> noise.shape, bool(noise[2].any()), bool(noise[0].any())
        ((5, 128), True, False)
    """
    places = integers(positions, "positions")
    rows = integer(length, "length", 1)
    out = np.zeros((rows, lib.mha_prompt_noise_width(model._open())), np.float32)
    call_long("mha_prompt_noise", model._open(), rows, places.ctypes.data, len(places), number(times_std, "times_std"),
              integer(seed, "seed", 0, 2**64 - 1), out.ctypes.data)
    return out


def kl_divergence(p: Any, q: Any) -> float:
    """Returns the Kullback-Leibler divergence in nats of two distributions, given by their logits of shape [vocab].

        >>> import math
        >>> import mha
        >>> round(mha.kl_divergence([0.0, math.log(3)], [0.0, 0.0]), 6)
        0.130812
    """
    rows = [np.ascontiguousarray(row, np.float32) for row in (p, q)]
    if rows[0].ndim != 1 or rows[0].shape != rows[1].shape or not rows[0].size:
        raise ValueError(f"p and q must be logits of the same shape [vocab] (got {rows[0].shape} and {rows[1].shape})")
    return float(lib.mha_kl_divergence(rows[0].ctypes.data, rows[1].ctypes.data, rows[0].size))


def patch_normalized(value: Any, clean: float, corrupted: float) -> np.ndarray:
    """Returns (value - corrupted) / (clean - corrupted), 1: as in the clean run; NaN where the runs differ by less than 1e-3.

        >>> import mha
        >>> mha.patch_normalized([1.0, 3.0], 3.0, 1.0).tolist()
        [0.0, 1.0]
    """
    values = np.asarray(value, np.float64)
    normalized = np.vectorize(lambda x: lib.mha_patch_normalized(x, number(clean, "clean"), number(corrupted, "corrupted")))
    return np.asarray(normalized(values), np.float64)
