"""Compares the predictions of `mha plan --hosts` with measured runs of mha-mpi on 1, 2 and 4 hosts.

    python3 bench/cluster_plan.py --program build/gcc/bin/mha --mpi build/gcc/bin/mha-mpi [--rates 1000,200] [--rounds 3] [--jobs score,train,heads]

The hosts are network namespaces of tests/mpi/hosts.sh with the given rates [Mbit/s] (requires root, iproute2 and Open MPI), so they share the CPUs
of this machine; each rank has one thread, and with more ranks than CPUs the speed of a host is divided accordingly. Predictions use the speed of one
rank: the time of 1 host is measured, not predicted, unless --speed is given. Each time is the least of all rounds, without the start of the ranks; a
training step is timed by its log. Memory is the largest resident set of a process, less that of a run that opens no weights.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from table import print_rows

ROOT = Path(__file__).resolve().parent.parent
STORIES = ROOT / "share/mha/texts/stories.txt"
LATENCY, HEADER = 30e-6, 1448 / 1514  # seconds per message; payload as a fraction of a full Ethernet frame
SHAPES = {"score": "llama:2x4x256", "train": "gpt2:2x4x256", "heads": "gpt2:2x4x256"}
LENGTH, BATCH, WORKERS = 128, 2, 4  # tokens per sequence, sequences per batch, and workers of a training step
TOKENS, TEXTS = 8192, 64  # tokens of the long text; number of texts of LENGTH tokens


def run(words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, check=False, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stderr.decode()}")
    return done.stdout


class Hosts:
    """Hosts in network namespaces: each method runs functions of hosts.sh in one shell."""

    def __init__(self, count):
        self.count, self.net = count, f"mha{os.getpid()}-"
        if self.shell("hosts_possible").returncode:
            sys.exit("hosts in network namespaces require root, iproute2 (ip, tc) and Open MPI")
        self.shell(f"hosts_up {count}")

    def shell(self, command, words=()):
        begin = f'here={ROOT}; . "$here/tests/mpi/hosts.sh"; net={self.net}; {command}'
        return subprocess.run(["sh", "-c", begin, "sh", *map(str, words)], capture_output=True, check=False)

    def rate(self, mbit):
        for host in range(1, self.count + 1):
            run(["ip", "netns", "exec", f"{self.net}{host}", "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{mbit}mbit",
                 "burst", "128kb", "latency", "100ms"])

    def mpirun(self, ranks, words):
        """Returns the elapsed seconds and the largest resident set [bytes]; a single rank runs without mpirun."""
        words = list(map(str, words))
        if ranks > 1:
            words = ["sh", "-c", f'here={ROOT}; . "$here/tests/mpi/hosts.sh"; net={self.net}; hosts_run {ranks} "$@"', "sh", *words]
        with tempfile.TemporaryFile() as errors:
            begin = time.monotonic()
            job = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
            _, status, used = os.wait4(job.pid, 0)
            took = time.monotonic() - begin
            job.returncode = os.waitstatus_to_exitcode(status)
            if job.returncode:
                errors.seek(0)
                sys.exit(f"{' '.join(words)}: exit status {job.returncode}\n{errors.read().decode()}")
        return took, used.ru_maxrss * 1024

    def down(self):
        self.shell(f"hosts_down {self.count}")


# ---- models and texts ----

def prepare(folder, a):
    run([a.program, "tokenizer", "train", "-q", "--vocab-size", "2000", "-f", STORIES, "-o", f"{folder}/bpe"])
    for job, shape in SHAPES.items():
        run([a.program, "train", "-q", "--shape", shape, "--tokenizer", f"{folder}/bpe", "-f", STORIES, "--length", LENGTH, "--batch", 1, "--steps", 1,
             "-o", f"{folder}/{job}"])
        config = Path(folder, job, "config.json")
        values = json.loads(config.read_text())
        if job == "score":
            config.write_text(json.dumps(values | {"max_position_embeddings": 1 << 20}))
    text = " ".join(STORIES.read_text(encoding="utf-8").split())[: 8 * TOKENS]  # short, because child processes inherit the resident set of this process
    said = json.loads(run([a.program, "tokenize", "-m", f"{folder}/score", "-f", "-", "--documents", "whole", "--json"], input=text.encode()))
    Path(folder, "long.txt").write_text(text[: said["offsets"][TOKENS][1]], encoding="utf-8")
    ends = [said["offsets"][(n + 1) * LENGTH - 1][1] for n in range(TEXTS)]
    lines = [text[begin:end].strip() for begin, end in zip([0, *ends], ends)]
    Path(folder, "texts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


# ---- jobs ----

def command(job, folder, program):
    model = ["-m", f"{folder}/{job}", "-t", 1]
    if job == "score":
        return [program, "score", *model, "-f", f"{folder}/long.txt", "--documents", "whole", "--json"]
    if job == "heads":
        return [program, "heads", "-q", *model, "-f", f"{folder}/texts.txt", "--no-probe", "--csv"]
    return [program, "train", "-q", "-t", 1, "--from", f"{folder}/train", "-f", STORIES, "--length", LENGTH, "--batch", BATCH, "--workers", WORKERS,
            "--accumulate", WORKERS, "--steps", 4, "--save-every", 4, "--force", "-o", f"{folder}/out"]


def measure(job, ranks, hosts, folder, a):
    """Returns the minimum time [s] and the minimum memory use [bytes] over all rounds."""
    program = a.program if ranks == 1 else a.mpi
    times, sizes = [], []
    for _ in range(a.rounds):
        start, base = hosts.mpirun(ranks, [program, "info", "-m", f"{folder}/{job}"])
        took, size = hosts.mpirun(ranks, command(job, folder, program))
        times.append(took - start)
        sizes.append(size - base)
        if job == "train":
            log = [json.loads(line) for line in Path(folder, "out/training.jsonl").read_text(encoding="utf-8").splitlines()]
            ends = [record["seconds"] for record in log]
            times[-1] = min(after - before for before, after in zip(ends[1:], ends[2:]))
    return min(times), min(sizes)


def predict(job, ranks, mbit, speed, folder, a):
    """Returns the row that `mha plan` prints for `ranks` hosts without tensor parallelism; `speed` [operations/s] is the speed of a rank that
    has a CPU to itself."""
    sizes = {"score": [TOKENS, 1], "heads": [LENGTH, TEXTS], "train": [LENGTH, BATCH]}[job]
    share = min(1, len(os.sched_getaffinity(0)) / ranks)
    words = [a.program, "plan", "-m", f"{folder}/{job}", "--job", job, "--hosts", ranks, "--network", f"{LATENCY}:{mbit * 125e3 * HEADER}", "--speed",
             f"{speed * share}:1e15", "--seq", sizes[0], "--batch", sizes[1], "--memory", "1T", "--json"]
    found = json.loads(run([*words, *(["--workers", WORKERS] if job == "train" else [])]))["rows"]
    return next(row for row in found if row["tp"] == 1 and row["hosts"] == ranks)


def compared(job, ranks, mbit, predicted, measured):
    return {"job": job, "hosts": ranks, "mbit": mbit, "predicted": predicted["seconds"], "measured": measured[0],
            "predicted_bytes": predicted["bytes"]["total"], "measured_bytes": measured[1]}


def rows(a):
    hosts = Hosts(4)
    try:
        with tempfile.TemporaryDirectory() as folder:
            prepare(folder, a)
            for job in a.jobs.split(","):
                alone = measure(job, 1, hosts, folder, a)
                speed = a.speed or 1e12 * predict(job, 1, 1, 1e12, folder, a)["seconds"]["total"] / alone[0]
                yield compared(job, 1, 0, predict(job, 1, 1, speed, folder, a), alone)
                for mbit in map(int, a.rates.split(",")):
                    hosts.rate(mbit)
                    for ranks in (2, 4):
                        yield compared(job, ranks, mbit, predict(job, ranks, mbit, speed, folder, a), measure(job, ranks, hosts, folder, a))
    finally:
        hosts.down()


def cells(r):
    p = r["predicted"]
    return [r["job"], str(r["hosts"]), str(r["mbit"] or "-"), f"{p['compute']:.2f}", f"{p['exposed']:.2f}", f"{p['total']:.2f}", f"{r['measured']:.2f}",
            f"{r['measured'] / p['total']:.2f}", f"{r['predicted_bytes'] / 2**20:.0f}", f"{r['measured_bytes'] / 2**20:.0f}"]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", required=True, help="mha")
    options.add_argument("--mpi", required=True, help="mha-mpi")
    options.add_argument("--rates", default="1000,200", help="rates of the networks [Mbit/s]")
    options.add_argument("--jobs", default="score,train,heads")
    options.add_argument("--speed", type=float, help="operations per second of a host (default: measured with one rank)")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true")
    a = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs the cleanup, which removes the hosts
    a.program, a.mpi = Path(a.program).resolve(), Path(a.mpi).resolve()
    columns = ["job", "hosts", "Mbit/s", "compute", "exposed", "predicted", "measured", "ratio", "MiB predicted", "measured"]
    print_rows(rows(a), "predicted and measured seconds and memory", columns, cells, a.json)


if __name__ == "__main__":
    main()
