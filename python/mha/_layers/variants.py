"""The constructors of the published variants: mha.SelfAttention, mha.GroupedQuery, mha.MoeHeads ..."""
from __future__ import annotations

from typing import Any

from .._arrays.array import choose, integer, integers, number
from .._binding import abi
from .rope import Rope
from .variant import Variant

_SCALES = {"head_dim": abi.SCALE_HEAD_DIM, "d_out": abi.SCALE_D_OUT}
_SELECTIONS = {"hard": abi.SELECTION_HARD, "soft": abi.SELECTION_SOFT, "straight_through": abi.SELECTION_STRAIGHT_THROUGH}
_EXPERTS = {"project": abi.EXPERT_PROJECT, "slot": abi.EXPERT_SLOT, "plain": abi.EXPERT_PLAIN}


def _integers(**values: int) -> dict[str, int]:
    return {name: integer(x, name) for name, x in values.items()}


class SelfAttention(Variant):
    """softmax(q k^T / sqrt(d_out)) v with one head; docs/layers/self-attention.md has the shapes of every step.

        >>> import numpy as np, mha
        >>> layer = mha.SelfAttention(d_in=4, d_out=3)
        >>> layer.init(mha.Rng(123))
        >>> sorted(layer.parameters())
        ['k_proj.weight', 'q_proj.weight', 'v_proj.weight']
        >>> layer.forward(np.ones((1, 5, 4), np.float32)).shape
        (1, 5, 3)

    plain_matrices: parameters "w_q", "w_k", "w_v" [d_in, d_out] instead of projections. dtype: "f32" or "f64".
    """

    def __init__(self, d_in: int, d_out: int, *, qkv_bias: bool = False, plain_matrices: bool = False, dtype: str = "f32") -> None:
        self._create("mha_self_attention_create", abi.SelfAttentionOptions, d_in, d_out, dtype, qkv_bias=bool(qkv_bias),
                     plain_matrices=bool(plain_matrices), **_integers(d_in=d_in, d_out=d_out))


class CausalAttention(Variant):
    """Self-attention in which token i attends to tokens 0 to i, with dropout of the weights; docs/layers/causal-attention.md.

        >>> import mha
        >>> layer = mha.CausalAttention(4, 2, context_length=5, dropout=0.1)
        >>> layer.parameter_count
        24
    """

    def __init__(self, d_in: int, d_out: int, *, context_length: int = 0, dropout: float = 0.0, qkv_bias: bool = False,
                 dtype: str = "f32") -> None:
        self._create("mha_causal_attention_create", abi.CausalAttentionOptions, d_in, d_out, dtype, dropout=number(dropout, "dropout"),
                     qkv_bias=bool(qkv_bias), **_integers(d_in=d_in, d_out=d_out, context_length=context_length))


class StackedHeads(Variant):
    """Causal heads with separate matrices, whose outputs are concatenated; docs/layers/stacked-heads.md.

    d_out is the width of all heads together. scale_rule: scores are divided by the square root of "head_dim" or "d_out".

        >>> import mha
        >>> sorted(mha.StackedHeads(4, 4, 2).parameters())[:2]
        ['heads.0.k_proj.weight', 'heads.0.q_proj.weight']
    """

    def __init__(self, d_in: int, d_out: int, num_heads: int, *, context_length: int = 0, dropout: float = 0.0, qkv_bias: bool = False,
                 plain_matrices: bool = False, scale_rule: str = "head_dim", dtype: str = "f32") -> None:
        self.num_heads = num_heads
        self._create("mha_stacked_heads_create", abi.StackedHeadsOptions, d_in, d_out, dtype, dropout=number(dropout, "dropout"),
                     qkv_bias=bool(qkv_bias), plain_matrices=bool(plain_matrices), scale_rule=choose("scale_rule", scale_rule, _SCALES),
                     **_integers(d_in=d_in, d_out=d_out, num_heads=num_heads, context_length=context_length))


class WeightSplit(Variant):
    """One matrix for all heads, split after the projection; causal, with an output projection; docs/layers/weight-split.md.

        >>> import numpy as np, mha
        >>> layer = mha.WeightSplit(d_in=6, d_out=6, num_heads=2, context_length=5)
        >>> layer.init(mha.Rng(123))
        >>> x = mha.Rng(1).randn((2, 5, 6))
        >>> y, trace = layer.forward(x, trace=True, weights=True)
        >>> trace.step("weights").shape
        (2, 2, 5, 5)
        >>> layer.backward(trace, np.ones_like(y)).query.shape, layer.gradients()["o_proj.bias"].tolist()
        ((2, 5, 6), [10.0, 10.0, 10.0, 10.0, 10.0, 10.0])

    scale_rule: scores are divided by the square root of "head_dim" or "d_out". context_length: the maximum number of tokens; 0 = unlimited.
    """

    def __init__(self, d_in: int, d_out: int, num_heads: int, *, context_length: int = 0, dropout: float = 0.0, qkv_bias: bool = False,
                 scale_rule: str = "head_dim", dtype: str = "f32") -> None:
        self.num_heads = num_heads
        self._create("mha_weight_split_create", abi.WeightSplitOptions, d_in, d_out, dtype, dropout=number(dropout, "dropout"),
                     qkv_bias=bool(qkv_bias), scale_rule=choose("scale_rule", scale_rule, _SCALES),
                     **_integers(d_in=d_in, d_out=d_out, num_heads=num_heads, context_length=context_length))


class QkvAttention(Variant):
    """q, k and v from three inputs, with biases, without an output projection; docs/layers/qkv-attention.md.

        >>> import mha
        >>> layer = mha.QkvAttention(input_dim=6, num_heads=2, output_dim=8)
        >>> layer.init(mha.Rng(1))
        >>> layer.forward(mha.Rng(2).randn((1, 3, 6)), mha.Rng(3).randn((1, 5, 6))).shape
        (1, 3, 8)
    """

    def __init__(self, input_dim: int, num_heads: int, output_dim: int, *, dtype: str = "f32") -> None:
        self.num_heads = num_heads
        self._create("mha_qkv_attention_create", abi.QkvAttentionOptions, input_dim, output_dim, dtype,
                     **_integers(input_dim=input_dim, num_heads=num_heads, output_dim=output_dim))


class StandardMha(Variant):
    """The layer of Vaswani et al. 2017: q, k, v and o projections with biases; docs/layers/standard-mha.md.

        >>> import mha
        >>> layer = mha.StandardMha(d_model=8, num_heads=2)
        >>> layer.init(mha.Rng(1))
        >>> layer.forward(mha.Rng(2).randn((1, 3, 8)), keep=[[1, 1, 0]] * 3).shape
        (1, 3, 8)
    """

    def __init__(self, d_model: int, num_heads: int, *, dtype: str = "f32") -> None:
        self.num_heads = num_heads
        self._create("mha_standard_mha_create", abi.StandardMhaOptions, d_model, d_model, dtype,
                     **_integers(d_model=d_model, num_heads=num_heads))


class GroupedQuery(Variant):
    """Query heads that share key/value heads; num_kv_heads=1 is multi-query attention; docs/layers/grouped-query.md.

    kv_groups: query heads per key/value head, instead of num_kv_heads.

        >>> import mha
        >>> mha.GroupedQuery(8, 4, num_kv_heads=1).parameters()["k_proj.weight"].shape
        (2, 8)
    """

    def __init__(self, d_model: int, num_heads: int, *, num_kv_heads: int = 0, kv_groups: int = 0, dtype: str = "f32") -> None:
        self.num_heads = num_heads
        self._create("mha_grouped_query_create", abi.GroupedQueryOptions, d_model, d_model, dtype,
                     **_integers(d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads, kv_groups=kv_groups))


class LlamaAttention(Variant):
    """Grouped-query attention with rotary positions and cached keys, without biases, as in LLaMA; docs/layers/llama-attention.md.

        >>> import numpy as np, mha
        >>> layer = mha.LlamaAttention(8, 2, causal=True, rope=mha.Rope(4))
        >>> layer.init(mha.Rng(1))
        >>> x = mha.Rng(2).randn((1, 3, 8))
        >>> whole, trace = layer.forward(x[:, :2], trace=True)
        >>> last = layer.forward(x[:, 2:], past_key=trace.step("k"), past_value=trace.step("v"))   # one more token
        >>> bool(np.array_equal(last, layer.forward(x)[:, 2:]))
        True

    rope: an mha.Rope for the head width; None: no rotation. dtype "f64" excludes rope.
    """

    def __init__(self, hidden_size: int, num_heads: int, *, num_kv_heads: int = 0, context_length: int = 0, causal: bool = False,
                 rope: Rope | None = None, dtype: str = "f32") -> None:
        sizes = _integers(hidden_size=hidden_size, num_heads=num_heads, num_kv_heads=num_kv_heads, context_length=context_length)
        self.num_heads = num_heads
        self.past_shape = num_kv_heads or num_heads, hidden_size // max(num_heads, 1)
        fields: dict[str, Any] = {} if rope is None else {"rope": rope.layer_options()}
        self._create("mha_llama_attention_create", abi.LlamaAttentionOptions, hidden_size, hidden_size, dtype, causal=bool(causal),
                     rotary=rope is not None, **fields, **sizes)


class MoeHeads(Variant):
    """A mixture of experts in which each expert is a head: a router selects top_k experts by the text; docs/layers/moe-heads.md.

        >>> import mha
        >>> layer = mha.MoeHeads(d_model=8, num_heads=4, top_k=2)
        >>> layer.init(mha.Rng(123))
        >>> y, trace = layer.forward(mha.Rng(1).randn((2, 5, 8)), trace=True)
        >>> [len(trace.chosen(sample)) for sample in range(2)], trace.step("gates").shape
        ([2, 2], (2, 2))

    num_experts: 0 = num_heads. top_k: 0 = 2, or 1 with one expert.
    expert_output: "project": each expert has its own o_proj; "slot": each writes its own columns; "plain": not projected.
    """

    def __init__(self, d_model: int, num_heads: int, *, num_experts: int = 0, top_k: int = 0, expert_output: str = "project",
                 dtype: str = "f32") -> None:
        self.num_heads = num_experts or num_heads
        self._create("mha_moe_heads_create", abi.MoeHeadsOptions, d_model, d_model, dtype,
                     expert_output=choose("expert_output", expert_output, _EXPERTS),
                     **_integers(d_model=d_model, num_heads=num_heads, num_experts=num_experts, top_k=top_k))


class HeadPruning(Variant):
    """A predictor scores the heads; each text keeps (int)(num_heads (1 - prune_ratio)) of them; docs/layers/head-pruning.md.

    selection: how the predictor is trained: "hard" (not), "soft" or "straight_through".

        >>> import mha
        >>> layer = mha.HeadPruning(8, 4, prune_ratio=0.5, selection="soft")
        >>> layer.init(mha.Rng(1))
        >>> y, trace = layer.forward(mha.Rng(2).randn((1, 3, 8)), trace=True)
        >>> len(trace.chosen(0))
        2
    """

    def __init__(self, d_model: int, num_heads: int, prune_ratio: float, *, selection: str = "hard", dtype: str = "f32") -> None:
        self.num_heads = num_heads
        self._create("mha_head_pruning_create", abi.HeadPruningOptions, d_model, d_model, dtype,
                     prune_ratio=number(prune_ratio, "prune_ratio"), selection=choose("selection", selection, _SELECTIONS),
                     **_integers(d_model=d_model, num_heads=num_heads))


class AdaptiveHeads(Variant):
    """A predictor selects by the text into how many heads d_model is split; docs/layers/adaptive-heads.md.

        >>> import mha
        >>> layer = mha.AdaptiveHeads(8, [1, 2, 4])
        >>> layer.init(mha.Rng(123))
        >>> y, trace = layer.forward(mha.Rng(1).randn((2, 5, 8)), trace=True)
        >>> [[1, 2, 4][trace.chosen(sample)[0]] == trace.heads(sample) for sample in range(2)]
        [True, True]

    predictor_width: 0 = 128. selection: how the predictor is trained: "hard" (not), "soft" or "straight_through".
    """

    def __init__(self, d_model: int, head_options: Any, *, predictor_width: int = 0, selection: str = "hard", dtype: str = "f32") -> None:
        options = integers(head_options, "head_options")
        self.num_heads = int(options.max(initial=1))
        self._create("mha_adaptive_heads_create", abi.AdaptiveHeadsOptions, d_model, d_model, dtype, head_options=options,
                     head_option_count=len(options), selection=choose("selection", selection, _SELECTIONS),
                     **_integers(d_model=d_model, predictor_width=predictor_width))
