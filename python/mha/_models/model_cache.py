"""mha.ModelCache: the keys and values of all layers of a decoder, to continue sequences token by token."""
from __future__ import annotations

import ctypes
from typing import Any

from .._arrays.array import DTYPES, choose, integer
from .._binding.abi import CACHE_ALL, ModelCacheOptions
from .._binding.exclusive import exclusive
from .._binding.library import Handle, call, create, lib, struct
from .model_input import ModelBase

CACHED: dict[str | None, int] = {None: 0, **{name: DTYPES[name] for name in ("f32", "bf16", "f16", "q8_0", "q4_0", "f8_e4m3")}}


class ModelCache(Handle):
    """Cached keys and values of `batch` sequences of a decoder, for mha.Model.forward(cache=...).

    tokens: the capacity per sequence; 0: the model's maximum. dtype: the stored type, "f32", "bf16", "f16", "q8_0", "q4_0" (4 bits,
    rotated) or "f8_e4m3"; None: f32, or bf16 for a model opened in bf16 or int8.

        >>> import numpy as np, mha
        >>> model = mha.Model()
        >>> ids = model.tokenize("the cat sat")
        >>> with mha.ModelCache(model) as cache:
        ...     parts = [model.forward([[id]], cache=cache).logits for id in ids]
        ...     cache.length(0) == len(ids)
        True
        >>> bool(np.array_equal(np.concatenate(parts, 1), model.forward([ids]).logits))
        True

    Raises ValueError for an encoder.
    """

    def __init__(self, model: ModelBase, batch: int = 1, *, tokens: int = 0, dtype: str | None = None, page_size: int = 0) -> None:
        options = struct(ModelCacheOptions, batch=integer(batch, "batch", 1), tokens=integer(tokens, "tokens"),
                         dtype=choose("dtype", dtype, CACHED), page_size=integer(page_size, "page_size"))
        self._own(create("mha_model_cache_create", model._open(), ctypes.byref(options)), "mha_model_cache_free", model._open())
        self.batch = batch

    def length(self, sequence: int) -> int:
        """Returns the number of tokens of a sequence; raises IndexError if the sequence does not exist."""
        found = int(lib.mha_model_cache_length(self._open(), integer(sequence, "sequence")))
        if found < 0:
            raise IndexError(f"sequence must be from 0 to {self.batch - 1} (got {sequence})")
        return found

    def longest(self, sequence: int | None) -> int:
        """Returns the number of tokens of a sequence; None: of the longest one."""
        return self.length(sequence) if sequence is not None else max(self.length(n) for n in range(self.batch))

    @property
    def bytes(self) -> int:
        """The bytes of all layers."""
        return int(lib.mha_model_cache_bytes(self._open()))

    @exclusive
    def clear(self, *, sequence: int | None = None) -> None:
        """Removes all tokens of one sequence, or of all sequences."""
        call("mha_model_cache_clear", self._open(), self._sequence(sequence))

    @exclusive
    def truncate(self, length: int, *, sequence: int | None = None) -> None:
        """Removes all tokens from position `length` to the end, in one sequence or in all sequences that are longer."""
        call("mha_model_cache_truncate", self._open(), self._sequence(sequence), integer(length, "length"))

    @exclusive
    def fork(self, from_: int, to: int, length: int | None = None) -> None:
        """Replaces sequence `to` with the first `length` tokens of sequence `from_` (None: all); both share the memory."""
        size = self.length(from_) if length is None else integer(length, "length")
        call("mha_model_cache_fork", self._open(), integer(from_, "from_"), integer(to, "to"), size)

    @staticmethod
    def _sequence(sequence: int | None) -> Any:
        return CACHE_ALL if sequence is None else integer(sequence, "sequence", 0)
