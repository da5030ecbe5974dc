"""Trains a model in PyTorch, as the reference for the loss and the speed of mha_trainer.

    python3 bench/train_torch.py MODEL [--steps N] [--batch N] [--length N] [--rate R] [--floor R] [--warmup N]
                                       [--decay R] [--clip R] [--threads N] [--compile]

MODEL is the folder of a decoder. Training starts from its weights and is set up as in common scripts for transformers: float32,
eager attention, no dropout, torch.optim.AdamW with weight decay on matrices only, clip_grad_norm_, a linear warm-up, and a cosine
decay to the floor. Prints one JSON object: the options, the loss and the gradient norm of each step, and the seconds of the fastest
step. tests/golden/data/train contains two such objects without the seconds, for gpt2-tiny and llama-f32 of tests/golden.

The texts are synthetic and equal those of tests/support/model/train_case.c: 7 of 8 tokens follow from the previous token.
"""
import argparse
import json
import math
import os
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers

TOKENS, MASK = 61, (1 << 64) - 1


def splitmix(state):
    """Generates the output of splitmix64 (Steele, Lea and Flood 2014)."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def sequence(number, length):
    draw = splitmix(number << 32)
    ids = [next(draw) % TOKENS]
    while len(ids) < length:
        ids.append(next(draw) % TOKENS if next(draw) % 8 == 0 else (5 * ids[-1] + 3) % TOKENS)
    return ids


def batch(step, size, length):
    """Returns the token ids of a step; steps are counted from 1."""
    return torch.tensor([sequence((step - 1) * size + b, length) for b in range(size)])


def rate_of(step, o):
    if step < o.warmup:
        return o.rate * step / o.warmup
    if step >= o.steps:
        return o.floor
    return o.floor + (o.rate - o.floor) * 0.5 * (1 + math.cos(math.pi * (step - o.warmup) / (o.steps - o.warmup)))


def optimizer_of(model, o):
    learns = list(model.parameters())
    groups = [{"params": [p for p in learns if p.dim() > 1], "weight_decay": o.decay},
              {"params": [p for p in learns if p.dim() <= 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=o.rate)


def train(o):
    model = transformers.AutoModelForCausalLM.from_pretrained(o.model, dtype=torch.float32, attn_implementation="eager").eval()
    optimizer = optimizer_of(model, o)
    forward = torch.compile(model) if o.compile else model
    losses, norms, seconds = [], [], []
    for step in range(1, o.steps + 1):
        ids = batch(step, o.batch, o.length)
        began = time.perf_counter()
        loss = forward(ids, labels=ids).loss
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), o.clip).item())
        for group in optimizer.param_groups:
            group["lr"] = rate_of(step, o)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - began)
    return losses, norms, min(seconds)


def options(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for name, value in dict(steps=200, batch=4, length=32, warmup=20, threads=1).items():
        parser.add_argument("--" + name, type=int, default=value)
    for name, value in dict(rate=3e-3, floor=3e-4, decay=0.1, clip=1.0).items():
        parser.add_argument("--" + name, type=float, default=value)
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args(arguments)


def main():
    o = options()
    torch.set_num_threads(o.threads)
    losses, norms, seconds = train(o)
    told = {k: v for k, v in vars(o).items() if k not in ("model", "threads", "compile")}
    print(json.dumps({**told, "seconds": round(seconds, 6), "loss": [round(x, 7) for x in losses],
                      "norm": [round(x, 6) for x in norms]}))


if __name__ == "__main__":
    main()
