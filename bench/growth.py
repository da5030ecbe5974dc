"""Measures how the time and the memory of attention grow with each size: one axis at a time, with PyTorch as the other library.

    PYTHONPATH=python MHA_LIB=build/libmha.so python3 bench/growth.py [--axes length,batch] [--dtype f32,bf16] [--threads 1]
        [--seconds 1] [--longest 5] [--memory 4096] [--quick] [--csv FILE] [--charts FOLDER]

The axes are `length` (causal self-attention of one head over 128 to 131,072 tokens), `keys` (one query with 128 to 131,072 keys), `batch`, `heads`,
`width` (of a head), `kept` (percent of the blocks that a block mask keeps) and `threads`. Each point alternates between the libraries; its time is
the minimum. A library leaves an axis at the first point that would take longer than `--longest` or more operands and masks than `--memory`; the table
names the reason. The memory of a call, without q, k, v and masks, is the workspace and the result for mha, and the growth of the peak resident set
during the first call for PyTorch.
"""
import argparse
import csv
import ctypes
import gc
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import chart
from sweep.shape import BLOCK, BYTES, Data, Run, Shape

BASE = Shape(B=1, H=8, Hkv=8, Lq=1024, Lk=1024, D=64, Dv=64)
TOKEN = Shape(B=1, H=32, Hkv=8, Lq=1, Lk=4096, D=128, Dv=128)
LENGTHS = [1 << n for n in range(7, 18)]
WIDTHS = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)


def axes():
    """Returns {name: (label of the axis, [(x, shape)])}."""
    threads = len(os.sched_getaffinity(0))
    return {
        "length": ("tokens, one head", [(n, replace(BASE, H=1, Hkv=1, Lq=n, Lk=n, mask="causal")) for n in LENGTHS]),
        "keys": ("keys, one query", [(n, replace(TOKEN, Lk=n)) for n in LENGTHS]),
        "batch": ("sequences of 128 tokens", [(n, replace(BASE, B=n, Lq=128, Lk=128)) for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)]),
        "heads": ("heads", [(n, replace(BASE, H=n, Hkv=n)) for n in (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)]),
        "width": ("width of a head", [(n, replace(BASE, D=n, Dv=n)) for n in WIDTHS]),
        "kept": ("percent of the blocks kept", [(n, replace(BASE, Lq=2048, Lk=2048, mask="blocks", kept=n / 100)) for n in (2, 5, 10, 25, 50, 75, 100)]),
        "threads": ("threads", [(n, BASE) for n in range(1, threads + 1)]),
    }


# ---- libraries ----

def tensor(torch, x, shape):
    """Returns a tensor of the first elements of an array of the shared memory."""
    part = torch.from_numpy(x[: int(np.prod(shape))].view(np.int16) if x.dtype == np.uint16 else x[: int(np.prod(shape))])
    return (part.view(torch.bfloat16) if x.dtype == np.uint16 else part).reshape(shape)


class Torch:
    """A prepared call of scaled_dot_product_attention; for one query, the heads of a group become rows of one head, which is faster."""

    def __init__(self, shape, data):
        import torch
        torch.set_num_threads(shape.threads)
        inputs, rows = data.inputs[shape.dtype], shape.H * shape.Lq // shape.Hkv
        heads, rows = (shape.Hkv, rows) if shape.Lq == 1 else (shape.H, shape.Lq)
        shapes = [(shape.B, heads, rows, shape.D), (shape.B, shape.Hkv, shape.Lk, shape.D), (shape.B, shape.Hkv, shape.Lk, shape.Dv)]
        q, k, v = (tensor(torch, x, size) for x, size in zip(inputs, shapes))
        more = {"is_causal": True} if shape.mask == "causal" else {}
        if shape.mask == "blocks":
            more["attn_mask"] = torch.from_numpy(np.kron(shape.blocks(), np.ones((BLOCK, BLOCK), bool)))
        self.run = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, **more)
        self.clock = time.thread_time if shape.threads == 1 else time.perf_counter
        self.run()

    def sample(self):
        start = self.clock()
        self.run()
        return self.clock() - start

    def close(self):
        self.run = None


def libraries():
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skipped: not installed: PyTorch", file=sys.stderr)
        return {"mha": Run}
    return {"mha": Run, "torch": Torch}


# ---- memory ----

def resident(field):
    """Returns VmRSS or VmHWM of this process [bytes]; None if the system does not report it."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))
    except (OSError, StopIteration):
        return None


def opened(library, shape, data):
    """Returns the prepared call, and its memory [bytes], or None if the system does not report it."""
    if library is Run:
        call = Run(shape, data)
        return call, call.size + shape.B * shape.H * shape.Lq * shape.Dv * BYTES[shape.dtype]
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    except (OSError, AttributeError):
        return library(shape, data), None
    before = resident("VmRSS")
    call = library(shape, data)
    return call, max(0, resident("VmHWM") - before)


# ---- measurement ----

def work(shape):
    """Returns the operations of a call; those of masked blocks are counted, because PyTorch computes them."""
    pairs = shape.Lq * shape.Lk if shape.mask == "blocks" else shape.pairs()
    return shape.B * shape.H * pairs * (shape.D + shape.Dv)


def refusal(shape, before, a):
    """Returns why a library does not measure a shape; `before` is (shape, seconds) of its last point."""
    operands = shape.B * max(shape.Hkv * shape.Lk, shape.H * shape.Lq) * max(shape.D, shape.Dv) * BYTES[shape.dtype]
    if 4 * operands > a.memory << 20:
        return f"requires more than {a.memory} MiB"
    if before and before[1] * work(shape) / work(before[0]) > a.longest:
        return f"takes more than {a.longest:g} s"
    return None


def measure(names, shape, data, a):
    """Returns {name: (seconds, bytes)} of a shape; the calls alternate."""
    calls, size = {}, {}
    for name, library in names.items():
        calls[name], size[name] = opened(library, shape, data)
    times = {name: [] for name in calls}
    end, rounds = time.monotonic() + a.seconds, 0
    while rounds < 1 or (time.monotonic() < end and rounds < 200):
        for name, call in calls.items():
            times[name].append(call.sample())
        rounds += 1
    for call in calls.values():
        call.close()
    return {name: (min(times[name]), size[name]) for name in calls}


def points(axis, dtype, data, a):
    """Measures an axis; yields one dict per point and library."""
    known, last = libraries(), {}
    for x, shape in axes()[axis][1]:
        shape = replace(shape, dtype=dtype, threads=x if axis == "threads" else a.threads)
        why = {name: refusal(shape, last.get(name), a) for name in known}
        found = measure({name: known[name] for name in known if not why[name]}, shape, data, a)
        for name in known:
            seconds, size = found.get(name, (None, None))
            if seconds:
                last[name] = shape, seconds
            yield {"axis": axis, "x": x, "dtype": dtype, "threads": shape.threads, "library": name, "seconds": seconds,
                   "us per token": seconds and 1e6 * seconds / (shape.B * shape.Lq), "bytes": size, "skipped": why[name]}


# ---- output ----

COLUMNS = ("axis", "x", "dtype", "threads", "library", "seconds", "us per token", "bytes", "skipped")


def cells(point):
    if point["skipped"]:
        return [point["axis"], str(point["x"]), point["dtype"], point["library"], "-", point["skipped"]]
    size = "-" if point["bytes"] is None else f"{point['bytes'] / 2**20:.1f}"
    return [point["axis"], str(point["x"]), point["dtype"], point["library"], f"{point['us per token']:.4g}", size]


def draw(folder, axis, found, field, up):
    """Writes the curves of an axis; values of 0 are left out, because the axes are logarithmic."""
    lines = {}
    for library in ("mha", "torch"):
        for dtype in ("f32", "bf16"):
            line = [(p["x"], p[field] / (2**20 if field == "bytes" else 1)) for p in found
                    if (p["axis"], p["library"], p["dtype"]) == (axis, library, dtype) and p[field]]
            if line:
                lines[f"{library} {dtype}"] = line
    if len({x for line in lines.values() for x, _ in line}) > 1:
        name = f"growth-{axis}{'-memory' if field == 'bytes' else ''}.svg"
        chart.curves(folder / name, up, lines, {}, axes()[axis][0], "", log=True)


def parse():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--axes", default=",".join(axes()), help="names of axes (default: all)")
    options.add_argument("--dtype", default="f32,bf16", help="f32, bf16 or both")
    options.add_argument("--threads", type=int, default=1, help="threads of all axes but `threads`")
    options.add_argument("--seconds", type=float, default=1.0, help="seconds per point")
    options.add_argument("--longest", type=float, default=5.0, help="seconds of the longest call")
    options.add_argument("--memory", type=int, default=4096, help="operands of the largest call [MiB]")
    options.add_argument("--quick", action="store_true", help="0.02 seconds per point, calls of at most 0.05 s")
    options.add_argument("--csv", help="write all points to a file")
    options.add_argument("--charts", type=Path, help="folder for the charts growth-*.svg")
    a = options.parse_args()
    if a.quick:
        a.seconds, a.longest = 0.02, 0.05
    if a.charts:
        a.charts.mkdir(parents=True, exist_ok=True)
    a.axes, a.dtype = a.axes.split(","), a.dtype.split(",")
    for given, legal in ((a.axes, list(axes())), (a.dtype, ["f32", "bf16"])):
        for name in given:
            if name not in legal:
                options.error(f"names must be one of {', '.join(legal)} (got {name})")
    return a


def largest(a):
    """Returns the bytes of the largest operand that an axis in use may need."""
    shapes = [shape for axis in a.axes for _, shape in axes()[axis][1]]
    return max(4 * s.B * max(s.Hkv * s.Lk, s.H * s.Lq) * max(s.D, s.Dv) for s in shapes)


def main():
    a = parse()
    data, found = Data(min(largest(a), a.memory << 18)), []
    print(f"| axis | x | type | library | us per token | MiB |\n{'|---' * 6}|", flush=True)
    for axis in a.axes:
        for dtype in a.dtype:
            for point in points(axis, dtype, data, a):
                found.append(point)
                print(f"| {' | '.join(cells(point))} |", flush=True)
        if a.charts:
            draw(a.charts, axis, found, "us per token", f"Time per token [us] by {axes()[axis][0]}")
            if axis == "length":
                draw(a.charts, axis, found, "bytes", "Memory of a call [MiB] by tokens, without q, k and v")
    if a.csv:
        with open(a.csv, "w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS)
            writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main()
