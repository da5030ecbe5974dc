"""A checkpoint folder: mha.Model."""
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
    """A text as tokens. offsets: (begin, end) of each in bytes of the text's UTF-8, (0, 0) for special tokens; of a pair, sequences
    says which text a token is of: 0, 1, or -1 for special tokens. truncated: tokens that were cut off."""

    ids: list[int]
    type_ids: list[int]
    offsets: list[tuple[int, int]]
    sequences: list[int]
    truncated: int


def _copy(tensor: NamedTensor) -> np.ndarray:
    found: np.ndarray = view(tensor.data, np.float32, tuple(tensor.shape[:tensor.rank])).copy()
    return found


def encoded_texts(texts: Any) -> list[bytes]:
    """Texts as the library takes them."""
    if isinstance(texts, str):
        raise ValueError("texts must be a list of str (got one str)")
    for i, t in enumerate(texts):
        if not isinstance(t, str):
            raise ValueError(f"texts[{i}] must be a str (got {type(t).__name__})")
    data = [t.encode("utf-8", "surrogatepass") for t in texts]
    for i, t in enumerate(data):
        if b"\0" in t:
            raise ValueError(f"texts[{i}] contains a NUL character")
    return data


def _text(text: Any, name: str = "text") -> bytes:
    if not isinstance(text, str):
        raise ValueError(f"{name} must be a str (got {type(text).__name__})")
    return text.encode("utf-8", "surrogatepass")


def _address(x: np.ndarray | None) -> int | None:
    return None if x is None else x.ctypes.data


class Model(Handle):
    """A checkpoint, opened for running: a Hugging Face folder, "minilm" (after ./run fetch minilm) or "builtin", which is the default.

        >>> import mha
        >>> with mha.Model() as model:
        ...     ids = model.tokenize("the cat sat")
        ...     model.forward([ids], attentions=True).attentions[0].shape == (1, 8, len(ids), len(ids))
        True

    dtype: "f32", or what dense weights are packed as: "bf16" (attention runs in it too), "f16" or "int8". no_map: copies
    the weights, whose files are otherwise mapped and must not be written to while the model lives. A folder without
    tokenizer.json runs on ids. OSError if a file cannot be read, ValueError if it is malformed or not supported.
    """

    def __init__(self, path: Any = "builtin", dtype: str = "f32", threads: int | None = None, *, no_map: bool = False) -> None:
        if dtype not in _DTYPE:
            raise ValueError(f"dtype = {dtype!r}: one of {', '.join(_DTYPE)}")
        path = _places.model(path, lib.mha_version)
        if b"\0" in os.fsencode(path):
            raise ValueError(f"path = {path!r}: has a zero byte")
        no_tokenizer = not os.path.exists(os.path.join(os.fsdecode(path), "tokenizer.json"))
        handle, options = c_void_p(), struct(ModelOptions, dtype=_DTYPE[dtype], no_map=bool(no_map), no_tokenizer=no_tokenizer)
        call("mha_model_open", context(threads), os.fsencode(path), ctypes.byref(options), ctypes.byref(handle))
        self._take(handle)

    def _take(self, handle: c_void_p, *parents: Any) -> None:
        self._own(handle, "mha_model_free", *parents)
        self.config: dict[str, Any] = json.loads(lib.mha_model_config_json(handle))

    @classmethod
    def _of(cls, handle: c_void_p, *parents: Any) -> Model:
        """A model that the library has opened."""
        model = cls.__new__(cls)
        model._take(handle, *parents)
        return model

    @property
    def _info(self) -> ModelInfo:
        info: ModelInfo = lib.mha_model_describe(self._open()).contents
        return info

    @property
    def info(self) -> dict[str, Any]:
        """What the checkpoint is: family, layers, heads, kv_heads, head_dim, hidden, vocab, parameters, heads_per_layer ..."""
        raw = self._info
        found: dict[str, Any] = {"family": raw.family.decode() if raw.family else ""}
        found |= {name: getattr(raw, name) for name in _SCALARS}
        return found | {name: view(getattr(raw, name), np.int64, (raw.layers,)).tolist() for name in _PER_LAYER}

    # ---- text ----

    def encode(self, text: str, pair: str | None = None, *, special: bool = True, max_tokens: int = 0,
               stored_limits: bool = False) -> Tokens:
        """A text, or a pair of texts, as tokens with their offsets. max_tokens truncates; stored_limits applies the truncation and
        padding of tokenizer.json.

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
        """Ids of a text. max_tokens truncates; the default is all of them, even if the model takes fewer."""
        return self.encode(text, special=special, max_tokens=max_tokens).ids

    def decode(self, ids: Any, skip_special: bool = False) -> str:
        """Text of ids, joined as the tokenizer's decoder says."""
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
            raise ValueError("the model's folder has no tokenizer.json: it runs on ids alone")
        return int(tokenizer)

    def token(self, id: int) -> str | None:
        """The token of an id, as tokenizer.json spells it; None if there is none."""
        found = lib.mha_tokenizer_token(self._tokenizer, integer(id, "id", -2**31, 2**31 - 1))
        return None if found is None else found.decode()

    def token_id(self, token: str) -> int | None:
        """The id of a token, as tokenizer.json spells it; None if it is unknown."""
        found = lib.mha_tokenizer_id(self._tokenizer, _text(token, "token"))
        return None if found < 0 else int(found)

    def is_special(self, id: int) -> bool:
        """Whether an id is that of a special token, such as [CLS]."""
        return bool(lib.mha_tokenizer_is_special(self._tokenizer, integer(id, "id", -2**31, 2**31 - 1)))

    @property
    def vocabulary(self) -> int:
        """One more than the largest id of the tokenizer."""
        return int(lib.mha_tokenizer_size(self._tokenizer))

    # ---- running ----

    def forward(self, ids: Any, mask: Any = None, hidden: bool = False, attentions: Any = False, gates: Any = None, stats: bool = False, *,
                type_ids: Any = None, positions: Any = None, fills: Any = None, first_layer: int = 0, states: Any = None,
                on_hidden: Callable[[int, np.ndarray], Any] | None = None,
                on_attention: Callable[[int, np.ndarray], Any] | None = None,
                on_activations: Callable[[dict[str, Any]], Any] | None = None) -> Any:
        """Runs ids [B, L] (mask [B, L]: 1 = real token). logits [B, L, vocab], None where the checkpoint has none;
        hidden_states: layers + 1 arrays [B, L, E], the embeddings first, the last behind the final norm; attentions: one
        array [B, heads, L, L] for each layer; given pairs (layer, head), those maps alone: {(layer, head): [B, L, L]}. What was
        not asked for is None. stats: one more field, a dict for each layer with what the maps say, at a memory that grows with L:
        row_entropy (bits), row_max, row_argmax, row_distance (tokens) and received, each [B, heads, L].

        type_ids, positions: [B, L]. gates [layers, heads] or [layers, B, heads]: factors on each head's output; fills
        [layers, heads, head_dim]: what is added to it. states [B, L, E] starts the pass at layer `first_layer` with that input,
        which is the entry of hidden_states of this number; the layers below do not run.

        on_hidden(entry, x), on_attention(layer, probs) and on_activations({"layer", "input", "q", "k", "v", "context", "out"}) are
        called layer by layer with arrays that are not copied: they are valid during the call. Returning true ends the pass with
        KeyboardInterrupt; an exception ends it, too, and is raised.
        """
        ids = self._ids(ids)
        info, (batch, length) = self._info, ids.shape
        mask = self._mask(mask, ids.shape)
        gates, fills = self._gates(gates, batch), self._floats("fills", fills, (info.layers, info.heads, info.head_dim))
        types, at = self._like_ids("type_ids", type_ids, ids.shape), self._like_ids("positions", positions, ids.shape)
        states = self._floats("states", states, (batch, length, info.hidden))
        if states is None and first_layer:
            raise ValueError(f"first_layer = {first_layer} needs states, the input of that layer")
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
        """One vector per text: [n, d]. A text of more tokens than the model accepts is truncated, with a warning."""
        if pool not in _POOL:
            encoded_texts(texts)
            raise ValueError(f"pool must be one of {', '.join(map(repr, _POOL))} (got {pool!r})")
        data = encoded_texts(texts)
        out = np.empty((len(data), self._info.hidden), np.float32)
        options = struct(EmbedOptions, pool=_POOL[pool], no_normalize=not normalize)
        call("mha_model_embed", self._open(), (c_char_p * len(data))(*data), len(data), ctypes.byref(options),
             out.ctypes.data)
        return out

    # ---- decoders ----

    def score(self, ids: Any) -> np.ndarray:
        """Natural log p(ids[i + 1] | ids[0 .. i]) for each token but the first: float32 [n - 1]."""
        ids = self._ids([ids])[0]
        out = np.empty(max(len(ids) - 1, 0), np.float32)
        call("mha_model_score", self._open(), ids.ctypes.data, len(ids), out.ctypes.data)
        return out

    def generate(self, ids: Any, n: int, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0, cache: bool = True, *,
                 min_p: float = 0.0, repetition_penalty: float = 1.0, no_repeat_ngram: int = 0, eos: Any = None, stop: Any = (),
                 lookup: int = 0, min_new: int = 0, at_once: int = 0, on_text: Callable[[int, str], Any] | None = None) -> Any:
        """Up to n new ids after the prompt `ids`: a list, ended by a token of eos (default: the checkpoint's; [] = none),
        which is kept, or by the token that completes one of the strings of `stop`. Of several prompts, a list of such
        lists; prompt i then draws with seed + i. Greedy at temperature 0; top_p=0 draws the likeliest, as transformers
        does. lookup: tokens to guess ahead where the text repeats itself, with the same result. min_new: no token of eos before that
        many; at_once: prompts that run together (0: 8). on_text(prompt, text) is called with text as it becomes certain; returning
        True ends that prompt."""
        seed = integer(seed, "seed", 0, 2**64 - 1)
        several = len(ids) > 0 and np.ndim(ids[0]) == 1
        prompts = [self._ids([p])[0] for p in (ids if several else [ids])]
        out = np.empty((len(prompts), max(n, 0)), np.int32)
        lengths = np.zeros(len(prompts), np.int64)
        ends = None if eos is None else self._ids([np.asarray(eos, dtype=np.int64).reshape(-1)])[0]
        stops = [s.encode("utf-8", "surrogatepass") for s in ([stop] if isinstance(stop, str) else stop)]
        if any(b"\0" in s for s in stops):
            raise ValueError("stop: a string contains a NUL character")
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

    # ---- learning ----

    def loss_and_grads(self, ids: Any, labels: Any = None, mask: Any = None) -> tuple[float, dict[str, np.ndarray]]:
        """Cross entropy of ids [B, L], and {tensor name as in the checkpoint: gradient}. labels [B, L]: -100 = not counted;
        a decoder's are shifted here, as transformers does, and are the ids where none are given."""
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
        """Writes the checkpoint as a folder that appears whole or not at all; dtype None = as it is stored. `tensors`
        {name: float32 array} take the place of those of the same name."""
        if dtype not in (None, "f32", "bf16", "f16"):
            raise ValueError(f"dtype = {dtype!r}: one of f32, bf16, f16")
        arrays = {n.encode(): np.ascontiguousarray(x, dtype=np.float32) for n, x in (tensors or {}).items()}
        if any(x.ndim > 4 for x in arrays.values()):
            raise ValueError("tensors: more than 4 dimensions")
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
        """Pairs (layer, head) in the order in which layers run."""
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
    """What the callbacks of a pass collect, and the functions of the user that they call."""

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
