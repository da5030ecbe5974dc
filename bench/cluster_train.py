"""Compares data-parallel training with PyTorch: the time of a step with one and two processes, and bitwise identity of the weights.

    python3 bench/cluster_train.py --program build/gcc/bin/mha-mpi [--shape 6x8x512] [--vocab 8192] [--length 128] [--batch 4]
                                   [--steps 8] [--rounds 3] [--json]

A GPT-2 of LAYERSxHEADSxWIDTH learns random tokens in float32, with two batches per step, AdamW and gradient clipping. Each process has one
thread. mha runs `mha-mpi train --workers 2` with the exact reduction and with --reduce fast; a single process runs both batches. PyTorch
uses fused AdamW and scaled_dot_product_attention: DistributedDataParallel with gloo for two processes; a single process runs both batches
as one, without DistributedDataParallel. All runs start from the same weights, and the losses of their first steps are compared. The runs
alternate; seconds are wall-clock time, the minimum over all steps and rounds, without the first step of a run, evaluation and
checkpoints. "bit-exact" tells whether the weights after the last step are bitwise identical with one and two processes.
"""
import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from table import print_rows

os.environ["HF_HUB_OFFLINE"] = "1"
SYSTEMS = ("mha", "mha fast", "torch")
RATE, DECAY, CLIP, SEED = 1e-4, 0.1, 1.0, 1
TOLERANCE = 1e-2  # maximum relative difference between the first losses; mha and PyTorch read the random tokens in different orders


# ---- PyTorch: one rank of gloo ----

def serve(rank, ranks, folder, a):
    import torch
    import torch.distributed as dist
    import transformers
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    model = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/init", dtype=torch.float32, attn_implementation="sdpa").eval()
    learns = list(model.parameters())
    groups = [{"params": [p for p in learns if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in learns if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), fused=True)
    forward = torch.nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
    data = torch.load(f"{folder}/ids.pt")
    seconds, losses = [], []
    for step in range(a.steps):
        ids = data[step].view(ranks, -1, a.length)[rank]
        dist.barrier()
        began = time.perf_counter()
        loss = forward(ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learns, CLIP)
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        seconds.append(time.perf_counter() - began)
        losses.append(loss.detach())
    dist.all_reduce(losses[0])
    if rank == 0:
        digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in learns)).hexdigest()
        print(json.dumps({"seconds": seconds, "loss": losses[0].item() / ranks, "digest": digest}))


def run_torch(ranks, folder, a):
    Path(folder, "store").unlink(missing_ok=True)
    words = [sys.executable, __file__, "--program", a.program, "--steps", a.steps, "--length", a.length, "--folder", folder]
    started = [subprocess.Popen([*map(str, words), "--rank", f"{rank}/{ranks}"], stdout=subprocess.PIPE, text=True) for rank in range(ranks)]
    answers = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit("PyTorch failed")
    return json.loads(answers[0])


# ---- mha ----

def run_mha(ranks, folder, fast, a):
    out = Path(folder, "out")
    places = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    words = ["mpirun", *root, *places, "-np", ranks, a.program, "train", "-q", "-t", 1, "--from", f"{folder}/init", "--tokens", f"{folder}/ids.npy",
             "--length", a.length, "--batch", a.batch, "--workers", 2, "--steps", a.steps, "--save-every", a.steps, "--rate", RATE, "--decay", DECAY,
             "--clip", CLIP, "--warmup", 0, "--schedule", "constant", "--reduce", "fast" if fast else "tree", "--force", "-o", out]
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)
    log = [json.loads(line) for line in Path(out, "training.jsonl").read_text(encoding="utf-8").splitlines()]
    ends = [record["seconds"] for record in log]
    # A record is written before the checkpoint of the same step, so only the time of the first step includes a checkpoint.
    seconds = [after - before for before, after in zip(ends, ends[1:])]
    return {"seconds": seconds, "loss": log[1]["loss"], "digest": hashlib.sha256(Path(out, "model.safetensors").read_bytes()).hexdigest()}


# ---- comparison ----

def prepare(folder, a):
    import numpy
    import torch
    import transformers
    layers, heads, width = map(int, a.shape.split("x"))
    transformers.set_seed(SEED)
    config = transformers.GPT2Config(n_layer=layers, n_head=heads, n_embd=width, vocab_size=a.vocab, n_positions=max(a.length, 128),
                                     bos_token_id=0, eos_token_id=0)
    transformers.GPT2LMHeadModel(config).save_pretrained(f"{folder}/init")
    ids = numpy.random.default_rng(SEED).integers(a.vocab, size=(a.steps, 2 * a.batch, a.length))
    numpy.save(f"{folder}/ids.npy", numpy.append(ids.reshape(-1), [0]).astype(numpy.int32))
    torch.save(torch.from_numpy(ids), f"{folder}/ids.pt")


def run(system, ranks, folder, a):
    return run_torch(ranks, folder, a) if system == "torch" else run_mha(ranks, folder, system == "mha fast", a)


def rows(a):
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder, a)
        said = {(system, ranks): [] for system in SYSTEMS for ranks in (1, 2)}
        for _ in range(a.rounds):
            for (system, ranks), answers in said.items():
                answers.append(run(system, ranks, folder, a))
    first = said["mha", 1][0]["loss"]
    for (system, ranks), answers in said.items():
        if abs(answers[0]["loss"] - first) > TOLERANCE * first:
            raise SystemExit(f"{system}, {ranks} processes: the first loss must be {first}, as in mha (got {answers[0]['loss']})")
    for system in SYSTEMS:
        least = [min(second for answer in said[system, ranks] for second in answer["seconds"][1:]) for ranks in (1, 2)]
        digests = [{answer["digest"] for answer in said[system, ranks]} for ranks in (1, 2)]
        yield {"system": system, "seconds": least, "speedup": least[0] / least[1], "same_bits": digests[0] == digests[1] and len(digests[0]) == 1,
               "reproducible": all(len(found) == 1 for found in digests)}


def cells(r):
    return [r["system"], *(f"{seconds:.3f}" for seconds in r["seconds"]), f"{r['speedup']:.2f}", "yes" if r["same_bits"] else "no",
            "yes" if r["reproducible"] else "no"]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", required=True, help="mha-mpi")
    options.add_argument("--shape", default="6x8x512", help="layers x heads x width")
    options.add_argument("--json", action="store_true")
    options.add_argument("--rank", help=argparse.SUPPRESS)
    options.add_argument("--folder", help=argparse.SUPPRESS)
    for name, value in dict(vocab=8192, length=128, batch=4, steps=8, rounds=3).items():
        options.add_argument(f"--{name}", type=int, default=value)
    a = options.parse_args()
    if a.rank:
        return serve(*map(int, a.rank.split("/")), a.folder, a)
    columns = ["", "1 process", "2 processes", "speedup", "bit-exact", "reproducible"]
    print_rows(rows(a), f"seconds per step, {a.shape}, 2 batches of {a.batch}x{a.length}", columns,
         cells, a.json)


if __name__ == "__main__":
    main()
