"""The forward pass of mha.Model, with zero-copy callbacks for hidden states, attention, statistics and activations."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._arrays.array import choose, integer, integers, strided, view
from .._binding.abi import EmbedOptions, ModelActivations, ModelInfo, ModelOutput, ModelStats
from .._binding.exclusive import with_cache
from .._binding.library import callback, lib, strings, struct
from .._binding.long_call import Guard, call_long
from .model_cache import ModelCache
from .model_input import Input, ModelBase, head_pairs, source_input


class Output(NamedTuple):
    """The results of mha.Model.forward; None for those that were not requested."""

    logits: np.ndarray | None
    last_hidden: np.ndarray
    hidden_states: list[np.ndarray] | None
    attentions: Any


class OutputStats(NamedTuple):
    """The results of mha.Model.forward with stats."""

    logits: np.ndarray | None
    last_hidden: np.ndarray
    hidden_states: list[np.ndarray] | None
    attentions: Any
    stats: list[dict[str, np.ndarray]]


class OutputMore(NamedTuple):
    """The results of mha.Model.forward with more."""

    logits: np.ndarray | None
    last_hidden: np.ndarray
    hidden_states: list[np.ndarray] | None
    attentions: Any
    stats: list[dict[str, np.ndarray]] | None
    pooled: np.ndarray | None
    last_logits: np.ndarray | None
    kept: np.ndarray | None
    embedding: np.ndarray | None = None


POOL = {"mean": 0, "cls": 1}
_LONG = 2048  # a pass with this many tokens can be interrupted between its layers


def logits_shape(info: ModelInfo, given: Input) -> tuple[int, ...]:
    """Returns the shape of the logits: one row per token, or per image."""
    return (given.batch, info.classes) if info.image_channels else given.rows if not info.logits else (*given.rows, info.vocab)


class Forward(ModelBase):
    """forward() and embed() of mha.Model."""

    @with_cache
    def forward(self, ids: Any = None, mask: Any = None, hidden: bool = False, attentions: Any = False, gates: Any = None, stats: bool = False, *,
                type_ids: Any = None, positions: Any = None, fills: Any = None, first_layer: int = 0, states: Any = None,
                context: Any = None, cache: ModelCache | None = None, sequence: int | None = None, starts: Any = None,
                map_rows: Any = None, top_keys: int = 0, more: Sequence[str] = (), pixels: Any = None, source: Any = None,
                source_mask: Any = None, source_gates: Any = None, cross_gates: Any = None,
                on_hidden: Callable[[int, np.ndarray], Any] | None = None,
                on_attention: Callable[[int, np.ndarray], Any] | None = None,
                on_activations: Callable[[dict[str, Any]], Any] | None = None,
                on_rows: Callable[[dict[str, Any]], Any] | None = None,
                on_cross_attention: Callable[[int, np.ndarray], Any] | None = None) -> Any:
        """Runs the model on ids [B, L] with mask [B, L] (1: real token). Results that were not requested are None.

        logits: [B, L, vocab], None if the checkpoint has none. hidden_states: layers + 1 arrays [B, L, E], from the embeddings to
        the states after the final norm. attentions: one array [B, heads, L, L] per layer, or, if attentions is a list of pairs
        (layer, head), only their maps as {(layer, head): [B, L, L]}. stats: adds a field with a dict per layer, in O(L) memory:
        row_entropy (bits), row_max, row_argmax, row_distance (tokens) and received, each [B, heads, L]; top_keys=n adds top_prob and
        top_key [B, heads, L, n]. more: results from "pooled" [B, E], "last_logits" [B, vocab] and "kept" [layers, B, heads]
        (the heads chosen by the text), in further fields.

        type_ids, positions: [B, L]. gates [layers, heads] or [layers, B, heads]: factors of each head's output. fills
        [layers, heads, head_dim]: constants added to each head's output. states [B, L, E]: the input of layer `first_layer`, at which
        the pass then starts; it equals hidden_states[first_layer] of a full pass. context [B, L, heads D]: the input of the output
        projection of that layer. cache: an mha.ModelCache that the tokens continue; maps then have the keys of the cache, too; with
        B = 1, sequence is its sequence. starts [B + 1]: packed sequences in ids [total]; results have rows [total] instead of [B, L].
        map_rows [B, n]: the rows of the maps; -1 is the last. pixels [B, channels, height, width]: images instead of ids, for a ViT or the
        image tower of a CLIP model (mha.Model.pixels); tokens are then the class token and the patches, logits are [B, classes], and more
        may contain "embedding" [B, P] of a CLIP model, also with ids.

        For an encoder-decoder, source contains the ids [B, S] of the encoder, with source_mask [B, S], or the audio features
        [B, bins, frames]; the results are those of the decoder. With a cache, it is given with the first tokens. on_cross_attention(layer,
        probs) gets the maps [B, heads, L, S] of the cross-attention and requires source. source_gates and cross_gates: gates of the heads of
        the encoder and of the cross-attention.

        on_hidden(entry, x), on_attention(layer, probs) and on_activations({"layer", "input", "q", "k", "v", "context", "out"}) are
        called layer by layer with zero-copy arrays, which are valid during the call only. A true return value ends the pass with
        KeyboardInterrupt; an exception ends the pass and is raised. on_rows({"layer", "sequence", "head", "first", "p", "entropy",
        "largest", "distance", "largest_key"}) gets rows [n, keys] of probabilities, in O(L) memory, in several threads at a time.
        """
        model, info = self._tower(pixels)
        encoder = source_input(self, source, source_mask, source_gates)
        if encoder is None and on_cross_attention:
            raise ValueError("on_cross_attention must be None without source")
        given = Input(info, ids, source=encoder, mask=mask, type_ids=type_ids, positions=positions, gates=gates, fills=fills, first_layer=first_layer,
                      states=states, context=context, cache=cache, sequence=sequence, starts=starts, pixels=pixels, cross_gates=cross_gates)
        past = cache.longest(sequence) if cache is not None else 0
        found = _Found(given, info.hidden, past, map_rows, top_keys)
        found.on_cross, found.source_length = on_cross_attention, encoder.length if encoder else 0
        last = np.empty((*given.rows, info.hidden), np.float32)
        logits = np.empty(logits_shape(info, given), np.float32) if info.logit_width else None
        shapes = {"pooled": (given.batch, info.hidden), "last_logits": (given.batch, info.vocab),
                  "kept": (info.layers, given.batch, info.heads), "embedding": (given.batch, info.embedding_width)}
        added = {name: np.zeros(choose("more", name, shapes), np.uint8 if name == "kept" else np.float32) for name in more}
        listed = None if isinstance(attentions, (bool, np.bool_)) else head_pairs(attentions, "attentions")
        wanted = listed is not None or bool(attentions)
        functions = found.callbacks(hidden, wanted, stats, on_hidden, on_attention, on_activations, on_rows)
        output = struct(ModelOutput, last_hidden=last, logits=logits, map_heads=listed, map_count=len(listed or ()),
                        map_rows=found.map_rows, map_row_count=found.map_row_count, top_keys=found.top_keys, **added, **functions)
        found.guard.call("mha_model_forward", model, ctypes.byref(given.struct), ctypes.byref(output))
        maps: Any = found.maps
        if listed is not None:
            each = np.concatenate(found.maps, axis=1) if found.maps else np.empty(0)
            maps = {(h.layer, h.head): each[:, n] for n, h in enumerate(listed)}
        some = (logits, last, found.states if hidden else None, maps if wanted else None)
        if more:
            kept = added["kept"].view(np.bool_) if "kept" in added else None
            return OutputMore(*some, found.stats if stats else None, added.get("pooled"), added.get("last_logits"), kept,
                              added.get("embedding"))
        return OutputStats(*some, found.stats) if stats else Output(*some)

    def embed(self, texts: Sequence[str], pool: str | None = None, normalize: bool = True) -> np.ndarray:
        """Returns one vector per text, [n, d]. pool: "mean" or "cls"; None: that of a sentence-transformers folder, otherwise "mean".
        Dense layers of such a folder are applied. Texts longer than the model's maximum are truncated with a warning. Vectors of an
        encoder-decoder are those of its encoder."""
        data = strings(texts, "texts")
        out = np.empty((len(data), self._info.embedding_width), np.float32)
        how = self._info.pool if pool is None else choose("pool", pool, POOL)
        options = struct(EmbedOptions, pool=how, no_normalize=not normalize)
        model = lib.mha_model_encoder(self._open()) or self._open()
        call_long("mha_model_embed", model, data, len(data), ctypes.byref(options), out.ctypes.data)
        return out


class _Found:
    """The results collected by the callbacks of a pass, and the user's callbacks."""

    def __init__(self, given: Input, width: int, past: int, map_rows: Any, top_keys: int) -> None:
        self.batch, self.length, self.rows, self.shape, self.guard = given.batch, given.length, given.rows, (*given.rows, width), Guard()
        self.keys = given.length + past
        self.map_rows = None if map_rows is None else integers(map_rows, "map_rows", dims=(2,))
        if self.map_rows is not None and len(self.map_rows) != self.batch:
            raise ValueError(f"map_rows must be of shape ({self.batch}, n) (got {self.map_rows.shape})")
        self.map_row_count = 0 if self.map_rows is None else self.map_rows.shape[1]
        self.top_keys = integer(top_keys, "top_keys")
        self.states: list[np.ndarray] = []
        self.maps: list[np.ndarray] = []
        self.stats: list[dict[str, np.ndarray]] = []
        self.keep_states = self.keep_maps = False
        self.on_cross: Any = None
        self.source_length = 0

    def callbacks(self, hidden: bool, maps: bool, stats: bool, on_hidden: Any, on_attention: Any, on_activations: Any,
                  on_rows: Any) -> dict[str, Any]:
        self.keep_states, self.keep_maps = bool(hidden), bool(maps)
        self.on_hidden, self.on_attention, self.on_activations, self.on_rows = on_hidden, on_attention, on_activations, on_rows
        functions = {"on_hidden": self.see_hidden if hidden or on_hidden or self.batch * self.length >= _LONG else None,
                     "on_attention": self.see_maps if maps or on_attention else None,
                     "on_stats": self.see_stats if stats else None,
                     "on_activations": self.see_activations if on_activations else None,
                     "on_cross_attention": self.see_cross if self.on_cross else None,
                     "on_rows": self.see_rows if on_rows else None}
        return {name: callback(ModelOutput, name, f and self.guard.wrap(f)) for name, f in functions.items()}

    def see_hidden(self, _user: Any, entry: int, x: int) -> Any:
        seen = view(x, np.float32, self.shape)
        if self.keep_states:
            self.states.append(seen.copy())
        return self.on_hidden and self.on_hidden(entry, seen)

    def see_maps(self, _user: Any, layer: int, heads: int, probs: int) -> Any:
        seen = view(probs, np.float32, (self.batch, heads, self.map_row_count or self.length, self.keys))
        if self.keep_maps:
            self.maps.append(seen.copy())
        return self.on_attention and self.on_attention(layer, seen)

    def see_cross(self, _user: Any, layer: int, heads: int, probs: int) -> Any:
        return self.on_cross(layer, view(probs, np.float32, (self.batch, heads, self.length, self.source_length)))

    def see_stats(self, _user: Any, given: Any) -> None:
        one: ModelStats = given.contents
        packed = len(self.rows) == 1
        rows = (one.heads, *self.rows) if packed else (self.batch, one.heads, self.length)
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("row_entropy", "row_max", "row_argmax", "row_distance"), rows)
        shapes["received"] = rows if packed else (*rows[:2], one.keys)
        if self.top_keys:
            shapes |= dict.fromkeys(("top_prob", "top_key"), (*rows, self.top_keys))
        self.stats.append({name: view(getattr(one, name), np.int64 if name in ("row_argmax", "top_key") else np.float32, shape).copy()
                           for name, shape in shapes.items()})

    def see_activations(self, _user: Any, given: Any) -> Any:
        a: ModelActivations = given.contents

        def heads_of(address: int | None, heads: int) -> np.ndarray:
            each = strided(address or 0, np.float32, (a.rows, heads, a.head_dim), (a.stride, a.head_dim, 1))
            return each.reshape(*self.rows, heads, a.head_dim)

        return self.on_activations({
            "layer": a.layer, "input": view(a.input, np.float32, self.shape), "q": heads_of(a.q, a.heads), "k": heads_of(a.k, a.kv_heads),
            "v": heads_of(a.v, a.kv_heads), "context": view(a.context, np.float32, (*self.rows, a.heads, a.head_dim)),
            "out": view(a.out, np.float32, self.shape)})

    def see_rows(self, _user: Any, layer: int, given: Any) -> Any:
        r = given.contents
        seen = {"layer": layer, "sequence": r.sequence, "head": r.head, "first": r.first,
                "p": strided(r.p or 0, np.float32, (r.count, r.keys), (r.stride, 1))}
        seen |= {name: view(getattr(r, name), np.float64, (r.count,)) for name in ("entropy", "largest", "distance")}
        return self.on_rows(seen | {"largest_key": view(r.largest_key, np.int64, (r.count,))})
