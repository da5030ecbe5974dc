#!/usr/bin/env python3
"""Measures head analysis on several ranks: its efficiency, and the work that is lost when ranks are killed.

    bench/cluster.py --program build/release/bin/mha --mpi build/release/bin/mha-mpi [--ranks 2] [--rounds 5] [--kills 10]

Efficiency is the time of one process with P threads divided by the time of P ranks with one thread. The two alternate, and
the minimum over the rounds is used, of elapsed time and of CPU time, which other programs hardly affect. The time of starting
the ranks without work is subtracted, because it does not grow with the data.
Lost work is the work of a rank that its journal lacks after `kill -9` of one rank, or of all ranks, at a random time. It is
measured as the time since the last record of the journal. The resumed run must print the same bytes as an uninterrupted run."""
import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import typing

TEXTS = pathlib.Path(__file__).resolve().parent.parent / "share/mha/texts/stories.txt"
MEASURES = {"statistics": [], "gate": ["--by", "gate"], "jacobian_probe": ["--by", "jacobian_probe"], "loo_loss": ["--by", "loo_loss"]}


def mpirun(ranks: int) -> list[str]:
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-np", str(ranks)]


class Times(typing.NamedTuple):
    """Elapsed time and CPU time of all processes [s]."""
    elapsed: float
    cpu: float

    def less(self, other: "Times") -> "Times":
        return Times(self.elapsed - other.elapsed, self.cpu - other.cpu)


def fastest(rounds: list[Times]) -> Times:
    return Times(min(t.elapsed for t in rounds), min(t.cpu for t in rounds))


def cpu_seconds() -> float:
    used = os.times()
    return used.children_user + used.children_system


def run(command: list[str]) -> tuple[Times, bytes]:
    begin, before = time.monotonic(), cpu_seconds()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr.decode()}")
    return Times(time.monotonic() - begin, cpu_seconds() - before), done.stdout


def efficiency(args: argparse.Namespace, texts: str) -> None:
    start = fastest([run([*mpirun(args.ranks), args.mpi, "info", "-m", "builtin"])[0] for _ in range(args.rounds)])
    print(f"startup of {args.ranks} ranks: {start.elapsed:.2f} s, CPU {start.cpu:.2f} s")
    for name in args.measures.split(","):
        command = ["heads", "-q", "-m", "builtin", "-f", texts, "--csv", *MEASURES[name]]
        one, many = [], []
        for _ in range(args.rounds):
            took, alone = run([args.program, *command, "-t", str(args.ranks)])
            one.append(took)
            took, shared = run([*mpirun(args.ranks), args.mpi, *command, "-t", "1"])
            many.append(took.less(start))
            if alone != shared:
                sys.exit(f"{name}: the results of one process and of {args.ranks} ranks must be identical")
        a, b = fastest(one), fastest(many)
        print(f"{name:16} 1 process x {args.ranks} threads {a.elapsed:6.2f} s, CPU {a.cpu:6.2f} s   {args.ranks} ranks x 1 thread "
              f"{b.elapsed:6.2f} s, CPU {b.cpu:6.2f} s   efficiency {100 * a.elapsed / b.elapsed:.0f} %, CPU {100 * a.cpu / b.cpu:.0f} %",
              flush=True)


def children(parent: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], stdout=subprocess.PIPE, check=False).stdout.split()
    return [int(pid) for pid in listed]


def lost(args: argparse.Namespace, texts: str, everyone: bool, draw: random.Random, want: bytes, command: list[str]) -> float | None:
    """Kills one or all ranks after a random time; returns the maximum age of the last journal record of a killed rank [s], or None if the run had ended."""
    with tempfile.TemporaryDirectory() as folder:
        state = f"{folder}/state"
        job = subprocess.Popen([*mpirun(args.ranks), args.mpi, *command, "--state", state], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        while not os.path.exists(f"{state}.gate.{args.ranks - 1}") and job.poll() is None:
            time.sleep(0.05)
        begin = time.time()
        time.sleep(draw.uniform(0, args.longest))
        victims = children(job.pid) if everyone else children(job.pid)[-1:]
        if job.poll() is not None:
            return None
        now = time.time()
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        job.wait()
        ages = [now - max(begin, os.path.getmtime(f"{state}.gate.{rank}")) for rank in range(args.ranks)]
        if run([*mpirun(args.ranks + 1), args.mpi, *command, "--state", state])[1] != want:
            sys.exit("the result of the resumed run must equal the result of the uninterrupted run")
        return max(ages) if everyone else ages[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--mpi", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--measures", default=",".join(MEASURES))
    parser.add_argument("--texts", type=int, default=400, help="number of texts for measuring efficiency")
    parser.add_argument("--longest", type=float, default=25, help="maximum time before a kill [s]")
    args = parser.parse_args()
    lines = TEXTS.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        texts = f"{folder}/texts.txt"
        pathlib.Path(texts).write_text("\n".join(lines[n % len(lines)] for n in range(args.texts)) + "\n", encoding="utf-8")
        if args.rounds:
            efficiency(args, texts)
        pathlib.Path(texts).write_text("\n".join(lines[n % len(lines)] for n in range(30 * args.texts)) + "\n", encoding="utf-8")
        command = ["heads", "-q", "-m", "builtin", "-f", texts, "--csv", "--no-probe", "--by", "gate"]
        if not args.kills:
            return
        took, want = run([args.program, *command])
        print(f"uninterrupted run: {took.elapsed:.0f} s on one process")
        draw = random.Random(1)
        for everyone in (False, True):
            ages = [age for _ in range(args.kills) if (age := lost(args, texts, everyone, draw, want, command)) is not None]
            print(f"killed {'all ranks' if everyone else 'one rank '}: {len(ages)} times, lost work per rank at most {max(ages, default=0):.1f} s, "
                  f"mean {sum(ages) / max(1, len(ages)):.1f} s; all resumed results were identical")


if __name__ == "__main__":
    main()
