"""The operator inside PyTorch models: attention with gradients.

    from mha.torch import attention, scaled_dot_product_attention

`attention` is mha.attention for tensors that may require a gradient; `scaled_dot_product_attention` has the signature of
torch.nn.functional's and can stand in its place. Tensors live in memory of the CPU. Importing this module needs PyTorch;
`import mha` does not.
"""
import copy

import torch

from ._backward import Gradients, _gradients
from ._operator import _described
from ._operator import attention as _attention

__all__ = ["attention", "scaled_dot_product_attention"]

_OPERANDS = ("q", "k", "v", "bias", "sinks", "slopes", "gates")  # which of Gradients' fields each has: d + name


class _Attention(torch.autograd.Function):
    """`names` are those of `tensors`: autograd keeps these and refuses the way back when one of them has changed since."""

    @staticmethod
    def forward(ctx, threads, constants, names, *tensors):
        result = _attention(threads=threads, return_lse=True, **dict(zip(names, tensors)), **constants)
        ctx.threads, ctx.names = threads, names
        ctx.constants = copy.deepcopy(constants)  # arrays and lists may be changed too
        ctx.save_for_backward(*tensors, result.out, result.lse)
        return result.out, result.lse

    @staticmethod
    def backward(ctx, dout, dlse):
        wanted = {f"d{n}" for n, need in zip(ctx.names, ctx.needs_input_grad[3:]) if need}
        return None, None, None, *_Backward.apply(ctx.threads, ctx.constants, ctx.names, wanted, dout, dlse, *ctx.saved_tensors)


class _Backward(torch.autograd.Function):
    """The gradients as a function of their own: a second derivative goes through it, whichever way it comes, and is refused."""

    @staticmethod
    def forward(ctx, threads, constants, names, wanted, dout, dlse, *saved):
        *tensors, out, lse = saved
        given = {**constants, **dict(zip(names, tensors))}
        q, k, v = (given.pop(n) for n in "qkv")
        found = _gradients(dout.to(q.dtype), q, k, v, out, lse, dlse, wanted, threads, given)
        results = (getattr(found, f"d{n}", None) for n in names)
        return tuple(g if g is None else g.to(x.dtype) for g, x in zip(results, tensors))

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("mha.torch: a second derivative of attention is not available")


assert set(Gradients._fields) == {f"d{n}" for n in _OPERANDS}


@torch.compiler.disable  # a compiled model calls it as it is
@_described
def attention(q, k, v, *, threads=None, return_lse=False, seed=None, **description):
    """mha.attention with gradients for q, k, v and, where they are tensors, bias, sinks, slopes and gates.

    Returns out, or (out, lse) with return_lse=True; a gradient may come through lse too. Dropout is drawn from `seed`, the
    same in both passes; without one each call takes a seed from PyTorch's generator. Between the passes arrays and lists may
    be changed; PyTorch raises RuntimeError in the backward pass if a tensor was. A second derivative is not available.
    """
    if seed is None and description.get("dropout") and description.get("dropout_keep") is None:
        seed = int(torch.randint(2**63 - 1, ()))
    given = {"q": q, "k": k, "v": v, **description, "seed": 0 if seed is None else seed}
    tensors = {n: x for n, x in given.items() if isinstance(x, torch.Tensor)}
    for n in given:
        if n in "qkv" and n not in tensors:
            raise ValueError(f"{n} must be a PyTorch tensor (got {type(given[n]).__name__})")
        if n not in _OPERANDS and n in tensors and tensors[n].requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{n}: requires a gradient, which only {', '.join(_OPERANDS)} have")
    constants = {n: x for n, x in given.items() if n not in tensors}
    out, lse = _Attention.apply(threads, constants, tuple(tensors), *tensors.values())
    return (out, lse) if return_lse else out


def _autocast(x):
    """x as autocast on the CPU has it; float64 stays."""
    narrow = torch.is_autocast_enabled("cpu") and x.is_floating_point() and x.dtype != torch.float64
    return x.to(torch.get_autocast_dtype("cpu")) if narrow else x


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention for query [B, H, Lq, D], key and value [B, Hkv, Lk, D or Dv].

    Differences: a row that sees no key gives zeros; masked keys are not read; dropout draws one seed from PyTorch's
    generator, so it drops other entries than PyTorch would; is_causal and attn_mask may be given together; tensors have
    four axes and live in memory of the CPU; query, key and value have one batch, which is not broadcast, and the query may
    have another dtype than key and value; a batch of 0, no heads, heads of width 0 and scale=0.0 are refused; under autocast
    a mask stays in its type. torch.func and vmap, and second derivatives, are not available.
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() != 4:
            raise ValueError(f"{name} must be of shape [B, H, L, D] (got {x.dim()} dimensions)")
    if not enable_gqa and query.shape[-3] != key.shape[-3]:
        raise ValueError(f"query has {query.shape[-3]} heads, key {key.shape[-3]}: pass enable_gqa=True")
    more = {}
    if attn_mask is not None:
        want = (*query.shape[:3], key.shape[2])
        if attn_mask.dim() and attn_mask.shape[-1] not in (1, want[3]):  # fewer keys are the operator's, not PyTorch's
            raise ValueError(f"attn_mask: shape {tuple(attn_mask.shape)} does not broadcast to {want}")
        more["keep" if attn_mask.dtype == torch.bool else "bias"] = attn_mask
    if is_causal:
        more |= {"causal": True, "align": "top_left"}
    if dropout_p:
        more["dropout"] = dropout_p
    return attention(*map(_autocast, (query, key, value)), scale=scale, **more)
