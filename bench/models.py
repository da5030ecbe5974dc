"""Compares linear layers and whole models with other libraries: the same weights, in one process, in alternating rounds.

    PYTHONPATH=python MHA_LIB=build/libmha.so python3 bench/models.py [--rows NAMES] [--threads N] [--dtype f32,bf16,int8]
        [--seconds S] [--llama libllama_peer.so] [--program build/bin/mha --start FOLDER] [--json]

    linear-M    y = x W^T + b for M rows, 768 inputs and 3072 outputs; linear-1-large: 4096 by 4096;
                in bf16, x and y are bf16
    minilm      32 sentences of 128 tokens, in the shape of all-MiniLM-L6-v2 with random weights
    mixed       128 sentences of 8 to 128 tokens, most of them short; mha packs them without padding
    prefill     512 tokens and the logits of the last token, in the shape of GPT-2 124M with random weights
    decode      one token after these 512 tokens
    vit         8 images of 224 by 224 pixels, in the shape of ViT-Base with random weights
    t5-encode   512 tokens, in the shape of T5-Base with random weights
    t5-decode   one token of its decoder after 64 tokens; the keys and values of the source are cached
    llama-SIZE  512 tokens (prompt) and one token after them (decode), in the shape of a LLaMA with 0.5 or 1.1 billion random weights, with --llama
    start       a new process that embeds one sentence; FOLDER is a BERT model such as MiniLM

The other libraries are PyTorch (nn.functional.linear; transformers with scaled_dot_product_attention; int8 is its dynamic
quantization), ONNX Runtime (minilm in f32 and int8, also by dynamic quantization), and llama.cpp (minilm and llama; int8 is its
Q8_0, and its caches are f16). For `mixed`, PyTorch runs batches of 32 padded to the longest sentence, both in the given order
and sorted by length. All results are first compared with the results of mha. Times are measured as in bench/compare.py: the
minimum, with medians in brackets.
The share is the fraction of the f32 multiply-add limit (mha/machine_peak.h), or, for few rows, of the limit for reading the weights.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from ctypes import c_double, c_void_p

import compare
import mha
import numpy as np
import peers
import torch
from mha._binding.context import context
from mha._binding.abi import Matrix
from mha._binding.library import call, lib
from model_rows import DTYPES, MODELS, Work, in_torch

TOLERANCE = {"f32": 1e-3, "bf16": 6e-2, "int8": 0.15}  # maximum error, relative to the largest value
HALF_TOLERANCE = 2e-2  # of llama.cpp, whose caches are f16
GOALS = {  # goals for the speedup over the best other library: f32, 16 bits and 8 bits
    "linear-1": (1.5, 1.5), "linear-1-large": (1.5, 1.5), "linear-16": (1.5, 1.5), "linear-512": (0.95, 1.1),
    "linear-4096": (0.95, 1.1), "minilm": (1.3, 1.3), "mixed": (2.0, 2.0), "prefill": (1.2, 1.2), "decode": (1.0, 1.8),
    "vit": (1.3, 1.3), "t5-encode": (1.3, 1.3), "t5-decode": (1.3, 1.3),
    "llama-0.5-prompt": (3, 3), "llama-0.5-decode": (1.3, 1.3), "llama-1.1-prompt": (3, 3), "llama-1.1-decode": (1.3, 1.3),
}  # fmt: skip
LINEAR = {"linear-1": (1, 3072, 768), "linear-1-large": (1, 4096, 4096), "linear-16": (16, 3072, 768),
          "linear-512": (512, 3072, 768), "linear-4096": (4096, 3072, 768)}  # rows, output width, input width


# ---- linear layers ----

def linear(name, dtype, threads):
    rows, out, width = LINEAR[name]
    rng = np.random.default_rng(1)
    x, w, b = (rng.standard_normal(s, dtype=np.float32) for s in ((rows, width), (out, width), (out,)))
    layer = c_void_p()
    matrix = Matrix(w.ctypes.data, b.ctypes.data, 0, out, DTYPES[dtype][1])
    call("mha_linear_create_stack", context(threads), width, ctypes.byref(matrix), 1, 0, ctypes.byref(layer))
    same = torch.nn.Linear(width, out)
    same.weight.data, same.bias.data = torch.from_numpy(w), torch.from_numpy(b)
    theirs, tx = in_torch(same, dtype), torch.from_numpy(x).to(DTYPES[dtype][0])
    ours = torch.empty((rows, out), dtype=tx.dtype)
    run, at = lib.mha_linear_forward_bf16 if dtype == "bf16" else lib.mha_linear_forward, (tx.data_ptr(), ours.data_ptr())
    calls = {"mha": peers.Call(lambda: run(layer, at[0], rows, at[1], None), lambda: ours.float().numpy()),
             "torch": peers.Call(lambda: theirs(tx), lambda: theirs(tx).float().numpy())}
    return Work(calls, 2 * rows * out * width, DTYPES[dtype][2] * out * width if rows <= 16 else 0)


# ---- startup time of new processes ----

START_GOAL = 0.15  # goal for the startup time of a process [s]
IN_TRANSFORMERS = """
import json, sys, torch, transformers
tokens = transformers.PreTrainedTokenizerFast(tokenizer_file=sys.argv[1] + "/tokenizer.json")(sys.argv[2], return_tensors="pt")
with torch.inference_mode():
    hidden = transformers.BertModel.from_pretrained(sys.argv[1])(tokens.input_ids).last_hidden_state
    print(json.dumps({"embedding": torch.nn.functional.normalize(hidden.mean(1))[0].tolist()}))
"""


def start(program, folder, seconds):
    """Measures the wall-clock time of a process that embeds one sentence, for mha and for transformers."""
    text, times = "A sentence about the sea.", {"mha": [], "transformers": []}
    commands = {"mha": [program, "embed", "--json", "-m", folder, text],
                "transformers": [sys.executable, "-c", IN_TRANSFORMERS, folder, text]}
    end, said = time.monotonic() + 4 * seconds, {}
    while not said or time.monotonic() < end:
        for name, command in commands.items():
            begin = time.monotonic()
            done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
            times[name].append(time.monotonic() - begin)
            said[name] = json.loads(done.stdout)["embedding"]
    if not np.allclose(*said.values(), atol=1e-4):
        raise SystemExit("start: the embeddings of mha and transformers must agree")
    return {name: {"best s": min(t), "median s": statistics.median(t), "rounds": len(t)} for name, t in times.items()}


# ---- measurement ----

def limit_of(work, threads):
    rate = c_double()
    if not work.read:
        call("mha_machine_peak_fma", context(threads), ctypes.byref(rate))
    else:
        memory = np.ones(work.read // 256 * 64, np.float32)
        call("mha_machine_peak_read", context(threads), memory.ctypes.data, memory.nbytes, ctypes.byref(rate))
    return rate.value


def row(name, dtype, a):
    skipped = {}
    work = linear(name, dtype, a.threads) if name in LINEAR else MODELS[name](dtype, a.threads, skipped, a)
    work.calls["mha"].run()
    truth = np.array(work.calls["mha"].out())
    for peer, one in work.calls.items():
        error = float(np.abs(one.out().reshape(truth.shape) - truth).max() / np.abs(truth).max())
        most = max(TOLERANCE[dtype], HALF_TOLERANCE if peer == "llama.cpp" else 0)
        if not error <= most:
            raise SystemExit(f"{name} {dtype}: the error of {peer} must be at most {most:g} (got {error:g})")
    limit = limit_of(work, a.threads)
    times = compare.measure(work.calls, a.threads, a.seconds)
    limit, amount = max(limit, limit_of(work, a.threads)), work.read or work.flops
    result = {"row": name, "dtype": dtype, "threads": a.threads, "limit": "read" if work.read else "fma",
              "limit rate": limit / 1e9, "calls": {}, "skipped": skipped}
    for peer, t in times.items():
        result["calls"][peer] = {"best ms": 1e3 * min(t), "median ms": 1e3 * statistics.median(t), "rounds": len(t),
                                 "rate": amount / min(t) / 1e9, "share": amount / min(t) / limit}
    return compare.add_ratio(result)


def show(r):
    goal = GOALS[r["row"]][r["dtype"] != "f32"]
    ratio = f"{r['ratio']:.2f}x" if r["ratio"] else "no other library"
    print(f"{r['row']:16} {r['dtype']:5} {ratio} (goal {goal:g}), {100 * r['calls']['mha']['share']:.0f} % of {r['limit']}")
    for name, c in r["calls"].items():
        print(f"    {name:16} {c['best ms']:10.4f} ({c['median ms']:.4f})   {c['rate']:.1f} "
              f"{'GB/s' if r['limit'] == 'read' else 'GFLOP/s'}")
    for name, why in r["skipped"].items():
        print(f"    {name} {why}")
    sys.stdout.flush()


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", default=",".join(GOALS))
    options.add_argument("--dtype", default="f32,bf16")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--seconds", type=float, default=5.0, help="seconds per row")
    options.add_argument("--llama", metavar="LIBRARY", help="libllama_peer.so, built by bench/llama/build.sh")
    options.add_argument("--program", metavar="MHA", help="the program mha, for --start")
    options.add_argument("--start", metavar="FOLDER", help="also time new processes; FOLDER is a BERT model")
    options.add_argument("--json", action="store_true")
    a = options.parse_args()
    torch.set_num_threads(a.threads)
    about = {"cpu": compare.cpu_name(), "isa": mha.isa(), "version": mha.version, "torch": torch.__version__}
    results = []
    if not a.json:
        print(f"{', '.join(about.values())}, {a.threads} thread(s); best of alternating rounds in ms, medians in brackets")
    with torch.inference_mode():
        for name, dtype in ((name, dtype) for name in a.rows.split(",") if name for dtype in a.dtype.split(",")):
            results.append(row(name, dtype, a))
            if not a.json:
                show(results[-1])
    started = start(a.program, a.start, a.seconds) if a.program and a.start else {}
    for name, t in started.items():
        if not a.json:
            print(f"start {name:12} {t['best s']:.3f} s ({t['median s']:.3f})" + (f", goal {START_GOAL}" if name == "mha" else ""))
    if a.json:
        json.dump({**about, "rows": results, "start": started}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
