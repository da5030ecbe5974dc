"""Decoders: scoring text, generating text, and sampling the next token."""
from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .._arrays.array import choose, floats, integer, integers, number
from .._binding.abi import GenerateOptions, Prompt, Sampling
from .._binding.context import context
from .._binding.library import call, callback, strings, struct
from .._binding.long_call import Guard, call_long
from .model_cache import CACHED
from .model_input import ModelBase, token_ids

_ENDINGS = ("length", "eos", "stop", "caller")


def _sampling(temperature: float, top_k: int, top_p: float, min_p: float, repetition_penalty: float, no_repeat_ngram: int,
              seed: int) -> Sampling:
    return Sampling(number(temperature, "temperature"), integer(top_k, "top_k"), number(top_p, "top_p") or sys.float_info.min,
                    number(min_p, "min_p"), number(repetition_penalty, "repetition_penalty"),
                    integer(no_repeat_ngram, "no_repeat_ngram"), integer(seed, "seed", 0, 2**64 - 1))


def sampling_apply(logits: Any, ids: Any = (), *, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0,
                   repetition_penalty: float = 1.0, no_repeat_ngram: int = 0) -> np.ndarray:
    """Returns logits [vocab] after the penalties and filters of mha.Model.generate, given the ids so far; excluded tokens are -infinity.

        >>> import mha
        >>> mha.sampling_apply([1.0, 3.0, 2.0], temperature=0.5, top_k=2).tolist()
        [-inf, 6.0, 4.0]
    """
    out, before = floats(logits, "logits", (None,)).copy(), integers(ids, "ids", np.int32)
    sampling = _sampling(temperature, top_k, top_p, min_p, repetition_penalty, no_repeat_ngram, 0)
    call("mha_sampling_apply", context(), ctypes.byref(sampling), before.ctypes.data, len(before), len(out), out.ctypes.data)
    return out


def _callbacks(on_text: Any, on_token: Any, on_prompt: Any, on_end: Any) -> dict[str, Callable[..., Any] | None]:
    """Returns the callbacks as the library calls them."""
    def text_of(_user: Any, prompt: int, text: int, size: int) -> Any:
        return on_text(prompt, ctypes.string_at(text, size).decode())

    def token_of(_user: Any, prompt: int, id: int) -> Any:
        return on_token(prompt, id)

    def prompt_of(_user: Any, prompt: int, shared: int) -> None:
        on_prompt(prompt, shared)

    def end_of(_user: Any, prompt: int, why: int) -> None:
        on_end(prompt, _ENDINGS[why])

    return {"on_text": text_of if on_text else None, "on_token": token_of if on_token else None,
            "on_prompt": prompt_of if on_prompt else None, "on_end": end_of if on_end else None}


def _prompts(ids: Any, several: bool) -> list[np.ndarray]:
    """Returns the ids of each prompt. A prompt of an encoder-decoder may be empty."""
    return [token_ids([p])[0] if len(p) else np.empty(0, np.int32) for p in (ids if several else [ids])]


def _structs(prompts: list[np.ndarray]) -> Any:
    return (Prompt * len(prompts))(*(Prompt(p.ctypes.data if len(p) else None, len(p)) for p in prompts))


def _features(features: Any, several: bool, shape: tuple[int, int] | None) -> list[np.ndarray]:
    return [floats(f, "features", shape or (None, None)) for f in (features if several else [features])]


class Generate(ModelBase):
    """score() and generate() of mha.Model."""

    def score(self, ids: Any) -> np.ndarray:
        """Returns ln p(ids[i + 1] | ids[0 .. i]) for each token except the first, float32 [n - 1]."""
        ids = token_ids([ids])[0]
        out = np.empty(max(len(ids) - 1, 0), np.float32)
        call_long("mha_model_score", self._open(), ids.ctypes.data, len(ids), out.ctypes.data)
        return out

    def score_hidden(self, hidden: Any, next: Any) -> np.ndarray:
        """Returns ln p(next[i]) given the row i of the last hidden states [rows, E], float32 [rows]."""
        rows, after = floats(hidden, "hidden", (None, self._info.hidden)), integers(next, "next", np.int32)
        if len(after) != len(rows):
            raise ValueError(f"next must be of shape ({len(rows)},) (got {after.shape})")
        out = np.empty(len(rows), np.float32)
        call_long("mha_model_score_hidden", self._open(), rows.ctypes.data, after.ctypes.data, len(rows), out.ctypes.data)
        return out

    def generate(self, ids: Any, n: int, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0, cache: bool = True, *,
                 min_p: float = 0.0, repetition_penalty: float = 1.0, no_repeat_ngram: int = 0, eos: Any = None, stop: Any = (),
                 lookup: int = 0, min_new: int = 0, at_once: int = 0, cache_dtype: str | None = None, sources: Any = None, features: Any = None,
                 rules: bool = True, gates: Any = None,
                 on_text: Callable[[int, str], Any] | None = None, on_token: Callable[[int, int], Any] | None = None,
                 on_prompt: Callable[[int, int], Any] | None = None, on_end: Callable[[int, str], Any] | None = None) -> Any:
        """Generates up to n ids after the prompt `ids` and returns them as a list; for a list of prompts, as a list of lists.

        Generation ends after a token of eos (default: the checkpoint's; []: none), which is included, or after the token that
        completes a string of `stop`. Temperature 0 is greedy; top_p=0 selects the most likely token, as in transformers. Prompt i is
        sampled with seed + i. lookup: the number of tokens to predict from earlier repetitions; the result is the same. min_new: the
        number of tokens before eos is allowed. at_once: prompts that run in one batch (0: 8). cache_dtype: as in mha.ModelCache.

        For an encoder-decoder, sources are the ids of the source, or a list with one source per prompt; a prompt may be empty. If its
        encoder reads audio, give features [bins, frames] instead, or a list with those of each prompt. rules: False ignores the forced,
        suppressed and banned tokens of its generation_config.json.

        gates [layers, heads]: factors of each head's output, for the prompts and all new tokens.

        on_text(prompt, text) is called with new text as soon as it is final, on_token(prompt, id) with each new id; if one returns
        True, generation for that prompt ends. on_prompt(prompt, shared) is called before a prompt, whose first `shared` tokens are
        shared with another one; on_end(prompt, why) after it: "length", "eos", "stop" or "caller". Ctrl-C ends the call with
        KeyboardInterrupt.
        """
        n, several = integer(n, "n"), len(ids) > 0 and np.ndim(ids[0]) == 1
        prompts = _prompts(ids, several)
        given = None if sources is None else _prompts(sources, several)
        if given is not None and len(given) != len(prompts):
            raise ValueError(f"sources must have one source per prompt, {len(prompts)} (got {len(given)})")
        audio = None if features is None else _features(features, several, self.audio_shape)
        if audio is not None and len(audio) != len(prompts):
            raise ValueError(f"features must have one array per prompt, {len(prompts)} (got {len(audio)})")
        out = np.empty((len(prompts), max(n, 0)), np.int32)
        lengths = np.zeros(len(prompts), np.int64)
        ends = None if eos is None else token_ids([np.asarray(eos, dtype=np.int64).reshape(-1)])[0]
        stops = strings([stop] if isinstance(stop, str) else stop, "stop")
        guard = Guard()
        functions = _callbacks(on_text, on_token, on_prompt, on_end)
        options = struct(
            GenerateOptions, max_new=n, min_new=integer(min_new, "min_new"), at_once=integer(at_once, "at_once"), no_cache=not cache,
            lookup=integer(lookup, "lookup"), eos=ends if ends is not None and len(ends) else None,
            eos_count=0 if ends is None else len(ends) or -1, stop=stops, stop_count=len(stops),
            cache_dtype=choose("cache_dtype", cache_dtype, CACHED), no_rules=not rules,
            sources=None if given is None else _structs(given),
            gates=None if gates is None else floats(gates, "gates", (self._info.layers, self._info.heads)),
            features=None if audio is None else (ctypes.c_void_p * len(audio))(*(a.ctypes.data for a in audio)),
            sampling=_sampling(temperature, top_k, top_p, min_p, repetition_penalty, no_repeat_ngram, seed),
            **{name: callback(GenerateOptions, name, f and guard.wrap(f)) for name, f in functions.items()})
        guard.call("mha_model_generate", self._open(), _structs(prompts), len(prompts), ctypes.byref(options), out.ctypes.data,
                   lengths.ctypes.data)
        made = [row[:length].tolist() for row, length in zip(out, lengths)]
        return made if several else made[0]
