"""mha.Model: a checkpoint, opened for embedding, scoring, generation and gradients."""
from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Mapping
from ctypes import c_void_p
from typing import Any

import numpy as np

from .._arrays.array import DTYPES, choose, integer
from .._arrays.tensors import given
from .._binding import places
from .._binding.abi import ModelCreateOptions, ModelOptions, ModelSaveOptions
from .._binding.context import context
from .._binding.library import call, create, lib, path_bytes, string, struct
from .._binding.long_call import call_long
from .audio import Audio
from .generate import Generate
from .grads import ModelGrads
from .seq2seq import Seq2Seq
from .tokenizer import TextMethods
from .vision import Vision

_DTYPES = {"f32": DTYPES["f32"], "bf16": DTYPES["bf16"], "f16": DTYPES["f16"], "int8": DTYPES["q8_0"]}
SAVED: dict[str | None, int] = {None: 0, **{name: DTYPES[name] for name in ("f32", "bf16", "f16")}}


def _config(config: Mapping[str, Any] | str | None) -> bytes | None:
    return None if config is None else string(config if isinstance(config, str) else json.dumps(config), "config")


class Model(Vision, Generate, Seq2Seq, Audio, TextMethods):
    """An opened checkpoint: a Hugging Face folder, a GGUF file, "minilm" (after ./run fetch minilm) or "builtin" (the default).

        >>> import mha
        >>> with mha.Model() as model:
        ...     ids = model.tokenize("the cat sat")
        ...     model.forward([ids], attentions=True).attentions[0].shape == (1, 8, len(ids), len(ids))
        True

    dtype is the type of packed dense weights: "f32", "bf16", "f16" or "int8"; with bf16 and int8, attention runs in bf16.
    no_map: copies the weights; otherwise their files are memory-mapped and must not be modified while the model exists. Without a tokenizer the
    model accepts only ids. tensors {name: float32 array} replace tensors of the files, and config (a dict or JSON) replaces config.json.
    weights=False: opens the model without packing its weights; it cannot run. Raises OSError if a file cannot be read, ValueError if a
    file is malformed or unsupported.
    """

    def __init__(self, path: Any = "builtin", dtype: str = "f32", threads: int | None = None, *, no_map: bool = False,
                 tensors: Mapping[str, Any] | None = None, config: Mapping[str, Any] | str | None = None, weights: bool = True) -> None:
        code = choose("dtype", dtype, _DTYPES)
        self.path: str | None = os.fsdecode(path)
        path = places.model(path, lib.mha_version)
        no_tokenizer = os.path.isdir(path) and not os.path.exists(os.path.join(os.fsdecode(path), "tokenizer.json"))
        replaced = given(tensors or {}, "tensors", np.float32)
        options = struct(ModelOptions, dtype=code, no_map=bool(no_map), no_tokenizer=no_tokenizer, no_weights=not weights,
                         tensors=replaced, tensor_count=len(replaced), config_json=_config(config))
        self._take(create("mha_model_open", context(threads), path_bytes(path), ctypes.byref(options)), replaced)

    @classmethod
    def _of(cls, handle: c_void_p, *parents: Any, free: str | Callable[..., Any] = "mha_model_free") -> Model:
        """Wraps a model handle of the library."""
        model = cls.__new__(cls)
        model.path = None
        model._take(handle, *parents, free=free)
        return model

    @classmethod
    def create(cls, config: Mapping[str, Any] | str, *, seed: int = 0, tokenizer: Any = None) -> Model:
        """Returns a new model with random weights, to train from scratch. config: the content of config.json, as a dict or JSON.
        tokenizer: a folder with the tokenizer, which is saved with the model.

            >>> import mha
            >>> model = mha.Model.create({"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50})
            >>> model.forward([[1, 2, 3]]).logits.shape
            (1, 3, 50)
        """
        options = struct(ModelCreateOptions, seed=integer(seed, "seed", 0, 2**64 - 1),
                         folder=None if tokenizer is None else path_bytes(tokenizer, "tokenizer"))
        return cls._of(create("mha_model_create", context(), _config(config), ctypes.byref(options)))

    @property
    def _tokenizer(self) -> int | c_void_p:
        tokenizer = lib.mha_model_tokenizer(self._open())
        if not tokenizer:
            raise ValueError("the model must have a tokenizer for this call; without it, pass ids")
        return int(tokenizer)

    # ---- gradients and saving ----

    def loss_and_grads(self, ids: Any, labels: Any = None, mask: Any = None) -> tuple[float, dict[str, np.ndarray]]:
        """Returns the cross entropy on ids [B, L], and {name of the tensor in the checkpoint: gradient}. labels [B, L]: -100 is ignored.
        For decoders, labels are shifted as in transformers; the default is ids. mha.ModelGrads has more options."""
        with ModelGrads(self) as grads:
            return grads.loss(ids, labels, mask).loss, grads.list()

    def save(self, path: Any, dtype: str | None = None, overwrite: bool = False, tensors: Mapping[str, Any] | None = None,
             config: Mapping[str, Any] | str | None = None) -> None:
        """Writes the checkpoint atomically to a folder. dtype None: the stored types. `tensors` {name: float32 array} replace the
        tensors with the same names, or are added; config (a dict or JSON) replaces config.json."""
        named = given(tensors or {}, "tensors", np.float32)
        options = struct(ModelSaveOptions, dtype=choose("dtype", dtype, SAVED), overwrite=bool(overwrite), tensors=named, count=len(named),
                         config_json=_config(config))
        call_long("mha_model_save", self._open(), path_bytes(path), ctypes.byref(options))

    def save_gguf(self, path: Any, dtype: str | None = None, overwrite: bool = False) -> None:
        """Writes the model atomically to a GGUF file of llama.cpp. dtype: "f32", "f16", "bf16" or "q8_0", the type of matrices; None:
        the stored type. Raises NotImplementedError for a model that llama.cpp would compute differently, naming the key."""
        options = struct(ModelSaveOptions, dtype=choose("dtype", dtype, {**SAVED, "q8_0": DTYPES["q8_0"]}), overwrite=bool(overwrite))
        call_long("mha_model_save_gguf", self._open(), path_bytes(path), ctypes.byref(options))

    def fingerprint(self) -> str:
        """Returns a hash of the config, the weights and the hidden states of a few tokens, as 16 hexadecimal digits. It detects
        accidental changes, and distinguishes the types of packed weights and the instruction sets.

            >>> import mha
            >>> mha.Model().fingerprint() == mha.Model(dtype="bf16").fingerprint()
            False
        """
        text = ctypes.create_string_buffer(17)
        call_long("mha_model_fingerprint", self._open(), text)
        return text.value.decode()


def model_save_check(folder: Any, overwrite: bool = False) -> None:
    """Raises OSError if saving a model to this folder would fail because of existing files or a missing parent folder.

        >>> import mha, os, tempfile
        >>> mha.model_save_check(os.path.join(tempfile.mkdtemp(), "new"))
    """
    call("mha_model_save_check", path_bytes(folder, "folder"), bool(overwrite))
