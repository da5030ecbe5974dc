"""Which parts of a model write its prediction: mha.logit_lens and mha.logit_attribution."""
from __future__ import annotations

import ctypes
from ctypes import POINTER
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays.array import integer, integers, view
from .._binding import abi
from .._binding.library import lib, struct
from .._binding.long_call import call_long
from .._models.model import Model
from .._models.model_input import token_ids


@dataclass
class LogitLens:
    """The result of logit_lens. Entry 0 is the input of layer 0, entry n the output of layer n - 1. top_ids and top_probs:
    [entries, tokens, top]; targets: [tokens], -100 = none; target_logprobs and target_ranks (0 = first, -1 = no target): [entries, tokens];
    divergences: [entries, tokens], KL(output of the model, entry) in nats."""

    top_ids: np.ndarray
    top_probs: np.ndarray
    targets: np.ndarray
    target_logprobs: np.ndarray
    target_ranks: np.ndarray
    divergences: np.ndarray


def logit_lens(model: Model, ids: Any, *, top: int = 5, targets: Any = None) -> LogitLens:
    """Applies the output head of the model to the hidden state after each layer of one text. targets: a token per position (-100 = none);
    None: the next token in a decoder, the token itself in an encoder.

        >>> import mha
        >>> model = mha.Model()
        >>> lens = mha.logit_lens(model, model.tokenize(" red cat key boat hat drum red cat key"))
        >>> model.decode(lens.top_ids[-1, -1, :1])
        ' boat'
    """
    ids = token_ids([ids])[0]
    given = None if targets is None else integers(targets, "targets", np.int32)
    if given is not None and len(given) != len(ids):
        raise ValueError(f"targets must hold {len(ids)} integers (got {len(given)})")
    options = struct(abi.LogitLensOptions, top=integer(top, "top"), targets=None if given is None else given.ctypes.data)
    handle = POINTER(abi.LogitLens)()
    call_long("mha_logit_lens_measure", model._open(), ids.ctypes.data, len(ids), ctypes.byref(options), ctypes.byref(handle))
    try:
        r = handle.contents
        shape, top_shape = (r.entries, r.tokens), (r.entries, r.tokens, r.top)
        return LogitLens(*(view(address, dtype, of).copy() for address, dtype, of in (
            (r.top_ids, np.int32, top_shape), (r.top_probs, np.float64, top_shape), (r.targets, np.int32, (r.tokens,)),
            (r.target_logprobs, np.float64, shape), (r.target_ranks, np.int64, shape), (r.divergences, np.float64, shape))))
    finally:
        lib.mha_logit_lens_free(handle)


@dataclass
class LogitAttribution:
    """The result of logit_attribution. The first axis of every array is: the logit difference of answer and wrong answer (NaN without one),
    the logit of the answer, and that logit minus the mean over the vocabulary. total, embed, pos_embed, norm_bias and logit_bias: [3];
    heads: [3, layers, heads]; sources: [3, layers, heads, tokens]; attn_bias and mlps: [3, layers]. scale: of the final norm. error: the
    largest difference between the sum of the parts and the logit."""

    total: np.ndarray
    embed: np.ndarray
    pos_embed: np.ndarray
    norm_bias: np.ndarray
    logit_bias: np.ndarray
    heads: np.ndarray
    sources: np.ndarray
    attn_bias: np.ndarray
    mlps: np.ndarray
    scale: float
    error: float


def logit_attribution(model: Model, ids: Any, answer: int, wrong: int | None = None, position: int = -1) -> LogitAttribution:
    """Splits the logit of the token `answer` (minus that of `wrong`) after `position` of one text into the parts that the embeddings, each
    head and each feed-forward part of a decoder write (include/mha/logit_attribution.h). A negative position counts from the end.

        >>> import mha
        >>> model = mha.Model()
        >>> boat, ring = model.tokenize(" boat ring")
        >>> found = mha.logit_attribution(model, model.tokenize(" red cat key boat hat drum red cat key"), boat, ring)
        >>> round(float(found.total[0]), 2), bool(found.error < 1e-4)
        (7.97, True)
    """
    ids = token_ids([ids])[0]
    at = integer(position, "position")
    options = struct(abi.LogitAttributionOptions, position=at + len(ids) if at < 0 else at, answer=integer(answer, "answer", 0, 2**31 - 1),
                     wrong=-1 if wrong is None else integer(wrong, "wrong", 0, 2**31 - 1))
    handle = POINTER(abi.LogitAttribution)()
    call_long("mha_logit_attribution_measure", model._open(), ids.ctypes.data, len(ids), ctypes.byref(options), ctypes.byref(handle))
    try:
        r = handle.contents
        rows, heads = (abi.LOGIT_TARGETS, r.layers), (abi.LOGIT_TARGETS, r.layers, r.head_count)
        return LogitAttribution(
            np.array(r.total), np.array(r.embed), np.array(r.pos_embed), np.array(r.norm_bias), np.array(r.logit_bias),
            view(r.heads, np.float64, heads).copy(), view(r.sources, np.float64, (*heads, r.tokens)).copy(),
            view(r.attn_bias, np.float64, rows).copy(), view(r.mlps, np.float64, rows).copy(), r.scale, r.error)
    finally:
        lib.mha_logit_attribution_free(handle)
