"""mha.ModelGrads: the backward pass of a whole model, for losses, distillation and custom gradients."""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_double, c_int64
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays.array import choose, floats, integer, number, view
from .._arrays.tensors import taken
from .._binding.abi import (
    ClipLossArgs,
    ModelContextGradient,
    ModelDistill,
    ModelDropout,
    ModelGradient,
    ModelGradsOptions,
    ModelInfo,
    ModelLossArgs,
    ModelOutput,
)
from .._binding.exclusive import exclusive
from .._binding.library import Handle, call, callback, create, lib, struct
from .._binding.long_call import Guard, call_long
from .forward import POOL, Output, logits_shape
from .model_input import GATE, Input, ModelBase, like_ids, source_input


@dataclass
class Distill:
    """The weights of the terms of a distillation, and its temperature; all 0: labels and logits 0.5, or hidden 1 without logits."""

    labels: float = 0.0
    logits: float = 0.0
    hidden: float = 0.0
    text: float = 0.0
    temperature: float = 0.0
    pool: str = "mean"

    def struct(self) -> ModelDistill:
        """Returns the struct of the library."""
        return ModelDistill(*(number(getattr(self, name), name) for name in ("labels", "logits", "hidden", "text", "temperature")),
                            choose("pool", self.pool, POOL))


@dataclass
class Loss:
    """The result of ModelGrads.loss: the loss, the counted labels or tokens, and gradients that were requested. cross_gates and
    encoder_gates are those of an encoder-decoder."""

    loss: float
    counted: int
    gates: np.ndarray | None = None
    embeddings: np.ndarray | None = None
    cross_gates: np.ndarray | None = None
    encoder_gates: np.ndarray | None = None


OnContext = Callable[[dict[str, Any]], Any]


def _context_function(kind: Any, function: OnContext | None, guard: Guard) -> Any:
    def see(_user: Any, given: Any) -> Any:
        g: ModelContextGradient = given.contents
        shape = g.rows, g.heads, g.head_dim
        seen = {"layer": g.layer, "context": view(g.context, np.float32, shape), "dcontext": view(g.dcontext, np.float32, shape),
                "row_taylor": view(g.row_taylor, np.float32, (g.heads, g.rows))}
        return function and function(seen)
    return callback(kind, "on_context", guard.wrap(see) if function else None)


class ModelGrads(Handle):
    """Gradients of a model by the names of its tensors, and the activations of its last forward pass (include/mha/model_grads.h).

    parameters=False: only gradients of gates and embeddings. attention_only: only parameters of attention layers. recompute: less
    memory, more time. pack: packs the weights for the backward pass once.

        >>> import mha
        >>> model = mha.Model()
        >>> with mha.ModelGrads(model) as grads:
        ...     found = grads.loss([model.tokenize("the cat sat")], gates=True)
        ...     found.gates.shape, found.counted, sorted(grads.list())[:1]
        ((2, 1, 8), 4, ['lm_head.weight'])
    """

    def __init__(self, model: ModelBase, *, parameters: bool = True, recompute: bool = False, pack: bool = False,
                 attention_only: bool = False) -> None:
        options = struct(ModelGradsOptions, no_parameters=not parameters, recompute=bool(recompute), pack=bool(pack),
                         attention_only=bool(attention_only))
        self._own(create("mha_model_grads_create", model._open(), ctypes.byref(options)), "mha_model_grads_free", model._open())
        self._model = model
        self._given: Input | None = None

    @exclusive
    def list(self) -> dict[str, np.ndarray]:
        """Returns copies of the accumulated gradients, float32, by the names of the tensors."""
        count = c_int64()
        found = lib.mha_model_grads_list(self._open(), ctypes.byref(count))
        return taken(found, count.value)

    @exclusive
    def zero(self) -> None:
        """Sets the accumulated gradients to 0."""
        lib.mha_model_grads_zero(self._open())

    @exclusive
    def dropout(self, embedding: float = 0.0, attention: float = 0.0, residual: float = 0.0, seed: int = 0) -> None:
        """Sets the dropout of later passes. The seed must differ in each pass."""
        options = ModelDropout(number(embedding, "embedding"), number(attention, "attention"), number(residual, "residual"),
                               integer(seed, "seed", 0, 2**64 - 1))
        call("mha_model_grads_dropout", self._open(), ctypes.byref(options))

    def _gradients(self, given: Input, gates: bool, embeddings: bool) -> tuple[np.ndarray | None, np.ndarray | None]:
        info = self._model._info
        return (np.zeros((info.layers, given.batch, info.heads), np.float32) if gates else None,
                np.zeros((*given.rows, info.hidden), np.float32) if embeddings else None)

    def _encoder_gates(self, batch: int) -> np.ndarray:
        info: ModelInfo = lib.mha_model_describe(lib.mha_model_encoder(self._model._open())).contents
        return np.zeros((info.layers, batch, info.heads), np.float32)

    # ---- standard losses ----

    @exclusive
    def loss(self, ids: Any = None, labels: Any = None, mask: Any = None, *, type_ids: Any = None, positions: Any = None, starts: Any = None,
             gate: Any = None, scale: float = 0.0, gates: bool = False, embeddings: bool = False, loss_only: bool = False,
             teacher: ModelBase | None = None, distill: Distill | None = None, on_context: OnContext | None = None,
             taylor: bool = False, pixels: Any = None, source: Any = None, source_mask: Any = None, source_gate: Any = None,
             cross_gate: Any = None) -> Loss:
        """Computes the cross entropy on ids [B, L], or the distillation loss of a teacher, and adds its gradients to list().

        labels [B, L]: ids, or -100, which does not count; for decoders shifted here; None: the ids, for decoders. gate: gates as in
        mha.Model.forward. scale: factor of the sum; 0: the mean. gates, embeddings: also return their gradients, [layers, B, heads] and
        [B, L, E]. loss_only: no backward pass. on_context({"layer", "context", "dcontext", "row_taylor"}) gets the outputs of the heads
        [rows, heads, head_dim] and their gradients, layer by layer from the last, without copies; row_taylor with taylor=True.
        pixels [B, channels, height, width]: images instead of ids, whose labels [B] are classes. source, source_mask: as in
        mha.Model.forward of an encoder-decoder; token i of ids then predicts label i. source_gate, cross_gate: gates of the encoder and
        of the cross-attention.
        """
        encoder = source_input(self._model, source, source_mask, source_gate, "source_gate")
        given, guard = Input(self._model._info, ids, mask=mask, type_ids=type_ids, positions=positions, starts=starts, gates=gate,
                             pixels=pixels, source=encoder, cross_gates=cross_gate, names=GATE), Guard()
        dgates, dembeddings = self._gradients(given, gates, embeddings)
        dcross = np.zeros_like(dgates) if encoder is not None and dgates is not None else None
        dencoder = None if dcross is None else self._encoder_gates(given.batch)
        args = struct(ModelLossArgs, labels=like_ids("labels", labels, given.rows if pixels is None else (given.batch,)), scale=number(scale, "scale"), dgates=dgates,
                      dembeddings=dembeddings, loss_only=bool(loss_only), teacher=None if teacher is None else teacher._open(),
                      distill=ModelDistill() if distill is None else distill.struct(), taylor=bool(taylor),
                      on_context=_context_function(ModelLossArgs, on_context, guard), dcross_gates=dcross, dencoder_gates=dencoder)
        loss, counted = c_double(), c_int64()
        guard.call("mha_model_grads_loss", self._open(), ctypes.byref(given.struct), ctypes.byref(args), ctypes.byref(loss),
                   ctypes.byref(counted))
        return Loss(loss.value, counted.value, dgates, dembeddings, dcross, dencoder)

    # ---- a custom loss ----

    @exclusive
    def clip_loss(self, ids: Any, pixels: Any, mask: Any = None, *, loss_only: bool = False) -> float:
        """Computes the contrastive loss of a CLIP model on B texts, ids [B, L] with mask, and B images, pixels [B, channels, height, width],
        and adds its gradients to list(). Image n belongs to text n."""
        _, vision = self._model._tower(pixels)
        texts, images, loss = Input(self._model._info, ids, mask=mask), Input(vision, None, pixels=pixels), c_double()
        args = struct(ClipLossArgs, texts=ctypes.pointer(texts.struct), images=ctypes.pointer(images.struct), loss_only=bool(loss_only))
        call_long("mha_clip_loss", self._open(), ctypes.byref(args), ctypes.byref(loss))
        return loss.value

    @exclusive
    def forward(self, ids: Any = None, mask: Any = None, *, type_ids: Any = None, positions: Any = None, starts: Any = None,
                gate: Any = None, pixels: Any = None) -> Output:
        """Runs the model on ids [B, L], or on pixels of images, and keeps its activations for backward(). Returns Output(logits,
        last_hidden, None, None)."""
        info = self._model._info
        given = Input(info, ids, mask=mask, type_ids=type_ids, positions=positions, starts=starts, gates=gate, pixels=pixels, names=GATE)
        last = np.empty((*given.rows, info.hidden), np.float32)
        logits = np.empty(logits_shape(info, given), np.float32) if info.logit_width else None
        self._given = given  # its arrays are read by backward()
        Guard().call("mha_model_grads_forward", self._open(), ctypes.byref(given.struct),
                     ctypes.byref(struct(ModelOutput, last_hidden=last, logits=logits)))
        return Output(logits, last, None, None)

    @exclusive
    def backward(self, *, last_hidden: Any = None, logits: Any = None, last_logits: Any = None, pooled: Any = None, embedding: Any = None,
                 gates: bool = False, embeddings: bool = False, on_context: OnContext | None = None,
                 taylor: bool = False) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Adds the gradients of a scalar to list(), from its gradients with respect to the outputs of forward(); None: zeros.

        Returns the gradients of gates [layers, B, heads] and embeddings [B, L, E] if requested. May be called several times.
        """
        given, info, guard = self._given, self._model._info, Guard()
        if given is None:
            raise ValueError("forward() must be called before backward()")
        shapes = {"last_hidden": (*given.rows, info.hidden), "logits": logits_shape(info, given), "last_logits": (given.batch, info.vocab),
                  "pooled": (given.batch, info.hidden), "embedding": (given.batch, info.embedding_width)}
        values = {"last_hidden": last_hidden, "logits": logits, "last_logits": last_logits, "pooled": pooled, "embedding": embedding}
        arrays = {name: floats(x, name, shapes[name]) for name, x in values.items() if x is not None}
        dgates, dembeddings = self._gradients(given, gates, embeddings)
        gradient = struct(ModelGradient, **arrays, gates=dgates, embeddings=dembeddings, taylor=bool(taylor),
                          on_context=_context_function(ModelGradient, on_context, guard))
        guard.call("mha_model_grads_backward", self._open(), ctypes.byref(gradient))
        return dgates, dembeddings
