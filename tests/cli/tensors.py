#!/usr/bin/env python3
"""Prints or compares tensors of safetensors files, using only the standard library:

  tensors.py ids FILE NAME                          prints an i64 tensor, separated by commas
  tensors.py compare LIMIT FILE NAME FILE NAME[.*]  compares f32 tensors within LIMIT; .* concatenates NAME.0, NAME.1 ...
  tensors.py heads ALL SOME                         compares attn.L.H and statistics in SOME with the maps attn.L in ALL
"""
import array
import json
import math
import sys


def read(path, name, kind, dtype):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    names = [name]
    if name.endswith(".*"):
        found = [n for n in header if n.startswith(name[:-1])]
        names = [f"{name[:-1]}{i}" for i in range(len(found))]
    numbers = array.array(kind)
    for n in names:
        assert header[n]["dtype"] == dtype, header[n]
        begin, end = header[n]["data_offsets"]
        numbers.frombytes(data[begin:end])
    return numbers


def shapes(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def heads(whole, some):
    names = shapes(some)
    chosen = 0
    for layer in range(sum(n.startswith("attn.") for n in shapes(whole))):
        maps = read(whole, f"attn.{layer}", "f", "F32")
        count, n, _ = shapes(whole)[f"attn.{layer}"]
        for h in range(count):
            p = maps[h * n * n:(h + 1) * n * n]
            if f"attn.{layer}.{h}" in names:
                assert read(some, f"attn.{layer}.{h}", "f", "F32") == p, (layer, h)
                chosen += 1
            for name, want in {
                "row_entropy": [-sum(x * math.log2(x) for x in p[i * n:(i + 1) * n] if x > 0) for i in range(n)],
                "row_max": [max(p[i * n:(i + 1) * n]) for i in range(n)],
                "row_distance": [sum(p[i * n + j] * abs(i - j) for j in range(n)) for i in range(n)],
                "received": [sum(p[j::n]) for j in range(n)],
            }.items():
                got = read(some, f"{name}.{layer}", "f", "F32")[h * n:(h + 1) * n]
                assert max(abs(a - b) for a, b in zip(got, want, strict=True)) < 1e-5, (name, layer, h)
            top = read(some, f"row_argmax.{layer}", "q", "I64")[h * n:(h + 1) * n]
            assert all(p[i * n + j] == max(p[i * n:(i + 1) * n]) for i, j in enumerate(top)), (layer, h)
    assert chosen == sum(n.startswith("attn.") for n in names) > 0


if sys.argv[1] == "heads":
    heads(*sys.argv[2:4])
    sys.exit()
if sys.argv[1] == "ids":
    print(",".join(map(str, read(*sys.argv[2:4], "q", "I64"))))
    sys.exit()
limit, name = float(sys.argv[2]), sys.argv[4]
a, b = read(*sys.argv[3:5], "f", "F32"), read(*sys.argv[5:7], "f", "F32")
if len(a) != len(b) or not a:
    sys.exit(f"{name}: element counts must be equal (got {len(a)} and {len(b)})")
worst = max(abs(x - y) for x, y in zip(a, b))
if not worst <= limit:  # also true for NaN
    sys.exit(f"{name}: the largest difference must be at most {limit} (got {worst})")
