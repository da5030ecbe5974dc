"""Compares linear layers and whole models with other libraries: the same weights, in one process, in alternating rounds.

    PYTHONPATH=python MHA_LIB=build/libmha.so python3 bench/models.py [--rows NAMES] [--threads N] [--dtype f32,bf16]
        [--seconds S] [--program build/bin/mha --start FOLDER] [--json]

    linear-M    y = x W^T + b for M rows, 768 inputs and 3072 outputs; linear-1-large: 4096 by 4096
    minilm      32 sentences of 128 tokens, in the shape of all-MiniLM-L6-v2 with random weights
    mixed       128 sentences of 8 to 128 tokens, most of them short; mha packs them without padding
    prefill     512 tokens and the logits of the last token, in the shape of GPT-2 124M with random weights
    decode      one token after these 512 tokens
    start       a new process that embeds one sentence; FOLDER is a BERT model such as MiniLM

The other libraries are PyTorch (nn.functional.linear; transformers with scaled_dot_product_attention) and ONNX Runtime (minilm
in f32). For `mixed`, PyTorch runs batches of 32 padded to the longest sentence, both in the given order and sorted by length. All
results are first compared with those of mha. Times are measured as in bench/compare.py: the minimum, with medians in brackets.
The share is the fraction of the f32 multiply-add limit (mha/machine_peak.h), or, for few rows, of the limit for reading the weights.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from ctypes import c_double, c_void_p

import compare
import mha
import numpy as np
import peers
import torch
import transformers
from mha._binding.context import context
from mha._binding.abi import Error, Matrix, ModelInput, ModelOptions, ModelOutput
from mha._binding.library import call, lib, struct

DTYPES = {"f32": (torch.float32, 1, 4), "bf16": (torch.bfloat16, 2, 2)}  # PyTorch's dtype, mha_dtype, bytes per weight
TOLERANCE = {"f32": 1e-3, "bf16": 6e-2}  # maximum error, relative to the largest value
GOALS = {  # goals for the speedup over the best other library: f32, bf16
    "linear-1": (1.5, 1.5), "linear-1-large": (1.5, 1.5), "linear-16": (1.5, 1.5), "linear-512": (0.95, 0.9),
    "linear-4096": (0.95, 0.9), "minilm": (1.3, 1.3), "mixed": (2.0, 2.0), "prefill": (1.2, 1.2), "decode": (1.0, 1.8),
}  # fmt: skip
LINEAR = {"linear-1": (1, 3072, 768), "linear-1-large": (1, 4096, 4096), "linear-16": (16, 3072, 768),
          "linear-512": (512, 3072, 768), "linear-4096": (4096, 3072, 768)}  # rows, output width, input width


class Work:
    """The calls by name, and the work of one call: its operations or, if reads are the bottleneck, the bytes that it reads."""

    def __init__(self, calls, flops, read=0):
        self.calls, self.flops, self.read = calls, flops, read


# ---- linear layers ----

def linear(name, dtype, threads):
    rows, out, width = LINEAR[name]
    rng = np.random.default_rng(1)
    x, w, b = (rng.standard_normal(s, dtype=np.float32) for s in ((rows, width), (out, width), (out,)))
    y, layer = np.empty((rows, out), np.float32), c_void_p()
    matrix = Matrix(w.ctypes.data, b.ctypes.data, 0, out, DTYPES[dtype][1])
    call("mha_linear_create_stack", context(threads), width, ctypes.byref(matrix), 1, 0, ctypes.byref(layer))
    kind = DTYPES[dtype][0]
    tx, tw, tb = (torch.from_numpy(a).to(kind) for a in (x, w, b))
    f, run, at = torch.nn.functional.linear, lib.mha_linear_forward, (x.ctypes.data, y.ctypes.data)
    calls = {"mha": peers.Call(lambda _alive=x: run(layer, at[0], rows, at[1], None), lambda: y),
             "torch": peers.Call(lambda: f(tx, tw, tb), lambda: f(tx, tw, tb).float().numpy())}
    return Work(calls, 2 * rows * out * width, DTYPES[dtype][2] * out * width if rows <= 16 else 0)


# ---- models ----

def opened(peer, dtype, threads):
    """Opens the weights of a transformers model in mha."""
    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(folder)
        model, options = c_void_p(), struct(ModelOptions, no_map=1, no_tokenizer=1, dtype=DTYPES[dtype][1])
        call("mha_model_open", context(threads), folder.encode(), ctypes.byref(options), ctypes.byref(model))
    return model


def forward(model, output, ids, **given):
    """Returns a function that runs one forward pass and keeps the arrays of the pass alive."""
    ids = np.ascontiguousarray(ids, dtype=np.int32)
    given = {"ids": ids.ctypes.data, **given}
    arguments = (model, ctypes.byref(struct(ModelInput, **given)), ctypes.byref(output), ctypes.byref(Error()))

    def run(_alive=(ids, output)):
        if lib.mha_model_forward(*arguments):
            raise RuntimeError(arguments[3]._obj.message)

    return run


def minilm():
    config = transformers.BertConfig(vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                                     intermediate_size=1536)
    torch.manual_seed(1)
    return transformers.BertModel(config, add_pooling_layer=False).eval()


def dense_flops(peer, tokens):
    return 2 * tokens * sum(p.numel() for n, p in peer.named_parameters() if p.dim() == 2 and "embeddings" not in n and "wte" not in n
                            and "wpe" not in n)


class OfIds(torch.nn.Module):
    """The model with tensors as its only input and output, as the ONNX exporter requires."""

    def __init__(self, peer):
        super().__init__()
        self.peer = peer

    def forward(self, ids):
        return self.peer(input_ids=ids).last_hidden_state


def onnx_bert(peer, ids, threads):
    import onnxruntime as ort
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        torch.onnx.export(OfIds(peer).eval(), (ids,), file.name, input_names=["ids"], output_names=["hidden"], dynamo=False,
                          opset_version=17)
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = ort.InferenceSession(file.name, options, providers=["CPUExecutionProvider"])
    name, feed = session.get_outputs()[0].name, {session.get_inputs()[0].name: ids.numpy()}
    return peers.Call(lambda: session.run([name], feed), lambda: session.run([name], feed)[0])


def sentences(dtype, threads, skipped):
    peer, ids = minilm(), torch.randint(0, 30522, (32, 128))
    model, hidden = opened(peer, dtype, threads), np.empty((32, 128, 384), np.float32)
    ours = forward(model, struct(ModelOutput, last_hidden=hidden.ctypes.data), ids.numpy(), batch=32, length=128)
    calls = {"mha": peers.Call(ours, lambda: hidden)}
    if dtype == "f32":
        try:
            calls["onnxruntime"] = onnx_bert(peer, ids, threads)
        except Exception as why:  # pylint: disable=broad-except: exporters of some PyTorch versions fail
            skipped["onnxruntime"] = f"export failed: {str(why).splitlines()[0]}"
    half = peer.to(DTYPES[dtype][0])
    calls["torch"] = peers.Call(lambda: half(ids), lambda: half(ids).last_hidden_state.float().numpy())
    return Work(calls, dense_flops(peer, ids.numel()) + 6 * 4 * 32 * 128 * 128 * 384)


def mixed(dtype, threads, _skipped):
    rng = np.random.default_rng(3)
    lengths = np.clip(np.round(np.exp(rng.normal(3.2, 0.6, 128))), 8, 128).astype(int)
    texts = [rng.integers(0, 30522, n) for n in lengths]
    peer, count = minilm(), int(lengths.sum())
    starts, hidden = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), np.empty((count, 384), np.float32)
    model = opened(peer, dtype, threads)
    runs = []
    for first in range(0, 128, 64):  # batches of about 2,000 tokens, as in mha_model_embed
        own = starts[first:first + 65] - starts[first]
        output = struct(ModelOutput, last_hidden=hidden.ctypes.data + 4 * 384 * int(starts[first]))
        run = forward(model, output, np.concatenate(texts[first:first + 64]), batch=64, starts=own.ctypes.data)
        runs.append((run, own))
    half = peer.to(DTYPES[dtype][0])

    def padded(order):
        batches = []
        for n in range(0, 128, 32):
            members = order[n:n + 32]
            longest = max(lengths[m] for m in members)
            ids, mask = torch.zeros(32, longest, dtype=torch.long), torch.zeros(32, longest, dtype=torch.long)
            for row, m in enumerate(members):
                ids[row, :lengths[m]], mask[row, :lengths[m]] = torch.from_numpy(texts[m]), 1
            batches.append((members, ids, mask))

        def run():
            return [half(ids, attention_mask=mask).last_hidden_state for _, ids, mask in batches]

        def out():
            whole = np.empty_like(hidden)
            for (members, _, _), result in zip(batches, run()):
                for row, m in enumerate(members):
                    whole[starts[m]:starts[m + 1]] = result[row, :lengths[m]].float().numpy()
            return whole

        return peers.Call(run, out)

    calls = {"mha": peers.Call(lambda: [run() for run, _ in runs], lambda: hidden), "torch": padded(np.arange(128)),
             "torch sorted": padded(np.argsort(-lengths))}
    attention = 6 * 4 * 384 * int((lengths.astype(np.int64) ** 2).sum())
    return Work(calls, dense_flops(peer, count) + attention)


def gpt2(step):
    def rows(dtype, threads, _skipped):
        torch.manual_seed(1)
        peer = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
        ids = torch.randint(0, 50257, (1, 513))
        model, logits = opened(peer, dtype, threads), np.empty((1, 50257), np.float32)
        output = struct(ModelOutput, last_logits=logits.ctypes.data)
        half = peer.to(DTYPES[dtype][0])
        weights = 12 * 12 * 768 * 768 + 50257 * 768
        if step == "prefill":
            def whole():
                return half(ids[:, :512], logits_to_keep=1, use_cache=False).logits

            calls = {"mha": peers.Call(forward(model, output, ids[:, :512].numpy(), batch=1, length=512), lambda: logits),
                     "torch": peers.Call(whole, lambda: whole()[:, -1].float().numpy())}
            return Work(calls, 2 * 512 * 12 * 12 * 768 * 768 + 2 * 50257 * 768 + 12 * 2 * 512 * 512 * 768)
        cache = c_void_p()
        call("mha_model_cache_create", model, None, ctypes.byref(cache))
        forward(model, output, ids[:, :512].numpy(), batch=1, length=512, cache=cache)()
        one = forward(model, output, ids[:, 512:].numpy(), batch=1, length=1, cache=cache)
        past = half(ids[:, :512], use_cache=True).past_key_values

        def ours():
            one()
            lib.mha_model_cache_truncate(cache, 0, 512, None)

        def theirs():
            result = half(ids[:, 512:], past_key_values=past, use_cache=True).logits
            past.crop(-1)
            return result

        calls = {"mha": peers.Call(ours, lambda: logits), "torch": peers.Call(theirs, lambda: theirs()[:, -1].float().numpy())}
        size = DTYPES[dtype][2]
        return Work(calls, 2 * weights, size * (weights + 2 * 12 * 512 * 768))
    return rows


MODELS = {"minilm": sentences, "mixed": mixed, "prefill": gpt2("prefill"), "decode": gpt2("decode")}


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
    work = linear(name, dtype, a.threads) if name in LINEAR else MODELS[name](dtype, a.threads, skipped)
    work.calls["mha"].run()
    truth = np.array(work.calls["mha"].out())
    for peer, one in work.calls.items():
        error = float(np.abs(one.out().reshape(truth.shape) - truth).max() / np.abs(truth).max())
        if not error <= TOLERANCE[dtype]:
            raise SystemExit(f"{name} {dtype}: the error of {peer} must be at most {TOLERANCE[dtype]:g} (got {error:g})")
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
    goal = GOALS[r["row"]][r["dtype"] == "bf16"]
    print(f"{r['row']:15} {r['dtype']:5} {r['ratio']:.2f}x (goal {goal:g}), {100 * r['calls']['mha']['share']:.0f} % of {r['limit']}")
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
