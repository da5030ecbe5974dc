"""Compares mha.attention with PyTorch on random problem descriptions.

    test_attention_torch.py [--cases N] [--seed S] [--only CASE]

The reference is the attention formula in float64. The tolerance is twice the error of the same formula in PyTorch's float32, plus two
rounding errors of the largest score: a score s has an error of s * 2^-24, which exp turns into a relative error, and PyTorch may by chance
be exact in a small case. For float64 results, the reference has errors of the same order, so the tolerance allows some rounding errors of
each sum. Without --seed, all runs have the same cases, so a new failure is caused by a change in the code. A failing case is printed with
the command that repeats it.
"""
import argparse
import math
import sys

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import mha

LENGTHS = [1, 2, 3, 7, 15, 16, 17, 33, 63, 64, 65, 127, 130, 257]
LONG = [1000, 1025, 2048, 3000]  # lengths of more than one chunk, whose keys are split
UNIT = {torch.float32: 0, torch.bfloat16: 2.0 ** -8, torch.float16: 2.0 ** -11}  # the largest relative rounding error
HALVES = [torch.float32, torch.bfloat16, torch.float16]
WIDTHS = [1, 3, 8, 16, 32, 40, 64, 80, 128]


def sizes(rng):
    """Returns random sizes (B, H, Hkv, Lq, Lk, D, Dv)."""
    B, Hkv, group = (int(x) for x in rng.integers(1, 4, 3))
    Lq, Lk, D = int(rng.choice(LENGTHS)), int(rng.choice(LENGTHS)), int(rng.choice(WIDTHS))
    kind = rng.random()
    if kind < 0.02:
        Lq = 0
    elif kind < 0.06:  # few rows, since the formula's time grows with the number of rows
        B, Lq, Lk = 1, int(rng.choice([1, 2, 5, 17])), int(rng.choice(LONG))
    elif kind < 0.12:
        D = int(rng.choice([200, 256, 300, 768, 1100, 1200]))
    Dv = D if rng.random() < 0.7 else int(rng.choice(WIDTHS))
    return B, Hkv * group, Hkv, Lq, Lk, D, Dv


def bias_of(rng, shape, dtype):
    """Returns a bias that broadcasts to `shape`, with random elements, some of them -inf."""
    x = rng.standard_normal(broadcastable(rng, shape))
    if rng.random() < 0.3:
        x[rng.random(x.shape) < 0.2] = -math.inf
    return torch.tensor(x).to(dtype if dtype == torch.float64 else HALVES[rng.integers(0, 3)])


def term(b, h, i, j):
    """Returns the term that the user function of scores adds."""
    return ((5 * i + 3 * j + 7 * h + 11 * b) % 9 - 4) / 4


def kept(b, h, i, j):
    """Returns the mask of the user functions."""
    return (i + 3 * j + h + b) % 4 != 0


FUNCTIONS = mha.Functions(score=lambda s, b, h, i, j: s / (1 + abs(s) / 8) + term(b, h, i, j).astype(s.dtype),
                          score_back=lambda s, ds, b, h, i, j: ds / (1 + abs(s) / 8) ** 2, keep=kept)


def user_indices(t, d):
    """Returns the indices b, h, position and j of all pairs, as tensors that broadcast to [B, H, Lq, Lk]."""
    (B, H, _, _), Lk = t["q"].shape, t["k"].shape[2]
    return torch.arange(B)[:, None, None, None], torch.arange(H)[:, None, None], positions(t, d)[0], torch.arange(Lk)


def draw(rng):
    """Returns one random case: the tensors, the description of the call, and the stage of the scores."""
    B, H, Hkv, Lq, Lk, D, Dv = sizes(rng)
    kind, q_type, kv_type = rng.random(), torch.float32, torch.float32
    if kind < 0.1:
        q_type = kv_type = torch.float64
    elif kind < 0.5:
        q_type, kv_type = (HALVES[x] for x in rng.integers(0, 3, 2))
    t = {"q": tensor(rng, (B, H, Lq, D), q_type), "k": tensor(rng, (B, Hkv, Lk, D), kv_type),
         "v": tensor(rng, (B, Hkv, Lk, Dv), kv_type)}
    d = {}
    if rng.random() < 0.5:
        d["causal"] = True
    if rng.random() < 0.3:
        d["window"] = tuple(int(x) for x in rng.integers(-1, Lk + 2, 2))
    if rng.random() < 0.2:
        d["slopes"] = 2.0 ** -rng.integers(1, 8, H)
    if d:
        how = rng.choice(["top_left", "bottom_right", "offsets"])
        if how == "offsets":
            d["offsets"] = rng.integers(-3, Lk + 3, B)
        else:
            d["align"] = str(how)
    if rng.random() < 0.3:
        d["kv_lens"] = rng.integers(0, Lk + 1, B)
    if rng.random() < 0.2:
        d["q_lens"] = rng.integers(0, Lq + 1, B)
    if rng.random() < 0.3:
        d["keep"] = torch.tensor(rng.random(broadcastable(rng, (B, H, Lq, Lk))) < 0.8)
    if rng.random() < 0.3:
        d["bias"] = bias_of(rng, (B, H, Lq, Lk), q_type)
    if rng.random() < 0.2:
        d["softcap"] = float(rng.choice([0.5, 5.0, 50.0]))
    if rng.random() < 0.2:
        d["prefix_lens"] = rng.integers(0, Lk + 1, B)
    if rng.random() < 0.2:
        bq, bk = (int(x) for x in rng.integers(1, 70, 2))
        d["block_size"] = bq, bk
        d["block_keep"] = rng.random((H if rng.random() < 0.5 else 1, -(-Lq // bq), -(-Lk // bk))) < 0.7
    if rng.random() < 0.2:
        d["dropout"], d["seed"] = float(rng.choice([0.1, 0.5, 0.9])), int(rng.integers(0, 2**63))
    if rng.random() < 0.1:
        d["heads"] = [int(x) for x in rng.integers(0, H, rng.integers(1, H + 1))]
    if rng.random() < 0.2:
        d["sinks"] = rng.standard_normal(H).astype(np.float32)
    if rng.random() < 0.2:
        d["gates"] = rng.standard_normal((B, H) if rng.random() < 0.5 else H).astype(np.float32)
    if rng.random() < 0.2:
        d["scale"] = float(rng.choice([0.05, 1.0, -0.3]))
    if rng.random() < 0.1:
        d["dropout"], d["dropout_keep"] = 0.4, torch.tensor(rng.random(broadcastable(rng, (B, H, Lq, Lk))) < 0.6)
        d.pop("seed", None)
    if B * H * Lq <= 500 and rng.random() < 0.2:  # Python functions are called for each row
        d["functions"] = FUNCTIONS
        if "offsets" not in d:
            d.setdefault("align", "top_left")
    return t, d


STAGES = ["raw", "softcapped", "biased", "probs"]


def packed(t, d):
    """Returns the problem as packed sequences, each with the numbers of rows and keys that its lengths specify."""
    d = dict(d)
    (B, _, Lq, _), Lk = t["q"].shape, t["k"].shape[2]
    rows, keys = (np.asarray(d.pop(n, [x] * B)) for n, x in (("q_lens", Lq), ("kv_lens", Lk)))
    flat = [torch.cat([x[b, :, :n].transpose(0, 1) for b, n in enumerate(ns)]) for x, ns in (
        (t["q"], rows), (t["k"], keys), (t["v"], keys))]
    if "prefix_lens" in d:
        d["prefix_lens"] = np.minimum(d["prefix_lens"], keys)
    for name in ("keep", "bias", "dropout_keep"):
        if name in d:  # truncated to the longest sequence
            x = d[name]
            d[name] = x[..., :max(int(rows.max()), 1) if x.shape[-2] > 1 else None, :max(int(keys.max()), 1)]
    if "block_keep" in d:
        bq, bk = d["block_size"]
        d["block_keep"] = np.ascontiguousarray(d["block_keep"][:, :-(-int(rows.max()) // bq), :-(-int(keys.max()) // bk)])
    cu = [np.concatenate([[0], np.cumsum(x)]) for x in (rows, keys)]
    return flat, d | {"cu_seqlens_q": cu[0], "cu_seqlens_k": cu[1]}


def paged(rng, t, d):
    """Returns the problem with keys and values in shuffled pages; unused positions of a page are NaN."""
    B, _, Lk, _ = t["k"].shape
    size, n = 16, -(-Lk // 16)
    table = rng.permutation(B * n + 2)[:B * n].reshape(B, n)
    k, v = (torch.full((B * n + 2, x.shape[1], size, x.shape[3]), math.nan).to(x.dtype) for x in (t["k"], t["v"]))
    for b, j in np.ndindex(B, Lk):
        k[table[b, j // size], :, j % size] = t["k"][b, :, j]
        v[table[b, j // size], :, j % size] = t["v"][b, :, j]
    d = {"kv_lens": [Lk] * B} | d | {"block_table": table}
    for name in ("keep", "bias", "dropout_keep"):  # padded, because the pages have space for more keys
        if name in d and d[name].shape[-1] > 1:
            x = d[name]
            d[name] = torch.cat([x, torch.zeros(*x.shape[:-1], n * size - Lk, dtype=x.dtype)], -1)
    if "block_keep" in d:
        more = -(-n * size // d["block_size"][1]) - d["block_keep"].shape[2]
        d["block_keep"] = np.pad(d["block_keep"], ((0, 0), (0, 0), (0, more)))
    return k, v, d


def tensor(rng, shape, dtype):
    """Returns x [B, H, L, D] in one of several memory layouts."""
    x = torch.tensor(rng.standard_normal(shape)).to(dtype)
    how = rng.integers(0, 4)
    if how == 1:  # stored as [B, L, H, D]
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if how == 2:  # a slice of a wider tensor
        return torch.cat([x, x], -1)[..., :shape[-1]]
    if how == 3:  # the last axis is not contiguous
        return x.transpose(2, 3).contiguous().transpose(2, 3)
    return x


def broadcastable(rng, shape):
    return tuple(n if rng.random() < 0.6 else 1 for n in shape)


def positions(t, d):
    """Returns i + offset [B, 1, Lq, 1], and the counts of queries and keys [B, 1, 1, 1]."""
    (B, _, Lq, _), Lk = t["q"].shape, t["k"].shape[2]
    kv = torch.as_tensor(d.get("kv_lens", [Lk] * B)).reshape(B, 1, 1, 1)
    qn = torch.as_tensor(d.get("q_lens", [Lq] * B)).reshape(B, 1, 1, 1)
    if "offsets" in d:
        offset = torch.as_tensor(d["offsets"]).reshape(B, 1, 1, 1)
    else:
        offset = kv - qn if d.get("align") == "bottom_right" else torch.zeros_like(kv)
    return torch.arange(Lq)[:, None] + offset, qn, kv


def allowed(t, d):
    """Returns the mask [B, H, Lq, Lk] as bool."""
    (B, H, Lq, _), Lk = t["q"].shape, t["k"].shape[2]
    i, j = torch.arange(Lq)[:, None], torch.arange(Lk)
    p, qn, kv = positions(t, d)
    left, right = d.get("window", (-1, -1))
    allow = torch.ones(B, 1, Lq, Lk, dtype=torch.bool)
    if d.get("causal"):
        allow = allow & (j <= p)
    if left >= 0:
        allow = allow & (j >= p - left)
    if right >= 0:
        allow = allow & (j <= p + right)
    if "prefix_lens" in d:
        allow = allow | (j < torch.as_tensor(d["prefix_lens"]).reshape(B, 1, 1, 1))
    allow = allow & (j < kv) & (i < qn)
    if "block_keep" in d:
        blocks = torch.as_tensor(d["block_keep"])
        allow = allow & blocks.repeat_interleave(d["block_size"][0], 1).repeat_interleave(d["block_size"][1], 2)[:, :Lq, :Lk]
    if "keep" in d:
        allow = allow & d["keep"]
    if "functions" in d:
        allow = allow & kept(*user_indices(t, d))
    return allow.expand(B, H, Lq, Lk)


def drawn(seed, shape, p):
    """Returns which elements of [B, H, Lq, Lk] dropout keeps. Element (b, h, i, j) depends on the first word of Philox4x32-10 for the
    counter (b, h, i, j)."""
    low, c = np.uint64(0xFFFFFFFF), [x.astype(np.uint64) for x in np.indices(shape)]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [b >> np.uint64(32) ^ c[1] ^ np.uint64(k[0]), b & low, a >> np.uint64(32) ^ c[3] ^ np.uint64(k[1]), a & low]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return torch.tensor(c[0] >= p * 2.0**32)


def factor(d, shape):
    """Returns the factor of each probability: 0 if it is dropped, otherwise 1 / (1 - dropout)."""
    keep = d["dropout_keep"] if "dropout_keep" in d else drawn(d["seed"], shape, d["dropout"])
    return keep.double() / (1 - d["dropout"])


def formula(t, d, dtype, stage):
    """Returns all results of the attention formula, computed in `dtype`, with the scores at the stage `stage`."""
    q, k, v = (t[n].to(dtype) for n in "qkv")
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.transpose(-1, -2) * d.get("scale", 1 / math.sqrt(q.shape[-1]))
    largest, stages = float(s.abs().max()) if s.numel() else 0.0, {"raw": s}
    if "softcap" in d:
        s = d["softcap"] * torch.tanh(s / d["softcap"])
    stages["softcapped"] = s
    if "functions" in d:
        s = s / (1 + s.abs() / 8) + term(*user_indices(t, d)).to(dtype)
    if "bias" in d:
        s = s + d["bias"].to(dtype)
    if "slopes" in d:
        far = (positions(t, d)[0] - torch.arange(k.shape[2])).abs().to(dtype)
        s = s - torch.tensor(d["slopes"], dtype=dtype)[:, None, None] * far
        largest += float(far.max()) * float(np.max(d["slopes"])) if far.numel() else 0.0
    s = stages["biased"] = torch.where(allowed(t, d), s, -math.inf)
    lse = torch.logsumexp(s, -1)
    if "sinks" in d:
        lse = torch.logaddexp(lse, torch.tensor(d["sinks"], dtype=dtype)[:, None])
    p = torch.where(torch.isinf(lse)[..., None], 0, torch.exp(s - torch.where(torch.isinf(lse), 0, lse)[..., None]))
    _, qn, kv = positions(t, d)
    there = (torch.arange(q.shape[2])[:, None] < qn) & (torch.arange(k.shape[2]) < kv)
    at_stage = p if stage == "probs" else torch.where(there, stages[stage], -math.inf)
    gates = torch.as_tensor(d.get("gates", [1.0])).to(dtype)[..., None, None]
    heads = d.get("heads", slice(None))
    w = p * factor(d, p.shape).to(dtype) if "dropout" in d else p
    results = {"out": w @ v * gates, "lse": lse, "probs": p, "scores": at_stage, "weighed": w @ v.abs() * gates.abs()}
    return {name: x[:, heads] for name, x in results.items()} | {"largest": largest}


def worst(ours, truth):
    """Returns the largest difference between elements; infinity if only one of two elements is finite."""
    a, b = ours.double(), truth.double()
    same = (a == b) | (a.isnan() & b.isnan())
    return float(torch.where(same, 0, torch.nan_to_num((a - b).abs(), nan=math.inf)).max()) if a.numel() else 0.0


WANTED = {"return_lse": True, "return_probs": True, "return_stats": True}


def limits(t, d, truth, stage):
    """Returns the largest allowed error of each result."""
    plain = formula(t, d, torch.float32, stage)
    precise = t["q"].dtype == torch.float64
    # kernels that multiply 16-bit pairs round the probabilities to 16 bits before the product with the values
    paired = mha.attention_plan(t["q"], t["k"], t["v"], scores=stage, **WANTED, **d)["weights"] == "bf16"
    for name in ("out", "lse", "probs", "scores"):
        finite = truth[name][torch.isfinite(truth[name])]
        size = max(float(finite.abs().max()), 1.0) if finite.numel() else 1.0
        if precise:
            yield name, 8 * 2.0 ** -53 * (4 + truth["largest"] + t["q"].shape[3] / 8) * size
            continue
        wide = max(t["q"].shape[3] - 512, 0) / 8  # PyTorch divides the sums of wide heads into more parts than mha
        limit = 2 * worst(plain[name], truth[name]) + 2 * 2.0 ** -24 * (4 + truth["largest"] + wide) * size
        if name == "out":
            limit += UNIT[t["q"].dtype] * float(finite.abs().max()) if finite.numel() else 0.0
            if paired and truth["weighed"].numel():
                limit += UNIT[torch.bfloat16] * float(truth["weighed"].max())
        yield name, limit


def run_case(seed, case):
    """Runs one case; yields a message per result that is wrong."""
    rng = np.random.default_rng([seed, case])
    t, d = draw(rng)
    stage = STAGES[case % 4]
    got = mha.attention(t["q"], t["k"], t["v"], scores=stage, **WANTED, **d)
    truth = formula(t, d, torch.float64, stage)
    for name, limit in limits(t, d, truth, stage):
        error = worst(getattr(got, name), truth[name])
        if not error <= limit:
            yield f"{name}: error must be at most {limit:.3g} (got {error:.3g})"
    if got.probs.numel():
        yield from wrong_statistics(got)
    yield from other_bits(rng, t, d, stage, got)


def other_bits(rng, t, d, stage, got):
    """Runs the problem with packed sequences, with paged keys and for selected maps; yields a message per result that is not bitwise
    identical to `got`."""
    flat, how = packed(t, d)
    r = mha.attention(*flat, scores=stage, **WANTED, **how)
    cu_q, cu_k = how["cu_seqlens_q"], how["cu_seqlens_k"]
    for b in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), int(cu_k[b + 1] - cu_k[b])
        n = int(cu_q[b + 1] - cu_q[b])
        pairs = {"out": (r.out[rows].transpose(0, 1), got.out[b, :, :n]), "lse": (r.lse[:, rows], got.lse[b, :, :n]),
                 "probs": (r.probs[b, :, :n, :keys], got.probs[b, :, :n, :keys]),
                 "scores": (r.scores[b, :, :n, :keys], got.scores[b, :, :n, :keys]),
                 "row_entropy": (r.stats["row_entropy"][:, rows], got.stats["row_entropy"][b, :, :n])}
        for name, (x, y) in pairs.items():
            if not torch.equal(x, y):
                yield f"packed: {name} of sequence {b} must be bitwise identical to the batched problem (difference {worst(x, y):.3g})"
    k, v, how = paged(rng, t, d)
    r = mha.attention(t["q"], k, v, return_lse=True, **how)
    if not torch.equal(r.out, got.out) or not torch.equal(r.lse, got.lse):
        yield f"paged: out and lse must be bitwise identical to those of contiguous keys (difference of out {worst(r.out, got.out):.3g}, of lse {worst(r.lse, got.lse):.3g})"
    H, Lq = got.probs.shape[1:3]
    if Lq == 0:
        return
    heads, rows = rng.integers(0, H, 2), rng.integers(0, Lq, 3)
    r = mha.attention(t["q"], t["k"], t["v"], return_probs=True, scores=stage, map_heads=heads, map_rows=rows, **d)
    if not torch.equal(r.probs, got.probs[:, heads][:, :, rows]) or not torch.equal(r.scores, got.scores[:, heads][:, :, rows]):
        yield f"selected maps: heads {heads}, rows {rows} must be bitwise identical to those of all maps"


def wrong_statistics(got):
    """Yields a message per statistic that differs from the statistic computed by PyTorch from the probabilities."""
    p, s = got.probs.double(), got.stats
    seen = p.sum(-1) > 0
    want = {"row_entropy": -torch.special.xlogy(p, p).sum(-1) / math.log(2), "row_max": got.probs.amax(-1),
            "row_argmax": torch.where(seen, got.probs.max(-1).indices, -1), "received": p.sum(-2)}
    for name, x in want.items():
        if not torch.allclose(s[name].double(), x.double(), rtol=2e-6, atol=2e-6):
            yield f"{name}: must equal the statistic of PyTorch within 2e-6 (difference {worst(s[name], x):.3g})"


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--cases", type=int, default=2000)
    options.add_argument("--seed", type=int, default=20261121)
    options.add_argument("--only", type=int)
    a = options.parse_args()
    torch.set_num_threads(1)
    print(f"seed {a.seed}, isa {mha.isa()}")
    failed = 0
    cases = range(a.cases) if a.only is None else [a.only]
    for case in cases:
        wrong = list(run_case(a.seed, case))
        failed += bool(wrong)
        for sentence in wrong:
            print(f"{sentence}   (to reproduce: tests/live/test_attention_torch.py --seed {a.seed} --only {case})")
    x = torch.zeros(1, 1, 2, 4, requires_grad=True)
    try:
        mha.attention(x, x, x)
        failed += 1
        print("a tensor that requires a gradient must be rejected, because its gradient would be lost")
    except ValueError:
        pass
    print(f"{len(cases) - failed} of {len(cases)} agree with PyTorch")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
