"""Compares the random generator with PyTorch's; results must be bitwise identical. Each case is a random sequence of calls after one seed,
so a call that consumes too many or too few random values makes the next call fail.

    test_rng_torch.py [--cases N] [--seed S] [--only CASE]

The test runs with PyTorch's kernels for this CPU and, in a second process, with its scalar kernels. It prints the seed, and each failing
case with the command that repeats it.
"""
import argparse
import ctypes
import os
import subprocess
import sys

try:
    import numpy as np
    import torch
    from torch import nn
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from mha._binding.abi import Rng
from mha._binding.library import call, lib


SIZES = [0, 1, 2, 3, 5, 7, 8, 14, 15, 16, 17, 31, 32, 33, 47, 48, 49, 100, 255, 256, 257, 623, 624, 625, 1000, 5000]
SCALAR = torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "NO AVX")
_state = Rng()


def ours(name, *arguments, out, like=np.float32):
    """Calls mha_rng_NAME with a new array of shape `out` in place of the None in `arguments`; returns the array."""
    x = np.empty(out, like)
    at = [x.ctypes.data if a is None else a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    call(f"mha_rng_{name}", ctypes.byref(_state), *at)
    return x


def size(r):
    """Returns a random size, often one near a multiple of 16."""
    n = int(r.choice(SIZES))
    return n if r.random() < 0.7 else int(r.integers(0, 400))


# Each function samples a tensor with both generators and returns (description of the call, PyTorch's tensor, our tensor).


def rand(r):
    n = size(r)
    return f"rand({n})", torch.rand(n), ours("rand", None, n, out=n)


def rand_f64(r):
    n = size(r)
    return f"rand({n}, float64)", torch.rand(n, dtype=torch.float64), ours("rand_f64", None, n, out=n, like=np.float64)


def uniform(r):
    n, low = size(r), float(r.normal() * 10 ** r.uniform(-4, 4))
    high = low + abs(float(r.normal() * 10 ** r.uniform(-4, 4)))
    return f"uniform_({n}, {low}, {high})", torch.empty(n).uniform_(low, high), ours(
        "uniform", low, high, None, n, out=n)


def randn(r):
    n = size(r)
    return f"randn({n})", torch.randn(n), ours("randn", None, n, out=n)


def randn_f64(r):
    n = size(r)
    return f"randn({n}, float64)", torch.randn(n, dtype=torch.float64), ours(
        "randn_f64", None, n, out=n, like=np.float64)


def normal(r):
    n, mean, std = size(r), float(r.normal()), float(10 ** r.uniform(-4, 2)) if r.random() < 0.9 else 0.0
    return f"normal_({n}, {mean}, {std})", torch.empty(n).normal_(mean, std), ours("normal", mean, std, None, n, out=n)


def exponential(r):
    n = size(r)
    return f"exponential_({n})", torch.empty(n).exponential_(), ours("exponential", None, n, out=n)


def randint(r):
    n, span = size(r), int(r.choice([1, 2, 10, 1000, 2**28 - 1, 2**28, 2**28 + 1, 2**32 - 1, 2**32, 2**40, 2**62]))
    low = int(r.integers(-2**40, 2**40))
    return f"randint({low}, {low + span}, {n})", torch.randint(low, low + span, (n,)), ours(
        "randint", low, low + span, None, n, out=n, like=np.int64)


def randperm(r):
    n = size(r)
    return f"randperm({n})", torch.randperm(n), ours("randperm", None, n, out=n, like=np.int64)


def multinomial(r):
    count, again = int(r.integers(1, 40)), bool(r.random() < 0.5)
    weights = r.exponential(size=count).astype(np.float32) * (r.random(count) < 0.8)
    weights[r.integers(0, count)] = 1
    n = int(r.integers(1, 30)) if again else int(r.integers(1, np.count_nonzero(weights) + 1))
    work = np.empty_like(weights)
    return f"multinomial({count} weights, {n}, {again})", torch.multinomial(torch.from_numpy(weights), n, again), ours(
        "multinomial", weights, count, again, work, None, n, out=n, like=np.int64)


def bernoulli(r):
    n, p = size(r), float(r.choice([0, 1, 0.5, r.random()]))
    return f"bernoulli_({n}, {p})", torch.empty(n, dtype=torch.uint8).bernoulli_(p), ours(
        "bernoulli", p, 0, None, n, out=n, like=np.uint8)


def dropout(r):
    n, p = size(r), float(r.choice([0, 1, 0.1, 0.5, r.random()]))
    x = r.normal(size=n).astype(np.float32)
    if n:
        x[0] = np.inf
    return f"dropout({n}, {p})", nn.functional.dropout(torch.from_numpy(x), p, True), ours(
        "dropout", p, 0, x, None, n, out=n)


def kaiming_uniform(r):
    rows, width, a = int(r.integers(1, 40)), int(r.integers(1, 40)), float(abs(r.normal()))
    w = nn.init.kaiming_uniform_(torch.empty(rows, width), a)
    return f"kaiming_uniform_({rows} x {width}, {a})", w, ours(
        "kaiming_uniform", width, rows, a, None, out=(rows, width))


def xavier_uniform(r):
    rows, width, gain = int(r.integers(1, 40)), int(r.integers(1, 40)), float(abs(r.normal()))
    w = nn.init.xavier_uniform_(torch.empty(rows, width), gain)
    return f"xavier_uniform_({rows} x {width}, {gain})", w, ours(
        "xavier_uniform", width, rows, gain, None, out=(rows, width))


def linear(r):
    rows, width, biased = int(r.integers(1, 40)), int(r.integers(1, 40)), r.random() < 0.7
    layer = nn.Linear(width, rows, bias=biased)
    bias = np.empty(rows, np.float32) if biased else 0
    weight = ours("linear", width, rows, None, bias, out=(rows, width))
    if not biased:
        return f"Linear({width}, {rows}, False)", layer.weight, weight
    return f"Linear({width}, {rows})", torch.cat([layer.weight.flatten(), layer.bias]), np.concatenate(
        [weight.ravel(), bias])


def embedding(r):
    rows, width = int(r.integers(1, 20)), int(r.integers(1, 20))
    padding = int(r.integers(-1, rows))
    layer = nn.Embedding(rows, width, padding_idx=None if padding < 0 else padding)
    return f"Embedding({rows}, {width}, {padding})", layer.weight, ours("embedding", rows, width, padding, None,
                                                                       out=(rows, width))


def multihead(r):
    width, biased = int(r.integers(1, 30)), bool(r.random() < 0.5)
    layer = nn.MultiheadAttention(width, 1, bias=biased)
    outer = np.empty((width, width), np.float32)
    biases = [np.empty(3 * width, np.float32), np.empty(width, np.float32)] if biased else [0, 0]
    inner = ours("multihead", width, None, biases[0], outer, biases[1], out=(3 * width, width))
    theirs = [layer.in_proj_weight, layer.out_proj.weight]
    theirs += [layer.in_proj_bias, layer.out_proj.bias] if biased else []
    mine = [inner, outer] + (biases if biased else [])
    return f"MultiheadAttention({width}, bias={biased})", torch.cat([x.flatten() for x in theirs]), np.concatenate(
        [x.ravel() for x in mine])


CALLS = [rand, rand_f64, uniform, randn, randn, randn, normal, normal, randn_f64, exponential, randint, randperm,
         multinomial, bernoulli, dropout, kaiming_uniform, xavier_uniform, linear, linear, embedding, multihead]


def run_case(seed, case):
    """Runs one case. Returns a message about the first call whose results differ, or None, and the number of compared elements."""
    r = np.random.default_rng([seed, case])
    start, numbers = int(r.integers(0, 2**63)), 0
    torch.manual_seed(start)
    lib.mha_rng_manual_seed(ctypes.byref(_state), start)
    _state.kernels = SCALAR
    for step in range(int(r.integers(1, 25))):
        what, theirs, mine = r.choice(CALLS)(r)
        theirs = theirs.detach().numpy()
        numbers += mine.size
        if theirs.dtype != mine.dtype or theirs.shape != mine.shape or theirs.tobytes() != mine.tobytes():
            return f"torch seed {start}, call {step}, {what}: {report(theirs, mine)}", numbers
    return None, numbers


def report(theirs, mine):
    differ = np.flatnonzero(theirs.ravel() != mine.ravel())
    if differ.size == 0:
        return "zeros with different signs, or different NaNs"
    i = differ[0]
    return f"{differ.size} of {mine.size} elements differ; first element {i}: {mine.ravel()[i]!r}, PyTorch {theirs.ravel()[i]!r}"


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--cases", type=int, default=200)
    options.add_argument("--seed", type=int, default=20261121)
    options.add_argument("--only", type=int)
    a = options.parse_args()
    torch.set_num_threads(1)
    kernels = "scalar" if SCALAR else "vector"
    print(f"seed {a.seed}, PyTorch {torch.__version__} with {torch.backends.cpu.get_cpu_capability()} kernels")
    failed, numbers = 0, 0
    cases = range(a.cases) if a.only is None else [a.only]
    for case in cases:
        wrong, compared = run_case(a.seed, case)
        numbers += compared
        if wrong:
            failed += 1
            forced = "ATEN_CPU_CAPABILITY=default " if SCALAR else ""
            print(f"{wrong}   (to reproduce: {forced}tests/live/test_rng_torch.py --seed {a.seed} --only {case})")
    agree = len(cases) - failed
    print(f"{kernels}: {agree} of {len(cases)} programs, {numbers} elements, agree with PyTorch", flush=True)
    if not SCALAR and a.only is None:
        again = [sys.executable, __file__, "--cases", str(a.cases), "--seed", str(a.seed)]
        failed += subprocess.run(again, env=dict(os.environ, ATEN_CPU_CAPABILITY="default"), check=False).returncode
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
