"""The libraries that bench/compare.py measures, mha included: each is a prepared call on the same data.

Each library has a function that takes a Problem and returns a Call. It returns None if the library does not support the problem,
and raises Missing if the library is not installed. Only `run` is timed; `out` returns the result as a float32 NumPy array
[B, H, Lq, D]; `before` and `after` surround the timed calls (ggml's worker threads are paused between them).
"""
import ctypes
import re
from collections.abc import Callable
from ctypes import POINTER, c_double, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mha._binding.context import context
from mha._arrays.array import F32, array, empty_like
from mha._binding.abi import ATTN_GRADS, ATTN_LSE, AttnGrads, View
from mha._binding.library import call, lib, struct
from mha._attention.description import prepare
from mha._attention.results import output


class Missing(Exception):
    """The library named in the message is not installed."""


@dataclass(frozen=True)
class Row:
    """One row of the tables in bench/shapes.h."""
    name: str
    B: int
    H: int
    Hkv: int
    Lq: int
    Lk: int
    D: int
    causal: bool
    training: bool = False  # forward and backward pass

    @property
    def flops(self):
        forward = 4 * self.B * self.H * self.Lq * self.Lk * self.D / (2 if self.causal else 1)
        return 3.5 * forward if self.training else forward

    @property
    def reads(self):
        """True if reads of K and V are the bottleneck, as for a single query."""
        return self.Lq == 1

    def bytes(self, dtype):
        return 2 * self.B * self.Hkv * self.Lk * self.D * (4 if dtype == "f32" else 2)


def rows():
    text = Path(__file__).with_name("shapes.h").read_text(encoding="utf-8")
    found = []
    for training, table in enumerate(text.split("#define BENCH_TRAINING_ROWS")):
        for name, values in re.findall(r'X\("([\w-]+)", ([\d, ]+)\)', table):
            *sizes, causal = map(int, values.split(","))
            found.append(Row(name, *sizes, causal=bool(causal), training=bool(training)))
    return found


@dataclass
class Call:
    run: Callable
    out: Callable
    before: Callable = lambda: None
    after: Callable = lambda: None


def _aligned(x):
    """Returns a copy of x that begins on a cache line, as the tensors of all libraries do; large arrays of NumPy begin 16 bytes
    after one."""
    memory = np.empty(x.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    aligned = memory[start:start + x.nbytes].view(x.dtype).reshape(x.shape)
    aligned[...] = x
    return aligned


class Problem:
    """The data of a row: q, k, v as f32 arrays whose elements the 16-bit type in use represents exactly."""

    def __init__(self, row, dtype, threads, ggml=None):
        self.row, self.dtype, self.threads, self.ggml = row, dtype, threads, ggml
        rng = np.random.default_rng(row.H * row.Lk)
        both = _aligned(rng.standard_normal((2, row.B, row.Hkv, row.Lk, row.D), dtype=np.float32))  # one allocation, so that `limit` can read it
        self.q = _aligned(rng.standard_normal((row.B, row.H, row.Lq, row.D), dtype=np.float32))
        if dtype == "bf16":
            for x in (self.q, both):
                x.view(np.uint32)[...] &= np.uint32(0xFFFF0000)
        elif dtype == "f16":
            self.q, both = (_aligned(x.astype(np.float16).astype(np.float32)) for x in (self.q, both))
        self.kv, self.k, self.v = both, both[0], both[1]
        self.dout = np.round(rng.standard_normal(self.q.shape, dtype=np.float32) * 16) / 16 if row.training else None

    def stored(self, x):
        """Returns x in the type of the problem: a NumPy array, or a tensor for bf16, which NumPy lacks. The tensor is in
        memory of NumPy, which requests huge pages for large arrays; PyTorch does not."""
        if self.dtype == "bf16":
            torch = _torch()
            memory = torch.from_numpy(_aligned(np.zeros(x.shape, np.int16)))
            return memory.view(torch.bfloat16).copy_(torch.from_numpy(x))
        return x if self.dtype == "f32" else _aligned(x.astype(np.float16))


# ---- mha ----


def _align(row):
    return {"causal": True, "align": "top_left"} if row.causal else {}


def mha(problem):
    """Creates plan and workspace once; each run is one ctypes call of mha_attn_forward (overhead about 1 us)."""
    row, ctx = problem.row, context(problem.threads)
    q, k, v = (problem.stored(x) for x in (problem.q, problem.k, problem.v))
    c = prepare(q, k, v, **_align(row))
    out = output(c, q, 0, "out", c.desc.dtype, (row.B, row.H, row.Lq, row.D))
    if row.training:
        return _mha_training(problem, c, q, k, v, out)
    plan = c_void_p()
    call("mha_attn_plan_create", ctx, ctypes.byref(c.desc), ctypes.byref(plan))
    size = lib.mha_attn_plan_workspace(plan)
    workspace, args = c_void_p(lib.mha_alloc(ctx, size)), ctypes.byref(c.args)
    call("mha_attn_forward", plan, args, workspace, size)
    forward, space = lib.mha_attn_forward, c_size_t(size)
    # `c` owns the memory of the arguments; plan and workspace are never freed.
    return Call(lambda _alive=c: forward(plan, args, workspace, space, None), lambda: _wide(out))


def _mha_training(problem, c, q, k, v, out):
    row, ctx, plan, grads = problem.row, context(problem.threads), c_void_p(), struct(AttnGrads)
    dout = problem.stored(problem.dout)
    lse = output(c, q, ATTN_LSE, "lse", F32, (row.B, row.H, row.Lq))
    results = [empty_like(q, c.desc.dtype, x.shape) for x in (q, k, v)]
    c.desc.outputs |= ATTN_GRADS
    for name, x in zip(("dout", "out", "lse", "dq", "dk", "dv"), (dout, out, lse, *results)):
        setattr(grads, name, View(array(x, name).data))
    call("mha_attn_plan_create", ctx, ctypes.byref(c.desc), ctypes.byref(plan))
    size = lib.mha_attn_plan_workspace(plan)
    workspace, args, wanted = c_void_p(lib.mha_alloc(ctx, size)), ctypes.byref(c.args), ctypes.byref(grads)

    def run(_alive=(c, grads, dout)):
        lib.mha_attn_forward(plan, args, workspace, c_size_t(size), None)
        lib.mha_attn_backward(plan, args, wanted, workspace, c_size_t(size), None)

    run()
    return Call(run, lambda: np.stack([_wide(x) for x in (out, *results)]))


def limit(problem):
    """Returns the machine's limit for the number of threads in the problem: operations per second, or bytes per second."""
    rate, ctx = c_double(), context(problem.threads)
    if problem.row.reads:
        count = problem.row.bytes(problem.dtype)  # the number of bytes that the row reads
        call("mha_machine_peak_read", ctx, problem.kv.ctypes.data, count, ctypes.byref(rate))
    else:
        call("mha_machine_peak_fma", ctx, ctypes.byref(rate))
    return rate.value


def _wide(x):
    return x.astype(np.float32) if isinstance(x, np.ndarray) else x.float().numpy()


# ---- PyTorch ----

def _torch():
    try:
        import torch
    except ImportError:
        raise Missing("PyTorch") from None
    return torch


def _tensors(problem):
    torch = _torch()
    torch.set_num_threads(problem.threads)
    kind = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[problem.dtype]
    return torch, [torch.from_numpy(x).to(kind) for x in (problem.q, problem.k, problem.v)]


def torch_sdpa(problem):
    torch, (q, k, v) = _tensors(problem)
    row, f = problem.row, torch.nn.functional.scaled_dot_product_attention
    if row.training:
        return _torch_training(torch, problem, [x.requires_grad_() for x in (q, k, v)], f)
    extra = {"enable_gqa": True} if row.H != row.Hkv else {}
    return Call(lambda: f(q, k, v, is_causal=row.causal, **extra), lambda: _wide(f(q, k, v, is_causal=row.causal, **extra)))


def _torch_training(torch, problem, leaves, f):
    dout = torch.from_numpy(problem.dout).to(leaves[0].dtype)

    def run():
        out = f(*leaves, is_causal=problem.row.causal)
        return out.detach(), *torch.autograd.grad(out, leaves, dout)

    return Call(run, lambda: np.stack([_wide(x) for x in run()]))


def torch_folded(problem):
    """Runs grouped-query decode in the form that is fastest in PyTorch: the query heads of a group become rows of one head."""
    row = problem.row
    if row.Lq != 1 or row.H == row.Hkv:
        return None
    torch, (q, k, v) = _tensors(problem)
    q, f = q.view(row.B, row.Hkv, row.H // row.Hkv, row.D), torch.nn.functional.scaled_dot_product_attention
    return Call(lambda: f(q, k, v), lambda: _wide(f(q, k, v)).reshape(row.B, row.H, 1, row.D))


# ---- ONNX Runtime ----

def _rows_of_heads(x):
    """Converts [B, H, L, D] to [B, L, H D], the layout of ONNX Runtime's operators."""
    B, H, L, D = x.shape
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(B, L, H * D)


def _session(problem, op, inputs, outputs, **attributes):
    """Returns a function that runs a session of one node; inputs {name: OrtValue, or None if absent}, outputs {name: OrtValue}."""
    try:
        import onnx
        import onnxruntime as ort
    except ImportError as error:
        raise Missing(f"ONNX Runtime ({error.name})") from None
    types = {"tensor(float)": onnx.TensorProto.FLOAT, "tensor(int32)": onnx.TensorProto.INT32}

    def info(name, value):
        return onnx.helper.make_tensor_value_info(name, types[value.data_type()], value.shape())

    node = onnx.helper.make_node(op, [n if v else "" for n, v in inputs.items()], list(outputs), domain="com.microsoft",
                                 **attributes)
    given = {n: v for n, v in inputs.items() if v}
    graph = onnx.helper.make_graph([node], "g", [info(*x) for x in given.items()], [info(*x) for x in outputs.items()])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17),
                                                         onnx.helper.make_opsetid("com.microsoft", 1)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = problem.threads, 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for n, v in given.items():
        binding.bind_ortvalue_input(n, v)
    for n, v in outputs.items():
        binding.bind_ortvalue_output(n, v)
    return lambda: session.run_with_iobinding(binding)


def _ort_value(x):
    try:
        import onnxruntime as ort
    except ImportError:
        raise Missing("ONNX Runtime") from None
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(x))


def _ort_call(problem, run, out):
    row = problem.row
    return Call(run, lambda: out.numpy().reshape(row.B, row.Lq, row.H, row.D).transpose(0, 2, 1, 3))


def onnxruntime_mha(problem):
    row = problem.row
    if problem.dtype != "f32" or row.H != row.Hkv or row.training:
        return None
    q, k, v = (_ort_value(_rows_of_heads(x)) for x in (problem.q, problem.k, problem.v))
    out = _ort_value(np.empty((row.B, row.Lq, row.H * row.D), np.float32))
    run = _session(problem, "MultiHeadAttention", {"query": q, "key": k, "value": v}, {"output": out}, num_heads=row.H,
                   unidirectional=int(row.causal))
    return _ort_call(problem, run, out)


def onnxruntime_gqa(problem):
    """Runs GroupQueryAttention, which is always causal. The cache is bound as past and as present, so the last Lq keys are written in place (with
    the values that they already have) and nothing is copied."""
    row = problem.row
    if problem.dtype != "f32" or not (row.causal or row.Lq == 1) or row.training:
        return None
    q, k, v = (_ort_value(_rows_of_heads(x[:, :, -row.Lq:])) for x in (problem.q, problem.k, problem.v))
    past_k, past_v = _ort_value(problem.k), _ort_value(problem.v)
    last = _ort_value(np.full(row.B, row.Lk - 1, np.int32))
    out = _ort_value(np.empty((row.B, row.Lq, row.H * row.D), np.float32))
    run = _session(problem, "GroupQueryAttention",
                   {"query": q, "key": k, "value": v, "past_key": past_k, "past_value": past_v, "seqlens_k": last,
                    "total_sequence_length": _ort_value(np.array([row.Lk], np.int32))},
                   {"output": out, "present_key": past_k, "present_value": past_v}, num_heads=row.H, kv_num_heads=row.Hkv)
    return _ort_call(problem, run, out)


# ---- ggml ----

class _GgmlProblem(ctypes.Structure):
    """The struct peer_problem of bench/llama/ggml_peer.c."""
    _fields_ = [(n, c_int64) for n in ("B", "H", "Hkv", "Lq", "Lk", "D")] + [(n, c_int) for n in ("causal", "half", "threads")]


def ggml(problem):
    """Runs ggml's flash attention. K and V are stored in f16 if the problem has a 16-bit type; Q is always f32."""
    if not problem.ggml:
        raise Missing("ggml (see bench/llama/build.sh)")
    row, half = problem.row, problem.dtype != "f32"
    if row.training:
        return None
    peer = ctypes.CDLL(problem.ggml)
    peer.peer_open.restype, peer.peer_open.argtypes = c_void_p, [POINTER(_GgmlProblem)] + [c_void_p] * 5
    for name in ("run", "pause", "resume"):
        getattr(peer, f"peer_{name}").argtypes = [c_void_p]
    k, v = (x.astype(np.float16) if half else x for x in (problem.k, problem.v))
    mask = np.triu(np.full((row.Lq, row.Lk), -np.inf, np.float16), 1) if row.causal else None
    out = np.empty((row.B, row.Lq, row.H, row.D), np.float32)
    sizes = _GgmlProblem(row.B, row.H, row.Hkv, row.Lq, row.Lk, row.D, row.causal, half, problem.threads)
    alive = (problem.q, k, v, mask, out)
    handle = peer.peer_open(ctypes.byref(sizes), *(None if x is None else x.ctypes.data for x in alive))
    if not handle:
        raise MemoryError("ggml: peer_open failed")
    handle, run = c_void_p(handle), peer.peer_run
    workers = problem.threads > 1
    return Call(lambda _alive=alive: run(handle), lambda: out.transpose(0, 2, 1, 3),
                before=lambda: workers and peer.peer_resume(handle), after=lambda: workers and peer.peer_pause(handle))


PEERS = {"torch": torch_sdpa, "torch folded": torch_folded, "onnxruntime MHA": onnxruntime_mha,
         "onnxruntime GQA": onnxruntime_gqa, "ggml": ggml}
