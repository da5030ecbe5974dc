"""Measures attention on random shapes and lists those that take longer than a simple cost model and their neighbors predict.

    PYTHONPATH=python MHA_LIB=build/libmha.so python3 bench/sweep/sweep.py [--count 2000] [--seed 21] [--limit 1.3] [--csv FILE]

A shape is a random combination of sizes, type, mask and number of threads; half of the shapes have at most 16 queries. The cost model uses the counts that
the plan reports (mha_attn_plan_describe): with one coefficient per term,

    seconds = call + tasks + rows + keys of all tasks + scores + operations + elements of K and V that all tasks read + elements of Q and the output
              + bytes + bytes beyond the cache,

where all terms from tasks to elements are divided by the threads in use. A row and a key of a task have costs that do not depend on the head width:
the state of the softmax of a row in each part of the keys, and, in decode, the latency of the multiply-adds that add one key after the other to the
output. The coefficients are fitted to the run itself, for each kernel and type, so
that the relative errors are small. Only keys that the mask keeps count, and the rows of a tile are rounded up to the 16 lanes of a vector, except in
decode kernels. If the time of a shape exceeds `--limit` times the model, the shape is measured again, in alternating rounds with neighbors, which
differ in one size by about an eighth. It is listed as a step if the ratio of its time to the model also exceeds `--limit` times the median ratio of
its neighbors. Times on one thread are CPU times of the thread. Shapes with several threads are also measured with one thread, and listed if the other
threads make them too little faster.
"""
import argparse
import csv
import statistics
import time
from dataclasses import asdict, replace

import numpy as np
from shape import BYTES, MEMORY, TYPES, Data, Run, Shape

MASKS = ("none", "causal", "window", "keep", "blocks")
LONGEST = 6e-3  # estimated seconds of the largest shape
LANES = 16  # rows of a vector
CACHED = 1 << 24  # bytes that stay in the cache between calls
SHAPES_MIN = 16  # shapes of a code path for which coefficients are fitted
GAIN_SECONDS = 100e-6  # shorter calls are not compared with calls on one thread


# ---- shapes ----

def between(rng, low, high):
    """Returns a random integer whose logarithm is uniformly distributed; a third of them are multiples of a power of two."""
    n = int(round(np.exp(rng.uniform(np.log(low), np.log(high)))))
    unit = 1 << max(0, n.bit_length() - 3)
    return max(low, min(high, n // unit * unit)) if rng.random() < 1 / 3 else n


def estimate(shape):
    """Returns roughly the seconds of a call; used only to limit the sizes of random shapes."""
    pairs = shape.B * shape.H * shape.pairs()
    moved = shape.B * (shape.Hkv * shape.Lk + shape.H * shape.Lq) * (shape.D + shape.Dv) * BYTES[shape.dtype]
    return 2 * pairs * (shape.D + shape.Dv) / 150e9 + pairs / 3e9 + moved / 20e9


def random_shape(rng, threads):
    while True:
        decode, group = rng.random() < 0.5, int(rng.choice([1, 1, 1, 2, 4, 7, 8]))
        width = int(rng.choice([32, 64, 64, 80, 96, 128, 128, 192, 256])) if rng.random() < 0.5 else between(rng, 4, 320)
        heads = between(rng, 1, 32)
        shape = Shape(B=between(rng, 1, 32), H=heads * group, Hkv=heads, Lq=between(rng, 1, 16) if decode else between(rng, 17, 4096),
                      Lk=between(rng, 8, 65536 if decode else 8192), D=width, Dv=width if rng.random() < 0.8 else between(rng, 4, 320),
                      dtype=str(rng.choice(list(TYPES), p=[0.5, 0.4, 0.1])), mask=str(rng.choice(MASKS, p=[0.4, 0.25, 0.1, 0.15, 0.1])),
                      threads=int(rng.choice(threads)))
        if estimate(shape) <= LONGEST and fits(shape) and (shape.mask not in ("causal", "window") or shape.Lq <= shape.Lk):
            return shape


def fits(shape):
    """Returns True if no operand exceeds the shared memory."""
    widest = max(shape.D, shape.Dv) * BYTES[shape.dtype]
    return shape.B * max(shape.Hkv * shape.Lk, shape.H * shape.Lq) * widest <= MEMORY


def neighbors(shape):
    """Yields shapes that differ from `shape` in one size by about an eighth, or by one if the size is small."""
    for name in ("Lq", "Lk", "D", "Dv", "B", "Hkv"):
        size = getattr(shape, name)
        for other in {max(1, size - max(1, size // 8)), size + max(1, size // 8)} - {size}:
            found = replace(shape, **{name: other})
            if name == "Hkv":
                found = replace(found, H=other * (shape.H // shape.Hkv))
            if name == "D" and shape.D == shape.Dv:
                found = replace(found, Dv=other)
            if name == "Dv" and shape.D == shape.Dv:
                continue
            if fits(found) and (found.mask not in ("causal", "window") or found.Lq <= found.Lk):
                yield found


# ---- cost model ----

def counts(shape, plan):
    """Returns the terms of the cost model."""
    items = plan["tasks"] * plan["parts"]
    share = -(-items // max(1, min(plan["threads"], items))) / items  # the part of the tasks that one thread computes
    rows = shape.B * shape.H * shape.Lq / plan["tasks"]
    lanes = rows if plan["kernel"] == "fwd_decode" else -(-rows // LANES) * LANES
    scores = shape.B * shape.H * shape.pairs() * lanes / rows * share
    keys = plan["tasks"] * shape.pairs() / shape.Lq * share
    queries, width = shape.B * shape.H * shape.Lq * share, shape.D + shape.Dv
    return [1.0, items * share, queries * plan["parts"], keys, scores, 2 * scores * width, keys * width, queries * width, plan["bytes"],
            max(0, plan["bytes"] - CACHED)]


def path_of(shape, plan):
    """Returns the code path, whose shapes have common coefficients."""
    return plan["kernel"], shape.dtype, shape.mask == "keep", plan["threads"] > 1


def fit(terms, seconds):
    """Returns non-negative coefficients that minimize the relative errors: least squares, weighted again until the errors are absolute values."""
    terms, seconds = np.array(terms), np.array(seconds)
    weight, used, found = 1 / seconds, np.arange(terms.shape[1]), np.zeros(terms.shape[1])
    for _ in range(30):
        while True:
            rows = terms[:, used] * weight[:, None]
            scale = np.abs(rows).max(axis=0)
            solution = np.linalg.lstsq(rows / scale, seconds * weight, rcond=None)[0] / scale
            if (solution >= 0).all():
                break
            used = used[solution >= 0]
        found[:] = 0
        found[used] = solution
        error = np.abs(terms @ found / seconds - 1)
        weight = 1 / seconds / np.sqrt(np.maximum(error, 0.02))
    return found


# ---- measurement ----

def best(runs, rounds):
    """Returns the least time of each run over alternating rounds."""
    times = [[] for _ in runs]
    for _ in range(rounds):
        for run, seconds in zip(runs, times):
            seconds.append(run.sample())
    return [min(x) for x in times]


def measure(shapes, data, rounds):
    """Returns [(seconds, description of the plan)]; the shapes alternate."""
    runs = [Run(shape, data) for shape in shapes]
    try:
        return list(zip(best(runs, rounds), [run.described() for run in runs]))
    finally:
        for run in runs:
            run.close()


def fits_of(found):
    """Fits the coefficients of each code path that has enough shapes."""
    paths = {}
    for shape, (seconds, plan) in found:
        paths.setdefault(path_of(shape, plan), []).append((counts(shape, plan), seconds))
    return {path: fit(*zip(*rows)) for path, rows in paths.items() if len(rows) >= SHAPES_MIN}


def ratio(shape, seconds, plan, model):
    """Returns the time divided by that of the model; None if too few shapes of the run took the code path."""
    path = path_of(shape, plan)
    return seconds / float(np.dot(counts(shape, plan), model[path])) if path in model else None


def examine(shape, data, model, rounds):
    """Measures a shape again, with its neighbors; returns its ratio to the model, and this ratio divided by the trend of the neighbors."""
    group = [shape, *neighbors(shape)]
    ratios = [ratio(s, seconds, plan, model) for s, (seconds, plan) in zip(group, measure(group, data, rounds))]
    around = [r for r in ratios[1:] if r]
    return (ratios[0], ratios[0] / statistics.median(around)) if ratios[0] and around else (ratios[0] or 0.0, 0.0)


def gain(shape, data, rounds):
    """Returns the time on one thread divided by the time on all threads of the shape, both in wall-clock time."""
    runs = [Run(replace(shape, threads=1), data), Run(shape, data)]
    runs[0].clock = time.perf_counter
    try:
        one, all_threads = best(runs, rounds)
        return one / all_threads
    finally:
        for run in runs:
            run.close()


# ---- output ----

def described(shape, plan):
    sizes = f"{shape.B}, {shape.H}, {shape.Hkv}, {shape.Lq}, {shape.Lk}, {shape.D}, {shape.Dv}"
    return [sizes, shape.dtype, shape.mask, str(shape.threads), f"{plan['kernel']}, {plan['tasks']} x {plan['parts']}"]


def print_table(heading, columns, rows):
    print(f"\n{heading}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


SIZES = ("B, H, Hkv, Lq, Lk, D, Dv", "type", "mask", "threads", "kernel, tasks x parts")


def print_model(found, model):
    """Prints, for each code path, the coefficients and the distribution of the ratios."""
    rows = []
    for path, coefficients in sorted(model.items()):
        ratios = [ratio(s, seconds, plan, model) for s, (seconds, plan) in found if path_of(s, plan) == path]
        name = f"{path[0]} {path[1]}{', keep' if path[2] else ''}{', threads' if path[3] else ''}"
        rows.append([name, str(len(ratios)), *(f"{1e9 * c:.3g}" for c in coefficients),
                     *(f"{x:.2f}" for x in np.percentile(ratios, (5, 50, 95, 100)))])
    columns = ("path", "shapes", "call [ns]", "task", "row", "key", "score", "operation", "K, V", "Q, out", "byte", "far byte",
               "ratio: 5 %", "50 %", "95 %", "100 %")
    print_table("cost model: coefficients in ns, and percentiles of measured / modeled time", columns, rows)


def write_csv(path, found, model):
    with open(path, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        names = list(asdict(found[0][0]))
        writer.writerow([*names, "kernel", "tasks", "parts", "operations", "bytes", "seconds", "ratio"])
        for shape, (seconds, plan) in found:
            sizes = [getattr(shape, name) for name in names]
            writer.writerow([*sizes, plan["kernel"], plan["tasks"], plan["parts"], plan["flops"], plan["bytes"], seconds,
                             ratio(shape, seconds, plan, model)])


def suspects(found, model, limit):
    """Returns the shapes whose time exceeds the limit times the model, the worst first."""
    above = [(ratio(s, seconds, plan, model) or 0.0, s, plan) for s, (seconds, plan) in found]
    return [(s, plan) for r, s, plan in sorted(above, key=lambda x: -x[0]) if r > limit]


def report(found, data, model, a):
    checked = [(s, plan, *examine(s, data, model, a.rounds)) for s, plan in suspects(found, model, a.limit)]
    cliffs = [(s, plan, r, trend) for s, plan, r, trend in checked if min(r, trend) > a.limit]
    cliffs = [(s, plan, *examine(s, data, model, 3 * a.rounds)) for s, plan, _, _ in cliffs]  # only what persists counts
    cliffs = sorted(((s, plan, r, trend) for s, plan, r, trend in cliffs if min(r, trend) > a.limit), key=lambda x: -x[3])
    print_table(f"{len(cliffs)} of {len(found)} shapes take more than {a.limit:g} times the trend of their neighbors", (*SIZES, "ratio", "to trend"),
                [[*described(s, plan), f"{r:.2f}", f"{trend:.2f}"] for s, plan, r, trend in cliffs])
    regimes = sorted((x for x in checked if x[2] > a.limit), key=lambda x: -x[2])
    print_table(f"{len(regimes)} of {len(found)} shapes take more than {a.limit:g} times the model, most of them like their neighbors; the worst:",
                (*SIZES, "ratio", "to trend"), [[*described(s, plan), f"{r:.2f}", f"{trend:.2f}"] for s, plan, r, trend in regimes[: a.worst]])


def report_gains(found, data, a):
    """Measures the gain of several threads for shapes that take at least GAIN_SECONDS."""
    several = [(s, plan) for s, (seconds, plan) in found if s.threads > 1 and seconds > GAIN_SECONDS]
    gains = [(gain(s, data, a.rounds), s, plan) for s, plan in several]
    low = [(gain(s, data, 3 * a.rounds), s, plan) for g, s, plan in gains if g < a.gain * s.threads]
    low = sorted(((g, s, plan) for g, s, plan in low if g < a.gain * s.threads), key=lambda x: x[0])
    print_table(f"{len(low)} of {len(gains)} shapes on several threads are less than {a.gain:g} times the number of threads as fast as on one; the worst:",
                (*SIZES, "gain"), [[*described(s, plan), f"{g:.2f}"] for g, s, plan in low[: a.worst]])


def parse():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=2000, help="number of shapes")
    options.add_argument("--seed", type=int, default=21)
    options.add_argument("--threads", default="1,2", help="numbers of threads, separated by commas")
    options.add_argument("--rounds", type=int, default=5, help="samples per shape; shapes in a list have three times as many")
    options.add_argument("--limit", type=float, default=1.3, help="largest accepted ratio to the model and to the trend")
    options.add_argument("--gain", type=float, default=0.85, help="smallest accepted speedup per thread")
    options.add_argument("--worst", type=int, default=30, help="rows of a list")
    options.add_argument("--csv", help="write all shapes to a file")
    a = options.parse_args()
    a.threads = [int(n) for n in a.threads.split(",")]
    return a


def main():
    a = parse()
    rng, data = np.random.default_rng(a.seed), Data()
    shapes = [random_shape(rng, a.threads) for _ in range(a.count)]
    found = [(shape, measure([shape], data, a.rounds)[0]) for shape in shapes]
    model = fits_of(found)
    print_model(found, model)
    if a.csv:
        write_csv(a.csv, found, model)
    report(found, data, model, a)
    report_gains(found, data, a)


if __name__ == "__main__":
    main()
