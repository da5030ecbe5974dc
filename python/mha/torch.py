"""The operator inside PyTorch models: attention with gradients.

    from mha.torch import attention, scaled_dot_product_attention

`attention` is mha.attention for tensors that may require a gradient; `scaled_dot_product_attention` has the signature of
torch.nn.functional's and can stand in its place. Tensors live in memory of the CPU. Importing this module needs PyTorch;
`import mha` does not.
"""
import torch

from ._backward import Gradients, _gradients
from ._operator import _described
from ._operator import attention as _attention

__all__ = ["attention", "scaled_dot_product_attention"]

_OPERANDS = ("q", "k", "v", "bias", "sinks", "slopes", "gates")  # which of Gradients' fields each has: d + name


def _plain(x):
    """Slopes, sinks and gates go through NumPy."""
    return x.detach() if isinstance(x, torch.Tensor) else x


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, threads, description, *operands):
        q, k, v, *given = operands
        named = {n: x if n == "bias" else _plain(x) for n, x in zip(_OPERANDS[3:], given) if x is not None}
        result = _attention(q, k, v, threads=threads, return_lse=True, **named, **description)
        ctx.threads, ctx.description = threads, description
        ctx.save_for_backward(*operands, result.out, result.lse)
        return result.out, result.lse

    @staticmethod
    def backward(ctx, dout, dlse):
        needed = ctx.needs_input_grad[2:]
        wanted = {f"d{n}" for n, need in zip(_OPERANDS, needed) if need}
        return None, None, *_Backward.apply(ctx.threads, ctx.description, wanted, dout, dlse, *ctx.saved_tensors)


class _Backward(torch.autograd.Function):
    """The gradients as a function of their own: a second derivative goes through it, whichever way it comes, and is refused."""

    @staticmethod
    def forward(ctx, threads, description, wanted, dout, dlse, *saved):
        *operands, out, lse = saved
        q, k, v, *given = operands
        named = {n: x if n == "bias" else _plain(x) for n, x in zip(_OPERANDS[3:], given) if x is not None}
        found = _gradients(dout.to(q.dtype), q, k, v, out, lse, dlse, wanted, threads, {**named, **description})
        results = (getattr(found, f"d{n}") for n in _OPERANDS)
        return tuple(g if g is None else g.to(x.dtype) for g, x in zip(results, operands))

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("mha.torch: a second derivative of attention is not available")


assert set(Gradients._fields) == {f"d{n}" for n in _OPERANDS}


@torch.compiler.disable  # a compiled model calls it as it is
@_described
def attention(q, k, v, *, threads=None, return_lse=False, **description):
    """mha.attention with gradients for q, k, v and, where they are tensors, bias, sinks, slopes and gates.

    Returns out, or (out, lse) with return_lse=True; a gradient may come through lse too. Dropout is drawn from `seed`, the
    same in both passes. A second derivative is not available.
    """
    given = [description.pop(n, None) for n in _OPERANDS[3:]]
    constant = {n: x for n, x in zip(_OPERANDS[3:], given) if x is not None and not isinstance(x, torch.Tensor)}
    tensors = [x if isinstance(x, torch.Tensor) else None for x in given]
    out, lse = _Attention.apply(threads, {**constant, **description}, q, k, v, *tensors)
    return (out, lse) if return_lse else out


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention for query [B, H, Lq, D], key and value [B, Hkv, Lk, D or Dv].

    Differences: a row that sees no key gives zeros; masked keys are not read; dropout draws one seed from PyTorch's
    generator, so it drops other entries than PyTorch would; is_causal and attn_mask may be given together; tensors have
    four axes.
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() != 4:
            raise ValueError(f"{name}: {x.dim()} axes, want [B, H, L, D]")
    if not enable_gqa and query.shape[-3] != key.shape[-3]:
        raise ValueError(f"query has {query.shape[-3]} heads, key {key.shape[-3]}: pass enable_gqa=True")
    more = {}
    if attn_mask is not None:
        more["keep" if attn_mask.dtype == torch.bool else "bias"] = attn_mask
    if is_causal:
        more |= {"causal": True, "align": "top_left"}
    if dropout_p:
        more |= {"dropout": dropout_p, "seed": int(torch.randint(2**63 - 1, ()))}
    return attention(query, key, value, scale=scale, **more)
