"""Encoder-decoders: labels and scores of a target for a source."""
from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays.array import integers
from .._binding.library import call
from .._binding.long_call import call_long
from .model_input import ModelBase, token_ids


class Seq2Seq(ModelBase):
    """score_target() and shift_labels() of mha.Model."""

    def score_target(self, source: Any, ids: Any) -> np.ndarray:
        """Returns ln p(ids[i] | source, ids[0 .. i - 1]) for each token of a target, float32 [n], given the ids of its source."""
        given, target = token_ids([source])[0], token_ids([ids])[0]
        out = np.empty(len(target), np.float32)
        call_long("mha_model_score_target", self._open(), given.ctypes.data, len(given), target.ctypes.data, len(target), out.ctypes.data)
        return out

    def shift_labels(self, labels: Any) -> np.ndarray:
        """Returns the input ids [B, T] of the decoder for labels [B, T]: the model's first token, then the labels without the last; -100
        becomes padding."""
        rows = integers(labels, "labels", np.int32, dims=(2,))
        out = np.empty(rows.shape, np.int32)
        call("mha_model_shift_labels", self._open(), rows.ctypes.data, rows.shape[0], rows.shape[1], out.ctypes.data)
        return out
