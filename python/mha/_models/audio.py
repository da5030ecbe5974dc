"""Speech: WAV files, log-mel features, and the times of the tokens of a transcript."""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .._arrays.array import floats, integer, view
from .._binding.abi import TokenTimesOptions
from .._binding.context import context
from .._binding.library import call, lib, path_bytes, struct
from .._binding.long_call import call_long
from .model_input import ModelBase, head_pairs, token_ids


def _take(samples: ctypes.c_void_p, count: ctypes.c_int64) -> np.ndarray:
    """Copies samples and frees them."""
    try:
        copied: np.ndarray = view(samples.value or 0, np.float32, (count.value,)).copy()
        return copied
    finally:
        lib.mha_audio_free(context(), samples)


def audio_read(path: Any) -> np.ndarray:
    """Returns the samples of a WAV file with 16,000 samples per second, float32 [n] in -1 .. 1; two channels are averaged. Raises OSError
    if the file cannot be read, ValueError for a malformed file, another rate or an unsupported encoding.

        >>> import tempfile, wave, mha
        >>> with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        ...     with wave.open(file, "wb") as wav:
        ...         wav.setparams((1, 2, 16000, 0, "NONE", None))
        ...         wav.writeframes(bytes(32000))
        ...     mha.audio_read(file.name).shape
        (16000,)
    """
    samples, count = ctypes.c_void_p(), ctypes.c_int64()
    call("mha_audio_read", context(), path_bytes(path), ctypes.byref(samples), ctypes.byref(count))
    return _take(samples, count)


def audio_parse(wav: bytes) -> np.ndarray:
    """Returns the samples of a WAV file in memory, as mha.audio_read does.

        >>> import io, wave, mha
        >>> file = io.BytesIO()
        >>> with wave.open(file, "wb") as wav:
        ...     wav.setparams((1, 2, 16000, 0, "NONE", None))
        ...     wav.writeframes(b"\\0\\x20\\0\\xc0")
        >>> mha.audio_parse(file.getvalue()).tolist()
        [0.25, -0.5]
    """
    samples, count = ctypes.c_void_p(), ctypes.c_int64()
    data = bytes(wav)
    call("mha_audio_parse", context(), data, len(data), ctypes.byref(samples), ctypes.byref(count))
    return _take(samples, count)


def audio_features(samples: Any, bins: int = 80, frames: int = 3000) -> np.ndarray:
    """Returns the log-mel features [bins, frames] of Whisper for samples [n] at 16 kHz, truncated or padded to 160 samples per frame.

        >>> import mha
        >>> mha.audio_features([0.0, 0.5, -0.5], bins=4, frames=2).shape
        (4, 2)
    """
    given = floats(samples, "samples", (None,))
    shape = (max(integer(bins, "bins"), 0), max(integer(frames, "frames"), 0))
    out = np.empty(shape, np.float32)
    call("mha_audio_features", context(), given.ctypes.data, len(given), *shape, out.ctypes.data)
    return out


class Audio(ModelBase):
    """token_times() of mha.Model."""

    def token_times(self, features: Any, ids: Any, *, prompt: int = 0, frames: int = 0, heads: Any = None,
                    median_width: int = 0) -> np.ndarray:
        """Returns the time in seconds at which each token ids[prompt:] begins in the audio, float64, by dynamic time warping of the
        cross-attention.

        features [bins, frames]; frames: those that contain audio (0: all). heads: pairs (layer, head) of the decoder, with layers
        ascending; None: the checkpoint's alignment_heads or, if it has none, all heads of the upper half of the layers. median_width: an
        odd number of frames, over which maps are smoothed (0: the checkpoint's).
        """
        given, target = floats(features, "features", self.audio_shape or (None, None)), token_ids([ids])[0]
        listed = None if heads is None else head_pairs(heads, "heads")
        out = np.empty(max(len(target) - integer(prompt, "prompt"), 0), np.float64)
        options = struct(TokenTimesOptions, prompt=prompt, frames=integer(frames, "frames"), heads=listed, head_count=len(listed or ()),
                         median_width=integer(median_width, "median_width"))
        call_long("mha_model_token_times", self._open(), given.ctypes.data, target.ctypes.data, len(target), ctypes.byref(options),
                  out.ctypes.data)
        return out
