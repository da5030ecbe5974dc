"""mha.HeadData: tokenized texts, which all measures of heads share."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from typing import Any

import numpy as np

from .._arrays.array import floats, integer, integers, view
from .._binding.abi import HeadDataOptions
from .._binding.library import Handle, call, lib, path_bytes, strings, struct
from .._binding.long_call import call_long
from .._models.model import Model


def keys(function: str, count: int) -> dict[str, int]:
    """Returns {name: number} of a list of names in the library."""
    return {getattr(lib, function)(n).decode(): n for n in range(count)}


def helps(key: str, help_: str, count: int) -> dict[str, str]:
    """Returns {name: description} of a list of names in the library."""
    return {name: getattr(lib, help_)(n).decode() for name, n in keys(key, count).items()}


def state_file(state: Any) -> bytes | None:
    """Returns the path of a file that stores the sums of a measurement."""
    return None if state is None else path_bytes(state, "state")


def _joined(rows: Sequence[Any], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Concatenates lists of token ids; returns the ids and the start of each list."""
    given = [integers(x, f"{name}[{n}]", np.int32) for n, x in enumerate(rows)]
    return np.concatenate(given) if given else np.empty(0, np.int32), np.cumsum([0] + [len(x) for x in given], dtype=np.int64)


def _limits(max_tokens: int | None, batch_tokens: int) -> dict[str, int]:
    return {"max_tokens": 0 if max_tokens is None else integer(max_tokens, "max_tokens"), "batch_tokens": integer(batch_tokens, "batch_tokens")}


class HeadData(Handle):
    """Tokenized texts for measuring heads; all measures can share them.

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
        options = struct(HeadDataOptions, **_limits(max_tokens, batch_tokens),
                         segments=None if given[0] is None else given[0].ctypes.data,
                         special=None if given[1] is None else given[1].ctypes.data,
                         special_count=0 if given[1] is None else len(given[1]))
        handle = c_void_p()
        if ids:
            all_ids, starts = _joined(texts, "texts")
            call_long("mha_head_data_of_ids", model._open(), all_ids.ctypes.data, starts.ctypes.data, len(starts) - 1, ctypes.byref(options),
                 ctypes.byref(handle))
        else:
            data = strings(texts, "texts")
            call_long("mha_head_data_of_texts", model._open(), data, len(data), ctypes.byref(options), ctypes.byref(handle))
        self._own(handle, "mha_head_data_free")

    _vision: Any = None  # the model that reads the images; None for texts

    @classmethod
    def of_pixels(cls, model: Model, pixels: Any) -> HeadData:
        """Returns the data of images, pixels [n, channels, height, width] of mha.Model.pixels, for a ViT or the image tower of a CLIP model.
        mha.heads_measure, mha.head_rollout, mha.importance_measure, mha.importance_pairs and fill of mha.prune accept them. Tokens are
        the class token and the patches; ids are their positions."""
        vision, info = model._tower(pixels)
        images = floats(pixels, "pixels", (None, info.image_channels, info.image_height, info.image_width))
        handle, data = c_void_p(), cls.__new__(cls)
        call_long("mha_head_data_of_images", vision, images.ctypes.data, len(images), None, ctypes.byref(handle))
        data._own(handle, "mha_head_data_free", model._open())
        data._vision = vision
        return data

    @classmethod
    def of_pairs(cls, model: Model, pairs: Sequence[tuple[Any, Any]], *, ids: bool = False, max_tokens: int | None = None,
                 batch_tokens: int = 0) -> HeadData:
        """Returns the data of source/target pairs for an encoder-decoder (T5, BART, mBART, Marian): pairs of str, or with ids=True of lists
        of token ids, in which targets are labels. The loss is the cross entropy of the targets, given their sources.
        mha.importance_measure, mha.models_compare, mha.prune_choose_joint, mha.prune_search, fill and refit of mha.prune, and
        mha.Edit.evaluate accept them."""
        options = struct(HeadDataOptions, **_limits(max_tokens, batch_tokens))
        sides, handle, data = ([x[0] for x in pairs], [x[1] for x in pairs]), c_void_p(), cls.__new__(cls)
        if ids:
            (source, source_starts), (target, starts) = _joined(sides[0], "sources"), _joined(sides[1], "targets")
            call_long("mha_head_data_of_id_pairs", model._open(), source.ctypes.data, source_starts.ctypes.data, target.ctypes.data,
                      starts.ctypes.data, len(pairs), ctypes.byref(options), ctypes.byref(handle))
        else:
            texts = strings(sides[0], "sources"), strings(sides[1], "targets")
            call_long("mha_head_data_of_pairs", model._open(), texts[0], texts[1], len(pairs), ctypes.byref(options), ctypes.byref(handle))
        data._own(handle, "mha_head_data_free", model._open())
        return data

    @property
    def count(self) -> int:
        """The number of texts."""
        return int(lib.mha_head_data_count(self._open()))

    @property
    def tokens(self) -> int:
        """The number of tokens of all texts."""
        return int(lib.mha_head_data_tokens(self._open()))

    def ids(self, text: int) -> list[int]:
        """Returns the token ids of one text; raises IndexError if the text does not exist."""
        length = c_int64()
        found = lib.mha_head_data_ids(self._open(), integer(text, "text"), ctypes.byref(length))
        if not found:
            raise IndexError(f"text must be from 0 to {self.count - 1} (got {text})")
        return list(view(found, np.int32, (length.value,)).tolist())


    def mask(self, model: Model, seed: int = 0) -> tuple[HeadData, np.ndarray]:
        """Returns a copy of the data with masked tokens, and the labels for loss="mlm": the ids of the masked tokens, -100 elsewhere."""
        labels, handle = np.empty(self.tokens, np.int32), c_void_p()
        call("mha_head_data_mask", model._open(), self._open(), integer(seed, "seed", 0, 2**64 - 1), labels.ctypes.data, ctypes.byref(handle))
        masked = HeadData.__new__(HeadData)
        masked._own(handle, "mha_head_data_free", model._open())
        return masked, labels


def held_out_split(count: int, pairs: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Holds out every fourth of `count` texts, or of pairs (texts n and count / 2 + n). Returns the indices of the texts to learn from, and
    the indices of the held-out texts.

        >>> import mha
        >>> [part.tolist() for part in mha.held_out_split(9)]
        [[0, 1, 2, 4, 5, 6, 8], [3, 7]]
    """
    number = integer(count, "count")
    order, learned = np.empty(max(number, 0), np.int64), c_int64()
    call("mha_held_out_split", number, bool(pairs), order.ctypes.data, ctypes.byref(learned))
    return order[:learned.value], order[learned.value:]


def held_out_distinct(learn: Sequence[str], held: Sequence[str]) -> list[int]:
    """Returns the indices of the held-out texts that are not also texts to learn from.

        >>> import mha
        >>> mha.held_out_distinct(["a cat", "a dog"], ["a dog", "a fish"])
        [1]
    """
    kept, left = np.empty(len(held), np.int64), c_int64()
    call("mha_held_out_distinct", None, strings(learn, "learn"), len(learn), strings(held, "held"), len(held), kept.ctypes.data,
         ctypes.byref(left))
    return [int(n) for n in kept[:left.value]]


def head_data(model: Model, texts: Any) -> HeadData:
    return texts if isinstance(texts, HeadData) else HeadData(model, texts)
