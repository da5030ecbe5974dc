"""Compares the attention operator with other libraries: the same shapes in one process, in alternating rounds.

    PYTHONPATH=python MHA_LIB=build/libmha.so python3 bench/compare.py [--rows NAMES] [--threads N] [--dtype TYPE]
        [--ggml FILE] [--program build/bin/mha] [--json | --csv | --markdown] [--chart FILE.svg]
    ... --merge FILE...           prints the minimum over several --json runs, for machines that run other work

The other libraries are PyTorch (scaled_dot_product_attention; for grouped decode also with the group folded into the query
rows), ONNX Runtime (MultiHeadAttention and GroupQueryAttention) and ggml (flash attention; --ggml names the library that
bench/llama/build.sh builds). Libraries that are not installed are skipped and listed. All results are first compared with
those of mha.

Each round calls every library. With several threads, a pause lets the worker threads of the previous library go to sleep.
Untimed calls for 15 ms then wake the worker threads of this library and bring cores and caches to a steady state.
The reported time is the minimum over the rounds; the median shows the noise.
With one thread, calls of more than a millisecond are measured in CPU time of that thread, which excludes other programs.
`ratio` is the time of the fastest other library divided by that of mha (above 1: mha is faster). `share` is the fraction of
the machine's limit that mha reaches (mha/machine_peak.h: multiply-adds, or reads of K and V for one query); the limit is
measured before and after the rounds. A call from Python takes about 1 us longer for mha, and more for the other libraries,
whose own front end is included. --program also times the rows in the program (`C ms`), which differs only for the row `small`.
"""
import argparse
import csv
import json
import platform
import statistics
import subprocess
import sys
import time

import chart
import mha
import numpy as np
import peers

# Goals per row: the ratio and the fraction of the limit for f32, then the ratio for 16-bit types without AMX tiles.
GOALS = {
    "prefill": (1.4, 0.70, 1.5), "prefill-causal": (2.2, 0.50, 1.5), "bert-batch": (1.8, 0.60, 1.5),
    "grouped-causal": (1.6, 0.68, 1.5), "long": (1.25, 0.72, 1.5), "long-causal": (1.6, 0.68, 1.5),
    "small": (6.0, None, 6.0), "decode-grouped": (1.25, 0.95, 2.0), "decode": (1.3, 0.95, 1.0),
    "decode-batch": (1.5, 0.92, 2.2), "decode-long": (2.0, 0.80, 2.0),
    "training": (1.4, 0.63, 2.0), "training-causal": (1.9, 0.63, 2.0),
}  # fmt: skip
# Goals for the ratio in bf16 on a CPU with AMX, where they differ. `small` depends on call overhead, so its goal is in milliseconds.
TILE_GOALS = {"prefill": 1.8, "prefill-causal": 2.5, "bert-batch": 2.5, "grouped-causal": 2.0, "long": 2.0,
              "long-causal": 2.3}  # fmt: skip
SMALL_ON_TILES = 0.004
TOLERANCE = {"f32": 1e-4, "bf16": 3e-2, "f16": 1e-2}
SAMPLE_SECONDS = 200e-6  # shorter calls are timed in groups
LONG_SECONDS = 1e-3
# After a pause of 20 ms, calls that read from memory take about 10 ms to reach full speed, 1.4 times that of the first call (Zen 4).
WARM_SECONDS = 0.015


# ---- measurement ----

def open_calls(problem, skipped):
    """Returns {name: Call} of mha and the available libraries; adds {name: reason} to `skipped` for unavailable libraries."""
    calls = {}
    try:
        calls["mha"] = peers.mha(problem)
    except (ValueError, peers.Missing) as refusal:
        skipped["mha"] = f"refused: {refusal}"
    for name, make in peers.PEERS.items():
        try:
            opened = make(problem)
        except peers.Missing as missing:
            skipped[name] = f"not installed: {missing}"
            continue
        if opened:
            calls[name] = opened
    return calls


def check(problem, calls):
    """Checks that the results of all libraries agree; 16-bit results are compared with the f32 result of mha."""
    exact = problem if problem.dtype == "f32" else peers.Problem(problem.row, "f32", problem.threads)
    exact.q, exact.k, exact.v, exact.dout = problem.q, problem.k, problem.v, problem.dout
    truth = peers.mha(exact).out()
    for name, call in calls.items():
        call.before()
        call.run()
        call.after()
        error = float(np.abs(call.out() - truth).max()) / max(1.0, float(np.abs(truth).max()))
        if not error <= TOLERANCE[problem.dtype]:
            raise SystemExit(f"{problem.row.name}: the error of {name} must be at most {TOLERANCE[problem.dtype]:g} (got {error:g})")


def warm_up(call, seconds):
    """Repeats untimed calls until `seconds` have passed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        call.run()


def sample(call, clock, count, warm=0):
    """Returns the seconds of one call after `warm` seconds of untimed calls."""
    call.before()
    warm_up(call, warm)
    start = clock()
    for _ in range(count):
        call.run()
    seconds = clock() - start
    call.after()
    return seconds / count


def estimate(call):
    """Returns the approximate seconds of one call: the minimum over up to 20 pairs of calls within 20 ms, because the first calls are slow."""
    end, best = time.monotonic() + 0.02, float("inf")
    for _ in range(20):
        best = min(best, sample(call, time.perf_counter, 2))
        if time.monotonic() > end:
            break
    return best


def measure(calls, threads, seconds):
    """Times the calls in alternating rounds, at least five, until `seconds` have passed; returns {name: [seconds per call]}."""
    pause, warm = (0, 0) if threads == 1 else (0.02, WARM_SECONDS)
    once = {name: estimate(call) for name, call in calls.items()}
    count = {name: max(1, round(SAMPLE_SECONDS / t)) for name, t in once.items()}
    # CPU time of a thread is sometimes off by some microseconds, so it is used only for long calls.
    own = threads == 1 and min(once.values()) > LONG_SECONDS
    clock = time.thread_time if own else time.perf_counter
    times = {name: [] for name in calls}
    end, rounds = time.monotonic() + seconds, 0
    while rounds < 5 or time.monotonic() < end:
        for name, call in calls.items():
            time.sleep(pause)
            times[name].append(sample(call, clock, count[name], warm))
        rounds += 1
    return times


def in_program(program, row, dtype, threads, seconds):
    """Returns the minimum time of the row in `mha bench attention` [ms]; None if the row is unsupported."""
    command = [program, "bench", "attention", "--rows", row.name, "--dtype", dtype, "-t", str(threads), "--seconds",
               str(seconds), "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return said["rows"][0].get("best_ms")


def compare(row, dtype, a):
    """Measures one row with all libraries and returns its result as a dict."""
    problem, skipped = peers.Problem(row, dtype, a.threads, a.ggml), {}
    calls = open_calls(problem, skipped)
    if not calls:
        sys.exit(f"{row.name} in {dtype}: no library can run it: " + "; ".join(f"{n}: {why}" for n, why in skipped.items()))
    check(problem, calls)
    limit = peers.limit(problem)
    times = measure(calls, a.threads, a.seconds)
    limit = max(limit, peers.limit(problem))
    work = row.bytes(dtype) if row.reads else row.flops
    result = {"row": row.name, "dtype": dtype, "threads": a.threads, "limit": "read" if row.reads else "fma",
              "limit rate": limit / 1e9, "calls": {}, "skipped": skipped}
    for name, t in times.items():
        best = min(t)
        result["calls"][name] = {"best ms": 1e3 * best, "median ms": 1e3 * statistics.median(t), "rounds": len(t),
                                 "rate": work / best / 1e9, "share": work / best / limit}
    if a.program and "mha" in calls:
        result["C ms"] = in_program(a.program, row, dtype, a.threads, a.seconds)
    return add_ratio(result)


def add_ratio(result):
    """Adds the name of the fastest other library, and the ratio of its time to the time of mha."""
    others = {n: c["best ms"] for n, c in result["calls"].items() if n != "mha"}
    ours = result["calls"].get("mha")
    result["best peer"] = min(others, key=others.get) if others else None
    result["ratio"] = min(others.values()) / ours["best ms"] if others and ours else None
    return result


def merge(files):
    """Merges runs with the same threads on one machine: the minimum time of each library and the highest limit. The limit of
    multiply-adds is the same for all rows."""
    merged = {}
    for file in files:
        with open(file, encoding="utf-8") as text:
            rows = json.load(text)["rows"]
        for row in rows:
            whole = merged.setdefault((row["row"], row["dtype"]), row)
            for name, call in row["calls"].items():
                if call["best ms"] < whole["calls"].setdefault(name, call)["best ms"]:
                    whole["calls"][name] = call
            if row.get("C ms"):
                whole["C ms"] = min(row["C ms"], whole.get("C ms") or row["C ms"])
            whole["limit rate"] = max(whole["limit rate"], row["limit rate"])
    fma = max((row["limit rate"] for row in merged.values() if row["limit"] == "fma"), default=0)
    for row in merged.values():
        row["limit rate"] = fma if row["limit"] == "fma" else row["limit rate"]
        for call in row["calls"].values():
            call["share"] = call["rate"] / row["limit rate"]
    order = [row.name for row in peers.rows()]
    return [add_ratio(row) for row in sorted(merged.values(), key=lambda row: order.index(row["row"]))]


# ---- output ----

def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            return next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def on_tiles(result):
    return result["dtype"] == "bf16" and mha.isa() == "amx"


def wanted(result):
    """Returns the goal for the ratio as text."""
    row = result["row"]
    if on_tiles(result) and row == "small":
        return f"{1e3 * SMALL_ON_TILES:g} us"
    if on_tiles(result) and row in TILE_GOALS:
        return f"{TILE_GOALS[row]:g}"
    return f"{GOALS[row][0 if result['dtype'] == 'f32' else 2]:g}"


def share_of(result, call):
    """Returns the fraction of the limit as text; empty for products of bf16 pairs, since the limit is measured in f32."""
    if result["limit"] == "fma" and result["dtype"] == "bf16" and mha.isa() in ("amx", "avx512bf16"):
        return ""
    return f"{100 * call['share']:.0f} % of {result['limit']}"


def verdict(result):
    """Returns the results of a row and its goals: "1.52x (goal 1.4), 71 % of fma (goal 70)"."""
    ours, goal = result["calls"].get("mha"), GOALS[result["row"]]
    if not ours:
        return result["skipped"]["mha"]
    said = f"{result['ratio']:.2f}x (goal {wanted(result)})" if result["ratio"] else "no other library"
    share = share_of(result, ours)
    said += f", {share}" if share else ""
    return said + (f" (goal {100 * goal[1]:.0f})" if goal[1] and result["dtype"] == "f32" else "")


def show_table(results):
    print(f"{cpu_name()}, {mha.isa()}, {results[0]['threads']} thread(s), mha {mha.version}; best of alternating rounds in ms, "
          "medians in brackets")
    for r in results:
        print(f"{r['row']:15} {r['dtype']:5} {verdict(r)}")
        for name, c in r["calls"].items():
            program = f"   in C {r['C ms']:.4f}" if name == "mha" and r.get("C ms") else ""
            share = share_of(r, c)
            print(f"    {name:16} {c['best ms']:10.4f} ({c['median ms']:.4f}){program}   {c['rate']:.1f} "
                  f"{'GB/s' if r['limit'] == 'read' else 'GFLOP/s'}{', ' if share else ''}{share}")
    for why in sorted({f"{name} {why}" for r in results for name, why in r["skipped"].items() if name != "mha"}):
        print(f"skipped: {why}")


def show_csv(results):
    writer = csv.writer(sys.stdout)
    writer.writerow(["cpu", "row", "dtype", "threads", "who", "best ms", "median ms", "rounds", "rate", "share", "limit",
                     "limit rate", "ratio"])
    for r in results:
        for name, c in r["calls"].items():
            writer.writerow([cpu_name(), r["row"], r["dtype"], r["threads"], name, c["best ms"], c["median ms"], c["rounds"],
                             c["rate"], c["share"], r["limit"], r["limit rate"], r["ratio"] if name == "mha" else ""])


def show_markdown(results):
    """Prints the tables of docs/benchmarks.md."""
    print("| row | B, H, Hkv, Lq, Lk, D | mha [ms] | mha in C [ms] | fraction of limit (goal) | fastest other [ms] | ratio (goal) |")
    print("|---|---|---|---|---|---|---|")
    shapes = {row.name: row for row in peers.rows()}
    for r in results:
        row, ours, goal = shapes[r["row"]], r["calls"].get("mha"), GOALS[r["row"]]
        if not ours or not r["ratio"]:
            continue
        share = share_of(r, ours) + (f" ({100 * goal[1]:.0f})" if goal[1] and r["dtype"] == "f32" else "")
        shape = ", ".join(str(n) for n in (row.B, row.H, row.Hkv, row.Lq, row.Lk, row.D)) + (", causal" if row.causal else "")
        in_c = f"{r['C ms']:.4g}" if r.get("C ms") else ""
        print(f"| {r['row']} | {shape} | {ours['best ms']:.4g} | {in_c} | {share} | "
              f"{r['best peer']} {r['calls'][r['best peer']]['best ms']:.4g} | {r['ratio']:.2f} ({wanted(r)}) |")


def show(results, form):
    if form == "markdown":
        show_markdown(results)
    elif form == "json":
        json.dump({"cpu": cpu_name(), "isa": mha.isa(), "version": mha.version, "rows": results}, sys.stdout, indent=1)
        print()
    elif form == "csv":
        show_csv(results)
    else:
        show_table(results)


def parse():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", help="row names, for example prefill,small (default: all)")
    options.add_argument("--dtype", default="f32", help="f32, bf16, f16, or several separated by commas")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--seconds", type=float, default=3.0, help="seconds per row")
    options.add_argument("--ggml", help="libggml_peer.so, built by bench/llama/build.sh")
    options.add_argument("--program", help="the program mha, to time the rows without Python")
    options.add_argument("--chart", help="write an SVG figure")
    form = options.add_mutually_exclusive_group()
    form.add_argument("--json", dest="form", action="store_const", const="json")
    form.add_argument("--csv", dest="form", action="store_const", const="csv")
    form.add_argument("--markdown", dest="form", action="store_const", const="markdown")
    options.add_argument("--merge", nargs="+", metavar="FILE", help="do not measure; print the minimum times of earlier --json runs")
    a = options.parse_args()
    known = {row.name: row for row in peers.rows()}
    a.rows = a.rows.split(",") if a.rows else list(known)
    a.dtype = a.dtype.split(",")
    for given, legal in ((a.rows, known), (a.dtype, TOLERANCE)):
        for name in given:
            if name not in legal:
                options.error(f"names must be one of {', '.join(legal)} (got {name})")
    a.rows = [known[name] for name in a.rows]
    return a


def main():
    a = parse()
    results = merge(a.merge) if a.merge else []
    for row in [] if a.merge else a.rows:
        for dtype in a.dtype:
            print(f"{row.name} {dtype} ...", file=sys.stderr)
            results.append(compare(row, dtype, a))
    show(results, a.form)
    if a.chart:
        chart.write(a.chart, results, f"{cpu_name()}, {mha.isa()}, {results[0]['threads']} thread(s)")


if __name__ == "__main__":
    main()
