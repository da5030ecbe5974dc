#!/usr/bin/env python3
"""Writes tests/golden/data/attention-half: cases of the operator in bf16 and f16 with gradients of bias, slopes and
sinks.

    python tests/golden/make_attention_half_golden.py [OUT]

Inputs are rounded to the case's type; the expected results are those of the rounded inputs in float64. "atol" are
tolerances for a float32 kernel whose output is not rounded. "atol_rounded_out" is the error that one rounding of the
output, or of the weights that are summed to it, may add to a gradient, as derived in docs/numerics.md.
"""

import json
import os
import sys

import numpy as np
import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
B, H, HKV, LQ, LK, D = 2, 4, 2, 21, 37, 16
TYPES = {"BF16": (torch.bfloat16, 2.0**-8), "F16": (torch.float16, 2.0**-11)}


def inputs(dtype, seed):
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))

    t = {"q": draw(B, H, LQ, D), "k": draw(B, HKV, LK, D), "v": draw(B, HKV, LK, D), "dout": draw(B, H, LQ, D)}
    t = {name: x.to(dtype) for name, x in t.items()}
    return t | {"bias": draw(1, H, LQ, LK), "slopes": 2.0 ** -torch.arange(1, H + 1).float(), "sinks": draw(H)}


def scores(t):
    """Returns scores in the type of `t`, and the distances for the slopes."""
    k = t["k"].repeat_interleave(H // HKV, 1)
    far = (torch.arange(LQ)[:, None] + LK - LQ - torch.arange(LK)[None, :]).abs().to(k.dtype)
    s = t["q"] @ k.transpose(2, 3) / D**0.5 + t["bias"] - t["slopes"][:, None, None] * far
    seen = torch.arange(LK)[None, :] <= torch.arange(LQ)[:, None] + LK - LQ
    return s.masked_fill(~seen, -torch.inf), far


def forward(t):
    s, far = scores(t)
    sink = t["sinks"][None, :, None, None].expand(B, H, LQ, 1)
    lse = torch.logsumexp(torch.cat([s, sink], 3), 3, keepdim=True)
    p = torch.exp(s - lse)
    return p @ t["v"].repeat_interleave(H // HKV, 1), lse, p, torch.exp(sink - lse), far


def gradients(t, dtype):
    t = {name: x.to(dtype).requires_grad_(name != "dout") for name, x in t.items()}
    out, lse, p, sink, far = forward(t)
    (out * t["dout"]).sum().backward()
    results = {"d" + name: t[name].grad for name in ("q", "k", "v", "bias", "slopes", "sinks")}
    return {"out": out, "lse": lse[..., 0]} | results, t, p, sink, far


def limits(t, out, p, sink, far, unit):
    """Returns six standard deviations of the error that one rounding of O, or of P if larger, adds to each gradient
    through D. Roundings are assumed to be independent and at most `unit` times the element, so that each variance
    is at most unit^2 / 3 of its square."""
    v, k = (t[name].repeat_interleave(H // HKV, 1) for name in ("v", "k"))
    of_out = (t["dout"] * out).square().sum(3, keepdim=True)
    of_weights = (p * (t["dout"] @ v.transpose(2, 3))).square().sum(3, keepdim=True)
    d = torch.maximum(of_out, of_weights) * unit**2 / 3
    dk = ((p.square() * d).transpose(2, 3) @ t["q"].square()).reshape(B, HKV, H // HKV, LK, D).sum(2)
    variances = {
        "dq": d * (p @ k).square() / D,
        "dk": dk / D,
        "dbias": (p.square() * d).sum(0),
        "dslopes": (d[..., 0] * (p * far).sum(3).square()).sum((0, 2)),
        "dsinks": (d * sink.square()).sum((0, 2, 3)),
    }
    return {name: 6 * float(x.detach().max()) ** 0.5 for name, x in variances.items()}


def case(folder, type_name, seed):
    dtype, unit = TYPES[type_name]
    t = inputs(dtype, seed)
    want, wide, p, sink, far = gradients(t, torch.float64)
    plain = gradients(t, torch.float32)[0]
    name = f"{type_name.lower()}_bias_alibi_sinks"
    tensors = t | {n: x.detach().float() for n, x in want.items()}
    save_file({n: x.contiguous() for n, x in tensors.items()}, f"{folder}/{name}.safetensors")
    atol = {n: 8 * float((plain[n] - x).detach().abs().max()) + 4 * 2.0**-24 * float(x.detach().abs().max()) for n, x in want.items()}
    rounded = limits(wide, want["out"], p, sink, far, unit)
    return {
        "name": name, "group": "half", "layout": "bhld", "batch": B, "q_heads": H, "kv_heads": HKV, "q_len": LQ,
        "kv_len": LK, "head_dim": D, "value_dim": D, "input_dtype": type_name, "scale": D**-0.5,
        "scale_is_default": True, "softcap": 0.0, "causal": True, "align": "bottom_right",
        "q_offset": [LK - LQ] * B, "window": [-1, -1], "key_lengths": None, "prefix_lengths": None, "bool_mask": None,
        "bias": "given", "alibi": True, "sinks": True, "block": None, "inputs": sorted(t), "outputs": sorted(want),
        "file": f"{name}.safetensors", "atol": {n: float(f"{x:.3g}") for n, x in atol.items()},
        "atol_rounded_out": {n: float(f"{x:.3g}") for n, x in rounded.items()},
    }


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else f"{HERE}/data/attention-half"
    os.makedirs(folder, exist_ok=True)
    torch.set_num_threads(1)
    cases = [json.dumps(case(folder, name, seed)) for seed, name in enumerate(TYPES)]
    with open(f"{folder}/index.json", "w", encoding="utf-8") as file:
        file.write('{"format": 1, "title": "attention operator, 16-bit gradients", "cases": [\n' + ",\n".join(cases) + "\n]}\n")


if __name__ == "__main__":
    main()
