"""One attention problem with random data, as a prepared call of mha: used by sweep.py and by bench/growth.py."""
import ctypes
import json
import time
from ctypes import c_size_t, c_void_p
from dataclasses import dataclass

import numpy as np

from mha._binding.abi import AttnArgs, AttnDesc, View, Window
from mha._binding.context import context
from mha._binding.library import call, lib, struct

TYPES = {"f32": 1, "bf16": 2, "f16": 3}
BYTES = {"f32": 4, "bf16": 2, "f16": 2}
VIEWS = {"f32": np.float32, "bf16": np.uint16, "f16": np.float16}
ALIGN_BOTTOM_RIGHT, KEEP, BLOCK_KEEP = 2, 1 << 0, 1 << 6
BLOCK, WINDOW = 64, 256  # rows and keys per block of the block mask; keys per row of the window
MEMORY = 1 << 27  # bytes of each operand
SAMPLE_SECONDS = 100e-6  # shorter calls are timed in groups
RANDOM = np.random.default_rng(1).random(1 << 16)  # decides which keys or blocks a mask keeps


@dataclass(frozen=True)
class Shape:
    B: int
    H: int
    Hkv: int
    Lq: int
    Lk: int
    D: int
    Dv: int
    dtype: str = "f32"
    mask: str = "none"
    kept: float = 0.5  # fraction of the blocks that the mask `blocks` keeps
    threads: int = 1

    def pairs(self):
        """Returns the number of pairs of a query and a key that the mask keeps, in one head."""
        rows = np.arange(self.Lq)
        if self.mask == "causal":
            return float(np.clip(rows + 1 + self.Lk - self.Lq, 0, self.Lk).sum())
        if self.mask == "window":
            last = rows + self.Lk - self.Lq
            return float(np.clip(np.minimum(last + 1, self.Lk) - np.maximum(last - WINDOW + 1, 0), 0, self.Lk).sum())
        if self.mask == "blocks":
            rows, keys = (np.minimum(BLOCK, size - np.arange(0, size, BLOCK)) for size in (self.Lq, self.Lk))
            return float(rows @ self.blocks() @ keys)
        return self.Lq * self.Lk

    def blocks(self):
        """Returns the block mask, which is the same for all heads."""
        rows, keys = -(-self.Lq // BLOCK), -(-self.Lk // BLOCK)
        return np.resize(RANDOM < self.kept, rows * keys).reshape(rows, keys)


class Data:
    """Memory that all shapes and types share. It contains random numbers in bf16, whose bits are also usual numbers in f16 and, in pairs, in f32."""

    def __init__(self, memory=MEMORY):
        numbers = np.random.default_rng(0).standard_normal(1 << 20, dtype=np.float32)
        halves = (numbers.view(np.uint32) >> 16).astype(np.uint16)
        operands = [np.resize(halves, memory // 2) for _ in "qkv"]
        self.inputs = {name: [x.view(VIEWS[name]) for x in operands] for name in TYPES}
        self.out = np.zeros(memory, np.uint8)


class Run:
    """A prepared call of a shape."""

    def __init__(self, shape, data):
        self.ctx, self.plan = context(shape.threads), c_void_p()
        desc, self.args = struct(AttnDesc), struct(AttnArgs)
        for name, value in zip(("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "v_head_dim"),
                               (shape.B, shape.H, shape.Hkv, shape.Lq, shape.Lk, shape.D, shape.Dv)):
            setattr(desc, name, value)
        desc.dtype = TYPES[shape.dtype]
        for name, x in zip("qkv", data.inputs[shape.dtype]):
            setattr(self.args, name, View(x.ctypes.data))
        self.args.out = View(data.out.ctypes.data)
        if shape.mask in ("keep", "blocks"):
            flag, name = (KEEP, "keep") if shape.mask == "keep" else (BLOCK_KEEP, "block_keep")
            self.mask = np.resize(RANDOM < 0.9, (shape.Lq, shape.Lk)) if shape.mask == "keep" else shape.blocks()
            desc.inputs |= flag
            setattr(self.args, name, View(self.mask.ctypes.data, (ctypes.c_int64 * 4)(0, 0, self.mask.shape[1], 1)))
            desc.block_q = desc.block_k = BLOCK if shape.mask == "blocks" else 0
        elif shape.mask != "none":
            desc.causal, desc.align = int(shape.mask == "causal"), ALIGN_BOTTOM_RIGHT
            desc.window = Window(1, WINDOW - 1, 0) if shape.mask == "window" else Window()
        call("mha_attn_plan_create", self.ctx, ctypes.byref(desc), ctypes.byref(self.plan))
        self.size = lib.mha_attn_plan_workspace(self.plan)
        self.workspace = c_void_p(lib.mha_alloc(self.ctx, max(1, self.size)))
        call("mha_attn_forward", self.plan, ctypes.byref(self.args), self.workspace, self.size)
        self.count, self.clock = 1, time.thread_time if shape.threads == 1 else time.perf_counter
        self.count = max(1, round(SAMPLE_SECONDS / max(1e-7, min(self.sample() for _ in range(2)))))

    def sample(self):
        """Returns the seconds per call of one sample."""
        forward, args, size = lib.mha_attn_forward, ctypes.byref(self.args), c_size_t(self.size)
        start = self.clock()
        for _ in range(self.count):
            forward(self.plan, args, self.workspace, size, None)
        return (self.clock() - start) / self.count

    def described(self):
        text = ctypes.create_string_buffer(8192)
        lib.mha_attn_plan_describe(self.plan, 1, text, len(text))
        return json.loads(text.value)

    def close(self):
        lib.mha_free(self.ctx, self.workspace)
        lib.mha_attn_plan_free(self.plan)
