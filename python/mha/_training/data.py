"""mha.TrainData: training sequences from texts and token files, their order, masked tokens, and a digest of the data."""
from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import create_string_buffer
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays.array import integer, integers, number
from .._binding import abi
from .._binding.context import context
from .._binding.exclusive import exclusive
from .._binding.library import Handle, call, create, lib, path_bytes, struct, utf8
from .._binding.long_call import call_long
from .._models.tokenizer import TextMethods


@dataclass
class TrainDataInfo:
    """The properties of training data: tokens, sequences, tokens per sequence, texts and truncated texts (texts_apart), and a digest."""

    tokens: int
    sequences: int
    length: int
    texts: int
    truncated: int
    digest: str


class TrainData(Handle):
    """Tokens of texts or token files, divided into sequences of `length` tokens; include/mha/train_data.h defines the options.

    A decoder (causal) has consecutive sequences, and `end` follows each text; an encoder has `length` - 2 tokens between `first` and `end`.

        >>> import mha
        >>> model = mha.Model()
        >>> data = mha.TrainData(8, model.vocabulary, tokenizer=model)
        >>> data.add_texts(["the cat sat on the mat", "a dog ran home"])
        >>> data.finish()
        >>> data.info.sequences, data.sequence(0).tolist() == model.tokenize("the cat sat on the mat")[:8]
        (2, True)
    """

    def __init__(self, length: int, vocab: int, *, tokenizer: TextMethods | None = None, causal: bool = True, texts_apart: bool = False,
                 shorten: bool = False, no_map: bool = False, first: int = 0, end: int = 0) -> None:
        options = struct(abi.TrainDataOptions, length=integer(length, "length"), vocab=integer(vocab, "vocab"),
                         tokenizer=None if tokenizer is None else tokenizer._tokenizer, causal=bool(causal),
                         texts_apart=bool(texts_apart), shorten=bool(shorten), no_map=bool(no_map),
                         first=integer(first, "first", -2**31, 2**31 - 1), end=integer(end, "end", -2**31, 2**31 - 1))
        self._own(create("mha_train_data_create", context(), ctypes.byref(options)), "mha_train_data_free", None if tokenizer is None else tokenizer._open())
        self.tokenizer, self.vocab = tokenizer, vocab

    @exclusive
    def add_text(self, text: str, last: bool = True) -> None:
        """Appends a text, or a part of one; last: the text ends here."""
        data = utf8(text)
        call_long("mha_train_data_add_text", self._open(), data, len(data), bool(last))

    def add_texts(self, texts: Iterable[str]) -> None:
        """Appends texts."""
        for text in texts:
            self.add_text(text)

    @exclusive
    def add_file(self, path: Any) -> None:
        """Appends a file of token ids: .npy of uint16, int32 or int64, or .bin as of nanoGPT or llm.c. It must not change."""
        call_long("mha_train_data_add_file", self._open(), path_bytes(path))

    @exclusive
    def finish(self) -> None:
        """Completes the data; sequences can then be read by any number of threads."""
        call_long("mha_train_data_finish", self._open())

    @property
    def info(self) -> TrainDataInfo:
        """The properties of the data, after finish()."""
        found = lib.mha_train_data_describe(self._open())
        if not found:
            raise ValueError("finish() must be called before the data are read")
        i = found.contents
        return TrainDataInfo(i.tokens, i.sequences, i.length, i.texts, i.truncated, i.digest.decode())

    def sequence(self, n: int) -> np.ndarray:
        """Returns the ids of a sequence, int32; raises IndexError if it does not exist."""
        info = self.info
        ids = np.empty(info.length, np.int32)
        count = lib.mha_train_data_sequence(self._open(), integer(n, "n"), ids.ctypes.data)
        if not count:
            raise IndexError(f"n must be from 0 to {info.sequences - 1} (got {n})")
        return ids[:count]

    def batch(self, step: int, size: int, seed: int = 0) -> np.ndarray:
        """Returns the ids [size, length] of a step, counted from 1, in the order of train_sequence_order."""
        count, first = self.info.sequences, (integer(step, "step", 1) - 1) * integer(size, "size", 1)
        return np.stack([self.sequence(train_sequence_order(seed, n // count, n % count, count)) for n in range(first, first + size)])


def train_sequence_order(seed: int, epoch: int, index: int, count: int) -> int:
    """Returns the sequence, 0 to count - 1, at position `index` of an epoch; each epoch is a permutation.

        >>> import mha
        >>> sorted(mha.train_sequence_order(7, 0, n, 5) for n in range(5))
        [0, 1, 2, 3, 4]
    """
    found = int(lib.mha_train_sequence_order(integer(seed, "seed", 0, 2**64 - 1), integer(epoch, "epoch"), integer(index, "index"),
                                             integer(count, "count")))
    if found < 0:
        raise ValueError(f"index must be from 0 to count - 1 = {count - 1}, and count at most 2^60 (got {index})")
    return found


def train_mask_tokens(tokenizer: TextMethods, ids: Any, index: int, *, mask: int, vocab: int, fraction: float = 0.15,
                      seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Selects tokens of a sequence to predict (MLM). Returns (ids, labels): 80 % of the selected ids become `mask`, 10 % a random id; labels
    are the original ids of selected tokens, and -100 elsewhere. The same index gives the same selection.

        >>> import mha
        >>> model = mha.Model()
        >>> ids, labels = mha.train_mask_tokens(model, [7, 8, 9, 10], 0, mask=1, vocab=model.vocabulary, fraction=0.5)
        >>> int((labels != -100).sum())
        2
    """
    out = integers(ids, "ids", np.int32).copy()
    labels = np.empty_like(out)
    options = struct(abi.TrainMaskOptions, length=len(out), vocab=integer(vocab, "vocab"), fraction=number(fraction, "fraction"),
                     mask=integer(mask, "mask", -2**31, 2**31 - 1), seed=integer(seed, "seed", 0, 2**64 - 1))
    call("mha_train_mask_tokens", tokenizer._tokenizer, ctypes.byref(options), integer(index, "index"), out.ctypes.data, labels.ctypes.data)
    return out, labels


class TrainDigest:
    """A 64-bit hash that shows whether two runs read the same data.

        >>> import mha
        >>> digest = mha.TrainDigest()
        >>> digest.add(b"some data, 16 by")
        >>> digest.add_number(7)
        >>> len(digest.text())
        16
    """

    def __init__(self) -> None:
        self._state = abi.TrainDigest()

    def add(self, data: Any) -> None:
        """Adds bytes, or the bytes of an array. Parts but the last must be multiples of 16 bytes to give the digest of the whole."""
        x = np.frombuffer(data, np.uint8) if isinstance(data, (bytes, bytearray)) else np.ascontiguousarray(data)
        if x.dtype.hasobject:  # its elements are addresses
            raise ValueError(f"data must be bytes or an array of numbers (got {x.dtype})")
        lib.mha_train_digest_add(ctypes.byref(self._state), x.ctypes.data, x.nbytes)

    def add_number(self, number: int) -> None:
        """Adds one integer, such as a length."""
        lib.mha_train_digest_add_number(ctypes.byref(self._state), integer(number, "number", 0, 2**64 - 1))

    def text(self) -> str:
        """Returns the digest as 16 hexadecimal digits."""
        found = create_string_buffer(17)
        lib.mha_train_digest_text(ctypes.byref(self._state), found)
        return found.value.decode()
