"""The operator beside its peers: the same shapes in the same process, in alternating rounds.

    PYTHONPATH=python MHA_LIB=build/gcc/libmha.so python3 bench/compare.py [--rows 1,3,5] [--threads 1] [--json | --csv]

Each round calls every peer once; a peer's time is the least over the rounds, its median shows the noise. `ratio` is the best
peer's time over ours (above 1: we are faster), `of peak` the share of the machine's FMA limit that our time amounts to,
measured by bench/peak in the same run (--peak FILE names the program). Peers that are not installed are left out and named.
"""
import argparse
import csv
import json
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np

import mha


@dataclass(frozen=True)
class Row:
    """One shape. Operations are counted as 4 B H Lq Lk D, half of it when causal."""
    number: int
    name: str
    B: int
    H: int
    Hkv: int
    Lq: int
    Lk: int
    D: int
    causal: bool = False

    @property
    def flops(self):
        return 4 * self.B * self.H * self.Lq * self.Lk * self.D / (2 if self.causal else 1)


ROWS = [
    Row(1, "prefill 512", 1, 12, 12, 512, 512, 64),
    Row(2, "prefill 512 causal", 1, 12, 12, 512, 512, 64, True),
    Row(3, "BERT batch", 32, 12, 12, 128, 128, 64),
    Row(4, "prefill 2048 GQA causal", 1, 32, 8, 2048, 2048, 128, True),
    Row(5, "prefill 4096", 1, 16, 16, 4096, 4096, 64),
    Row(6, "prefill 4096 causal", 1, 16, 16, 4096, 4096, 64, True),
    Row(7, "small", 8, 2, 2, 16, 16, 8),
]


def inputs(row):
    rng = np.random.default_rng(row.number)
    shapes = ((row.B, row.H, row.Lq, row.D), (row.B, row.Hkv, row.Lk, row.D), (row.B, row.Hkv, row.Lk, row.D))
    return [rng.standard_normal(s, dtype=np.float32) for s in shapes]


def ours(row, arrays, threads):
    q, k, v = arrays
    align = {"causal": True, "align": "top_left"} if row.causal else {}
    return lambda: mha.attention(q, k, v, threads=threads, **align)


def pytorch(row, arrays, threads):
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    q, k, v = (torch.from_numpy(x) for x in arrays)
    run = torch.nn.functional.scaled_dot_product_attention
    return lambda: run(q, k, v, is_causal=row.causal, enable_gqa=row.H != row.Hkv)


PEERS = {"mha": ours, "torch": pytorch}


def measure(calls, seconds):
    """name -> list of times. Rounds go on until `seconds` have passed, at least five."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    end = time.perf_counter() + seconds
    while len(next(iter(times.values()))) < 5 or time.perf_counter() < end:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return times


def compare(row, threads, seconds, peak):
    arrays = inputs(row)
    calls = {name: call for name, make in PEERS.items() if (call := make(row, arrays, threads))}
    outputs = {name: np.asarray(call()) for name, call in calls.items()}
    for name, out in outputs.items():
        error = float(np.abs(out - outputs["mha"]).max())
        if error > 1e-4:
            raise SystemExit(f"row {row.number}: {name} differs by {error}: not the same problem")
    times = measure(calls, seconds)
    best = {name: min(t) for name, t in times.items()}
    result = {"row": row.number, "name": row.name, "threads": threads}
    for name, t in times.items():
        result |= {f"{name} ms": 1e3 * best[name], f"{name} median ms": 1e3 * statistics.median(t),
                   f"{name} GFLOP/s": row.flops / best[name] / 1e9}
    peers = [t for name, t in best.items() if name != "mha"]
    result["ratio"] = min(peers) / best["mha"] if peers else None
    result["of peak"] = row.flops / best["mha"] / 1e9 / peak if peak else None
    return result


def fma_peak(program, threads):
    """GFLOP/s of multiply-adds as bench/peak measures them; None without the program."""
    if not program:
        return None
    said = json.loads(subprocess.run([program, "--json", "-t", str(threads)], check=True, capture_output=True).stdout)
    return said["fma_gflops"]


def cpu_name():
    try:
        with open("/proc/cpuinfo") as info:
            return next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def show(results, form):
    if form == "json":
        json.dump({"cpu": cpu_name(), "isa": mha.isa(), "version": mha.version, "rows": results}, sys.stdout, indent=1)
        print()
        return
    if form == "csv":
        writer = csv.DictWriter(sys.stdout, fieldnames=list(results[0]))
        writer.writeheader()
        writer.writerows(results)
        return
    print(f"{cpu_name()}, {mha.isa()}, mha {mha.version}; best of alternating rounds, medians in brackets")
    for r in results:
        peers = "  ".join(f"{n} {r[f'{n} ms']:9.3f} ms ({r[f'{n} median ms']:.3f})" for n in PEERS if f"{n} ms" in r)
        ratio = f"{r['ratio']:.2f}x" if r["ratio"] else "no peer"
        share = f", {100 * r['of peak']:.0f} % of peak" if r["of peak"] else ""
        print(f"{r['row']:2} {r['name']:24} {peers}  {ratio}, {r['mha GFLOP/s']:.0f} GFLOP/s{share}")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", help="numbers, for example 1,3,5; default all")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--seconds", type=float, default=3.0, help="for each row")
    options.add_argument("--peak", help="the program bench/peak, for the share of the limit")
    form = options.add_mutually_exclusive_group()
    form.add_argument("--json", dest="form", action="store_const", const="json")
    form.add_argument("--csv", dest="form", action="store_const", const="csv")
    a = options.parse_args()
    wanted = {int(n) for n in a.rows.split(",")} if a.rows else {r.number for r in ROWS}
    peak = fma_peak(a.peak, a.threads)
    show([compare(r, a.threads, a.seconds, peak) for r in ROWS if r.number in wanted], a.form)


if __name__ == "__main__":
    main()
