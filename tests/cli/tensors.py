#!/usr/bin/env python3
"""Tensors of safetensors files, with nothing but Python:

  tensors.py ids FILE NAME                          an i64 tensor, with commas
  tensors.py compare LIMIT FILE NAME FILE NAME[.*]  is one f32 tensor another within LIMIT, or those of NAME.0, NAME.1 ...?
"""
import array
import json
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


if sys.argv[1] == "ids":
    print(",".join(map(str, read(*sys.argv[2:4], "q", "I64"))))
    sys.exit()
limit, name = float(sys.argv[2]), sys.argv[4]
a, b = read(*sys.argv[3:5], "f", "F32"), read(*sys.argv[5:7], "f", "F32")
if len(a) != len(b) or not a:
    sys.exit(f"{name}: {len(a)} and {len(b)} numbers")
worst = max(abs(x - y) for x, y in zip(a, b))
if not worst <= limit:  # a NaN is no agreement
    sys.exit(f"{name}: they differ by {worst}")
