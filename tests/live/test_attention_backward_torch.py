"""Compares gradients of random problem descriptions with PyTorch's autograd, and runs gradcheck on mha.torch.

    test_attention_backward_torch.py [--cases N] [--seed S] [--only CASE]

The reference is autograd of the attention formula in float64. The tolerance is twice the error of the same formula in float32, plus a bound
on the rounding errors of each element (see floors). A different seed gives different cases. A failing case is printed with the command that
repeats it.
"""
import argparse
import math
import re
import sys
from pathlib import Path

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import mha
import mha.torch
from test_attention_torch import UNIT, allowed, draw, factor, positions, term, user_indices

OPERANDS = ("q", "k", "v", "bias", "slopes", "sinks", "gates")


def largest(x):
    """Returns the largest magnitude of the finite elements of x; rounding errors are relative to it."""
    x = x.detach().abs()
    return float(x[x.isfinite()].max()) if x.isfinite().any() else 0.0


def leaves(t, d, dtype):
    """Returns the operands as tensors of one type that require gradients."""
    given = {**{n: t[n] for n in "qkv"}, **{n: torch.as_tensor(d[n]) for n in OPERANDS[3:] if n in d}}
    return {n: x.to(dtype).clone().requires_grad_(True) for n, x in given.items()}


class Formula:
    """Evaluates the attention formula for the leaf tensors `x`; the attributes are the intermediate results."""

    def __init__(self, x, d):
        dtype, group = x["q"].dtype, x["q"].shape[1] // x["k"].shape[1]
        self.k, self.v = x["k"].repeat_interleave(group, 1), x["v"].repeat_interleave(group, 1)
        self.scale = d.get("scale", 1 / math.sqrt(x["q"].shape[-1]))
        s = x["q"] @ self.k.transpose(-1, -2) * self.scale
        self.largest = largest(s)
        if "softcap" in d:
            s = d["softcap"] * torch.tanh(s / d["softcap"])
        if "functions" in d:
            s = s / (1 + s.abs() / 8) + term(*user_indices(x, d)).to(dtype)
        if "bias" in x:
            s = s + x["bias"]
            self.largest += largest(x["bias"])
        self.far = (positions(x, d)[0] - torch.arange(self.k.shape[2])).abs().to(dtype)
        if "slopes" in x:
            s = s - x["slopes"][..., None, None] * self.far
            self.largest += largest(x["slopes"][..., None, None] * self.far)
        s = torch.where(allowed(x, d), s, -math.inf)
        sink = x["sinks"][..., None, None].expand(s.shape[:3] + (1,)) if "sinks" in x else s[..., :0]
        both = torch.cat([s, sink], -1)
        top = both.detach().amax(-1, keepdim=True)
        top = torch.where(top == -math.inf, 0, top)
        e = torch.exp(both - top)
        total = e.sum(-1, keepdim=True)
        empty = total == 0
        p = e / torch.where(empty, 1, total)
        self.p, self.p_sink = p[..., : s.shape[-1]], p[..., s.shape[-1] :]
        self.lse = torch.where(empty, 0, torch.log(torch.where(empty, 1, total)) + top).squeeze(-1)
        self.factor = torch.ones((), dtype=torch.float64)
        if "dropout" in d:
            self.factor = factor(d, self.p.shape)
        self.gate = x["gates"][..., None, None] if "gates" in x else torch.ones((), dtype=dtype)
        self.out = (self.p * self.factor.to(dtype)) @ self.v * self.gate


def listed(x, heads):
    return x if heads is None else x[:, heads]


def gradients(t, d, dtype, dout, dlse):
    x = leaves(t, d, dtype)
    f, heads = Formula(x, d), d.get("heads")
    loss = (listed(f.out, heads) * dout.to(dtype)).sum() + (listed(f.lse, heads) * dlse.to(dtype)).sum()
    found = torch.autograd.grad(loss, list(x.values()), allow_unused=True)
    return {n: torch.zeros_like(x[n]) if g is None else g for n, g in zip(x, found)}


def reduced(x, shape):
    return x.sum_to_size(shape) if x.shape != shape else x


def floors(t, d, dout, dlse, unit):
    """Returns a bound on the rounding error of every gradient, computed from sums of magnitudes.

    Errors arise in the probabilities P, in dO V^T, and in the row sums D of dO * out, where `out` is rounded to its type. Kernels may also
    round P and dS to the 16-bit type of their products. `stored` and `rounded` are the relative errors of these two roundings.
    """
    stored, rounded = UNIT.get(t["q"].dtype, 0), UNIT.get(t["v"].dtype, 0)
    with torch.no_grad():
        x = {n: g.detach() for n, g in leaves(t, d, torch.float64).items()}
        f, H = Formula(x, d), t["q"].shape[1]
        heads = d.get("heads", list(range(H)))
        total = {n: torch.zeros_like(g) for n, g in x.items()}
        for n, h in enumerate(heads):
            go, one, g = dout[:, n].double().abs(), slice(h, h + 1), h // (H // t["k"].shape[1])
            p, w = f.p[:, h], f.p[:, h] * f.factor.expand(f.p.shape)[:, h]
            gate = f.gate.expand(f.out.shape[0], H, 1, 1)[:, h].abs()
            dp = go @ f.v[:, h].abs().transpose(-1, -2)
            terms = (go * (w @ f.v[:, h].abs()) * gate).sum(-1, keepdim=True)  # the sum of magnitudes of the terms of D
            lost = stored * (go * f.out[:, h].abs()).sum(-1, keepdim=True) + rounded * terms
            A = terms + dlse[:, n].double().abs()[..., None]
            off = unit * (8 + 2 * f.largest)
            ds = p * (off * (dp * gate * (w / p.clamp(min=1e-300)) + A) + lost)
            sums = ds + rounded * p * (dp * gate * (w / p.clamp(min=1e-300)) + A)
            total["q"][:, h] += abs(f.scale) * sums @ f.k[:, h].abs()
            total["k"][:, g] += abs(f.scale) * sums.transpose(-1, -2) @ x["q"][:, h].abs()
            total["v"][:, g] += (off + rounded) * (w * gate).transpose(-1, -2) @ go
            if "bias" in x:
                b = total["bias"]
                b[:, one if b.shape[1] > 1 else slice(None)] += reduced(ds[:, None], b[:, :1].shape)
            if "slopes" in x:
                total["slopes"][..., h] += reduced((ds * f.far.expand(f.p.shape)[:, h]).sum((-1, -2)), total["slopes"][..., h].shape)
            if "sinks" in x:
                total["sinks"][..., h] += reduced((f.p_sink[:, h] * (off * A + lost)).sum((-1, -2)), total["sinks"][..., h].shape)
            if "gates" in x:
                total["gates"][..., h] += reduced((off * w * dp).sum((-1, -2)), total["gates"][..., h].shape)
    return total


def run_case(seed, case):
    """Runs one case; yields a message per gradient that is wrong."""
    rng = np.random.default_rng([seed, case])
    t, d = draw(rng)
    double = rng.random() < 0.25
    if double:
        t = {n: x.double() for n, x in t.items()}
        d |= {"bias": d["bias"].double()} if "bias" in d else {}
    per_head = {n: np.float32(d[n]) for n in ("slopes", "sinks", "gates") if n in d}
    d |= {n: np.float64(x) / 3 if double else x for n, x in per_head.items()}  # one third of a float32 value is not exact in float32
    rows = (t["q"].shape[0], len(d.get("heads", range(t["q"].shape[1]))), t["q"].shape[2])
    dout = torch.tensor(rng.standard_normal(rows + t["v"].shape[-1:])).to(t["q"].dtype)
    dlse = torch.tensor(rng.standard_normal(rows)) * float(rng.random() < 0.4)
    if "q_lens" in d:  # rows beyond q_lens have no lse
        dlse *= torch.arange(rows[2]) < torch.as_tensor(d["q_lens"]).reshape(-1, 1, 1)
    got = mha.attention(t["q"], t["k"], t["v"], return_lse=True, **d)
    ours = mha.attention_backward(dout, t["q"], t["k"], t["v"], got.out, got.lse, dlse=dlse.to(got.lse.dtype), **d)
    truth, plain = gradients(t, d, torch.float64, dout, dlse), gradients(t, d, torch.float32, dout, dlse)
    unit = 2.0**-53 if double else 2.0**-24
    floor = floors(t, d, dout, dlse, unit)
    for n, want in truth.items():
        g = getattr(ours, f"d{n}")
        if g.shape != want.shape:
            yield f"d{n}: shape must be {tuple(want.shape)} (got {tuple(g.shape)})"
            continue
        naive = 0 if double or not want.numel() else float((plain[n].double() - want).abs().max())
        limit = 2 * naive + 4 * floor[n] + UNIT.get(g.dtype, 0) * want.abs() + 1e-30 + (2.0**-24 if g.dtype == torch.float16 else 0)
        wrong = ~((g.double() - want).abs() <= limit)
        if wrong.any():
            error = (g.double() - want).abs()
            yield f"d{n}: error must be at most {float(limit[wrong].min()):.3g} (got {float(error[wrong].max()):.3g})"


def check_gradcheck():
    """Runs torch.autograd.gradcheck in float64 for each mask and each option that affects gradients."""
    make = torch.Generator().manual_seed(1)

    def leaf(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=make).requires_grad_(True)

    q, k, v, bias = leaf(2, 4, 5, 3), leaf(2, 2, 7, 3), leaf(2, 2, 7, 4), leaf(1, 4, 1, 7)
    keep = torch.rand(2, 1, 5, 7, generator=make) < 0.7
    keep[0, 0, 2] = False
    for d in ({}, {"causal": True, "align": "bottom_right", "softcap": 3.0}, {"keep": keep}, {"dropout": 0.3, "seed": 5},
              {"window": (2, 1), "align": "top_left", "kv_lens": [7, 4]}, {"heads": [3, 0, 3]}):
        assert torch.autograd.gradcheck(lambda *x: mha.torch.attention(*x[:3], bias=x[3], **d), (q, k, v, bias))
    assert torch.autograd.gradcheck(lambda *x: mha.torch.attention(*x, return_lse=True), (q, k, v))
    check_gradcheck_per_head(leaf, q, k, v)
    assert torch.autograd.gradcheck(lambda *x: mha.torch.scaled_dot_product_attention(*x, enable_gqa=True), (q, k, v))


def check_gradcheck_per_head(leaf, q, k, v):
    """Runs gradcheck for slopes, sinks and gates of shape [H] and [B, H], with gradients of out and lse."""
    per_head = ("slopes", "sinks", "gates")
    for shape in ((4,), (2, 4)):
        for d in ({"align": "bottom_right"}, {"align": "top_left", "causal": True, "dropout": 0.3, "seed": 5},
                  {"offsets": [1, 0], "kv_lens": [7, 4], "heads": [3, 0, 3]}):
            given = [leaf(*shape) for _ in per_head]
            assert torch.autograd.gradcheck(
                lambda *x: mha.torch.attention(*x[:3], return_lse=True, **dict(zip(per_head, x[3:])), **d), (q, k, v, *given))


def check_lowest_finite_mask():
    """Tests a mask of -FLT_MAX, as created by transformers, for which PyTorch's fused backward pass is incorrect."""
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 2, 9, 8) for _ in range(3))
    mask = torch.zeros(1, 1, 9, 9)
    mask[..., 2, :] = torch.finfo(torch.float32).min
    results = []
    for f, dtype in ((mha.torch.scaled_dot_product_attention, torch.float32), (None, torch.float64)):
        x = [y.to(dtype).requires_grad_(True) for y in (q, k, v)]
        if f is None:
            s = (x[0] @ x[1].transpose(-1, -2)).float() / math.sqrt(8)
            p = torch.softmax((s + mask).double(), -1)
            out = p @ x[2]
        else:
            out = f(*x, attn_mask=mask)
        results.append(torch.autograd.grad(out.square().sum(), x))
    for a, b in zip(*results):
        assert torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5), (a - b).abs().max()


def check_module():
    """If mha replaces PyTorch's attention in a model, the gradients of the model's parameters must agree."""
    torch.manual_seed(3)
    x, project = torch.randn(2, 10, 32), torch.nn.Linear(32, 96)
    found = []
    for f in (torch.nn.functional.scaled_dot_product_attention, mha.torch.scaled_dot_product_attention):
        q, k, v = project(x).view(2, 10, 3, 4, 8).permute(2, 0, 3, 1, 4)
        project.zero_grad()
        f(q, k, v, is_causal=True).sum().backward()
        found.append(project.weight.grad.clone())
    assert torch.allclose(*found, rtol=1e-4, atol=1e-5)


def refused(kind, words, call):
    try:
        call()
    except kind as refusal:
        assert words in str(refusal), refusal
    else:
        raise AssertionError(f"must raise {kind.__name__} with {words!r}")


def check_second_derivative():
    """Second derivatives must raise an error, even if the incoming gradient itself requires no gradient."""
    x = torch.randn(1, 1, 5, 4, requires_grad=True)
    y = mha.torch.attention(x, x, x).sum() + x.square().sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    refused(RuntimeError, "second derivative", lambda: torch.autograd.grad(first.square().sum(), x))


def check_changed_between():
    """If a tensor is modified between the passes, the backward pass must fail as in PyTorch; changes of lists and arrays must have no
    effect."""
    x = torch.linspace(-1, 1, 40).reshape(1, 1, 10, 4).requires_grad_(True)
    keep, kv_lens = torch.ones(10, 10, dtype=torch.bool).tril(), torch.tensor([5])
    for name, tensor, change in (("keep", keep, keep.logical_not_), ("kv_lens", kv_lens, lambda: kv_lens.add_(2))):
        out = mha.torch.attention(x, x, x, **{name: tensor})
        change()
        refused(RuntimeError, "modified by an inplace operation", out.sum().backward)
    found = []
    for changed in (False, True):
        keep, kv_lens = np.tri(10, dtype=bool), [7]
        out = mha.torch.attention(x, x, x, keep=keep, kv_lens=kv_lens).square().sum()
        if changed:
            keep[...], kv_lens[0] = True, 9
        found += torch.autograd.grad(out, x)
    assert torch.equal(*found)
    refused(ValueError, "scale must not require a gradient", lambda: mha.torch.attention(x, x, x, scale=x.sum()))


def check_mask_of_fewer_keys():
    x = torch.zeros(1, 1, 5, 4)
    for dtype in (torch.bool, torch.float32):
        mask = torch.ones(5, 3, dtype=dtype)
        refused(ValueError, "that broadcasts to", lambda: mha.torch.scaled_dot_product_attention(x, x, x, attn_mask=mask))


def check_bfloat16_per_head():
    """Sinks, slopes and gates of type bfloat16 must give the same results as float32 tensors, and gradients of type bfloat16."""
    torch.manual_seed(4)
    x, given = torch.randn(1, 2, 5, 4), {n: torch.rand(2).bfloat16() for n in ("sinks", "slopes", "gates")}
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        leaf = {n: y.to(dtype).requires_grad_(True) for n, y in given.items()}
        out = mha.torch.attention(x, x, x, align="top_left", **leaf)
        found.append((out, *torch.autograd.grad(out.square().sum(), list(leaf.values()))))
    for wide, narrow in zip(*found):
        assert torch.equal(wide.to(narrow.dtype), narrow)
    assert all(g.dtype == torch.bfloat16 for g in found[1][1:])


def check_dropout_seed():
    """If seed is None, each call must sample a seed from PyTorch's generator."""
    x, found = torch.ones(1, 1, 16, 4), []
    for again in (False, False, True):
        if not found or again:
            torch.manual_seed(5)
        found.append(mha.torch.attention(x, x, x, dropout=0.5))
    assert torch.equal(found[0], found[2]) and not torch.equal(found[0], found[1])


def check_autocast():
    """Under autocast, the result must have the type that PyTorch's function returns."""
    x = torch.linspace(-1, 1, 40).reshape(1, 1, 10, 4)
    for dtype in (torch.float32, torch.float64):
        with torch.autocast("cpu", torch.bfloat16):
            both = [f(*[x.to(dtype)] * 3) for f in (torch.nn.functional.scaled_dot_product_attention,
                                                  mha.torch.scaled_dot_product_attention)]
        assert both[0].dtype == both[1].dtype and torch.allclose(*both, atol=2e-2)


def check_python_page():
    """Runs the example of mha.torch in docs/python.md."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    (lines,) = (b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "mha.torch" in b)
    exec(compile(lines, "docs/python.md", "exec"), names := {})
    assert all(names[n].grad.abs().sum() > 0 for n in ("q", "k", "v", "sinks"))
    want = torch.nn.functional.scaled_dot_product_attention(*(names[n] for n in "qkv"), is_causal=True)
    assert torch.allclose(names["same"], want, rtol=1e-4, atol=1e-5)


def check_compiled():
    """A compiled model must have the same gradients as the model itself."""

    def model(x):
        return mha.torch.scaled_dot_product_attention(x * 2, x, x).square()

    found = []
    for f in (model, torch.compile(model, backend="eager")):
        x = torch.linspace(-1, 1, 40).reshape(1, 1, 10, 4).requires_grad_(True)
        f(x).sum().backward()
        found.append(x.grad)
    assert torch.equal(*found)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--cases", type=int, default=500)
    options.add_argument("--seed", type=int, default=20261121)
    options.add_argument("--only", type=int)
    a = options.parse_args()
    torch.set_num_threads(1)
    print(f"seed {a.seed}, isa {mha.isa()}")
    check_gradcheck()
    check_lowest_finite_mask()
    check_module()
    check_second_derivative()
    check_changed_between()
    check_mask_of_fewer_keys()
    check_bfloat16_per_head()
    check_dropout_seed()
    check_autocast()
    check_python_page()
    check_compiled()
    failed, cases = 0, range(a.cases) if a.only is None else [a.only]
    for case in cases:
        wrong = list(run_case(a.seed, case))
        failed += bool(wrong)
        for sentence in wrong:
            print(f"{sentence}   (to reproduce: tests/live/test_attention_backward_torch.py --seed {a.seed} --only {case})")
    print(f"{len(cases) - failed} of {len(cases)} agree with PyTorch")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
