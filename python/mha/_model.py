"""A checkpoint folder: mha.Model."""
import ctypes
import json
import os
import sys
import warnings
from collections import namedtuple
from ctypes import POINTER, c_char_p, c_double, c_int64, c_size_t, c_void_p

import numpy as np

from . import _places
from ._abi import (EmbedOptions, EncodeOptions, Encoding, GenerateOptions, ModelHead, ModelInput, ModelLossArgs, ModelOptions,
                   ModelOutput, ModelSaveOptions, NamedTensor, Prompt, Sampling)
from ._array import BF16, F16, F32, Q8_0, integer, integers, view
from ._context import context
from ._library import call, callback, lib, struct

Output = namedtuple("Output", "logits last_hidden hidden_states attentions")
OutputStats = namedtuple("Output", Output._fields + ("stats",))
_POOL = {"mean": 0, "cls": 1}
_DTYPE = {"f32": F32, "bf16": BF16, "f16": F16, "int8": Q8_0}


def _copy(tensor):
    shape = tuple(tensor.shape[:tensor.rank])
    return view(tensor.data, np.float32, shape).copy()


class Model:
    """A checkpoint, opened for running: a Hugging Face folder, "minilm" (after ./run fetch minilm) or "builtin".

        m = mha.Model("minilm")
        m.embed(["a sentence", "another"])          # [2, 384]
        m.forward([m.tokenize("a sentence")], attentions=True).attentions[0]   # [1, 12, L, L]

    dtype: "f32", or what dense weights are packed as: "bf16" (attention runs in it too), "f16" or "int8". no_map: copies
    the weights, whose files are otherwise mapped and must not be written to while the model lives. A folder without
    tokenizer.json runs on ids.
    """

    def __init__(self, path, dtype="f32", threads=None, *, no_map=False):
        if dtype not in _DTYPE:
            raise ValueError(f"dtype = {dtype!r}: one of {', '.join(_DTYPE)}")
        self._handle = None
        path = _places.model(path, lib.mha_version)
        if b"\0" in os.fsencode(path):
            raise ValueError(f"path = {path!r}: has a zero byte")
        no_tokenizer = not os.path.exists(os.path.join(os.fsdecode(path), "tokenizer.json"))
        handle, options = c_void_p(), struct(ModelOptions, dtype=_DTYPE[dtype], no_map=bool(no_map), no_tokenizer=no_tokenizer)
        call("mha_model_open", context(threads), os.fsencode(path), ctypes.byref(options), ctypes.byref(handle))
        self._handle = handle
        self._info = lib.mha_model_describe(handle).contents
        self.config = json.loads(lib.mha_model_config_json(handle))

    def __del__(self):
        if getattr(self, "_handle", None):
            lib.mha_model_free(self._handle)

    # ---- text ----

    def tokenize(self, text, special=True):
        """Ids of a text. One of more tokens than the model takes is cut there, with a warning."""
        if not isinstance(text, str):
            raise ValueError(f"text must be a str (got {type(text).__name__})")
        data = text.encode("utf-8", "surrogatepass")
        options = struct(EncodeOptions, no_special=not special, max_tokens=self._info.max_positions)
        encoding = POINTER(Encoding)()
        call("mha_tokenizer_encode", self._tokenizer, data, len(data), None, 0, ctypes.byref(options),
             ctypes.byref(encoding))
        try:
            cut, count = encoding.contents.truncated, encoding.contents.count
            if cut:
                warnings.warn(f"{count + cut} tokens, {cut} were cut off; the model takes {count}", stacklevel=2)
            return view(encoding.contents.ids, np.int32, (count,)).tolist()
        finally:
            lib.mha_encoding_free(encoding)

    def decode(self, ids, skip_special=False):
        """Text of ids, joined as the tokenizer's decoder says."""
        ids = integers(ids, "ids", np.int32)
        text, size = c_void_p(), c_size_t()
        call("mha_tokenizer_decode", self._tokenizer, ids.ctypes.data, len(ids), skip_special,
             ctypes.byref(text), ctypes.byref(size))
        try:
            return ctypes.string_at(text, size.value).decode()
        finally:
            lib.mha_tokenizer_text_free(self._tokenizer, text)

    @property
    def _tokenizer(self):
        tokenizer = lib.mha_model_tokenizer(self._handle)
        if not tokenizer:
            raise ValueError("the model's folder has no tokenizer.json: it runs on ids alone")
        return tokenizer

    # ---- running ----

    def forward(self, ids, mask=None, hidden=False, attentions=False, gates=None, stats=False):
        """Runs ids [B, L] (mask [B, L]: 1 = real token). logits [B, L, vocab], None where the checkpoint has none;
        hidden_states: layers + 1 arrays [B, L, E], the embeddings first, the last behind the final norm; attentions: one
        array [B, heads, L, L] for each layer; given pairs (layer, head), those maps alone: {(layer, head): [B, L, L]}. What was
        not asked for is None. gates [layers, heads] or [layers, B, heads]: factors on each head's output. stats: one more
        field, a dict for each layer with what the maps say, at a memory that grows with L: row_entropy (bits), row_max,
        row_argmax, row_distance (tokens) and received, each [B, heads, L]."""
        ids = self._ids(ids)
        gates = self._gates(gates, len(ids))
        batch, length = ids.shape
        mask = self._mask(mask, ids.shape)
        last = np.empty((batch, length, self._info.hidden), np.float32)
        logits = np.empty((batch, length, self._info.vocab), np.float32) if self._info.logits else None
        states, maps, numbers = [], [], []
        listed = (ModelHead * 0)() if isinstance(attentions, (bool, np.bool_)) else self._heads(attentions)
        wanted = len(listed) > 0 or attentions is True

        def on_hidden(_user, _entry, x):
            states.append(view(x, np.float32, last.shape).copy())
            return 0

        def on_attention(_user, _layer, heads, probs):
            maps.append(view(probs, np.float32, (batch, heads, length, length)).copy())
            return 0

        def on_stats(_user, given):
            one = given.contents
            numbers.append({name: view(getattr(one, name), np.int64 if name == "row_argmax" else np.float32,
                                       (batch, one.heads, length)).copy() for name in (
                "row_entropy", "row_max", "row_argmax", "row_distance", "received")})
            return 0

        output = struct(ModelOutput, last_hidden=last.ctypes.data,
                        logits=None if logits is None else logits.ctypes.data,
                        on_hidden=callback(ModelOutput, "on_hidden", on_hidden if hidden else None),
                        on_attention=callback(ModelOutput, "on_attention", on_attention if wanted else None),
                        map_heads=listed if len(listed) else None, map_count=len(listed),
                        on_stats=callback(ModelOutput, "on_stats", on_stats if stats else None))
        given = struct(ModelInput, batch=batch, length=length, ids=ids.ctypes.data,
                       mask=None if mask is None else mask.ctypes.data, gates=None if gates is None else gates.ctypes.data)
        call("mha_model_forward", self._handle, ctypes.byref(given), ctypes.byref(output))
        if len(listed):
            each = np.concatenate(maps, axis=1) if maps else None
            maps = {(h.layer, h.head): each[:, n] for n, h in enumerate(listed)}
        some = (logits, last, states if hidden else None, maps if wanted else None)
        return OutputStats(*some, numbers) if stats else Output(*some)

    def embed(self, texts, pool="mean", normalize=True):
        """One vector per text: [n, d]. A text of more tokens than the model takes is cut there, with a warning."""
        if isinstance(texts, str):
            raise ValueError("texts must be a list of str (got one str)")
        if pool not in _POOL:
            raise ValueError(f"pool must be one of {', '.join(map(repr, _POOL))} (got {pool!r})")
        for i, t in enumerate(texts):
            if not isinstance(t, str):
                raise ValueError(f"texts[{i}] must be a str (got {type(t).__name__})")
        data = [t.encode("utf-8", "surrogatepass") for t in texts]
        for i, t in enumerate(data):
            if b"\0" in t:
                raise ValueError(f"texts[{i}] contains a NUL character")
        out = np.empty((len(data), self._info.hidden), np.float32)
        options = struct(EmbedOptions, pool=_POOL[pool], no_normalize=not normalize)
        call("mha_model_embed", self._handle, (c_char_p * len(data))(*data), len(data), ctypes.byref(options),
             out.ctypes.data)
        return out

    # ---- decoders ----

    def score(self, ids):
        """Natural log p(ids[i + 1] | ids[0 .. i]) for each token but the first: float32 [n - 1]."""
        ids = self._ids([ids])[0]
        out = np.empty(max(len(ids) - 1, 0), np.float32)
        call("mha_model_score", self._handle, ids.ctypes.data, len(ids), out.ctypes.data)
        return out

    def generate(self, ids, n, temperature=0.0, top_k=0, top_p=1.0, seed=0, cache=True, *, min_p=0.0,
                 repetition_penalty=1.0, no_repeat_ngram=0, eos=None, stop=(), lookup=0, on_text=None):
        """Up to n new ids after the prompt `ids`: a list, ended by a token of eos (default: the checkpoint's; [] = none),
        which is kept, or by the token that completes one of the strings of `stop`. Of several prompts, a list of such
        lists; prompt i then draws with seed + i. Greedy at temperature 0; top_p=0 draws the likeliest, as transformers
        does. lookup: tokens to guess ahead where the text repeats itself, with the same result. on_text(prompt, text)
        is called with text as it becomes certain; returning True ends that prompt."""
        seed = integer(seed, "seed", 0, 2**64 - 1)
        several = len(ids) > 0 and np.ndim(ids[0]) == 1
        prompts = [self._ids([p])[0] for p in (ids if several else [ids])]
        out = np.empty((len(prompts), max(n, 0)), np.int32)
        lengths = np.zeros(len(prompts), np.int64)
        ends = None if eos is None else self._ids([np.asarray(eos, dtype=np.int64).reshape(-1)])[0]
        stops = [s.encode("utf-8", "surrogatepass") for s in ([stop] if isinstance(stop, str) else stop)]
        if any(b"\0" in s for s in stops):
            raise ValueError("stop: a string contains a NUL character")
        raised = []  # an exception must not pass through C: it ends the prompts, and is raised behind the call

        def guarded(function):
            def run(*arguments):
                try:
                    return bool(raised or function(*arguments))
                except BaseException as error:  # KeyboardInterrupt too: it arrives here
                    raised.append(error)
                    return 1
            return run

        def text_of(_user, prompt, text, size):
            return on_text(prompt, ctypes.string_at(text, size).decode())

        options = struct(
            GenerateOptions, max_new=n, no_cache=not cache, lookup=lookup, eos=ends.ctypes.data if ends is not None and len(ends) else None,
            eos_count=0 if eos is None else len(ends) or -1, stop=(c_char_p * len(stops))(*stops), stop_count=len(stops),
            sampling=Sampling(temperature, top_k, top_p or sys.float_info.min, min_p, repetition_penalty, no_repeat_ngram, seed),
            on_token=callback(GenerateOptions, "on_token", guarded(lambda *_: 0)),
            on_text=callback(GenerateOptions, "on_text", guarded(text_of) if on_text else None))
        list_of = (Prompt * len(prompts))(*(Prompt(p.ctypes.data, len(p)) for p in prompts))
        call("mha_model_generate", self._handle, list_of, len(prompts), ctypes.byref(options), out.ctypes.data,
             lengths.ctypes.data)
        if raised:
            raise raised[0]
        made = [row[:length].tolist() for row, length in zip(out, lengths)]
        return made if several else made[0]

    # ---- learning ----

    def loss_and_grads(self, ids, labels=None, mask=None):
        """Cross entropy of ids [B, L], and {tensor name as in the checkpoint: gradient}. labels [B, L]: -100 = not counted;
        a decoder's are shifted here, as transformers does, and are the ids where none are given."""
        ids = self._ids(ids)
        labels = None if labels is None else self._ids(labels)
        if labels is not None and labels.shape != ids.shape:
            raise ValueError(f"labels must be of shape {ids.shape} (got {labels.shape})")
        mask = self._mask(mask, ids.shape)
        grads, loss, count = c_void_p(), c_double(), c_int64()
        call("mha_model_grads_create", self._handle, None, ctypes.byref(grads))
        try:
            given = struct(ModelInput, batch=ids.shape[0], length=ids.shape[1], ids=ids.ctypes.data,
                           mask=None if mask is None else mask.ctypes.data)
            args = struct(ModelLossArgs, labels=None if labels is None else labels.ctypes.data)
            call("mha_model_grads_loss", grads, ctypes.byref(given), ctypes.byref(args), ctypes.byref(loss), None)
            found = lib.mha_model_grads_list(grads, ctypes.byref(count))[:count.value]
            return loss.value, {t.name.decode(): _copy(t) for t in found}
        finally:
            lib.mha_model_grads_free(grads)

    def save(self, path, dtype=None, overwrite=False, tensors=None):
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
        call("mha_model_save", self._handle, os.fsencode(path), ctypes.byref(options))

    @staticmethod
    def _ids(ids):
        return integers(ids, "ids", np.int32, dims=(2,))

    def _heads(self, pairs):
        """Pairs (layer, head) in the order in which layers run."""
        pairs = integers(list(pairs), "attentions", np.int32, dims=(2,))
        if pairs.shape[1] != 2 or len(pairs) == 0:
            raise ValueError(f"attentions must be True, False or pairs (layer, head) (got shape {pairs.shape})")
        ordered = sorted(map(tuple, pairs.tolist()))
        return (ModelHead * len(ordered))(*ordered)

    def _gates(self, gates, batch):
        if gates is None:
            return None
        gates, layers, heads = np.asarray(gates, dtype=np.float32), self._info.layers, self._info.heads
        if gates.shape not in ((layers, heads), (layers, batch, heads)):
            raise ValueError(f"gates must be of shape {(layers, heads)} or {(layers, batch, heads)} (got {gates.shape})")
        each = gates[:, None] if gates.ndim == 2 else gates
        return np.ascontiguousarray(np.broadcast_to(each, (layers, batch, heads)))

    @staticmethod
    def _mask(mask, shape):
        if mask is None:
            return None
        mask = np.ascontiguousarray(np.asarray(mask) != 0, dtype=np.uint8)
        if mask.shape != shape:
            raise ValueError(f"mask must be of shape {shape} (got {mask.shape})")
        return mask
