#!/usr/bin/env python3
"""circuits.py --model FOLDER [--by head_position] [--tokens 24] [--sample 60] [--rounds 3] - activation patching of z on a GPT-2 checkpoint, by layer,
head and position, or by layer and head: mha.PromptPair and PyTorch with forward hooks, which runs the whole model once per part as scripts do.

Each round measures mha on all parts in one process and PyTorch on `sample` of the parts, spread evenly, in another, with the same number of threads, and
prints the CPU time of all threads per part that needs a run, which depends less on other processes than the elapsed time, the peak memory of both processes
and the largest difference of the results. --worker is used by the script.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import time


def prompts(tokens):
    clean = [(7 * t * t + 11 * t + 3) % 5000 + 100 for t in range(tokens)]
    corrupted = list(clean)
    corrupted[0] += 17  # the first token differs, so that every part needs a run
    return clean, corrupted


def with_mha(model, tokens, _parts, by):
    import mha

    opened = mha.Model(model)
    clean, corrupted = prompts(tokens)
    start = time.process_time()
    with mha.PromptPair(opened, clean, corrupted, 500, 600) as pair:
        runs = pair.passes("z", by)
        effects = pair.patch("z", by)[0]
    return time.process_time() - start, runs, effects.ravel().tolist()


def with_torch(model, tokens, parts, by):
    import torch
    from transformers import GPT2LMHeadModel

    torch.set_num_threads(int(os.environ["MHA_THREADS"]))
    torch.set_grad_enabled(False)
    net = GPT2LMHeadModel.from_pretrained(model).eval()
    layers, heads = net.config.n_layer, net.config.n_head
    width = net.config.n_embd // heads
    clean, corrupted = (torch.tensor([ids]) for ids in prompts(tokens))
    outputs = [block.attn.c_proj for block in net.transformer.h]
    kept = {}
    hooks = [module.register_forward_pre_hook(lambda _, x, n=n: kept.__setitem__(n, x[0].clone())) for n, module in enumerate(outputs)]
    net(clean)
    for hook in hooks:
        hook.remove()
    places = range(tokens) if by == "head_position" else [slice(None)]
    everything = [(layer, head, t) for layer in range(layers) for head in range(heads) for t in places
                  if by == "head" or layer < layers - 1 or t == tokens - 1]
    chosen = everything[:: max(1, len(everything) // parts)][:parts]
    found = {}
    net(corrupted)
    start = time.process_time()
    for layer, head, t in chosen:
        def patch(_, x, layer=layer, head=head, t=t):
            y = x[0].clone()
            y[0, t, head * width:(head + 1) * width] = kept[layer][0, t, head * width:(head + 1) * width]
            return (y,)
        hook = outputs[layer].register_forward_pre_hook(patch)
        g = net(corrupted).logits[0, -1]
        hook.remove()
        found[layer * heads + head if by == "head" else (layer * heads + head) * tokens + t] = float(g[500] - g[600])
    return time.process_time() - start, len(chosen), found


def worker(a):
    seconds, runs, effects = (with_mha if a.worker == "mha" else with_torch)(a.model, a.tokens, a.sample, a.by)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "runs": runs, "peak": peak, "effects": effects}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--by", choices=("head", "head_position"), default="head_position")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--worker")
    a = parser.parse_args()
    if a.worker:
        worker(a)
        return
    environment = dict(os.environ, MHA_THREADS=str(a.threads), OMP_NUM_THREADS=str(a.threads))
    for _ in range(a.rounds):
        got = {}
        for name in ("mha", "torch"):
            command = [sys.executable, __file__, "--model", a.model, "--by", a.by, "--tokens", str(a.tokens), "--sample", str(a.sample), "--worker", name]
            got[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)
        each = {name: 1e3 * g["seconds"] / g["runs"] for name, g in got.items()}
        worst = max(abs(got["mha"]["effects"][int(n)] - x) for n, x in got["torch"]["effects"].items())
        print(f"CPU time: mha {each['mha']:.2f} ms per part ({got['mha']['runs']} parts), torch {each['torch']:.2f} ms: {each['torch'] / each['mha']:.1f} times as fast; "
              f"memory {got['mha']['peak']:.0f} and {got['torch']['peak']:.0f} MB; largest difference {worst:.1e}", flush=True)


if __name__ == "__main__":
    main()
