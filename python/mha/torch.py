"""Attention with gradients for PyTorch models.

    from mha.torch import attention, scaled_dot_product_attention

`attention` is mha.attention for tensors that may require a gradient. `scaled_dot_product_attention` has the signature of the function
in torch.nn.functional and can replace it. Both use the torch.library operator torch.ops.mha.attention, which torch.compile and
torch.export support. Tensors must be in CPU memory. This module requires PyTorch; `import mha` does not.
"""
from __future__ import annotations

import math
from typing import Any, cast

import torch

from ._arrays.array import integer
from ._attention.backward import Gradients, _gradients
from ._attention.functions import Functions
from ._attention.operator import attention as _attention

__all__ = ["attention", "scaled_dot_product_attention"]

_OPERANDS = ("q", "k", "v", "bias", "sinks", "slopes", "gates")  # the gradient of NAME is the field dNAME of Gradients
_TENSORS = (*_OPERANDS, "keep", "dropout_keep", "block_keep", "block_table", "offsets", "prefix_lens", "q_lens", "kv_lens",
            "cu_seqlens_q", "cu_seqlens_k", "heads", "seed")
_OPTIONS = {"scale": ("float?", None), "softcap": ("float", 0.0), "causal": ("bool", False), "align": ("str?", None),
            "window": ("int[]", (-1, -1)), "block_size": ("int[]?", None), "dropout": ("float", 0.0), "layout": ("str", "bhld"),
            "threads": ("int?", None)}
_NAMES = (*_TENSORS, *_OPTIONS)
assert set(Gradients._fields) == {f"d{n}" for n in _OPERANDS}


# ---- operators: the arguments are those of _TENSORS, then those of _OPTIONS, in this order ----

_ARGUMENTS = ", ".join([f"Tensor{'' if n in 'qkv' else '?'} {n}" for n in _TENSORS] + [f"{kind} {n}" for n, (kind, _) in _OPTIONS.items()])
_library = torch.library.Library("mha", "DEF")
_library.define(f"attention({_ARGUMENTS}) -> (Tensor, Tensor)")
_library.define(f"attention_backward(Tensor dout, Tensor? dlse, Tensor out, Tensor lse, bool[] wanted, {_ARGUMENTS}) -> "
                f"({', '.join(['Tensor'] * len(_OPERANDS))})")


def _given(values: tuple[Any, ...], functions: Functions | None) -> dict[str, Any]:
    """Returns the arguments of an operator by name, without those equal to their defaults."""
    given = {n: x for n, x in zip(_NAMES, values) if x is not None}
    for name in ("window", "block_size"):
        if name in given:
            given[name] = tuple(given[name])  # the operator has lists
    for name, (_, default) in _OPTIONS.items():
        if name in given and given[name] == default:
            del given[name]
    if "seed" in given:
        given["seed"] = int(given["seed"]) % 2**64  # the operator has a signed integer argument
    if functions is not None:
        given["functions"] = functions
    return given


def _run(*values: Any, functions: Functions | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        found = _attention(return_lse=True, **_given(values, functions))
    return found.out, found.lse


def _run_backward(dout: Any, dlse: Any, out: Any, lse: Any, wanted: list[bool], *values: Any,
                  functions: Functions | None = None) -> tuple[torch.Tensor, ...]:
    given = _given(values, functions)
    q, k, v, threads = given.pop("q"), given.pop("k"), given.pop("v"), given.pop("threads", None)
    with torch.no_grad():
        found = _gradients(dout.to(q.dtype), q, k, v, out, lse, dlse, {f"d{n}" for n, w in zip(_OPERANDS, wanted) if w}, threads, given)
    results = ((getattr(found, f"d{n}"), x) for n, x in zip(_OPERANDS, values))
    return tuple(out.new_empty(0) if g is None else g.to(x.dtype) for g, x in results)


def _fake(*values: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns tensors with the shapes and dtypes of the results."""
    given = dict(zip(_NAMES, values))
    q, v, heads = given["q"], given["v"], given["heads"]
    real = torch.float64 if q.dtype == torch.float64 else torch.float32
    width = v.shape[-1]
    if given["cu_seqlens_q"] is not None:
        tokens, count = q.shape[0], q.shape[1] if heads is None else heads.shape[0]
        return q.new_empty((tokens, count, width)), q.new_empty((count, tokens), dtype=real)
    batch, count, rows = q.shape[0], q.shape[1], q.shape[2]
    if given["layout"] == "blhd":
        count, rows = rows, count
    count = count if heads is None else heads.shape[0]
    shape = (batch, rows, count, width) if given["layout"] == "blhd" else (batch, count, rows, width)
    return q.new_empty(shape), q.new_empty((batch, count, rows), dtype=real)


def _fake_backward(dout: Any, dlse: Any, out: Any, lse: Any, wanted: list[bool], *values: Any) -> tuple[torch.Tensor, ...]:
    given = dict(zip(_NAMES, values))
    return tuple(given[n].new_empty(given[n].shape) if w and given[n] is not None else out.new_empty(0)
                 for n, w in zip(_OPERANDS, wanted))


class _Function(torch.autograd.Function):
    """The operator with its backward pass. torch.library.register_autograd would look up the defaults of all arguments in each call,
    which takes over 500 us for so many arguments."""

    @staticmethod
    def forward(ctx: Any, *values: Any) -> tuple[torch.Tensor, torch.Tensor]:
        output = _below_autograd(*values)
        ctx.options = values[len(_TENSORS):]
        ctx.save_for_backward(*values[:len(_TENSORS)], *output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        dout, dlse = gradients
        *tensors, out, lse = ctx.saved_tensors
        wanted = [bool(w) and x is not None for w, x in zip(ctx.needs_input_grad, tensors[:len(_OPERANDS)])]
        dout = torch.zeros_like(out) if dout is None else dout
        found = torch.ops.mha.attention_backward(dout, dlse, out, lse, wanted, *tensors, *ctx.options)
        return (*(g if w else None for g, w in zip(found, wanted)), *(None,) * (len(_NAMES) - len(_OPERANDS)))


class _WithFunctions(torch.autograd.Function):
    """The operator with user functions of scores and masks, which a torch.library operator cannot have as an argument."""

    @staticmethod
    def forward(ctx: Any, functions: Functions, *values: Any) -> tuple[torch.Tensor, torch.Tensor]:
        output = _run(*values, functions=functions)
        ctx.functions, ctx.options = functions, values[len(_TENSORS):]
        ctx.save_for_backward(*values[:len(_TENSORS)], *output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            _no_second(ctx)
        dout, dlse = gradients
        *tensors, out, lse = ctx.saved_tensors
        wanted = [bool(w) and x is not None for w, x in zip(ctx.needs_input_grad[1:], tensors[:len(_OPERANDS)])]
        found = _run_backward(dout, dlse, out, lse, wanted, *tensors, *ctx.options, functions=ctx.functions)
        return (None, *(g if w else None for g, w in zip(found, wanted)), *(None,) * (len(_NAMES) - len(_OPERANDS)))


def _below_autograd(*values: Any) -> tuple[torch.Tensor, torch.Tensor]:
    with torch._C._AutoDispatchBelowAutograd():
        return cast("tuple[torch.Tensor, torch.Tensor]", torch.ops.mha.attention(*values))


def _autograd(*values: Any) -> tuple[torch.Tensor, torch.Tensor]:
    if not torch.is_grad_enabled() or not any(x is not None and x.requires_grad for x in values[:len(_OPERANDS)]):
        return _below_autograd(*values)
    output: tuple[torch.Tensor, torch.Tensor] = cast(Any, _Function).apply(*values)
    return output


def _no_second(ctx: Any, *_: Any) -> Any:
    raise RuntimeError("mha.torch: second derivatives of attention are not supported")


_library.impl("attention", _run, "CPU")
_library.impl("attention", _autograd, "Autograd")
_library.impl("attention_backward", _run_backward, "CPU")
torch.library.register_fake("mha::attention", _fake, lib=_library)
torch.library.register_fake("mha::attention_backward", _fake_backward, lib=_library)
torch.library.register_autograd("mha::attention_backward", _no_second, lib=_library)


@torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
def _user_functions(functions: Functions, *values: Any) -> tuple[torch.Tensor, torch.Tensor]:
    output: tuple[torch.Tensor, torch.Tensor] = cast(Any, _WithFunctions).apply(functions, *values)
    return output


# ---- public functions ----

def _constant(name: str, x: Any) -> None:
    if isinstance(x, torch.Tensor) and x.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} must not require a gradient; only {', '.join(_OPERANDS)} have gradients")


def _tensor(name: str, x: Any) -> Any:
    """Converts an argument to a tensor. Arrays and lists are copied, since they may change before the backward pass."""
    if isinstance(x, torch.Tensor):
        if name not in _OPERANDS:
            _constant(name, x)
        return x
    if name in ("q", "k", "v"):
        raise ValueError(f"{name} must be a PyTorch tensor (got {type(x).__name__})")
    try:
        return torch.tensor(x)
    except (TypeError, ValueError, RuntimeError) as reason:
        raise ValueError(f"{name}: {reason}") from None


def _seed(seed: Any, dropout: float, dropout_keep: Any) -> torch.Tensor | None:
    if not dropout or dropout_keep is not None:
        return None
    if seed is None:
        return torch.randint(2**63 - 1, ())
    seed = integer(seed, "seed", 0, 2**64 - 1)
    return torch.tensor(seed if seed < 2**63 else seed - 2**64)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None, softcap: float = 0.0,
              causal: bool = False, align: str | None = None, offsets: Any = None, window: tuple[int, int] = (-1, -1), keep: Any = None,
              bias: Any = None, prefix_lens: Any = None, q_lens: Any = None, kv_lens: Any = None, cu_seqlens_q: Any = None,
              cu_seqlens_k: Any = None, block_keep: Any = None, block_size: tuple[int, int] | None = None, slopes: Any = None,
              sinks: Any = None, gates: Any = None, heads: Any = None, dropout: float = 0.0, seed: int | None = None,
              dropout_keep: Any = None, precision: str | None = None, block_table: Any = None, layout: str = "bhld",
              threads: int | None = None, functions: Functions | None = None, return_lse: bool = False) -> Any:
    """Computes mha.attention with gradients of q, k, v and, if they are tensors, of bias, sinks, slopes and gates.

    Returns out, or (out, lse) with return_lse=True; both have gradients. Dropout depends on `seed` and is the same in both
    passes; if seed is None, each call samples a seed from PyTorch's generator. Arrays and lists may be modified between the
    passes; if a tensor is modified, PyTorch raises RuntimeError in the backward pass. Second derivatives are not supported.

    functions=mha.Functions(...) applies user functions to scores and masks in both passes. A score function requires score_back
    or score_added=True for gradients. torch.compile runs such a call outside its graph, and torch.export does not support it.

        >>> import torch
        >>> from mha.torch import attention
        >>> q = torch.ones(1, 2, 4, 8, requires_grad=True)
        >>> attention(q, q, q, causal=True).sum().backward()
        >>> q.grad.shape
        torch.Size([1, 2, 4, 8])
    """
    if precision not in (None, "f32", "split"):
        raise ValueError(f"precision must be one of None, 'f32', 'split' (got {precision!r})")
    given = {"q": q, "k": k, "v": v, "bias": bias, "sinks": sinks, "slopes": slopes, "gates": gates, "keep": keep,
             "dropout_keep": dropout_keep, "block_keep": block_keep, "block_table": block_table, "offsets": offsets,
             "prefix_lens": prefix_lens, "q_lens": q_lens, "kv_lens": kv_lens, "cu_seqlens_q": cu_seqlens_q,
             "cu_seqlens_k": cu_seqlens_k, "heads": heads}
    tensors = [None if x is None else _tensor(name, x) for name, x in given.items()]
    for name, x in (("scale", scale), ("softcap", softcap), ("dropout", dropout)):
        _constant(name, x)
    values = (*tensors, _seed(seed, dropout, dropout_keep), scale, softcap, causal, align, window, block_size, dropout, layout, threads)
    out, lse = torch.ops.mha.attention(*values) if functions is None else _user_functions(functions, *values)
    return (out, lse) if return_lse else out


# ---- replacement for torch.nn.functional ----

def _autocast(x: torch.Tensor) -> torch.Tensor:
    """Casts x as autocast on the CPU does; float64 is unchanged."""
    narrow = torch.is_autocast_enabled("cpu") and x.is_floating_point() and x.dtype != torch.float64
    return x.to(torch.get_autocast_dtype("cpu")) if narrow else x


def _grouped(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> list[torch.Tensor]:
    """Returns keys and values with the same number of heads, a divisor of the query's number of heads."""
    for name, x in (("key", key), ("value", value)):
        if x.dim() < 3 or query.shape[-3] % x.shape[-3]:
            raise ValueError(f"{name} must have a number of heads that divides the query's number of heads "
                             f"(got {tuple(x.shape)} for a query of {tuple(query.shape)})")
    heads = math.lcm(key.shape[-3], value.shape[-3])
    return [x if x.shape[-3] == heads else x.repeat_interleave(heads // x.shape[-3], -3) for x in (key, value)]


def _four(x: torch.Tensor, lead: torch.Size, heads: int) -> torch.Tensor:
    """Returns x as [B, heads, rows, width]; `lead` are the batch axes."""
    whole = x.expand(*lead, heads, *x.shape[-2:])
    return whole if len(lead) == 1 else whole.reshape(math.prod(lead), heads, *x.shape[-2:])


def _mask(mask: torch.Tensor, lead: torch.Size, heads: int, rows: int, keys: int) -> torch.Tensor:
    """Returns a mask that broadcasts to [B, heads, rows, keys]."""
    shape = (*lead, heads, rows, keys)
    if mask.dim() > len(shape) or any(n not in (1, m) for n, m in zip(reversed(mask.shape), reversed(shape))):
        raise ValueError(f"attn_mask must be of a shape that broadcasts to {shape} (got {tuple(mask.shape)})")
    if mask.dim() <= 3 or len(lead) == 1:
        return mask
    return mask.expand(*lead, *mask.shape[-3:]).reshape(math.prod(lead), *mask.shape[-3:])


def _broadcast(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None, dropout_p: float,
               is_causal: bool, scale: float | None, enable_gqa: bool) -> torch.Tensor:
    """Computes scaled_dot_product_attention for any shapes and options."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() < 2:
            raise ValueError(f"{name} must have at least 2 axes (got {x.dim()})")
    if enable_gqa and query.dim() > 2:
        key, value = _grouped(query, key, value)
    groups = query.shape[-3] if enable_gqa and query.dim() > 2 else None
    shapes = [x.shape[:-3] if groups else x.shape[:-2] for x in (query, key, value)]
    lead = torch.broadcast_shapes(*shapes)
    if groups is None:
        flat, heads, of_keys = lead, 1, 1
        if lead:
            flat, heads = lead[:-1], lead[-1]
            of_keys = heads
    else:
        flat, heads, of_keys = lead, groups, key.shape[-3]
    result = (*flat, heads, query.shape[-2], value.shape[-1]) if groups or lead else (query.shape[-2], value.shape[-1])
    batch = flat if flat else torch.Size((1,))
    if 0 in (*batch, heads, query.shape[-1], value.shape[-1]):
        return query.new_zeros(result) + 0 * (query.sum() + key.sum() + value.sum())
    if scale == 0:
        query, scale = query * 0, 1.0
    q, k, v = _four(query, batch, heads), _four(key, batch, of_keys), _four(value, batch, of_keys)
    more: dict[str, Any] = {}
    if attn_mask is not None:
        mask = _mask(attn_mask, batch, heads, q.shape[2], k.shape[2])
        more["keep" if mask.dtype == torch.bool else "bias"] = mask
    if dropout_p:
        kept = torch.empty(*q.shape[:3], k.shape[2], dtype=q.dtype).bernoulli_(1 - dropout_p)  # the mask is sampled as in PyTorch
        more |= {"dropout": dropout_p, "dropout_keep": kept.bool()}
    out: torch.Tensor = attention(q, k, v, scale=scale, causal=is_causal, align="top_left" if is_causal else None, **more)
    return out.reshape(result)


def scaled_dot_product_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> torch.Tensor:
    """Replaces torch.nn.functional.scaled_dot_product_attention: query [..., Lq, D], key [..., Lk, D], value [..., Lk, Dv].

    Leading axes broadcast, and their number is not limited. Dropout drops the same elements as PyTorch for the same seed. Differences
    from PyTorch: fully masked rows are zero; masked keys are not read; is_causal and attn_mask may be combined; tensors must be in CPU
    memory; the dtype of query may differ from that of key and value; autocast does not cast the mask. torch.func, vmap and second
    derivatives are not supported.

        >>> import torch
        >>> from mha.torch import scaled_dot_product_attention
        >>> q = torch.randn(2, 1, 3, 5, 8)
        >>> want = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        >>> torch.allclose(scaled_dot_product_attention(q, q, q, is_causal=True), want, atol=1e-6)
        True
    """
    query, key, value = _autocast(query), _autocast(key), _autocast(value)
    size = query.shape
    plain = query.dim() == key.dim() == value.dim() == 4 and size[:2] == key.shape[:2] == value.shape[:2] and 0 not in (*size[:2], size[3], value.shape[3])
    if attn_mask is None and not dropout_p and plain and scale != 0:  # the most frequent call, for which the rest takes too long
        return cast(torch.Tensor, attention(query, key, value, scale=scale, causal=is_causal, align="top_left" if is_causal else None))
    return _broadcast(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
