"""Compares training steps with PyTorch: the same weights, tokens and options, in alternating steps of one run.

    python3 bench/train.py --program build/gcc/bench/bench_train [--shapes 4x64,1x1024] [--threads 1] [--rounds 5]
                           [--peers moments,eager,sdpa,compile] [--model FOLDER] [--dtype bf16] [--json]
    python3 bench/train.py --curves IMAGE.svg NAME=training.jsonl ...

Without --model, the model is a GPT-2 with 124 million parameters and random weights. A step computes loss and gradients, clips them and
applies AdamW, in float32 and without dropout; with --dtype bf16, weights are float32 and products bf16 (in PyTorch by torch.autocast).
Each library runs in a separate process that waits for tokens, takes one step and prints its seconds, so all libraries run under the
same load; the minimum over the rounds is reported. Seconds are CPU time with one thread and wall-clock time with several. The first
step is not timed. Losses are compared at every step. Memory is the peak of the process, PyTorch's libraries and file reads included.

    moments    this library with the moments of AdamW in bf16
    eager      eager attention, torch.optim.AdamW with its defaults
    sdpa       scaled_dot_product_attention, AdamW(fused=True)
    compile    as sdpa, compiled by torch.compile

With --curves, draws the held-out losses of finished runs of `mha train` from their logs.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import chart
from table import print_rows

os.environ["HF_HUB_OFFLINE"] = "1"
PEERS = ("eager", "sdpa", "compile")
GOAL = 1.3
TOLERANCE = {"f32": 1e-4, "bf16": 1e-2}  # maximum difference between the losses
RATE, DECAY, CLIP = 1e-4, 0.1, 1.0  # the same values as in bench/train.c


# ---- PyTorch, in a separate process ----

def create(name, folder):
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                              attn_implementation="eager" if name == "eager" else "sdpa").eval()
    learns = list(model.parameters())
    groups = [{"params": [p for p in learns if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in learns if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, fused=name != "eager")
    return model, torch.compile(model) if name == "compile" else model, optimizer


def serve(name, folder, dtype, batch, length, threads):
    import torch
    torch.set_num_threads(threads)
    model, forward, optimizer = create(name, folder)
    for line in sys.stdin:
        ids = torch.tensor([int(word) for word in line.split()]).view(batch, length)
        wall, cpu = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = forward(ids, labels=ids).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item()
        optimizer.step()
        optimizer.zero_grad()
        print(time.perf_counter() - wall, time.process_time() - cpu, loss.item(), norm, flush=True)


# ---- comparison ----

class Peer:
    def __init__(self, command):
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.wall, self.cpu = [], []

    def step(self, line):
        self.process.stdin.write(line)
        self.process.stdin.flush()
        said = self.process.stdout.readline().split()
        if len(said) != 4:
            raise SystemExit(f"{' '.join(self.process.args)}: the process ended or printed an invalid line")
        wall, cpu, loss, norm = map(float, said)
        self.wall.append(wall)
        self.cpu.append(cpu)
        return loss, norm

    def end(self):
        """Ends the process and returns its peak memory in MiB."""
        self.process.stdin.close()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_maxrss / 1024


def compare(step, said, tolerance):
    loss, norm = said["mha"]
    for name, (other, length) in said.items():
        if not (abs(loss - other) <= tolerance * (1 + step) and abs(norm - length) <= max(1e-2, 2 * tolerance) * length):
            raise SystemExit(f"step {step}: loss and norm of {name} must equal {loss} and {norm} of mha (got {other} and {length})")


def row(a, folder, vocab, batch, length):
    shape = (batch, length, a.threads)
    peers = {"mha": Peer([a.program, folder, *shape, a.dtype])}
    for name in filter(None, a.peers.split(",")):
        own = [a.program, folder, *shape, a.dtype, "bf16"]
        peers[name] = Peer(own if name == "moments" else [sys.executable, __file__, "--peer", name, folder, a.dtype, *shape])
    draw = random.Random(1)
    for step in range(a.rounds + 1):
        line = " ".join(str(draw.randrange(vocab)) for _ in range(batch * length)) + "\n"
        said = {}
        for name, peer in peers.items():
            said[name] = peer.step(line)
            time.sleep(0.05)  # wait until the worker threads sleep
        compare(step, said, TOLERANCE[a.dtype])
    clock = "cpu" if a.threads == 1 else "wall"
    least = {name: min(getattr(peer, clock)[1:]) for name, peer in peers.items()}
    best = min((name for name in peers if name != "mha"), key=least.get, default="mha")
    return {"shape": f"{batch}x{length}", "dtype": a.dtype, "threads": a.threads, "clock": clock, "seconds": least, "best": best,
            "ratio": least[best] / least["mha"], "MiB": {name: peer.end() for name, peer in peers.items()}}


def cells(r):
    seconds = [f"{r['seconds'][name]:.3f} ({r['MiB'][name]:.0f})" for name in r["seconds"]]
    return [r["shape"], str(r["threads"]), *seconds, f"{r['best']} {r['ratio']:.2f}"]


def draw_curves(image, logs):
    """Draws the loss at each evaluation after the first step of the runs in `logs`, [NAME=PATH]."""
    lines = {}
    for name, path in (log.split("=", 1) for log in logs):
        records = map(json.loads, Path(path).read_text(encoding="utf-8").splitlines())
        lines[name] = [(r["step"], r["eval_loss"]) for r in records if r["step"] and "eval_loss" in r]
    chart.curves(image, "Held-out loss by type of the moments", lines, {}, "steps", "nats per token")


def new_model(folder):
    import transformers
    transformers.set_seed(1)
    transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(folder)


def main():
    if sys.argv[1:2] == ["--peer"]:
        return serve(*sys.argv[2:5], *map(int, sys.argv[5:]))
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", help="the program bench_train, built with -DMHA_BENCH=ON")
    options.add_argument("--model", help="folder of a decoder (default: a GPT-2 with random weights)")
    options.add_argument("--shapes", default="4x64,1x1024", help="sequences x tokens")
    options.add_argument("--peers", default=",".join(PEERS))
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--dtype", choices=TOLERANCE, default="f32")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", action="store_true")
    options.add_argument("--curves", nargs="+", metavar="ARG", help="an image and the logs of runs, as NAME=PATH")
    a = options.parse_args()
    if a.curves:
        return draw_curves(a.curves[0], a.curves[1:])
    if not a.program:
        options.error("missing --program")
    with tempfile.TemporaryDirectory() as made:
        if not a.model:
            new_model(made)
        folder = a.model or made
        vocab = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))["vocab_size"]
        rows = (row(a, folder, vocab, *map(int, shape.split("x"))) for shape in a.shapes.split(","))
        print_rows(rows, f"seconds per step (MiB); goal: {GOAL:g} times the speed of the best other library",
                   ["shape", "threads", "mha", *a.peers.split(","), "ratio"], cells, a.json)


if __name__ == "__main__":
    main()
