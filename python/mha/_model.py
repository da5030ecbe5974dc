"""mha.Model: a checkpoint, opened for embedding, scoring, generation and gradients."""
from __future__ import annotations

import ctypes
import json
import os
import sys
from collections import namedtuple
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_char_p, c_double, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _places
from ._abi import (
    EmbedOptions,
    EncodeOptions,
    Encoding,
    GenerateOptions,
    ModelActivations,
    ModelHead,
    ModelInfo,
    ModelInput,
    ModelLossArgs,
    ModelOptions,
    ModelOutput,
    ModelSaveOptions,
    ModelStats,
    NamedTensor,
    Prompt,
    Sampling,
)
from ._array import BF16, F16, F32, Q8_0, integer, integers, view
from ._context import context
from ._library import Guard, Handle, call, callback, lib, struct

Output = namedtuple("Output", "logits last_hidden hidden_states attentions")
OutputStats = namedtuple("OutputStats", "logits last_hidden hidden_states attentions stats")
_POOL = {"mean": 0, "cls": 1}
_DTYPE = {"f32": F32, "bf16": BF16, "f16": F16, "int8": Q8_0}
_SCALARS = ("layers", "heads", "kv_heads", "head_dim", "hidden", "intermediate", "vocab", "max_positions", "type_vocab", "parameters",
            "bytes", "kv_bytes_per_token", "causal", "logits", "original_heads")
_PER_LAYER = ("heads_per_layer", "key_heads_per_layer", "value_heads_per_layer", "feed_forward_per_layer")


@dataclass
class Tokens:
    """A tokenized text. offsets: (begin, end) of each token, in bytes of the UTF-8 text; (0, 0) for special tokens. sequences: the text
    of a pair to which each token belongs, 0 or 1; -1 for special tokens. truncated: the number of tokens removed by truncation."""

    ids: list[int]
    type_ids: list[int]
    offsets: list[tuple[int, int]]
    sequences: list[int]
    truncated: int


def _copy(tensor: NamedTensor) -> np.ndarray:
    found: np.ndarray = view(tensor.data, np.float32, tuple(tensor.shape[:tensor.rank])).copy()
    return found


def encoded_texts(texts: Any) -> list[bytes]:
    """Returns texts encoded as UTF-8; raises ValueError if a text contains a NUL character."""
    if isinstance(texts, str):
        raise ValueError("texts must be a list of str (got one str)")
    for i, t in enumerate(texts):
        if not isinstance(t, str):
            raise ValueError(f"texts[{i}] must be a str (got {type(t).__name__})")
    data = [t.encode("utf-8", "surrogatepass") for t in texts]
    for i, t in enumerate(data):
        if b"\0" in t:
            raise ValueError(f"texts[{i}] must not contain a NUL character")
    return data


def _text(text: Any, name: str = "text") -> bytes:
    if not isinstance(text, str):
        raise ValueError(f"{name} must be a str (got {type(text).__name__})")
    return text.encode("utf-8", "surrogatepass")


def _address(x: np.ndarray | None) -> int | None:
    return None if x is None else x.ctypes.data


class Model(Handle):
    """An opened checkpoint: a Hugging Face folder, "minilm" (after ./run fetch minilm) or "builtin" (the default).

        >>> import mha
        >>> with mha.Model() as model:
        ...     ids = model.tokenize("the cat sat")
        ...     model.forward([ids], attentions=True).attentions[0].shape == (1, 8, len(ids), len(ids))
        True

    dtype is the type of packed dense weights: "f32", "bf16" (attention also runs in bf16), "f16" or "int8". no_map: copies the
    weights; otherwise their files are memory-mapped and must not be modified while the model exists. Without tokenizer.json the
    model accepts only ids. Raises OSError if a file cannot be read, ValueError if a file is malformed or unsupported.
    """

    def __init__(self, path: Any = "builtin", dtype: str = "f32", threads: int | None = None, *, no_map: bool = False) -> None:
        if dtype not in _DTYPE:
            raise ValueError(f"dtype must be one of {', '.join(map(repr, _DTYPE))} (got {dtype!r})")
        path = _places.model(path, lib.mha_version)
        if b"\0" in os.fsencode(path):
            raise ValueError(f"path must not contain a zero byte (got {path!r})")
        no_tokenizer = not os.path.exists(os.path.join(os.fsdecode(path), "tokenizer.json"))
        handle, options = c_void_p(), struct(ModelOptions, dtype=_DTYPE[dtype], no_map=bool(no_map), no_tokenizer=no_tokenizer)
        call("mha_model_open", context(threads), os.fsencode(path), ctypes.byref(options), ctypes.byref(handle))
        self._take(handle)

    def _take(self, handle: c_void_p, *parents: Any) -> None:
        self._own(handle, "mha_model_free", *parents)
        self.config: dict[str, Any] = json.loads(lib.mha_model_config_json(handle))

    @classmethod
    def _of(cls, handle: c_void_p, *parents: Any) -> Model:
        """Wraps a model handle of the library."""
        model = cls.__new__(cls)
        model._take(handle, *parents)
        return model

    @property
    def _info(self) -> ModelInfo:
        info: ModelInfo = lib.mha_model_describe(self._open()).contents
        return info

    @property
    def info(self) -> dict[str, Any]:
        """The properties of the checkpoint: family, layers, heads, kv_heads, head_dim, hidden, vocab, parameters, heads_per_layer ..."""
        raw = self._info
        found: dict[str, Any] = {"family": raw.family.decode() if raw.family else ""}
        found |= {name: getattr(raw, name) for name in _SCALARS}
        return found | {name: view(getattr(raw, name), np.int64, (raw.layers,)).tolist() for name in _PER_LAYER}

    # ---- tokenizer ----

    def encode(self, text: str, pair: str | None = None, *, special: bool = True, max_tokens: int = 0,
               stored_limits: bool = False) -> Tokens:
        """Tokenizes a text, or a pair of texts, with offsets. max_tokens truncates; stored_limits applies the truncation and padding
        of tokenizer.json.

            >>> import mha
            >>> mha.Model().encode("the cat").offsets
            [(0, 1), (1, 3), (3, 7)]
        """
        data, second = _text(text), None if pair is None else _text(pair, "pair")
        options = struct(EncodeOptions, no_special=not special, max_tokens=integer(max_tokens, "max_tokens"),
                         stored_limits=bool(stored_limits))
        encoding = POINTER(Encoding)()
        call("mha_tokenizer_encode", self._tokenizer, data, len(data), second, len(second or b""), ctypes.byref(options),
             ctypes.byref(encoding))
        try:
            e = encoding.contents
            kinds = {"ids": np.int32, "type_ids": np.int32, "begin": np.int64, "end": np.int64, "sequence": np.int8}
            ids, types, begin, end, sequences = (view(getattr(e, n), kind, (e.count,)).tolist() for n, kind in kinds.items())
            return Tokens(ids, types, list(zip(begin, end)), sequences, e.truncated)
        finally:
            lib.mha_encoding_free(encoding)

    def tokenize(self, text: str, special: bool = True, *, max_tokens: int = 0) -> list[int]:
        """Returns the ids of a text. max_tokens truncates; by default all ids are returned, even if they exceed the model's maximum."""
        return self.encode(text, special=special, max_tokens=max_tokens).ids

    def decode(self, ids: Any, skip_special: bool = False) -> str:
        """Returns the text of ids, decoded by the decoder of tokenizer.json."""
        ids = integers(ids, "ids", np.int32)
        text, size, tokenizer = c_void_p(), c_size_t(), self._tokenizer
        call("mha_tokenizer_decode", tokenizer, ids.ctypes.data, len(ids), skip_special, ctypes.byref(text), ctypes.byref(size))
        try:
            return ctypes.string_at(text, size.value).decode()
        finally:
            lib.mha_tokenizer_text_free(tokenizer, text)

    @property
    def _tokenizer(self) -> int:
        tokenizer = lib.mha_model_tokenizer(self._open())
        if not tokenizer:
            raise ValueError("the model must have a tokenizer.json for this call; without it, pass ids")
        return int(tokenizer)

    def token(self, id: int) -> str | None:
        """Returns the token of an id as written in tokenizer.json; None if the id is unknown."""
        found = lib.mha_tokenizer_token(self._tokenizer, integer(id, "id", -2**31, 2**31 - 1))
        return None if found is None else found.decode()

    def token_id(self, token: str) -> int | None:
        """Returns the id of a token as written in tokenizer.json; None if the token is unknown."""
        found = lib.mha_tokenizer_id(self._tokenizer, _text(token, "token"))
        return None if found < 0 else int(found)

    def is_special(self, id: int) -> bool:
        """Returns whether an id is a special token, such as [CLS]."""
        return bool(lib.mha_tokenizer_is_special(self._tokenizer, integer(id, "id", -2**31, 2**31 - 1)))

    @property
    def vocabulary(self) -> int:
        """The largest id of the tokenizer plus one."""
        return int(lib.mha_tokenizer_size(self._tokenizer))

    # ---- forward pass ----

    def forward(self, ids: Any, mask: Any = None, hidden: bool = False, attentions: Any = False, gates: Any = None, stats: bool = False, *,
                type_ids: Any = None, positions: Any = None, fills: Any = None, first_layer: int = 0, states: Any = None,
                on_hidden: Callable[[int, np.ndarray], Any] | None = None,
                on_attention: Callable[[int, np.ndarray], Any] | None = None,
                on_activations: Callable[[dict[str, Any]], Any] | None = None) -> Any:
        """Runs the model on ids [B, L] with mask [B, L] (1: real token). Results that were not requested are None.

        logits: [B, L, vocab], None if the model computes none. hidden_states: layers + 1 arrays [B, L, E], from the embeddings to
        the states after the final norm. attentions: one array [B, heads, L, L] per layer, or, if attentions is a list of pairs
        (layer, head), only their maps as {(layer, head): [B, L, L]}. stats: adds a field with a dict per layer, in O(L) memory:
        row_entropy (bits), row_max, row_argmax, row_distance (tokens) and received, each [B, heads, L].

        type_ids, positions: [B, L]. gates [layers, heads] or [layers, B, heads]: factors for each head's output. fills
        [layers, heads, head_dim]: constants added to each head's output. states [B, L, E]: the input of layer `first_layer`, at which
        the pass then starts; it equals hidden_states[first_layer] of a full pass.

        on_hidden(entry, x), on_attention(layer, probs) and on_activations({"layer", "input", "q", "k", "v", "context", "out"}) are
        called layer by layer with zero-copy arrays, which are valid during the call only. A true return value ends the pass with
        KeyboardInterrupt; an exception ends the pass and is raised.
        """
        ids = self._ids(ids)
        info, (batch, length) = self._info, ids.shape
        mask = self._mask(mask, ids.shape)
        gates, fills = self._gates(gates, batch), self._floats("fills", fills, (info.layers, info.heads, info.head_dim))
        types, at = self._like_ids("type_ids", type_ids, ids.shape), self._like_ids("positions", positions, ids.shape)
        states = self._floats("states", states, (batch, length, info.hidden))
        if states is None and first_layer:
            raise ValueError(f"first_layer must be 0 unless states is given (got {first_layer})")
        last = np.empty((batch, length, info.hidden), np.float32)
        logits = np.empty((batch, length, info.vocab), np.float32) if info.logits else None
        found = _Found(batch, length, last.shape, on_hidden, on_attention, on_activations)
        listed = None if isinstance(attentions, (bool, np.bool_)) else self._heads(attentions)
        wanted = listed is not None or bool(attentions)
        output = struct(ModelOutput, last_hidden=last.ctypes.data, logits=_address(logits), map_heads=listed,
                        map_count=len(listed or ()), **found.callbacks(hidden, wanted, stats))
        given = struct(ModelInput, batch=batch, length=length, ids=ids.ctypes.data, type_ids=_address(types), mask=_address(mask),
                       positions=_address(at), gates=_address(gates), fills=_address(fills),
                       first_layer=integer(first_layer, "first_layer"), hidden=_address(states))
        found.guard.call("mha_model_forward", self._open(), ctypes.byref(given), ctypes.byref(output))
        maps: Any = found.maps
        if listed is not None:
            each = np.concatenate(found.maps, axis=1) if found.maps else np.empty(0)
            maps = {(h.layer, h.head): each[:, n] for n, h in enumerate(listed)}
        some = (logits, last, found.states if hidden else None, maps if wanted else None)
        return OutputStats(*some, found.stats) if stats else Output(*some)

    def embed(self, texts: Sequence[str], pool: str = "mean", normalize: bool = True) -> np.ndarray:
        """Returns one vector per text, [n, d]. Texts longer than the model's maximum are truncated with a warning."""
        if pool not in _POOL:
            encoded_texts(texts)
            raise ValueError(f"pool must be one of {', '.join(map(repr, _POOL))} (got {pool!r})")
        data = encoded_texts(texts)
        out = np.empty((len(data), self._info.hidden), np.float32)
        options = struct(EmbedOptions, pool=_POOL[pool], no_normalize=not normalize)
        call("mha_model_embed", self._open(), (c_char_p * len(data))(*data), len(data), ctypes.byref(options),
             out.ctypes.data)
        return out

    # ---- scoring and generation ----

    def score(self, ids: Any) -> np.ndarray:
        """Returns ln p(ids[i + 1] | ids[0 .. i]) for each token except the first, float32 [n - 1]."""
        ids = self._ids([ids])[0]
        out = np.empty(max(len(ids) - 1, 0), np.float32)
        call("mha_model_score", self._open(), ids.ctypes.data, len(ids), out.ctypes.data)
        return out

    def generate(self, ids: Any, n: int, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0, cache: bool = True, *,
                 min_p: float = 0.0, repetition_penalty: float = 1.0, no_repeat_ngram: int = 0, eos: Any = None, stop: Any = (),
                 lookup: int = 0, min_new: int = 0, at_once: int = 0, on_text: Callable[[int, str], Any] | None = None) -> Any:
        """Generates up to n ids after the prompt `ids` and returns them as a list; for a list of prompts, as a list of lists.

        Generation ends after a token of eos (default: the checkpoint's; []: none), which is included, or after the token that
        completes a string of `stop`. Temperature 0 is greedy; top_p=0 selects the most likely token, as in transformers. Prompt i is
        sampled with seed + i. lookup: the number of tokens to predict from earlier repetitions; this does not change the result.
        min_new: the number of tokens before eos is allowed. at_once: the number of prompts in one batch (0: 8). on_text(prompt, text) is
        called with new text as soon as it is final; if it returns True, generation for that prompt ends.
        """
        seed = integer(seed, "seed", 0, 2**64 - 1)
        several = len(ids) > 0 and np.ndim(ids[0]) == 1
        prompts = [self._ids([p])[0] for p in (ids if several else [ids])]
        out = np.empty((len(prompts), max(n, 0)), np.int32)
        lengths = np.zeros(len(prompts), np.int64)
        ends = None if eos is None else self._ids([np.asarray(eos, dtype=np.int64).reshape(-1)])[0]
        stops = [s.encode("utf-8", "surrogatepass") for s in ([stop] if isinstance(stop, str) else stop)]
        if any(b"\0" in s for s in stops):
            raise ValueError("stop must not contain a NUL character")
        guard = Guard()

        def text_of(_user: Any, prompt: int, text: int, size: int) -> Any:
            return on_text(prompt, ctypes.string_at(text, size).decode()) if on_text else None

        options = struct(
            GenerateOptions, max_new=n, min_new=integer(min_new, "min_new"), at_once=integer(at_once, "at_once"), no_cache=not cache,
            lookup=lookup, eos=ends.ctypes.data if ends is not None and len(ends) else None,
            eos_count=0 if ends is None else len(ends) or -1, stop=(c_char_p * len(stops))(*stops), stop_count=len(stops),
            sampling=Sampling(temperature, top_k, top_p or sys.float_info.min, min_p, repetition_penalty, no_repeat_ngram, seed),
            on_token=callback(GenerateOptions, "on_token", guard.wrap(lambda *_: 0)),
            on_text=callback(GenerateOptions, "on_text", guard.wrap(text_of) if on_text else None))
        list_of = (Prompt * len(prompts))(*(Prompt(p.ctypes.data, len(p)) for p in prompts))
        guard.call("mha_model_generate", self._open(), list_of, len(prompts), ctypes.byref(options), out.ctypes.data,
                   lengths.ctypes.data)
        made = [row[:length].tolist() for row, length in zip(out, lengths)]
        return made if several else made[0]

    # ---- gradients and saving ----

    def loss_and_grads(self, ids: Any, labels: Any = None, mask: Any = None) -> tuple[float, dict[str, np.ndarray]]:
        """Returns the cross entropy on ids [B, L], and {name of the tensor in the checkpoint: gradient}. Labels [B, L] of -100 are ignored.
        For decoders, labels are shifted as in transformers; the default is ids."""
        ids = self._ids(ids)
        labels = self._like_ids("labels", labels, ids.shape)
        mask = self._mask(mask, ids.shape)
        grads, loss, count = c_void_p(), c_double(), c_int64()
        call("mha_model_grads_create", self._open(), None, ctypes.byref(grads))
        try:
            given = struct(ModelInput, batch=ids.shape[0], length=ids.shape[1], ids=ids.ctypes.data, mask=_address(mask))
            args = struct(ModelLossArgs, labels=_address(labels))
            call("mha_model_grads_loss", grads, ctypes.byref(given), ctypes.byref(args), ctypes.byref(loss), None)
            found = lib.mha_model_grads_list(grads, ctypes.byref(count))[:count.value]
            return loss.value, {t.name.decode(): _copy(t) for t in found}
        finally:
            lib.mha_model_grads_free(grads)

    def save(self, path: Any, dtype: str | None = None, overwrite: bool = False, tensors: dict[str, Any] | None = None) -> None:
        """Writes the checkpoint atomically to a folder. dtype None: the stored types. `tensors` {name: float32 array} replace the
        tensors with the same names."""
        if dtype not in (None, "f32", "bf16", "f16"):
            raise ValueError(f"dtype must be one of None, 'f32', 'bf16', 'f16' (got {dtype!r})")
        arrays = {n.encode(): np.ascontiguousarray(x, dtype=np.float32) for n, x in (tensors or {}).items()}
        for name, x in arrays.items():
            if x.ndim > 4:
                raise ValueError(f"tensors[{name.decode()!r}].ndim must be at most 4 (got {x.ndim})")
        named = (NamedTensor * len(arrays))(*(
            NamedTensor(n, F32, x.ndim, (c_int64 * 4)(*x.shape), x.ctypes.data) for n, x in arrays.items()))
        options = struct(ModelSaveOptions, dtype=_DTYPE[dtype] if dtype else 0, overwrite=bool(overwrite), tensors=named,
                         count=len(named))
        call("mha_model_save", self._open(), os.fsencode(path), ctypes.byref(options))

    # ---- arguments ----

    @staticmethod
    def _ids(ids: Any) -> Any:
        return integers(ids, "ids", np.int32, dims=(2,))

    @staticmethod
    def _like_ids(name: str, x: Any, shape: tuple[int, ...]) -> np.ndarray | None:
        if x is None:
            return None
        found: np.ndarray = integers(x, name, np.int32, dims=(2,))
        if found.shape != shape:
            raise ValueError(f"{name} must be of shape {shape} (got {found.shape})")
        return found

    @staticmethod
    def _floats(name: str, x: Any, shape: tuple[int, ...]) -> np.ndarray | None:
        if x is None:
            return None
        found = np.ascontiguousarray(x, np.float32)
        if found.shape != shape:
            raise ValueError(f"{name} must be of shape {shape} (got {found.shape})")
        return found

    def _heads(self, pairs: Any) -> Any:
        """Returns the pairs (layer, head), sorted, as a C array."""
        pairs = integers(list(pairs), "attentions", np.int32, dims=(2,))
        if pairs.shape[1] != 2 or len(pairs) == 0:
            raise ValueError(f"attentions must be True, False or pairs (layer, head) (got shape {pairs.shape})")
        ordered: Any = sorted(map(tuple, pairs.tolist()))
        return (ModelHead * len(ordered))(*ordered)

    def _gates(self, gates: Any, batch: int) -> np.ndarray | None:
        if gates is None:
            return None
        info = self._info
        gates, layers, heads = np.asarray(gates, dtype=np.float32), info.layers, info.heads
        if gates.shape not in ((layers, heads), (layers, batch, heads)):
            raise ValueError(f"gates must be of shape {(layers, heads)} or {(layers, batch, heads)} (got {gates.shape})")
        each = gates[:, None] if gates.ndim == 2 else gates
        return np.ascontiguousarray(np.broadcast_to(each, (layers, batch, heads)))

    @staticmethod
    def _mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray | None:
        if mask is None:
            return None
        found: np.ndarray = np.ascontiguousarray(np.asarray(mask) != 0, dtype=np.uint8)
        if found.shape != shape:
            raise ValueError(f"mask must be of shape {shape} (got {found.shape})")
        return found


class _Found:
    """The callbacks of a forward pass: they collect its results and call the callbacks of the user."""

    def __init__(self, batch: int, length: int, shape: tuple[int, ...], on_hidden: Any, on_attention: Any, on_activations: Any) -> None:
        self.batch, self.length, self.shape, self.guard = batch, length, shape, Guard()
        self.on_hidden, self.on_attention, self.on_activations = on_hidden, on_attention, on_activations
        self.states: list[np.ndarray] = []
        self.maps: list[np.ndarray] = []
        self.stats: list[dict[str, np.ndarray]] = []
        self.keep_states = self.keep_maps = False

    def callbacks(self, hidden: bool, maps: bool, stats: bool) -> dict[str, Any]:
        self.keep_states, self.keep_maps = bool(hidden), bool(maps)
        functions = {"on_hidden": self.see_hidden if hidden or self.on_hidden else None,
                     "on_attention": self.see_maps if maps or self.on_attention else None,
                     "on_stats": self.see_stats if stats else None,
                     "on_activations": self.see_activations if self.on_activations else None}
        return {name: callback(ModelOutput, name, f and self.guard.wrap(f)) for name, f in functions.items()}

    def see_hidden(self, _user: Any, entry: int, x: int) -> Any:
        seen = view(x, np.float32, self.shape)
        if self.keep_states:
            self.states.append(seen.copy())
        return self.on_hidden and self.on_hidden(entry, seen)

    def see_maps(self, _user: Any, layer: int, heads: int, probs: int) -> Any:
        seen = view(probs, np.float32, (self.batch, heads, self.length, self.length))
        if self.keep_maps:
            self.maps.append(seen.copy())
        return self.on_attention and self.on_attention(layer, seen)

    def see_stats(self, _user: Any, given: Any) -> None:
        one: ModelStats = given.contents
        self.stats.append({name: view(getattr(one, name), np.int64 if name == "row_argmax" else np.float32,
                                      (self.batch, one.heads, self.length)).copy() for name in (
            "row_entropy", "row_max", "row_argmax", "row_distance", "received")})

    def see_activations(self, _user: Any, given: Any) -> Any:
        a: ModelActivations = given.contents
        rows = self.batch, self.length

        def strided(address: int | None, heads: int) -> np.ndarray:
            whole = view(address, np.float32, ((a.rows - 1) * a.stride + heads * a.head_dim,))
            each = np.lib.stride_tricks.as_strided(whole, (a.rows, heads, a.head_dim), (4 * a.stride, 4 * a.head_dim, 4))
            return each.reshape(*rows, heads, a.head_dim)

        return self.on_activations({
            "layer": a.layer, "input": view(a.input, np.float32, self.shape), "q": strided(a.q, a.heads), "k": strided(a.k, a.kv_heads),
            "v": strided(a.v, a.kv_heads), "context": view(a.context, np.float32, (*rows, a.heads, a.head_dim)),
            "out": view(a.out, np.float32, self.shape)})
