"""mha.AttnLayer and mha.Block: attention and a transformer block as models run them, also with heads chosen by the text."""
from __future__ import annotations

import ctypes
from ctypes import c_int64
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._arrays.array import DTYPES, array, choose, flags, floats, integer, integers, lengths, number
from .._attention.cache import Cache
from .._binding import abi
from .._binding.abi import AttnStats, LayerActivations, LayerChoice, LayerInput, View, Window
from .._binding.context import context
from .._binding.exclusive import with_cache
from .._binding.library import Handle, call, create, struct
from .linear_norm_loss import ACTIVATIONS, Matrix, Norm, require_inputs
from .rope import Rope


class LayerOutput(NamedTuple):
    """The results of mha.AttnLayer.forward; None for those that were not requested."""

    y: np.ndarray
    probs: np.ndarray | None
    stats: dict[str, np.ndarray] | None
    activations: dict[str, np.ndarray] | None
    kept: np.ndarray | None


_CHOICES = {"experts": abi.CHOICE_EXPERTS, "heads": abi.CHOICE_HEADS, "options": abi.CHOICE_OPTIONS}
_SELECTIONS = {"hard": abi.SELECTION_HARD, "soft": abi.SELECTION_SOFT, "straight_through": abi.SELECTION_STRAIGHT_THROUGH}


@dataclass
class HeadChoice:
    """How a layer chooses heads by the text. of: "experts" or "heads": the `keep` heads with the highest scores; "options": the number of
    heads with the highest score, one of `options`. score [heads, E], or [len(options), P] with hidden [P, E]."""

    of: str
    score: Matrix
    keep: int = 0
    hidden: Matrix | None = None
    options: tuple[int, ...] = ()
    selection: str = "hard"

    def struct(self, width: int, heads: int) -> LayerChoice:
        """Returns the struct of the library for a layer of this width and number of heads."""
        fields = {} if self.hidden is None else {"hidden": self.hidden.struct("choice.hidden", width)}
        fields["score"] = self.score.struct("choice.score", fields["hidden"].out if fields else width)
        wanted = len(self.options) if self.of == "options" else heads
        if fields["score"].out != wanted:
            raise ValueError(f"choice.score must have {wanted} outputs (got {fields['score'].out})")
        counts = [integer(n, "choice.options") for n in self.options]
        return struct(LayerChoice, of=choose("choice.of", self.of, _CHOICES), keep=integer(self.keep, "choice.keep"), **fields,
                      selection=choose("choice.selection", self.selection, _SELECTIONS),
                      options=(c_int64 * abi.HEAD_OPTIONS)(*counts), option_count=len(counts))


class AttnLayer(Handle):
    """Multi-head attention with its projections, as a layer of a model (include/mha/layer.h). It copies its weights.

        >>> import numpy as np, mha
        >>> rng = mha.Rng(1)
        >>> q, k, v, o = (mha.Matrix(rng.linear(8, 8)[0]) for _ in range(4))
        >>> layer = mha.AttnLayer(heads=2, q=q, k=k, v=v, o=o, causal=True)
        >>> y = layer.forward(rng.randn((1, 5, 8)), return_probs=True)
        >>> y.y.shape, y.probs.shape
        ((1, 5, 8), (1, 2, 5, 5))

    Matrices are q, k, v with H D, Hkv D, Hv D outputs, or qkv with all of them; o projects H D to E. dtype: the type of q, k and v in the
    operator, "f32", "bf16" or "f16". head_gains: q_norm and k_norm have weights [H, D] and [Hkv, D]. sinks [H]: logits in the denominator of the softmax.
    """

    _free, _new, _run = "mha_attn_layer_free", "mha_attn_layer_create", "mha_attn_layer_forward"

    def __init__(self, heads: int, o: Matrix, **options: Any) -> None:
        self._own(create(self._new, context(), ctypes.byref(self._attention(heads, o, **options))), self._free)

    def _attention(self, heads: int, o: Matrix, *, q: Matrix | None = None, k: Matrix | None = None, v: Matrix | None = None,
                   qkv: Matrix | None = None, kv_heads: int = 0, v_heads: int = 0, head_dim: int = 0, q_norm: Norm | None = None,
                   k_norm: Norm | None = None, whole_norms: bool = False, head_gains: bool = False, rope: Rope | None = None,
                   scale: float = 0.0, softcap: float = 0.0, causal: bool = False, window: tuple[int, int] | None = None,
                   dtype: str = "f32", slopes: Any = None, sinks: Any = None, choice: HeadChoice | None = None) -> abi.AttnLayerOptions:
        out = o.struct("o")
        self.hidden, self.heads = int(out.out), integer(heads, "heads", 1)
        self.kv_heads, self.rope, self.choice = integer(kv_heads, "kv_heads", 0) or self.heads, rope, choice
        self.head_dim = integer(head_dim, "head_dim", 0) or self.hidden // self.heads
        require_inputs(out, "o", self.heads * self.head_dim)
        values = integer(v_heads, "v_heads", 0) or self.kv_heads
        given = {name: m.struct(name, self.hidden) for name, m in (("q", q), ("k", k), ("v", v), ("qkv", qkv)) if m is not None}
        norms = {name: n.struct(name, self.head_dim * (count if whole_norms or head_gains else 1))
                 for name, n, count in (("q_norm", q_norm, self.heads), ("k_norm", k_norm, self.kv_heads)) if n is not None}
        widths = {"q": self.heads, "k": self.kv_heads, "v": values, "qkv": self.heads + self.kv_heads + values}
        for name, m in given.items():
            if m.out != widths[name] * self.head_dim:
                raise ValueError(f"{name} must have {widths[name] * self.head_dim} outputs (got {m.out})")
        return struct(abi.AttnLayerOptions, hidden=self.hidden, heads=self.heads, kv_heads=kv_heads, head_dim=head_dim, v_heads=v_heads,
                      o=out, **given, **norms, whole_norms=bool(whole_norms), head_gains=bool(head_gains), scale=number(scale, "scale"),
                      softcap=number(softcap, "softcap"), causal=bool(causal), window=Window(1, *window) if window else Window(),
                      rope=None if rope is None else ctypes.pointer(rope.options), dtype=choose("dtype", dtype, DTYPES),
                      slopes=None if slopes is None else floats(slopes, "slopes", (self.heads,)),
                      sinks=None if sinks is None else floats(sinks, "sinks", (self.heads,)),
                      choice=LayerChoice() if choice is None else choice.struct(self.hidden, self.heads))

    @with_cache
    def forward(self, x: Any, *, lengths: Any = None, keep: Any = None, bias: Any = None, cache: Cache | None = None,
                sequence: int | None = None, positions: Any = None, gates: Any = None, fills: Any = None, context: Any = None,
                return_probs: bool = False, return_stats: bool = False, return_activations: bool = False,
                return_kept: bool = False) -> Any:
        """Returns y [B, L, E] for x [B, L, E], or LayerOutput(y, probs, stats, activations, kept) if a return_ argument is set.

            lengths     [B] tokens of each sequence; later ones are padding
            keep, bias  broadcast to [B, H, L, L]: False is masked; added to the scores
            cache       an mha.Cache, to which the keys and values are appended; sequence: its sequence, with batch 1
            positions   [L] or [B, L] for rotation; None: they continue the cache, or begin at 0
            gates       [H] or [B, H] factors of each head's output; fills [H, D]: added to it
            context     [B, L, H D]: input of the output projection, instead of the computed one

        probs: [B, H, L, K]; stats: as mha.attention returns them; activations: {"input", "qkv", "context", "out"}; kept: bool
        [B, heads or options], the choice of the text.
        """
        call_ = _Call(self, x, lengths, cache, sequence)
        call_.masks(keep, bias, gates, fills, context)
        call_.rotate(positions)
        if return_probs:
            call_.probs()
        if return_stats:
            call_.stats()
        if return_activations:
            call_.activations()
        if return_kept:
            call_.kept()
        y = self._forward(call_)
        return LayerOutput(y, *call_.found) if return_probs or return_stats or return_activations or return_kept else y

    def _forward(self, call_: _Call) -> np.ndarray:
        y = np.empty_like(call_.x)
        call(self._run, self._open(), ctypes.byref(call_.input), call_.x.ctypes.data, y.ctypes.data)
        return y


class _Call:
    """The input of one forward call, and the results that it writes."""

    def __init__(self, layer: AttnLayer, x: Any, lens: Any, cache: Cache | None, sequence: int | None) -> None:
        self.layer, self.cache, self.x = layer, cache, floats(x, "x", (None, None, layer.hidden)).copy()
        self.batch, self.length = self.x.shape[:2]
        self.past = [0] * self.batch
        if cache is not None:
            self.past = cache.lengths if sequence is None else [cache.length(sequence)]
        if len(self.past) != self.batch:
            raise ValueError(f"x must have a batch of {len(self.past)}, as the cache (got {self.batch})")
        self.keys = self.length + max(self.past, default=0)
        rows = None if lens is None else lengths(lens, self.batch, "lengths")
        self.input = struct(LayerInput, batch=self.batch, length=self.length, lengths=rows,
                            cache=None if cache is None else cache._open(), sequence=0 if sequence is None else integer(sequence, "sequence"))
        self.alive: list[Any] = [rows]
        self.found: list[Any] = [None] * 4

    def _set(self, name: str, x: np.ndarray) -> np.ndarray:
        self.alive.append(x)
        setattr(self.input, name, x.ctypes.data)
        return x

    def _view(self, name: str, x: np.ndarray | None, target: tuple[int, int, int, int]) -> None:
        if x is not None:
            self.alive.append(x)
            setattr(self.input, name, array(x, name).broadcast(target, name))

    def masks(self, keep: Any, bias: Any, gates: Any, fills: Any, context: Any) -> None:
        whole = self.batch, self.layer.heads, self.length, self.length
        self._view("keep", None if keep is None else flags(keep, "keep", np.shape(keep)), whole)
        self._view("bias", None if bias is None else floats(bias, "bias"), whole)
        if gates is not None:
            g = floats(gates, "gates", (self.layer.heads,) if np.ndim(gates) == 1 else (self.batch, self.layer.heads))
            self.alive.append(g)
            self.input.gates = View(g.ctypes.data, (c_int64 * 4)(self.layer.heads if g.ndim == 2 else 0, 1, 0, 0))
        if fills is not None:
            self._set("fills", floats(fills, "fills", (self.layer.heads, self.layer.head_dim)))
        if context is not None:
            self._set("context", floats(context, "context", (self.batch, self.length, self.layer.heads * self.layer.head_dim)))

    def rotate(self, positions: Any) -> None:
        if self.layer.rope is None:
            if positions is not None:
                raise ValueError("positions must be None for a layer without rope")
            return
        at = np.asarray(self.past)[:, None] + np.arange(self.length) if positions is None else integers(positions, "positions", dims=(1, 2))
        if at.shape not in ((self.length,), (self.batch, self.length)):
            raise ValueError(f"positions must be of shape ({self.length},) or ({self.batch}, {self.length}) (got {at.shape})")
        cos, sin = self.layer.rope.angles(np.broadcast_to(at, (self.batch, self.length)).ravel())
        self._set("cos", cos)
        self._set("sin", sin)

    def probs(self) -> None:
        self.found[0] = self._set("probs", np.zeros((self.batch, self.layer.heads, self.length, self.keys), np.float32))

    def stats(self) -> None:
        rows, keys = (self.batch, self.layer.heads, self.length), (self.batch, self.layer.heads, self.keys)
        found = {name: np.zeros(rows, np.float32) for name in ("row_entropy", "row_max", "row_distance")}
        found |= {"row_argmax": np.zeros(rows, np.int64), "received": np.zeros(keys, np.float32)}
        views = struct(AttnStats, **{name: View(x.ctypes.data, (c_int64 * 4)()) for name, x in found.items()})
        self.input.stats = ctypes.pointer(views)
        self.found[1] = found

    def activations(self) -> None:
        a = self.layer
        widths = {"input": a.hidden, "qkv": (a.heads + 2 * a.kv_heads) * a.head_dim, "context": a.heads * a.head_dim, "out": a.hidden}
        found = {name: np.zeros((self.batch, self.length, n), np.float32) for name, n in widths.items()}
        self.input.activations = ctypes.pointer(struct(LayerActivations, **found))
        self.found[2] = found

    def kept(self) -> None:
        choice = self.layer.choice
        if choice is None:
            raise ValueError("return_kept must be False for a layer without a choice of heads")
        kept = np.zeros((self.batch, len(choice.options) or self.layer.heads), np.uint8)
        self.found[3] = self._set("kept", kept).view(np.bool_)


class Block(AttnLayer):
    """A transformer block: attention and feed-forward part, with norms and residuals (include/mha/layer.h). Its keywords are those of
    mha.AttnLayer, and:

        attn_norm, mlp_norm, attn_out_norm, mlp_out_norm     mha.Norm or None
        up, down, gate                                       mha.Matrix; None: attention only, or a feed-forward part without a gate
        activation                                           as mha.activation_forward
        pre_norm, parallel, residual_scale                   the formula of the block

        >>> import numpy as np, mha
        >>> rng = mha.Rng(1)
        >>> q, k, v, o, up, down = (mha.Matrix(*rng.linear(n, m)) for n, m in [(8, 8)] * 4 + [(8, 32), (32, 8)])
        >>> norm = mha.Norm(np.ones(8), np.zeros(8))
        >>> block = mha.Block(heads=2, q=q, k=k, v=v, o=o, up=up, down=down, activation="gelu", attn_norm=norm, mlp_norm=norm)
        >>> block.forward(rng.randn((1, 5, 8))).shape
        (1, 5, 8)
    """

    _free, _new, _run = "mha_block_free", "mha_block_create", "mha_block_forward"

    def __init__(self, heads: int, o: Matrix, *, attn_norm: Norm | None = None, mlp_norm: Norm | None = None,
                 attn_out_norm: Norm | None = None, mlp_out_norm: Norm | None = None, up: Matrix | None = None, down: Matrix | None = None,
                 gate: Matrix | None = None, activation: str = "none", pre_norm: bool = False, parallel: bool = False,
                 residual_scale: float = 0.0, **attention: Any) -> None:
        options = self._attention(heads, o, **attention)
        norms = {"attn_norm": attn_norm, "mlp_norm": mlp_norm, "attn_out_norm": attn_out_norm, "mlp_out_norm": mlp_out_norm}
        made: dict[str, Any] = {name: n.struct(name, self.hidden) for name, n in norms.items() if n is not None}
        made |= {name: m.struct(name, self.hidden) for name, m in (("up", up), ("gate", gate)) if m is not None}
        width = int(made["up"].out) if "up" in made else 0
        if down is not None:
            made["down"] = down.struct("down", width)
        if (up is None) != (down is None) or ("down" in made and made["down"].out != self.hidden):
            raise ValueError(f"up and down must be given together, from {self.hidden} to the feed-forward width and back")
        if "gate" in made and made["gate"].out != width:
            raise ValueError(f"gate must have the outputs of up, {width} (got {made['gate'].out})")
        block = struct(abi.BlockOptions, attn=options, intermediate=width, **made, pre_norm=bool(pre_norm), parallel=bool(parallel),
                       residual_scale=number(residual_scale, "residual_scale"), activation=choose("activation", activation, ACTIVATIONS))
        self._own(create(self._new, context(), ctypes.byref(block)), self._free)

    def _forward(self, call_: _Call) -> np.ndarray:
        call(self._run, self._open(), ctypes.byref(call_.input), call_.x.ctypes.data)
        return call_.x
