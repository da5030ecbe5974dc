"""The attention implementation "mha" for transformers, and measures of the heads of models that use it.

    import mha.transformers
    mha.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="mha")
    found = mha.transformers.heads(model, tokenizer, ["The cat sat on the mat."])

Supports every architecture of transformers that calls AttentionInterface; other architectures ignore the name. This module requires
PyTorch and transformers.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from ._attention.description import Description
from ._attention.operator import attention as _attention
from .torch import attention as _differentiable

__all__ = ["Heads", "heads", "register"]

_UNSUPPORTED = ("head_mask", "layer_head_mask", "cu_seq_lens_q", "cu_seq_lens_k", "block_table")
_MEANS = {"entropy": "row_entropy", "confidence": "row_max", "distance": "row_distance"}


def register(name: str = "mha") -> None:
    """Registers attn_implementation="mha" with transformers, including the forward and backward passes. May be called more than once."""
    AttentionInterface.register(name, _forward)
    AttentionMaskInterface.register(name, sdpa_mask)


def _described(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None,
               is_causal: bool | None, position_bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Returns keys, values and masks of a call, as defined for "sdpa": without a mask, a call is causal with top-left alignment."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    description: dict[str, Any] = {}
    bias = position_bias
    if mask is None:
        if causal and query.shape[2] > 1:
            description = {"causal": True, "align": "top_left"}
            if key.shape[2] > query.shape[2]:  # remove the unused end of a static cache
                key, value = key[:, :, :query.shape[2]], value[:, :, :query.shape[2]]
                bias = bias if bias is None else bias[..., :query.shape[2]]
    elif mask.dtype == torch.bool:
        description["keep"] = mask
    else:
        bias = mask if bias is None else bias + mask
    if bias is not None:
        description["bias"] = bias
    return key, value, description


def _forward(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
             attention_mask: torch.Tensor | None, scaling: float | None = None, dropout: float = 0.0, is_causal: bool | None = None,
             position_bias: torch.Tensor | None = None, softcap: float | None = None, s_aux: torch.Tensor | None = None,
             **more: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    for name in _UNSUPPORTED:
        if more.get(name) is not None:
            raise ValueError(f"{name} must be None with attn_implementation=\"mha\" ({type(module).__name__} passes it)")
    key, value, description = _described(module, query, key, value, attention_mask, is_causal, position_bias)
    description |= {"scale": scaling, "softcap": softcap or 0.0, "sinks": s_aux}
    out = None
    if _observer is not None:
        layer = _observer.layer(module, query)
        if _observer.measuring:
            out = _observer.measure(layer, query, key, value, description)
        elif _observer.gates is not None:
            description["gates"] = _observer.gates[layer]
    if out is None:
        out = _differentiable(query, key, value, dropout=dropout, **description)
    probs = None
    if more.get("output_attentions"):
        with torch.no_grad():
            probs = _attention(query, key, value, return_probs=True, **{n: x for n, x in description.items() if x is not None}).probs
            probs = probs.to(query.dtype)
    return out.transpose(1, 2).contiguous(), probs


# ---- head measurements ----

@dataclass
class Heads:
    """The result of mha.transformers.heads. Arrays are [layers, heads], with NaN if a layer has fewer heads.

    metrics: "entropy" (bits), "confidence" (the largest probability of a row), "distance" (tokens) and "sink" (weight on the first
    token), as means over all rows of all texts. maps: {(layer, head): [array [L, L] per text]}. gate_gradients: the mean of
    |d loss / d gate| over the texts. importance: the increase of the mean loss without the head.
    """

    layers: list[str]
    texts: int
    metrics: dict[str, np.ndarray]
    maps: dict[tuple[int, int], list[np.ndarray]] = field(default_factory=dict)
    gate_gradients: np.ndarray | None = None
    importance: np.ndarray | None = None
    loss: float | None = None


class _Observer:
    """Measures the attention of each module while a model runs. Layers are numbered in the order of their first call."""

    def __init__(self, names: dict[torch.nn.Module, str], maps: Sequence[tuple[int, int]]) -> None:
        self.names, self.wanted = names, sorted(maps)
        self.layers: list[str] = []
        self.heads: list[int] = []
        self.sums: list[dict[str, np.ndarray]] = []
        self.rows: list[int] = []
        self.maps: dict[tuple[int, int], list[np.ndarray]] = {pair: [] for pair in self.wanted}
        self.measuring = True
        self.gates: list[torch.Tensor] | None = None

    def layer(self, module: torch.nn.Module, query: torch.Tensor) -> int:
        """Returns the number of the layer of a module."""
        name = self.names.get(module, type(module).__name__)
        if name not in self.layers:
            self.layers.append(name)
            self.heads.append(query.shape[1])
            self.rows.append(0)
            self.sums.append({n: np.zeros(query.shape[1]) for n in (*_MEANS, "sink")})
        return self.layers.index(name)

    def measure(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, description: dict[str, Any]) -> torch.Tensor:
        """Computes the attention of a call with its statistics and maps, and returns its output."""
        description = {n: x for n, x in description.items() if x is not None}
        chosen = [h for n, h in self.wanted if n == layer]
        if chosen:
            description["map_heads"] = chosen
        with torch.no_grad():
            found = _attention(query, key, value, return_stats=True, return_probs=bool(chosen), **cast("Description", description))
        stats = {n: np.asarray(x.double().numpy()) for n, x in found.stats.items()}
        self.rows[layer] += query.shape[0] * query.shape[2]
        for metric, statistic in _MEANS.items():
            self.sums[layer][metric] += stats[statistic].sum((0, 2))
        self.sums[layer]["sink"] += stats["received"][:, :, 0].sum(0)
        for n, head in enumerate(chosen):
            self.maps[layer, head].append(found.probs[0, n].float().numpy().copy())
        out: torch.Tensor = found.out
        return out

    def table(self, rows: Sequence[Any]) -> np.ndarray:
        """Combines one row per layer into [layers, heads]."""
        out = np.full((len(self.heads), max(self.heads, default=0)), np.nan)
        for layer, row in enumerate(rows):
            out[layer, :len(row)] = row
        return out

    def metrics(self) -> dict[str, np.ndarray]:
        return {n: self.table([s[n] / max(r, 1) for s, r in zip(self.sums, self.rows)]) for n in (*_MEANS, "sink")}


_observer: _Observer | None = None


@contextmanager
def _observed(model: Any, observer: _Observer) -> Iterator[None]:
    """Runs `model` with observed attention, and restores its attention implementation and mode afterwards."""
    global _observer
    if _observer is not None:
        raise RuntimeError("mha.transformers.heads must not be called while it is running")
    register()
    before, training = model.config._attn_implementation, model.training
    model.set_attn_implementation("mha")
    model.eval()
    _observer = observer
    try:
        yield
    finally:
        _observer = None
        model.set_attn_implementation(before)
        model.train(training)


def _loss(model: Any, given: dict[str, torch.Tensor]) -> torch.Tensor:
    """Returns the loss with the token ids as labels."""
    try:
        loss: torch.Tensor | None = model(**given, labels=given["input_ids"]).loss
    except TypeError:
        loss = None
    if loss is None:
        raise ValueError(f"model must compute a loss from labels if gradients or importance is set (got {type(model).__name__})")
    return loss


def _gate_gradients(model: Any, observer: _Observer, encoded: list[dict[str, torch.Tensor]]) -> np.ndarray:
    total = [np.zeros(n) for n in observer.heads]
    for given in encoded:
        observer.gates = [torch.ones(n, requires_grad=True) for n in observer.heads]
        found = torch.autograd.grad(_loss(model, given), observer.gates, allow_unused=True)
        for layer, g in enumerate(found):
            total[layer] += 0 if g is None else g.abs().double().numpy() / len(encoded)
    observer.gates = None
    return observer.table(total)


def _mean_loss(model: Any, encoded: list[dict[str, torch.Tensor]]) -> float:
    with torch.no_grad():
        return sum(float(_loss(model, given)) for given in encoded) / len(encoded)


def _leave_one_out(model: Any, observer: _Observer, encoded: list[dict[str, torch.Tensor]], whole: float) -> np.ndarray:
    growth = [np.zeros(n) for n in observer.heads]
    for layer, count in enumerate(observer.heads):
        for head in range(count):
            observer.gates = [torch.ones(n) for n in observer.heads]
            observer.gates[layer][head] = 0
            growth[layer][head] = _mean_loss(model, encoded) - whole
    observer.gates = None
    return observer.table(growth)


def heads(model: Any, tokenizer: Any, texts: Sequence[str], *, maps: Sequence[tuple[int, int]] = (), gradients: bool = False,
          importance: bool = False) -> Heads:
    """Runs a transformers model on texts and measures every head with the fused kernel, in O(L) memory.

    maps: pairs (layer, head) whose attention maps are returned. gradients: also computes the gradient of the loss with respect to a
    gate on each head's output. importance: also computes the increase of the loss without each head, with one pass over the texts per head.
    Both use the token ids as labels. Texts run one at a time; the tokenizer truncates them to its max_length. The attention implementation
    of the model is restored afterwards. Raises ValueError if the architecture does not use AttentionInterface.
    """
    if isinstance(texts, str) or not len(texts):
        raise ValueError(f"texts must be a list of str with at least one element (got {texts!r})")
    encoded = [dict(tokenizer(text, return_tensors="pt")) for text in texts]
    observer = _Observer({module: name for name, module in model.named_modules()}, maps)
    with _observed(model, observer):
        with torch.no_grad():
            for given in encoded:
                model(**given)
        if not observer.layers:
            raise ValueError(f"model must use AttentionInterface of transformers (got {type(model).__name__})")
        for layer, head in observer.wanted:
            if not observer.maps[layer, head]:
                raise ValueError(f"maps must be pairs (layer, head) of this model (got {(layer, head)})")
        observer.measuring = False
        found = Heads(observer.layers, len(texts), observer.metrics(), observer.maps)
        if gradients:
            found.gate_gradients = _gate_gradients(model, observer, encoded)
        if importance:
            found.loss = _mean_loss(model, encoded)
            found.importance = _leave_one_out(model, observer, encoded, found.loss)
    return found
