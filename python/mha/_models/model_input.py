"""The base of mha.Model: its properties, and the input of its passes as the library reads it."""
from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from ctypes import c_void_p
from typing import Any

import numpy as np

from .._arrays.array import flags, floats, integer, integers, view
from .._binding.abi import ModelHead, ModelInfo, ModelInput
from .._binding.library import Handle, lib, struct

_SCALARS = ("layers", "heads", "kv_heads", "head_dim", "hidden", "intermediate", "vocab", "max_positions", "type_vocab", "parameters",
            "bytes", "kv_bytes_per_token", "causal", "logits", "original_heads", "rotation_by_length", "image_channels", "image_height",
            "image_width", "patch_height", "patch_width", "classes", "embedding_width", "images_ignored", "logit_width", "pool",
            "position_table")
_PER_LAYER = ("heads_per_layer", "key_heads_per_layer", "value_heads_per_layer", "feed_forward_per_layer")
_CHOICES = ("none", "experts", "heads", "options")


class ModelBase(Handle):
    """An opened model, with its properties."""

    def _take(self, handle: c_void_p, *parents: Any, free: str | Callable[..., Any] = "mha_model_free") -> None:
        self._own(handle, free, *parents)
        self.config: dict[str, Any] = json.loads(lib.mha_model_config_json(handle))

    @property
    def _info(self) -> ModelInfo:
        info: ModelInfo = lib.mha_model_describe(self._open()).contents
        return info

    def _tower(self, pixels: Any) -> tuple[int | c_void_p, ModelInfo]:
        """Returns the model that reads these pixels and its properties; without pixels, this model."""
        if pixels is None:
            return self._open(), self._info
        vision = lib.mha_model_vision(self._open())
        if not vision:
            raise ValueError(f"pixels must be None for a model of texts (got {self.info['family']})")
        info: ModelInfo = lib.mha_model_describe(vision).contents
        return vision, info

    @property
    def info(self) -> dict[str, Any]:
        """The properties of the checkpoint: family, layers, heads, kv_heads, head_dim, hidden, vocab, parameters, heads_per_layer ..."""
        raw = self._info
        found: dict[str, Any] = {"family": raw.family.decode() if raw.family else ""}
        found |= {name: getattr(raw, name) for name in _SCALARS}
        lists = (*_PER_LAYER, "cross_heads_per_layer") if raw.encoder_decoder else _PER_LAYER
        return found | {name: view(getattr(raw, name), np.int64, (raw.layers,)).tolist() for name in lists}

    @property
    def audio_shape(self) -> tuple[int, int] | None:
        """The shape (bins, frames) of the audio features that the encoder reads; None if it reads tokens."""
        encoder = lib.mha_model_encoder(self._open())
        info = lib.mha_model_describe(encoder).contents if encoder else self._info
        return (info.feature_bins, 2 * info.max_positions) if info.feature_bins else None

    @property
    def attention(self) -> list[dict[str, Any]]:
        """The attention of each layer: window, rotary, qk_norm, alibi, scale, softcap, choice, heads_per_text, head_options."""
        raw, layers = self._info, []
        for a in raw.attention_per_layer[:raw.layers]:
            one = {name: getattr(a, name) for name in ("window", "rotary", "qk_norm", "alibi", "scale", "softcap", "heads_per_text")}
            layers.append(one | {"choice": _CHOICES[a.choice],
                                 "head_options": view(a.head_options, np.int64, (a.head_option_count,)).tolist() if a.head_options else []})
        return layers


GATES, GATE = ("gates", "cross_gates"), ("gate", "cross_gate")  # names of the arguments of methods that take gates


class Input:
    """Token ids and masks of a pass. `rows` is the shape of results per token: [B, L], or [total] of packed sequences. `names` are those
    of the arguments for gates and cross_gates in messages."""

    def __init__(self, info: ModelInfo, ids: Any, *, mask: Any = None, type_ids: Any = None, positions: Any = None, gates: Any = None,
                 fills: Any = None, first_layer: int = 0, states: Any = None, context: Any = None, cache: Any = None,
                 sequence: int | None = None, starts: Any = None, pixels: Any = None, source: ModelInput | None = None,
                 cross_gates: Any = None, names: tuple[str, str] = GATES) -> None:
        if pixels is not None:
            self._take_pixels(info, pixels, gates, fills, {
                "ids": ids, "mask": mask, "type_ids": type_ids, "positions": positions, "first_layer": first_layer or None,
                "states": states, "context": context, "cache": cache, "sequence": sequence, "starts": starts, "source": source,
                names[1]: cross_gates}, names[0])
            return
        if cross_gates is not None and source is None and cache is None:
            raise ValueError(f"{names[1]} must be None without source")
        ids = token_ids(ids) if starts is None else integers(ids, "ids", np.int32)
        self.rows: tuple[int, ...] = ids.shape
        at = None if starts is None else integers(starts, "starts")
        self.batch: int = len(ids) if at is None else len(at) - 1
        self.length: int = ids.shape[1] if at is None else int(np.diff(at).max(initial=0))
        if at is not None and (len(at) < 2 or at[-1] != len(ids)):
            raise ValueError(f"starts must begin with 0 and end with {len(ids)}, the number of ids (got {at.tolist()})")
        if cache is not None and self.batch != (cache.batch if sequence is None else 1):
            raise ValueError(f"ids must have the batch of the cache, {cache.batch}, or 1 with sequence (got {self.batch})")
        hidden = None if states is None else floats(states, "states", (*self.rows, info.hidden))
        if hidden is None and first_layer:
            raise ValueError(f"first_layer must be 0 unless states is given (got {first_layer})")
        self.struct = struct(
            ModelInput, batch=self.batch, length=self.length, ids=ids, type_ids=like_ids("type_ids", type_ids, self.rows),
            mask=None if mask is None else flags(mask, "mask", self.rows), positions=like_ids("positions", positions, self.rows),
            gates=_gates(info, gates, self.batch, names[0]), fills=None if fills is None else floats(fills, "fills", (
                info.layers, info.heads, info.head_dim)), starts=at, first_layer=integer(first_layer, "first_layer"), hidden=hidden,
            context=None if context is None else floats(context, "context", (*self.rows, _context_width(info, first_layer))),
            cache=None if cache is None else cache._open(), sequence=integer(sequence or 0, "sequence"),
            source=None if source is None else ctypes.pointer(source), cross_gates=_gates(info, cross_gates, self.batch, names[1]))
        self.struct.__dict__["source_alive"] = source

    def _take_pixels(self, info: ModelInfo, pixels: Any, gates: Any, fills: Any, others: dict[str, Any], gates_name: str) -> None:
        """Takes images [B, channels, height, width] instead of ids; the other arguments are not supported."""
        for name, value in others.items():
            if value is not None:
                raise ValueError(f"{name} must be {0 if name == 'first_layer' else None} with pixels")
        shape = info.image_channels, info.image_height, info.image_width
        images = floats(pixels, "pixels", (None, *shape))
        self.batch, self.length = len(images), info.max_positions
        self.rows = self.batch, self.length
        self.struct = struct(ModelInput, batch=self.batch, pixels=images, gates=_gates(info, gates, self.batch, gates_name),
                             fills=None if fills is None else floats(fills, "fills", (info.layers, info.heads, info.head_dim)))


def _context_width(info: ModelInfo, layer: int) -> int:
    """Returns the width of the input of the output projection of a layer."""
    if not 0 <= layer < info.layers:
        raise ValueError(f"first_layer must be from 0 to {info.layers - 1} (got {layer})")
    return int(view(info.heads_per_layer, np.int64, (info.layers,))[layer] * info.head_dim)


def source_input(model: ModelBase, source: Any, mask: Any, gates: Any = None, name: str = "source_gates") -> ModelInput | None:
    """Returns the input of an encoder: ids [B, S], or features [B, bins, frames] of an encoder that reads audio. `name` is that of the
    argument for gates."""
    if source is None:
        if mask is not None or gates is not None:
            raise ValueError(f"{name if mask is None else 'source_mask'} must be None without source")
        return None
    audio, encoder = model.audio_shape, lib.mha_model_encoder(model._open())
    info: ModelInfo = lib.mha_model_describe(encoder).contents if encoder else model._info
    if audio:
        features = floats(source, "source", (None, *audio))
        return struct(ModelInput, batch=len(features), length=audio[1] // 2, features=features,
                      mask=None if mask is None else flags(mask, "source_mask", (len(features), audio[1] // 2)),
                      gates=_gates(info, gates, len(features), name))
    ids = token_ids(source)
    return struct(ModelInput, batch=len(ids), length=ids.shape[1], ids=ids,
                  mask=None if mask is None else flags(mask, "source_mask", ids.shape), gates=_gates(info, gates, len(ids), name))


def token_ids(ids: Any) -> np.ndarray:
    """Returns ids [B, L]."""
    found: np.ndarray = integers(ids, "ids", np.int32, dims=(2,))
    return found


def like_ids(name: str, x: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Returns integers of the shape of the ids; None for None."""
    if x is None:
        return None
    found: np.ndarray = integers(x, name, np.int32, dims=(1, 2))
    if found.shape != shape:
        raise ValueError(f"{name} must be of shape {shape} (got {found.shape})")
    return found


def head_pairs(pairs: Any, name: str) -> Any:
    """Returns pairs (layer, head) in the order of the layers."""
    pairs = integers(list(pairs), name, np.int32, dims=(2,))
    if pairs.shape[1] != 2 or len(pairs) == 0:
        raise ValueError(f"{name} must be True, False or pairs (layer, head) (got shape {pairs.shape})")
    ordered: Any = sorted(map(tuple, pairs.tolist()))
    return (ModelHead * len(ordered))(*ordered)


def _gates(info: ModelInfo, gates: Any, batch: int, name: str) -> np.ndarray | None:
    if gates is None:
        return None
    gates, layers, heads = floats(gates, name), info.layers, info.heads
    if gates.shape not in ((layers, heads), (layers, batch, heads)):
        raise ValueError(f"{name} must be of shape {(layers, heads)} or {(layers, batch, heads)} (got {gates.shape})")
    each = gates[:, None] if gates.ndim == 2 else gates
    return np.ascontiguousarray(np.broadcast_to(each, (layers, batch, heads)))
