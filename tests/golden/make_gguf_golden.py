#!/usr/bin/env python3
"""make_gguf_golden.py - writes data/gguf/types.gguf, a file with every tensor type that mha reads, by gguf-py, and
types.safetensors, the same tensors as gguf-py converts them to float32. Requires gguf (0.19), numpy and safetensors."""

import sys, numpy as np, gguf
from gguf import GGUFWriter, GGMLQuantizationType as Q
import gguf.quants as quants
out = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/data/gguf"
rng = np.random.default_rng(7)
w = GGUFWriter(out + "/types.gguf", "llama")
w.add_name("every type")
w.add_array("test.words", ["one", "", "zwei", "\u2581trois"])
w.add_array("test.integers", [1, -2, 3])
w.add_float64("test.real", 0.1)
w.add_bool("test.flag", True)
w.add_int64("test.least", -2**63); w.add_uint64("test.most", 2**64 - 1)
w.add_int8("test.i8", -8); w.add_int16("test.i16", -300); w.add_uint8("test.u8", 200); w.add_uint16("test.u16", 60000)
exp = {}
def put(name, q, rows, cols, raw=None):
    block, size = gguf.constants.GGML_QUANT_SIZES[q]
    if raw is None:
        raw = rng.integers(0, 256, (rows, cols // block * size), dtype=np.uint8)
    w.add_tensor(name, raw, raw_dtype=q)
    exp[name] = quants.dequantize(raw, q).astype(np.float32)
def halves(n):  # finite scales, among them subnormal ones, zero, and negative ones
    h = rng.normal(0, 1e-2, n).astype(np.float16); h[0] = 0; h[1] = np.float16(6e-8); h[2] = np.float16(-0.5)
    return h.view(np.uint8).reshape(n, 2)
def blocks(q, n):
    block, size = gguf.constants.GGML_QUANT_SIZES[q]
    b = rng.integers(0, 256, (n, size), dtype=np.uint8)
    h = halves(n)
    if q == Q.Q6_K: b[:, 208:] = h
    else: b[:, :2] = h
    if q == Q.Q4_K: b[:, 2:4] = halves(n)[::-1]
    return b
for q, rows, cols in [(Q.Q8_0, 6, 64), (Q.Q4_0, 6, 64), (Q.Q4_K, 6, 512), (Q.Q6_K, 6, 512)]:
    block, size = gguf.constants.GGML_QUANT_SIZES[q]
    put(q.name.lower(), q, rows, cols, blocks(q, rows * cols // block).reshape(rows, cols // block * size))
x = rng.normal(size=(3, 5)).astype(np.float32); x[0, 0] = -0.0; x[0, 1] = 1e-42
w.add_tensor("f32", x); exp["f32"] = x
h = x.astype(np.float16); w.add_tensor("f16", h); exp["f16"] = h.astype(np.float32)
b = (x.view(np.uint32) >> 16).astype(np.uint16)
w.add_tensor("bf16", b.view(np.uint8).reshape(3, 10), raw_dtype=Q.BF16); exp["bf16"] = (b.astype(np.uint32) << 16).view(np.float32)
v = np.arange(24, dtype=np.float32).reshape(2, 3, 4); w.add_tensor("f32.cube", v); exp["f32.cube"] = v
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
from gguf import GGUFReader
r = GGUFReader(out + "/types.gguf")
for t in r.tensors:  # gguf-py reads back what it wrote
    assert np.array_equal(quants.dequantize(t.data, t.tensor_type).reshape(exp[t.name].shape).view(np.uint32), exp[t.name].view(np.uint32)), t.name
from safetensors.numpy import save_file
save_file({k: np.ascontiguousarray(v.reshape(exp[k].shape)) for k, v in exp.items()}, out + "/types.safetensors")
