"""Compares `mha heads` with PyTorch (bench/heads_torch.py) on the same texts, in the same run.

    python3 bench/heads.py --program build/bin/mha --model FOLDER --texts FILE [--python PYTHON] [--threads N] [--rounds N]
        [--parts stats,jacobian,gradmag,loo] [--sentences 1000] [--json]

Each measurement is a separate process; mha and PyTorch alternate, and the minimum over the rounds is reported. For mha the whole
process is timed, including opening the model, all statistics (`mha heads --by` measures them as well) and printing; for PyTorch the
time excludes imports and opening. Seconds are CPU time with one thread and wall-clock time with several. Memory is the peak of the
process, PyTorch's libraries included. The results are compared first. For gradmag the sentences are paired by length, in batches of
16 pairs, to limit padding. PyTorch's leave-one-out runs on the first 100 sentences; its time is scaled to the length of all sentences.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from table import print_rows

OURS = {
    "stats": ["--no-probe"],
    "jacobian": ["--no-probe", "--by", "jacobian_probe", "--probes", "4"],
    "gradmag": ["--no-probe", "--by", "gradmag", "--loss", "pairs", "--batch", "16"],
    "loo": ["--no-probe", "--by", "loo"],
    "loo-reuse": ["--no-probe", "--by", "loo"],
}  # fmt: skip
GOALS = {"time": 3.0, "memory": 5.0}
SHORT = 100  # number of sentences for leave-one-out ablation in PyTorch
TOLERANCE = 1e-3  # maximum difference from PyTorch's values, relative to the largest value


def run(command):
    """Returns the JSON that a process printed, and its wall-clock time, CPU time and peak memory."""
    with tempfile.TemporaryFile("w+") as out:
        begin = time.monotonic()
        with subprocess.Popen(command, stdout=out, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begin
        if process.returncode:
            raise SystemExit(f"{' '.join(map(str, command))}: exit status {process.returncode}")
        out.seek(0)
        return json.load(out), {"wall": seconds, "cpu": usage.ru_utime + usage.ru_stime, "mib": usage.ru_maxrss / 1024}


class Bench:
    def __init__(self, a, folder):
        self.a, self.lines = a, Path(a.texts).read_text(encoding="utf-8").splitlines()[:a.sentences]
        ordered = sorted(self.lines, key=len)
        left, right = ordered[0:len(ordered) // 2 * 2:2], ordered[1::2]
        self.plain, self.pairs, self.halves = (folder / name for name in ("texts", "pairs", "halves"))
        self.plain.write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        self.pairs.write_text("".join(f"{one}\t{other}\n" for one, other in zip(left, right)), encoding="utf-8")
        self.halves.write_text("\n".join(left + right) + "\n", encoding="utf-8")

    def ours(self, part, texts=None):
        texts = texts or (self.pairs if part == "gradmag" else self.plain)
        return run([self.a.program, "heads", "-q", "--json", "-t", str(self.a.threads), "-m", self.a.model, "-f", texts, *OURS[part]])

    def peer(self, part, limit):
        texts = self.halves if part == "gradmag" else self.plain
        command = [self.a.python, Path(__file__).with_name("heads_torch.py"), part, self.a.model, texts, "--values",
                   "--threads", str(self.a.threads), "--limit", str(limit)]
        found, used = run(command)
        return found, {"wall": found["seconds"], "cpu": found["cpu_seconds"], "mib": used["mib"]}

    def times(self, short):
        """Returns the total length of all sentences divided by the total length of the sentences that PyTorch ran."""
        return 1.0 if not short else sum(len(line) for line in self.lines) / sum(len(line) for line in self.lines[:SHORT])


def largest_difference(part, found, peer):
    """Returns the largest difference from PyTorch's values, relative to the largest value of each measure."""
    worst = 0.0
    for name, theirs in peer["values"].items():
        mine = found["metrics"].get(name) if part == "stats" else found["importance"]["values"]
        if mine is None:
            continue
        pairs = [(x, y) for row, other in zip(mine, theirs) for x, y in zip(row, other)]
        scale = max(abs(y) for _, y in pairs) or 1.0  # without punctuation in the texts, all values of `punct` are 0
        worst = max(worst, max(abs(x - y) for x, y in pairs) / scale)
    return worst


def measure(bench, part):
    short = part.startswith("loo") and len(bench.lines) > SHORT
    limit = SHORT if short else len(bench.lines)
    mine, theirs, found, peer = [], [], None, None
    for _ in range(bench.a.rounds):
        found, used = bench.ours(part)
        mine.append(used)
        peer, used = bench.peer(part, limit)
        theirs.append(used)
    same = found
    if short:  # run the same sentences in mha, to compare the values
        few = bench.plain.with_name("few")
        few.write_text("\n".join(bench.lines[:SHORT]) + "\n", encoding="utf-8")
        same = bench.ours(part, few)[0]
    error = largest_difference(part, same, peer)
    if not error <= TOLERANCE:
        raise SystemExit(f"{part}: the difference from PyTorch must be at most {TOLERANCE:g} (got {error:g})")
    clock = "cpu" if bench.a.threads == 1 else "wall"
    times = bench.times(short)
    row = {"part": part, "clock": clock, "ours s": min(u[clock] for u in mine), "torch s": times * min(u[clock] for u in theirs),
           "ours MiB": max(u["mib"] for u in mine), "torch MiB": max(u["mib"] for u in theirs), "scaled": short, "difference": error}
    row["ratio"], row["memory ratio"] = row["torch s"] / row["ours s"], row["torch MiB"] / row["ours MiB"]
    return row


def cells(row):
    return [row["part"], f"{row['ours s']:.2f}", f"{row['torch s']:.1f}{' (scaled)' if row['scaled'] else ''}", f"{row['ratio']:.1f}",
            f"{row['ours MiB']:.0f}", f"{row['torch MiB']:.0f}", f"{row['memory ratio']:.1f}", f"{row['difference']:.0e}"]


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--program", required=True)
    options.add_argument("--model", required=True, help="folder of all-MiniLM-L6-v2")
    options.add_argument("--texts", required=True, help="file with one sentence per line")
    options.add_argument("--python", default=sys.executable, help="a Python with torch, transformers and tokenizers")
    options.add_argument("--parts", default=",".join(OURS))
    options.add_argument("--sentences", type=int, default=1000)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--json", action="store_true")
    a = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(a, Path(folder))
        rows = (measure(bench, part) for part in a.parts.split(","))
        print_rows(rows, f"{len(bench.lines)} sentences, {a.threads} thread(s); goals: {GOALS['time']:g} times the speed, "
                   f"1/{GOALS['memory']:g} of the memory",
                   ["part", "ours s", "torch s", "ratio", "ours MiB", "torch MiB", "ratio", "difference"], cells, a.json)


if __name__ == "__main__":
    main()
