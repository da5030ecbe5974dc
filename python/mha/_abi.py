"""The public headers as ctypes. Written by tools/make_binding.py: do not edit.

Names are those of the headers without the prefix; structs are in CamelCase."""
# ruff: noqa: I001
from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

_Bytes = bytes  # a field may have the name
IGNORE = -100
VERSION_MAJOR = 0
VERSION_MINOR = 1
VERSION_PATCH = 0
OK = 0
ERR_ARG = 1
ERR_MEMORY = 2
ERR_UNSUPPORTED = 3
ERR_IO = 4
ERR_FORMAT = 5
ERR_CANCELLED = 6
ERR_NOT_FINITE = 7
DTYPE_DEFAULT = 0
F32 = 1
BF16 = 2
F16 = 3
F64 = 4
Q8_0 = 5
BOOL = 6
U8 = 7
I8 = 8
U16 = 9
I16 = 10
U32 = 11
I32 = 12
U64 = 13
I64 = 14
DTYPE_OTHER = 15
ALIGN_UNSET = 0
ALIGN_TOP_LEFT = 1
ALIGN_BOTTOM_RIGHT = 2
ALIGN_OFFSETS = 3
SCORES_RAW = 0
SCORES_SOFTCAPPED = 1
SCORES_BIASED = 2
SCORES_PROBS = 3
ATTN_KEEP = 1
ATTN_BIAS = 2
ATTN_Q_LENS = 4
ATTN_KV_LENS = 8
ATTN_CU_SEQLENS = 16
ATTN_PREFIX_LENS = 32
ATTN_BLOCK_KEEP = 64
ATTN_BLOCK_TABLE = 128
ATTN_SLOPES = 256
ATTN_SINKS = 512
ATTN_GATES = 1024
ATTN_HEAD_LIST = 2048
ATTN_DROPOUT_KEEP = 4096
ATTN_MAP_HEADS = 8192
ATTN_MAP_ROWS = 16384
ATTN_LSE = 1
ATTN_PROBS = 2
ATTN_STATS = 4
ATTN_SCORES = 8
ATTN_GRADS = 16
ATTN_ROWS = 32
ATTN_PARTIAL = 64
HEAD_DIM_MAX = 1024
ATTN_CHUNK = 1024
CACHE_ALL = -1
CACHE_TENSORS = 4
ROPE_DEFAULT = 0
ROPE_LINEAR = 1
ROPE_DYNAMIC = 2
ROPE_LLAMA3 = 3
ROPE_YARN = 4
ROPE_LONGROPE = 5
RNG_VECTOR = 0
RNG_SCALAR = 1
RNG_ROUTE_DEFAULT = 0
RNG_ROUTE_MKL = 1
STEP_Q = 0
STEP_K = 1
STEP_V = 2
STEP_SCORES = 3
STEP_WEIGHTS = 4
STEP_CONTEXT = 5
STEP_MIXED = 6
STEP_LOGITS = 7
STEP_GATES = 8
SCALE_HEAD_DIM = 0
SCALE_D_OUT = 1
SELECTION_HARD = 0
SELECTION_SOFT = 1
SELECTION_STRAIGHT_THROUGH = 2
EXPERT_PROJECT = 0
EXPERT_SLOT = 1
EXPERT_PLAIN = 2
HEAD_OPTIONS = 16
ACT_NONE = 0
ACT_GELU = 1
ACT_GELU_TANH = 2
ACT_RELU = 3
ACT_TANH = 4
ACT_SILU = 5
ACT_QUICK_GELU = 6
ACT_SIGMOID = 7
ACT_SOFTPLUS = 8
NORM_LAYER = 0
NORM_RMS = 1
CHOICE_NONE = 0
CHOICE_EXPERTS = 1
CHOICE_HEADS = 2
CHOICE_OPTIONS = 3
TOKENIZER_BPE = 0
TOKENIZER_WORDPIECE = 1
POOL_MEAN = 0
POOL_CLS = 1
END_LENGTH = 0
END_EOS = 1
END_STOP = 2
END_CALLER = 3
DECAY_MATRICES = 0
DECAY_DENSE = 1
DECAY_ALL = 2
GATES_NONE = 0
GATES_L0 = 1
GATES_L1 = 2
HEAD_ENTROPY = 0
HEAD_ENTROPY_NORM = 1
HEAD_ENTROPY_CONTENT = 2
HEAD_DISTANCE = 3
HEAD_DISTANCE_CONTENT = 4
HEAD_OFFSET = 5
HEAD_CONFIDENCE = 6
HEAD_CONFIDENCE_CONTENT = 7
HEAD_CONFIDENCE_NOSPECIAL = 8
HEAD_SINK = 9
HEAD_FIRST = 10
HEAD_SEP = 11
HEAD_PREV = 12
HEAD_NEXT = 13
HEAD_SELF = 14
HEAD_PUNCT = 15
HEAD_FIRST_ARGMAX = 16
HEAD_PREV_ARGMAX = 17
HEAD_NEXT_ARGMAX = 18
HEAD_SELF_ARGMAX = 19
HEAD_WINDOW2 = 20
HEAD_BLOCK = 21
HEAD_BROAD = 22
HEAD_VERTICAL = 23
HEAD_TOEPLITZ = 24
HEAD_DUP_PROBE = 25
HEAD_INDUCTION_PROBE = 26
HEAD_METRICS = 27
LABEL_INDUCTION = 0
LABEL_DUPLICATE = 1
LABEL_PREV = 2
LABEL_NEXT = 3
LABEL_SELF = 4
LABEL_FIRST = 5
LABEL_SEP = 6
LABEL_PUNCT = 7
LABEL_LOCAL = 8
LABEL_BLOCK = 9
LABEL_BROAD = 10
LABEL_VERTICAL = 11
LABEL_MIXED = 12
HEAD_LABELS = 13
TOKEN_SPECIAL = 1
TOKEN_SEP = 2
TOKEN_PUNCT = 4
IMPORTANCE_GATE = 0
IMPORTANCE_GATE_BATCH = 1
IMPORTANCE_GATE_LAYER_L2 = 2
IMPORTANCE_TAYLOR_TOKEN = 3
IMPORTANCE_TAYLOR_ELEM = 4
IMPORTANCE_GRADMAG = 5
IMPORTANCE_JACOBIAN = 6
IMPORTANCE_JACOBIAN_PROBE = 7
IMPORTANCE_LOO = 8
IMPORTANCE_LOO_LOSS = 9
IMPORTANCE_LOO_MEAN = 10
IMPORTANCE_LOO_MEAN_LOSS = 11
IMPORTANCE_CONFIDENCE = 12
IMPORTANCE_CONFIDENCE_NOSPECIAL = 13
IMPORTANCE_OV_NORM = 14
IMPORTANCE_QK_NORM = 15
IMPORTANCE_SCORES = 16
LOSS_AUTO = 0
LOSS_NONE = 1
LOSS_LM = 2
LOSS_MLM = 3
LOSS_PAIRS = 4
DIVERSITY_COSINE = 0
DIVERSITY_COSINE_CENTRED = 1
DIVERSITY_JS = 2
DIVERSITY_JS_CLARK = 3
DIVERSITY_CKA = 4
DIVERSITY_SUBSPACE = 5
DIVERSITY_UNIQUE = 6
DIVERSITIES = 7
REGROUP_CLOSED = 0
REGROUP_MEAN = 1
REGROUP_VALUES = 2
REGROUP_METHODS = 3
PLAN_MHA = 0
PLAN_PRUNED = 1
PLAN_DYNAMIC = 2
PLAN_GQA = 3
PLAN_MQA = 4
PLAN_MOE = 5
PLAN_ADAPTIVE = 6
PLAN_VARIANTS = 7
PLAN_LAYOUTS = 36


class Error(ctypes.Structure):
    status: int
    message: _Bytes
    _fields_ = [
        ("status", c_int),
        ("message", c_char * 1024),
    ]


class View(ctypes.Structure):
    data: int | None
    stride: ctypes.Array[c_int64]
    _fields_ = [
        ("data", c_void_p),
        ("stride", c_int64 * 4),
    ]


class NamedTensor(ctypes.Structure):
    name: _Bytes | None
    dtype: int
    rank: int
    shape: ctypes.Array[c_int64]
    data: int | None
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int),
        ("rank", c_int),
        ("shape", c_int64 * 4),
        ("data", c_void_p),
    ]


class Allocator(ctypes.Structure):
    alloc: Any
    free: Any
    user: int | None
    _fields_ = [
        ("alloc", CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)),
        ("free", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("user", c_void_p),
    ]

LogFn = CFUNCTYPE(None, c_void_p, c_int, c_char_p)

ProgressFn = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int64, c_int64)

BetweenTilesFn = CFUNCTYPE(c_int, c_void_p, c_int64, c_int64)

ParallelForFn = CFUNCTYPE(None, c_void_p, c_int64, CFUNCTYPE(None, c_void_p, c_int64, c_int), c_void_p)


class CtxOptions(ctypes.Structure):
    size: int
    threads: int
    isa: _Bytes | None
    allocator: Allocator
    log: Any
    log_user: int | None
    progress: Any
    progress_user: int | None
    parallel_for: Any
    parallel_for_user: int | None
    between_tiles: Any
    between_tiles_user: int | None
    _fields_ = [
        ("size", c_size_t),
        ("threads", c_int),
        ("isa", c_char_p),
        ("allocator", Allocator),
        ("log", LogFn),
        ("log_user", c_void_p),
        ("progress", ProgressFn),
        ("progress_user", c_void_p),
        ("parallel_for", ParallelForFn),
        ("parallel_for_user", c_void_p),
        ("between_tiles", BetweenTilesFn),
        ("between_tiles_user", c_void_p),
    ]


class AttnStats(ctypes.Structure):
    size: int
    row_entropy: View
    row_max: View
    row_argmax: View
    row_distance: View
    received: View
    top_prob: View
    top_key: View
    _fields_ = [
        ("size", c_size_t),
        ("row_entropy", View),
        ("row_max", View),
        ("row_argmax", View),
        ("row_distance", View),
        ("received", View),
        ("top_prob", View),
        ("top_key", View),
    ]


class AttnRows(ctypes.Structure):
    sequence: int
    head: int
    first: int
    count: int
    keys: int
    stride: int
    p: int | None
    entropy: int | None
    largest: int | None
    distance: int | None
    largest_key: int | None
    _fields_ = [
        ("sequence", c_int64),
        ("head", c_int64),
        ("first", c_int64),
        ("count", c_int64),
        ("keys", c_int64),
        ("stride", c_int64),
        ("p", c_void_p),
        ("entropy", c_void_p),
        ("largest", c_void_p),
        ("distance", c_void_p),
        ("largest_key", c_void_p),
    ]


class AttnVisitor(ctypes.Structure):
    rows: Any
    user: int | None
    _fields_ = [
        ("rows", CFUNCTYPE(None, c_void_p, POINTER(AttnRows))),
        ("user", c_void_p),
    ]


class Window(ctypes.Structure):
    on: int
    left: int
    right: int
    _fields_ = [
        ("on", c_int),
        ("left", c_int64),
        ("right", c_int64),
    ]


class Shard(ctypes.Structure):
    batch: int
    head: int
    row: int
    key: int
    _fields_ = [
        ("batch", c_int64),
        ("head", c_int64),
        ("row", c_int64),
        ("key", c_int64),
    ]


class AttnDesc(ctypes.Structure):
    size: int
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    v_head_dim: int
    dtype: int
    kv_dtype: int
    bias_dtype: int
    scale: float
    softcap: float
    causal: int
    align: int
    window: Window
    max_q_len: int
    max_kv_len: int
    keep_keys: int
    block_q: int
    block_k: int
    page_size: int
    pages: int
    listed_heads: int
    map_heads: int
    map_rows: int
    top_keys: int
    dropout: float
    scores: int
    inputs: int
    outputs: int
    shard: Shard
    _fields_ = [
        ("size", c_size_t),
        ("batch", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("q_len", c_int64),
        ("kv_len", c_int64),
        ("head_dim", c_int64),
        ("v_head_dim", c_int64),
        ("dtype", c_int),
        ("kv_dtype", c_int),
        ("bias_dtype", c_int),
        ("scale", c_double),
        ("softcap", c_double),
        ("causal", c_int),
        ("align", c_int),
        ("window", Window),
        ("max_q_len", c_int64),
        ("max_kv_len", c_int64),
        ("keep_keys", c_int64),
        ("block_q", c_int64),
        ("block_k", c_int64),
        ("page_size", c_int64),
        ("pages", c_int64),
        ("listed_heads", c_int64),
        ("map_heads", c_int64),
        ("map_rows", c_int64),
        ("top_keys", c_int64),
        ("dropout", c_double),
        ("scores", c_int),
        ("inputs", c_uint32),
        ("outputs", c_uint32),
        ("shard", Shard),
    ]


class AttnArgs(ctypes.Structure):
    size: int
    q: View
    k: View
    v: View
    out: View
    keep: View
    bias: View
    q_lens: int | None
    kv_lens: int | None
    offsets: int | None
    cu_seqlens_q: int | None
    cu_seqlens_k: int | None
    prefix_lens: int | None
    block_keep: View
    block_table: View
    slopes: View
    sinks: View
    gates: View
    head_list: int | None
    dropout_keep: View
    dropout_seed: int
    map_heads: int | None
    map_rows: View
    lse: View
    probs: View
    scores: View
    stats: ctypes._Pointer[AttnStats]
    on_rows: AttnVisitor
    partial: View
    _fields_ = [
        ("size", c_size_t),
        ("q", View),
        ("k", View),
        ("v", View),
        ("out", View),
        ("keep", View),
        ("bias", View),
        ("q_lens", c_void_p),
        ("kv_lens", c_void_p),
        ("offsets", c_void_p),
        ("cu_seqlens_q", c_void_p),
        ("cu_seqlens_k", c_void_p),
        ("prefix_lens", c_void_p),
        ("block_keep", View),
        ("block_table", View),
        ("slopes", View),
        ("sinks", View),
        ("gates", View),
        ("head_list", c_void_p),
        ("dropout_keep", View),
        ("dropout_seed", c_uint64),
        ("map_heads", c_void_p),
        ("map_rows", View),
        ("lse", View),
        ("probs", View),
        ("scores", View),
        ("stats", POINTER(AttnStats)),
        ("on_rows", AttnVisitor),
        ("partial", View),
    ]


class AttnPart(ctypes.Structure):
    out: View
    lse: View
    _fields_ = [
        ("out", View),
        ("lse", View),
    ]


class AttnMergeArgs(ctypes.Structure):
    size: int
    batch: int
    heads: int
    q_len: int
    v_head_dim: int
    dtype: int
    count: int
    parts: ctypes._Pointer[AttnPart]
    out: View
    lse: View
    _fields_ = [
        ("size", c_size_t),
        ("batch", c_int64),
        ("heads", c_int64),
        ("q_len", c_int64),
        ("v_head_dim", c_int64),
        ("dtype", c_int),
        ("count", c_int64),
        ("parts", POINTER(AttnPart)),
        ("out", View),
        ("lse", View),
    ]


class AttnPartial(ctypes.Structure):
    rows: View
    key: int
    kv_len: int
    _fields_ = [
        ("rows", View),
        ("key", c_int64),
        ("kv_len", c_int64),
    ]


class AttnMergePartialsArgs(ctypes.Structure):
    size: int
    batch: int
    heads: int
    q_len: int
    v_head_dim: int
    dtype: int
    count: int
    parts: ctypes._Pointer[AttnPartial]
    sinks: View
    gates: View
    out: View
    lse: View
    partial: View
    _fields_ = [
        ("size", c_size_t),
        ("batch", c_int64),
        ("heads", c_int64),
        ("q_len", c_int64),
        ("v_head_dim", c_int64),
        ("dtype", c_int),
        ("count", c_int64),
        ("parts", POINTER(AttnPartial)),
        ("sinks", View),
        ("gates", View),
        ("out", View),
        ("lse", View),
        ("partial", View),
    ]


class AttnGrads(ctypes.Structure):
    size: int
    dout: View
    out: View
    lse: View
    dlse: View
    dq: View
    dk: View
    dv: View
    dbias: View
    dslopes: View
    dsinks: View
    dgates: View
    row_taylor: View
    _fields_ = [
        ("size", c_size_t),
        ("dout", View),
        ("out", View),
        ("lse", View),
        ("dlse", View),
        ("dq", View),
        ("dk", View),
        ("dv", View),
        ("dbias", View),
        ("dslopes", View),
        ("dsinks", View),
        ("dgates", View),
        ("row_taylor", View),
    ]


class CacheDesc(ctypes.Structure):
    size: int
    batch: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    dtype: int
    page_size: int
    capacity: int
    window: int
    keep_first: int
    _fields_ = [
        ("size", c_size_t),
        ("batch", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("v_head_dim", c_int64),
        ("dtype", c_int),
        ("page_size", c_int64),
        ("capacity", c_int64),
        ("window", c_int64),
        ("keep_first", c_int64),
    ]


class CacheTokens(ctypes.Structure):
    size: int
    count: int
    counts: int | None
    dtype: int
    k: View
    v: View
    _fields_ = [
        ("size", c_size_t),
        ("count", c_int64),
        ("counts", c_void_p),
        ("dtype", c_int),
        ("k", View),
        ("v", View),
    ]


class RopeOptions(ctypes.Structure):
    size: int
    head_dim: int
    rotary_dim: int
    interleaved: int
    theta: float
    kind: int
    factor: float
    max_positions: int
    original_positions: int
    low_freq: float
    high_freq: float
    beta_fast: float
    beta_slow: float
    no_truncate: int
    gain: float
    mscale: float
    mscale_all: float
    short_by: int | None
    long_by: int | None
    _fields_ = [
        ("size", c_size_t),
        ("head_dim", c_int64),
        ("rotary_dim", c_int64),
        ("interleaved", c_int),
        ("theta", c_double),
        ("kind", c_int),
        ("factor", c_double),
        ("max_positions", c_int64),
        ("original_positions", c_int64),
        ("low_freq", c_double),
        ("high_freq", c_double),
        ("beta_fast", c_double),
        ("beta_slow", c_double),
        ("no_truncate", c_int),
        ("gain", c_double),
        ("mscale", c_double),
        ("mscale_all", c_double),
        ("short_by", c_void_p),
        ("long_by", c_void_p),
    ]


class Rng(ctypes.Structure):
    state: ctypes.Array[c_uint32]
    used: int
    has_spare: int
    spare: float
    kernels: int
    _fields_ = [
        ("state", c_uint32 * 624),
        ("used", c_int32),
        ("has_spare", c_int32),
        ("spare", c_double),
        ("kernels", c_int),
    ]


class Mask(ctypes.Structure):
    data: int | None
    rank: int
    shape: ctypes.Array[c_int64]
    _fields_ = [
        ("data", c_void_p),
        ("rank", c_int),
        ("shape", c_int64 * 4),
    ]


class VariantInput(ctypes.Structure):
    size: int
    batch: int
    q_len: int
    kv_len: int
    query: int | None
    key: int | None
    value: int | None
    keep: Mask
    additive: Mask
    blocked: Mask
    positions: int | None
    past_len: int
    past_key: int | None
    past_value: int | None
    training: int
    dropout_keep: int | None
    rng: ctypes._Pointer[Rng]
    dropout_seed: int
    want_weights: int
    want_scores: int
    score_stage: int
    _fields_ = [
        ("size", c_size_t),
        ("batch", c_int64),
        ("q_len", c_int64),
        ("kv_len", c_int64),
        ("query", c_void_p),
        ("key", c_void_p),
        ("value", c_void_p),
        ("keep", Mask),
        ("additive", Mask),
        ("blocked", Mask),
        ("positions", c_void_p),
        ("past_len", c_int64),
        ("past_key", c_void_p),
        ("past_value", c_void_p),
        ("training", c_int),
        ("dropout_keep", c_void_p),
        ("rng", POINTER(Rng)),
        ("dropout_seed", c_uint64),
        ("want_weights", c_int),
        ("want_scores", c_int),
        ("score_stage", c_int),
    ]


class StepView(ctypes.Structure):
    data: int | None
    rank: int
    shape: ctypes.Array[c_int64]
    stride: ctypes.Array[c_int64]
    _fields_ = [
        ("data", c_void_p),
        ("rank", c_int),
        ("shape", c_int64 * 4),
        ("stride", c_int64 * 4),
    ]


class VariantGradient(ctypes.Structure):
    size: int
    output: int | None
    query: int | None
    key: int | None
    value: int | None
    past_key: int | None
    past_value: int | None
    _fields_ = [
        ("size", c_size_t),
        ("output", c_void_p),
        ("query", c_void_p),
        ("key", c_void_p),
        ("value", c_void_p),
        ("past_key", c_void_p),
        ("past_value", c_void_p),
    ]


class SelfAttentionOptions(ctypes.Structure):
    size: int
    dtype: int
    d_in: int
    d_out: int
    qkv_bias: int
    plain_matrices: int
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("d_in", c_int64),
        ("d_out", c_int64),
        ("qkv_bias", c_int),
        ("plain_matrices", c_int),
    ]


class CausalAttentionOptions(ctypes.Structure):
    size: int
    dtype: int
    d_in: int
    d_out: int
    context_length: int
    dropout: float
    qkv_bias: int
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("d_in", c_int64),
        ("d_out", c_int64),
        ("context_length", c_int64),
        ("dropout", c_double),
        ("qkv_bias", c_int),
    ]


class StackedHeadsOptions(ctypes.Structure):
    size: int
    dtype: int
    d_in: int
    d_out: int
    num_heads: int
    context_length: int
    dropout: float
    qkv_bias: int
    plain_matrices: int
    scale_rule: int
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("d_in", c_int64),
        ("d_out", c_int64),
        ("num_heads", c_int64),
        ("context_length", c_int64),
        ("dropout", c_double),
        ("qkv_bias", c_int),
        ("plain_matrices", c_int),
        ("scale_rule", c_int),
    ]


class WeightSplitOptions(ctypes.Structure):
    size: int
    dtype: int
    d_in: int
    d_out: int
    num_heads: int
    context_length: int
    dropout: float
    qkv_bias: int
    scale_rule: int
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("d_in", c_int64),
        ("d_out", c_int64),
        ("num_heads", c_int64),
        ("context_length", c_int64),
        ("dropout", c_double),
        ("qkv_bias", c_int),
        ("scale_rule", c_int),
    ]


class QkvAttentionOptions(ctypes.Structure):
    size: int
    dtype: int
    input_dim: int
    num_heads: int
    output_dim: int
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("input_dim", c_int64),
        ("num_heads", c_int64),
        ("output_dim", c_int64),
    ]


class StandardMhaOptions(ctypes.Structure):
    size: int
    dtype: int
    d_model: int
    num_heads: int
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("d_model", c_int64),
        ("num_heads", c_int64),
    ]


class GroupedQueryOptions(ctypes.Structure):
    size: int
    dtype: int
    d_model: int
    num_heads: int
    num_kv_heads: int
    kv_groups: int
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("d_model", c_int64),
        ("num_heads", c_int64),
        ("num_kv_heads", c_int64),
        ("kv_groups", c_int64),
    ]


class LlamaAttentionOptions(ctypes.Structure):
    size: int
    dtype: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    context_length: int
    causal: int
    rotary: int
    rope: RopeOptions
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("hidden_size", c_int64),
        ("num_heads", c_int64),
        ("num_kv_heads", c_int64),
        ("context_length", c_int64),
        ("causal", c_int),
        ("rotary", c_int),
        ("rope", RopeOptions),
    ]


class MoeHeadsOptions(ctypes.Structure):
    size: int
    dtype: int
    d_model: int
    num_heads: int
    num_experts: int
    top_k: int
    expert_output: int
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("d_model", c_int64),
        ("num_heads", c_int64),
        ("num_experts", c_int64),
        ("top_k", c_int64),
        ("expert_output", c_int),
    ]


class HeadPruningOptions(ctypes.Structure):
    size: int
    dtype: int
    d_model: int
    num_heads: int
    prune_ratio: float
    selection: int
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("d_model", c_int64),
        ("num_heads", c_int64),
        ("prune_ratio", c_double),
        ("selection", c_int),
    ]


class AdaptiveHeadsOptions(ctypes.Structure):
    size: int
    dtype: int
    d_model: int
    head_options: int | None
    head_option_count: int
    predictor_width: int
    selection: int
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("d_model", c_int64),
        ("head_options", c_void_p),
        ("head_option_count", c_int64),
        ("predictor_width", c_int64),
        ("selection", c_int),
    ]


class Matrix(ctypes.Structure):
    weight: int | None
    bias: int | None
    transposed: int
    out: int
    packed: int
    _fields_ = [
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("transposed", c_int),
        ("out", c_int64),
        ("packed", c_int),
    ]


class LinearGradient(ctypes.Structure):
    size: int
    rows: int
    in_: int
    matrix: Matrix
    x: int | None
    dy: int | None
    dx: int | None
    dweight: int | None
    dbias: int | None
    _fields_ = [
        ("size", c_size_t),
        ("rows", c_int64),
        ("in_", c_int64),
        ("matrix", Matrix),
        ("x", c_void_p),
        ("dy", c_void_p),
        ("dx", c_void_p),
        ("dweight", c_void_p),
        ("dbias", c_void_p),
    ]


class Norm(ctypes.Structure):
    weight: int | None
    bias: int | None
    eps: float
    kind: int
    _fields_ = [
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("eps", c_double),
        ("kind", c_int),
    ]


class NormGradient(ctypes.Structure):
    size: int
    rows: int
    width: int
    x: int | None
    dy: int | None
    dx: int | None
    add: int
    dweight: int | None
    dbias: int | None
    _fields_ = [
        ("size", c_size_t),
        ("rows", c_int64),
        ("width", c_int64),
        ("x", c_void_p),
        ("dy", c_void_p),
        ("dx", c_void_p),
        ("add", c_int),
        ("dweight", c_void_p),
        ("dbias", c_void_p),
    ]


class CrossEntropyArgs(ctypes.Structure):
    size: int
    rows: int
    classes: int
    logits: int | None
    labels: int | None
    scale: float
    dlogits: int | None
    _fields_ = [
        ("size", c_size_t),
        ("rows", c_int64),
        ("classes", c_int64),
        ("logits", c_void_p),
        ("labels", c_void_p),
        ("scale", c_double),
        ("dlogits", c_void_p),
    ]


class LayerChoice(ctypes.Structure):
    of: int
    selection: int
    keep: int
    score: Matrix
    hidden: Matrix
    options: ctypes.Array[c_int64]
    option_count: int
    _fields_ = [
        ("of", c_int),
        ("selection", c_int),
        ("keep", c_int64),
        ("score", Matrix),
        ("hidden", Matrix),
        ("options", c_int64 * 16),
        ("option_count", c_int64),
    ]


class AttnLayerOptions(ctypes.Structure):
    size: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    q: Matrix
    k: Matrix
    v: Matrix
    qkv: Matrix
    o: Matrix
    q_norm: Norm
    k_norm: Norm
    whole_norms: int
    rope: ctypes._Pointer[RopeOptions]
    scale: float
    softcap: float
    causal: int
    window: Window
    dtype: int
    v_heads: int
    slopes: int | None
    choice: LayerChoice
    _fields_ = [
        ("size", c_size_t),
        ("hidden", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("q", Matrix),
        ("k", Matrix),
        ("v", Matrix),
        ("qkv", Matrix),
        ("o", Matrix),
        ("q_norm", Norm),
        ("k_norm", Norm),
        ("whole_norms", c_int),
        ("rope", POINTER(RopeOptions)),
        ("scale", c_double),
        ("softcap", c_double),
        ("causal", c_int),
        ("window", Window),
        ("dtype", c_int),
        ("v_heads", c_int64),
        ("slopes", c_void_p),
        ("choice", LayerChoice),
    ]


class LayerActivations(ctypes.Structure):
    input: int | None
    qkv: int | None
    context: int | None
    out: int | None
    _fields_ = [
        ("input", c_void_p),
        ("qkv", c_void_p),
        ("context", c_void_p),
        ("out", c_void_p),
    ]


class LayerInput(ctypes.Structure):
    size: int
    batch: int
    length: int
    lengths: int | None
    keep: View
    bias: View
    cache: int | None
    sequence: int
    cos: int | None
    sin: int | None
    gates: View
    probs: int | None
    starts: int | None
    sequences: int
    workspace: int | None
    workspace_bytes: int
    map_heads: int | None
    map_rows: int | None
    map_count: int
    map_row_count: int
    stats: ctypes._Pointer[AttnStats]
    top_keys: int
    rows: int | None
    fills: int | None
    activations: ctypes._Pointer[LayerActivations]
    context: int | None
    on_rows: ctypes._Pointer[AttnVisitor]
    real: int | None
    kept: int | None
    _fields_ = [
        ("size", c_size_t),
        ("batch", c_int64),
        ("length", c_int64),
        ("lengths", c_void_p),
        ("keep", View),
        ("bias", View),
        ("cache", c_void_p),
        ("sequence", c_int64),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("gates", View),
        ("probs", c_void_p),
        ("starts", c_void_p),
        ("sequences", c_int64),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("map_heads", c_void_p),
        ("map_rows", c_void_p),
        ("map_count", c_int64),
        ("map_row_count", c_int64),
        ("stats", POINTER(AttnStats)),
        ("top_keys", c_int64),
        ("rows", c_void_p),
        ("fills", c_void_p),
        ("activations", POINTER(LayerActivations)),
        ("context", c_void_p),
        ("on_rows", POINTER(AttnVisitor)),
        ("real", c_void_p),
        ("kept", c_void_p),
    ]


class BlockOptions(ctypes.Structure):
    size: int
    attn: AttnLayerOptions
    pre_norm: int
    parallel: int
    residual_scale: float
    attn_norm: Norm
    mlp_norm: Norm
    attn_out_norm: Norm
    mlp_out_norm: Norm
    intermediate: int
    up: Matrix
    down: Matrix
    gate: Matrix
    activation: int
    _fields_ = [
        ("size", c_size_t),
        ("attn", AttnLayerOptions),
        ("pre_norm", c_int),
        ("parallel", c_int),
        ("residual_scale", c_double),
        ("attn_norm", Norm),
        ("mlp_norm", Norm),
        ("attn_out_norm", Norm),
        ("mlp_out_norm", Norm),
        ("intermediate", c_int64),
        ("up", Matrix),
        ("down", Matrix),
        ("gate", Matrix),
        ("activation", c_int),
    ]


class Tensor(ctypes.Structure):
    name: _Bytes | None
    dtype: int
    dtype_name: _Bytes | None
    rank: int
    shape: int | None
    elements: int
    data: int | None
    bytes: int
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int),
        ("dtype_name", c_char_p),
        ("rank", c_int),
        ("shape", c_void_p),
        ("elements", c_int64),
        ("data", c_void_p),
        ("bytes", c_size_t),
    ]


class FileOptions(ctypes.Structure):
    size: int
    no_map: int
    _fields_ = [
        ("size", c_size_t),
        ("no_map", c_int),
    ]


class Metadata(ctypes.Structure):
    key: _Bytes | None
    value: _Bytes | None
    value_bytes: int
    _fields_ = [
        ("key", c_char_p),
        ("value", c_char_p),
        ("value_bytes", c_size_t),
    ]


class TensorsWriterOptions(ctypes.Structure):
    size: int
    overwrite: int
    metadata: ctypes._Pointer[Metadata]
    metadata_count: int
    _fields_ = [
        ("size", c_size_t),
        ("overwrite", c_int),
        ("metadata", POINTER(Metadata)),
        ("metadata_count", c_int64),
    ]


class EncodeOptions(ctypes.Structure):
    size: int
    no_special: int
    max_tokens: int
    stored_limits: int
    _fields_ = [
        ("size", c_size_t),
        ("no_special", c_int),
        ("max_tokens", c_int64),
        ("stored_limits", c_int),
    ]


class Encoding(ctypes.Structure):
    count: int
    ids: int | None
    type_ids: int | None
    begin: int | None
    end: int | None
    sequence: int | None
    truncated: int
    _fields_ = [
        ("count", c_int64),
        ("ids", c_void_p),
        ("type_ids", c_void_p),
        ("begin", c_void_p),
        ("end", c_void_p),
        ("sequence", c_void_p),
        ("truncated", c_int64),
    ]


class TokenizerTrainOptions(ctypes.Structure):
    size: int
    type: int
    vocab_size: int
    min_frequency: int
    special: ctypes._Pointer[c_char_p]
    special_count: int
    lowercase: int
    alphabet: int
    _fields_ = [
        ("size", c_size_t),
        ("type", c_int),
        ("vocab_size", c_int64),
        ("min_frequency", c_int64),
        ("special", POINTER(c_char_p)),
        ("special_count", c_int64),
        ("lowercase", c_int),
        ("alphabet", c_int64),
    ]


class TokenizerTrained(ctypes.Structure):
    bytes: int
    lines: int
    words: int
    distinct: int
    characters: int
    tokens: int
    merges: int
    rarest: int
    _fields_ = [
        ("bytes", c_int64),
        ("lines", c_int64),
        ("words", c_int64),
        ("distinct", c_int64),
        ("characters", c_int64),
        ("tokens", c_int64),
        ("merges", c_int64),
        ("rarest", c_int64),
    ]


class ModelOptions(ctypes.Structure):
    size: int
    no_map: int
    no_weights: int
    no_tokenizer: int
    dtype: int
    tensors: ctypes._Pointer[NamedTensor]
    tensor_count: int
    config_json: _Bytes | None
    memory_only: int
    _fields_ = [
        ("size", c_size_t),
        ("no_map", c_int),
        ("no_weights", c_int),
        ("no_tokenizer", c_int),
        ("dtype", c_int),
        ("tensors", POINTER(NamedTensor)),
        ("tensor_count", c_int64),
        ("config_json", c_char_p),
        ("memory_only", c_int),
    ]


class ModelAttention(ctypes.Structure):
    window: int
    rotary: int
    qk_norm: int
    alibi: int
    scale: float
    softcap: float
    choice: int
    selection: int
    heads_per_text: int
    head_options: int | None
    head_option_count: int
    _fields_ = [
        ("window", c_int64),
        ("rotary", c_int),
        ("qk_norm", c_int),
        ("alibi", c_int),
        ("scale", c_double),
        ("softcap", c_double),
        ("choice", c_int),
        ("selection", c_int),
        ("heads_per_text", c_int64),
        ("head_options", c_void_p),
        ("head_option_count", c_int64),
    ]


class ModelInfo(ctypes.Structure):
    family: _Bytes | None
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    intermediate: int
    vocab: int
    max_positions: int
    type_vocab: int
    parameters: int
    bytes: int
    kv_bytes_per_token: int
    heads_per_layer: int | None
    causal: int
    dtype: int
    logits: int
    key_heads_per_layer: int | None
    value_heads_per_layer: int | None
    feed_forward_per_layer: int | None
    attention_per_layer: ctypes._Pointer[ModelAttention]
    original_heads: int
    _fields_ = [
        ("family", c_char_p),
        ("layers", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("hidden", c_int64),
        ("intermediate", c_int64),
        ("vocab", c_int64),
        ("max_positions", c_int64),
        ("type_vocab", c_int64),
        ("parameters", c_int64),
        ("bytes", c_int64),
        ("kv_bytes_per_token", c_int64),
        ("heads_per_layer", c_void_p),
        ("causal", c_int),
        ("dtype", c_int),
        ("logits", c_int),
        ("key_heads_per_layer", c_void_p),
        ("value_heads_per_layer", c_void_p),
        ("feed_forward_per_layer", c_void_p),
        ("attention_per_layer", POINTER(ModelAttention)),
        ("original_heads", c_int64),
    ]


class ModelCacheOptions(ctypes.Structure):
    size: int
    batch: int
    tokens: int
    dtype: int
    page_size: int
    _fields_ = [
        ("size", c_size_t),
        ("batch", c_int64),
        ("tokens", c_int64),
        ("dtype", c_int),
        ("page_size", c_int64),
    ]


class ModelInput(ctypes.Structure):
    size: int
    batch: int
    length: int
    ids: int | None
    type_ids: int | None
    mask: int | None
    positions: int | None
    cache: int | None
    sequence: int
    starts: int | None
    gates: int | None
    fills: int | None
    first_layer: int
    hidden: int | None
    context: int | None
    _fields_ = [
        ("size", c_size_t),
        ("batch", c_int64),
        ("length", c_int64),
        ("ids", c_void_p),
        ("type_ids", c_void_p),
        ("mask", c_void_p),
        ("positions", c_void_p),
        ("cache", c_void_p),
        ("sequence", c_int64),
        ("starts", c_void_p),
        ("gates", c_void_p),
        ("fills", c_void_p),
        ("first_layer", c_int64),
        ("hidden", c_void_p),
        ("context", c_void_p),
    ]


class ModelHead(ctypes.Structure):
    layer: int
    head: int
    _fields_ = [
        ("layer", c_int32),
        ("head", c_int32),
    ]


class ModelStats(ctypes.Structure):
    layer: int
    heads: int
    keys: int
    row_entropy: int | None
    row_max: int | None
    row_distance: int | None
    row_argmax: int | None
    received: int | None
    top_prob: int | None
    top_key: int | None
    _fields_ = [
        ("layer", c_int64),
        ("heads", c_int64),
        ("keys", c_int64),
        ("row_entropy", c_void_p),
        ("row_max", c_void_p),
        ("row_distance", c_void_p),
        ("row_argmax", c_void_p),
        ("received", c_void_p),
        ("top_prob", c_void_p),
        ("top_key", c_void_p),
    ]


class ModelActivations(ctypes.Structure):
    layer: int
    rows: int
    heads: int
    kv_heads: int
    head_dim: int
    input: int | None
    q: int | None
    k: int | None
    v: int | None
    stride: int
    context: int | None
    out: int | None
    _fields_ = [
        ("layer", c_int64),
        ("rows", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("input", c_void_p),
        ("q", c_void_p),
        ("k", c_void_p),
        ("v", c_void_p),
        ("stride", c_int64),
        ("context", c_void_p),
        ("out", c_void_p),
    ]


class ModelOutput(ctypes.Structure):
    size: int
    last_hidden: int | None
    pooled: int | None
    logits: int | None
    last_logits: int | None
    on_hidden: Any
    on_attention: Any
    user: int | None
    map_heads: ctypes._Pointer[ModelHead]
    map_count: int
    map_rows: int | None
    map_row_count: int
    on_stats: Any
    top_keys: int
    on_activations: Any
    on_rows: Any
    kept: int | None
    _fields_ = [
        ("size", c_size_t),
        ("last_hidden", c_void_p),
        ("pooled", c_void_p),
        ("logits", c_void_p),
        ("last_logits", c_void_p),
        ("on_hidden", CFUNCTYPE(c_int, c_void_p, c_int64, c_void_p)),
        ("on_attention", CFUNCTYPE(c_int, c_void_p, c_int64, c_int64, c_void_p)),
        ("user", c_void_p),
        ("map_heads", POINTER(ModelHead)),
        ("map_count", c_int64),
        ("map_rows", c_void_p),
        ("map_row_count", c_int64),
        ("on_stats", CFUNCTYPE(c_int, c_void_p, POINTER(ModelStats))),
        ("top_keys", c_int64),
        ("on_activations", CFUNCTYPE(c_int, c_void_p, POINTER(ModelActivations))),
        ("on_rows", CFUNCTYPE(None, c_void_p, c_int64, POINTER(AttnRows))),
        ("kept", c_void_p),
    ]


class EmbedOptions(ctypes.Structure):
    size: int
    pool: int
    no_normalize: int
    _fields_ = [
        ("size", c_size_t),
        ("pool", c_int),
        ("no_normalize", c_int),
    ]


class Sampling(ctypes.Structure):
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    no_repeat_ngram: int
    seed: int
    _fields_ = [
        ("temperature", c_double),
        ("top_k", c_int64),
        ("top_p", c_double),
        ("min_p", c_double),
        ("repetition_penalty", c_double),
        ("no_repeat_ngram", c_int64),
        ("seed", c_uint64),
    ]


class Prompt(ctypes.Structure):
    ids: int | None
    count: int
    _fields_ = [
        ("ids", c_void_p),
        ("count", c_int64),
    ]


class GenerateOptions(ctypes.Structure):
    size: int
    max_new: int
    min_new: int
    sampling: Sampling
    eos: int | None
    eos_count: int
    stop: ctypes._Pointer[c_char_p]
    stop_count: int
    no_cache: int
    at_once: int
    cache_dtype: int
    lookup: int
    on_prompt: Any
    on_token: Any
    on_text: Any
    on_end: Any
    user: int | None
    _fields_ = [
        ("size", c_size_t),
        ("max_new", c_int64),
        ("min_new", c_int64),
        ("sampling", Sampling),
        ("eos", c_void_p),
        ("eos_count", c_int64),
        ("stop", POINTER(c_char_p)),
        ("stop_count", c_int64),
        ("no_cache", c_int),
        ("at_once", c_int64),
        ("cache_dtype", c_int),
        ("lookup", c_int64),
        ("on_prompt", CFUNCTYPE(None, c_void_p, c_int64, c_int64)),
        ("on_token", CFUNCTYPE(c_int, c_void_p, c_int64, c_int32)),
        ("on_text", CFUNCTYPE(c_int, c_void_p, c_int64, c_void_p, c_size_t)),
        ("on_end", CFUNCTYPE(None, c_void_p, c_int64, c_int)),
        ("user", c_void_p),
    ]


class ModelGradsOptions(ctypes.Structure):
    size: int
    no_parameters: int
    recompute: int
    pack: int
    attention_only: int
    _fields_ = [
        ("size", c_size_t),
        ("no_parameters", c_int),
        ("recompute", c_int),
        ("pack", c_int),
        ("attention_only", c_int),
    ]


class ModelDropout(ctypes.Structure):
    embedding: float
    attention: float
    residual: float
    seed: int
    _fields_ = [
        ("embedding", c_double),
        ("attention", c_double),
        ("residual", c_double),
        ("seed", c_uint64),
    ]


class ModelContextGradient(ctypes.Structure):
    layer: int
    rows: int
    heads: int
    head_dim: int
    context: int | None
    dcontext: int | None
    row_taylor: int | None
    _fields_ = [
        ("layer", c_int64),
        ("rows", c_int64),
        ("heads", c_int64),
        ("head_dim", c_int64),
        ("context", c_void_p),
        ("dcontext", c_void_p),
        ("row_taylor", c_void_p),
    ]


class ModelGradient(ctypes.Structure):
    size: int
    last_hidden: int | None
    pooled: int | None
    logits: int | None
    gates: int | None
    embeddings: int | None
    on_context: Any
    user: int | None
    taylor: int
    last_logits: int | None
    _fields_ = [
        ("size", c_size_t),
        ("last_hidden", c_void_p),
        ("pooled", c_void_p),
        ("logits", c_void_p),
        ("gates", c_void_p),
        ("embeddings", c_void_p),
        ("on_context", CFUNCTYPE(c_int, c_void_p, POINTER(ModelContextGradient))),
        ("user", c_void_p),
        ("taylor", c_int),
        ("last_logits", c_void_p),
    ]


class ModelDistill(ctypes.Structure):
    labels: float
    logits: float
    hidden: float
    text: float
    temperature: float
    pool: int
    _fields_ = [
        ("labels", c_double),
        ("logits", c_double),
        ("hidden", c_double),
        ("text", c_double),
        ("temperature", c_double),
        ("pool", c_int),
    ]


class ModelLossArgs(ctypes.Structure):
    size: int
    labels: int | None
    scale: float
    dgates: int | None
    dembeddings: int | None
    on_context: Any
    user: int | None
    taylor: int
    loss_only: int
    teacher: int | None
    distill: ModelDistill
    _fields_ = [
        ("size", c_size_t),
        ("labels", c_void_p),
        ("scale", c_double),
        ("dgates", c_void_p),
        ("dembeddings", c_void_p),
        ("on_context", CFUNCTYPE(c_int, c_void_p, POINTER(ModelContextGradient))),
        ("user", c_void_p),
        ("taylor", c_int),
        ("loss_only", c_int),
        ("teacher", c_void_p),
        ("distill", ModelDistill),
    ]


class ModelCreateOptions(ctypes.Structure):
    size: int
    seed: int
    folder: _Bytes | None
    _fields_ = [
        ("size", c_size_t),
        ("seed", c_uint64),
        ("folder", c_char_p),
    ]


class ModelSaveOptions(ctypes.Structure):
    size: int
    dtype: int
    overwrite: int
    tensors: ctypes._Pointer[NamedTensor]
    count: int
    config_json: _Bytes | None
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("overwrite", c_int),
        ("tensors", POINTER(NamedTensor)),
        ("count", c_int64),
        ("config_json", c_char_p),
    ]


class TrainDropout(ctypes.Structure):
    embedding: float
    attention: float
    residual: float
    _fields_ = [
        ("embedding", c_double),
        ("attention", c_double),
        ("residual", c_double),
    ]


class TrainGates(ctypes.Structure):
    penalty: int
    strength: float
    rate: float
    initial: float
    start: int
    ramp: int
    end: int
    heads: int
    only: int
    first: int
    _fields_ = [
        ("penalty", c_int),
        ("strength", c_double),
        ("rate", c_double),
        ("initial", c_double),
        ("start", c_int64),
        ("ramp", c_int64),
        ("end", c_int64),
        ("heads", c_int64),
        ("only", c_int),
        ("first", c_int),
    ]


class TrainOptions(ctypes.Structure):
    size: int
    rate: float
    beta1: float
    beta2: float
    eps: float
    decay: float
    decays: int
    warmup: int
    steps: int
    floor: float
    clip: float
    recompute: int
    frozen: ctypes._Pointer[c_char_p]
    frozen_count: int
    dropout: TrainDropout
    seed: int
    gates: TrainGates
    teacher: int | None
    distill: ModelDistill
    dtype: int
    _fields_ = [
        ("size", c_size_t),
        ("rate", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("decay", c_double),
        ("decays", c_int),
        ("warmup", c_int64),
        ("steps", c_int64),
        ("floor", c_double),
        ("clip", c_double),
        ("recompute", c_int),
        ("frozen", POINTER(c_char_p)),
        ("frozen_count", c_int64),
        ("dropout", TrainDropout),
        ("seed", c_uint64),
        ("gates", TrainGates),
        ("teacher", c_void_p),
        ("distill", ModelDistill),
        ("dtype", c_int),
    ]


class TrainBatch(ctypes.Structure):
    input: ctypes._Pointer[ModelInput]
    labels: int | None
    _fields_ = [
        ("input", POINTER(ModelInput)),
        ("labels", c_void_p),
    ]


class TrainReport(ctypes.Structure):
    step: int
    labels: int
    loss: float
    norm: float
    rate: float
    open: float
    penalty: float
    _fields_ = [
        ("step", c_int64),
        ("labels", c_int64),
        ("loss", c_double),
        ("norm", c_double),
        ("rate", c_double),
        ("open", c_double),
        ("penalty", c_double),
    ]


class TrainFile(ctypes.Structure):
    name: _Bytes | None
    data: int | None
    bytes: int
    _fields_ = [
        ("name", c_char_p),
        ("data", c_void_p),
        ("bytes", c_size_t),
    ]


class TrainerSaveOptions(ctypes.Structure):
    size: int
    overwrite: int
    model_only: int
    dtype: int
    files: ctypes._Pointer[TrainFile]
    file_count: int
    aside: _Bytes | None
    _fields_ = [
        ("size", c_size_t),
        ("overwrite", c_int),
        ("model_only", c_int),
        ("dtype", c_int),
        ("files", POINTER(TrainFile)),
        ("file_count", c_int64),
        ("aside", c_char_p),
    ]


class TrainDataOptions(ctypes.Structure):
    size: int
    length: int
    vocab: int
    tokenizer: int | None
    causal: int
    texts_apart: int
    shorten: int
    no_map: int
    first: int
    end: int
    _fields_ = [
        ("size", c_size_t),
        ("length", c_int64),
        ("vocab", c_int64),
        ("tokenizer", c_void_p),
        ("causal", c_int),
        ("texts_apart", c_int),
        ("shorten", c_int),
        ("no_map", c_int),
        ("first", c_int32),
        ("end", c_int32),
    ]


class TrainDataInfo(ctypes.Structure):
    tokens: int
    sequences: int
    length: int
    texts: int
    truncated: int
    digest: _Bytes
    _fields_ = [
        ("tokens", c_int64),
        ("sequences", c_int64),
        ("length", c_int64),
        ("texts", c_int64),
        ("truncated", c_int64),
        ("digest", c_char * 17),
    ]


class TrainMaskOptions(ctypes.Structure):
    size: int
    length: int
    vocab: int
    fraction: float
    mask: int
    seed: int
    _fields_ = [
        ("size", c_size_t),
        ("length", c_int64),
        ("vocab", c_int64),
        ("fraction", c_double),
        ("mask", c_int32),
        ("seed", c_uint64),
    ]


class TrainDigest(ctypes.Structure):
    lane: ctypes.Array[c_uint64]
    _fields_ = [
        ("lane", c_uint64 * 4),
    ]


class TrainStoreOptions(ctypes.Structure):
    size: int
    resume: int
    overwrite: int
    _fields_ = [
        ("size", c_size_t),
        ("resume", c_int),
        ("overwrite", c_int),
    ]


class TrainSample(ctypes.Structure):
    prompt: _Bytes | None
    text: _Bytes | None
    prompt_bytes: int
    text_bytes: int
    _fields_ = [
        ("prompt", c_char_p),
        ("text", c_char_p),
        ("prompt_bytes", c_size_t),
        ("text_bytes", c_size_t),
    ]


class TrainRecord(ctypes.Structure):
    size: int
    step: int
    tokens: int
    seconds: float
    loss: float
    rate: float
    norm: float
    eval_loss: float
    open_heads: float
    samples: ctypes._Pointer[TrainSample]
    sample_count: int
    _fields_ = [
        ("size", c_size_t),
        ("step", c_int64),
        ("tokens", c_int64),
        ("seconds", c_double),
        ("loss", c_double),
        ("rate", c_double),
        ("norm", c_double),
        ("eval_loss", c_double),
        ("open_heads", c_double),
        ("samples", POINTER(TrainSample)),
        ("sample_count", c_int64),
    ]


class HeadDataOptions(ctypes.Structure):
    size: int
    max_tokens: int
    batch_tokens: int
    special: int | None
    special_count: int
    segments: int | None
    _fields_ = [
        ("size", c_size_t),
        ("max_tokens", c_int64),
        ("batch_tokens", c_int64),
        ("special", c_void_p),
        ("special_count", c_int64),
        ("segments", c_void_p),
    ]


class WorkInfo(ctypes.Structure):
    name: _Bytes | None
    model: _Bytes | None
    data: _Bytes | None
    state: _Bytes | None
    steps: int
    values: int
    _fields_ = [
        ("name", c_char_p),
        ("model", c_char_p),
        ("data", c_char_p),
        ("state", c_char_p),
        ("steps", c_int64),
        ("values", c_int64),
    ]


class Work(ctypes.Structure):
    user: int | None
    begin: Any
    next: Any
    add: Any
    total: Any
    _fields_ = [
        ("user", c_void_p),
        ("begin", CFUNCTYPE(c_int, c_void_p, POINTER(WorkInfo), POINTER(Error))),
        ("next", CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(Error))),
        ("add", CFUNCTYPE(c_int, c_void_p, c_int64, c_void_p, POINTER(Error))),
        ("total", CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(Error))),
    ]


class HeadProbe(ctypes.Structure):
    ids: int | None
    texts: int
    period: int
    first: int | None
    last: int | None
    first_count: int
    last_count: int
    _fields_ = [
        ("ids", c_void_p),
        ("texts", c_int64),
        ("period", c_int64),
        ("first", c_void_p),
        ("last", c_void_p),
        ("first_count", c_int64),
        ("last_count", c_int64),
    ]


class HeadThresholds(ctypes.Structure):
    probe: float
    single: float
    local: float
    block: float
    broad: float
    vertical: float
    sink: float
    _fields_ = [
        ("probe", c_double),
        ("single", c_double),
        ("local", c_double),
        ("block", c_double),
        ("broad", c_double),
        ("vertical", c_double),
        ("sink", c_double),
    ]


class HeadsOptions(ctypes.Structure):
    size: int
    no_probe: int
    seed: int
    max_tokens: int
    keep_maps: int
    probe: HeadProbe
    thresholds: HeadThresholds
    state: _Bytes | None
    work: ctypes._Pointer[Work]
    _fields_ = [
        ("size", c_size_t),
        ("no_probe", c_int),
        ("seed", c_uint64),
        ("max_tokens", c_int64),
        ("keep_maps", c_int),
        ("probe", HeadProbe),
        ("thresholds", HeadThresholds),
        ("state", c_char_p),
        ("work", POINTER(Work)),
    ]


class HeadMap(ctypes.Structure):
    tokens: int
    p: int | None
    kinds: int | None
    segments: int | None
    _fields_ = [
        ("tokens", c_int64),
        ("p", c_void_p),
        ("kinds", c_void_p),
        ("segments", c_void_p),
    ]


class HeadMaps(ctypes.Structure):
    size: int
    layers: int
    heads: int
    causal: int
    count: int
    text: ctypes._Pointer[HeadMap]
    thresholds: HeadThresholds
    _fields_ = [
        ("size", c_size_t),
        ("layers", c_int64),
        ("heads", c_int64),
        ("causal", c_int),
        ("count", c_int64),
        ("text", POINTER(HeadMap)),
        ("thresholds", HeadThresholds),
    ]


class ImportanceOptions(ctypes.Structure):
    size: int
    by: int
    loss: int
    loss_scale: float
    probes: int
    batch_texts: int
    labels: int | None
    seed: int
    settle: float
    state: _Bytes | None
    _fields_ = [
        ("size", c_size_t),
        ("by", c_int),
        ("loss", c_int),
        ("loss_scale", c_double),
        ("probes", c_int),
        ("batch_texts", c_int64),
        ("labels", c_void_p),
        ("seed", c_uint64),
        ("settle", c_double),
        ("state", c_char_p),
    ]


class DiversityOptions(ctypes.Structure):
    size: int
    what: int
    max_rows: int
    state: _Bytes | None
    _fields_ = [
        ("size", c_size_t),
        ("what", c_uint32),
        ("max_rows", c_int64),
        ("state", c_char_p),
    ]


class HeadMerge(ctypes.Structure):
    a: int
    b: int
    height: float
    size: int
    _fields_ = [
        ("a", c_int64),
        ("b", c_int64),
        ("height", c_double),
        ("size", c_int64),
    ]


class Comparison(ctypes.Structure):
    texts: int
    tokens: int
    mean_cosine: float
    min_cosine: float
    worst: int
    loss: ctypes.Array[c_double]
    predicted: int
    _fields_ = [
        ("texts", c_int64),
        ("tokens", c_int64),
        ("mean_cosine", c_double),
        ("min_cosine", c_double),
        ("worst", c_int64),
        ("loss", c_double * 2),
        ("predicted", c_int64),
    ]


class EditEvaluation(ctypes.Structure):
    heads: ctypes.Array[c_int64]
    key_heads: ctypes.Array[c_int64]
    value_heads: ctypes.Array[c_int64]
    parameters: ctypes.Array[c_int64]
    bytes: ctypes.Array[c_int64]
    kv_bytes_per_token: ctypes.Array[c_int64]
    comparison: Comparison
    tokens_per_second: ctypes.Array[c_double]
    broken_rule: _Bytes | None
    _fields_ = [
        ("heads", c_int64 * 2),
        ("key_heads", c_int64 * 2),
        ("value_heads", c_int64 * 2),
        ("parameters", c_int64 * 2),
        ("bytes", c_int64 * 2),
        ("kv_bytes_per_token", c_int64 * 2),
        ("comparison", Comparison),
        ("tokens_per_second", c_double * 2),
        ("broken_rule", c_char_p),
    ]


class PruneRule(ctypes.Structure):
    size: int
    ratio: float
    count: int
    per_layer: int
    floor: int
    _fields_ = [
        ("size", c_size_t),
        ("ratio", c_double),
        ("count", c_int64),
        ("per_layer", c_int),
        ("floor", c_int64),
    ]


class PruneJointOptions(ctypes.Structure):
    size: int
    rounds: int
    fill: int
    order: int | None
    _fields_ = [
        ("size", c_size_t),
        ("rounds", c_int64),
        ("fill", c_int),
        ("order", c_void_p),
    ]


class PruneOptions(ctypes.Structure):
    size: int
    fill: int | None
    refit: int | None
    ridge: float
    compatible: int
    chosen_by: _Bytes | None
    _fields_ = [
        ("size", c_size_t),
        ("fill", c_void_p),
        ("refit", c_void_p),
        ("ridge", c_double),
        ("compatible", c_int),
        ("chosen_by", c_char_p),
    ]


class PrunePoint(ctypes.Structure):
    count: int
    keep: int | None
    increase: float
    within: int
    evaluation: EditEvaluation
    _fields_ = [
        ("count", c_int64),
        ("keep", c_void_p),
        ("increase", c_double),
        ("within", c_int),
        ("evaluation", EditEvaluation),
    ]


class PruneSearchOptions(ctypes.Structure):
    size: int
    held_out: int | None
    scores: int | None
    learn: int | None
    per_layer: int
    floor: int
    prune: ctypes._Pointer[PruneOptions]
    max_increase: float
    on_point: Any
    user: int | None
    _fields_ = [
        ("size", c_size_t),
        ("held_out", c_void_p),
        ("scores", c_void_p),
        ("learn", c_void_p),
        ("per_layer", c_int),
        ("floor", c_int64),
        ("prune", POINTER(PruneOptions)),
        ("max_increase", c_double),
        ("on_point", CFUNCTYPE(c_int, c_void_p, POINTER(PrunePoint))),
        ("user", c_void_p),
    ]


class RegroupOptions(ctypes.Structure):
    size: int
    key_heads: int
    value_heads: int
    method: int
    fit: int | None
    contiguous: int
    uncentered: int
    ridge: float
    compatible: int
    scores: int | None
    weighted_by: _Bytes | None
    _fields_ = [
        ("size", c_size_t),
        ("key_heads", c_int64),
        ("value_heads", c_int64),
        ("method", c_int),
        ("fit", c_void_p),
        ("contiguous", c_int),
        ("uncentered", c_int),
        ("ridge", c_double),
        ("compatible", c_int),
        ("scores", c_void_p),
        ("weighted_by", c_char_p),
    ]


class PlanOptions(ctypes.Structure):
    size: int
    d_model: int
    heads: int
    layers: int
    vocab: int
    seq: int
    batch: int
    dtype: int
    parameters: int
    prune: float
    experts: int
    top_k: int
    _fields_ = [
        ("size", c_size_t),
        ("d_model", c_int64),
        ("heads", c_int64),
        ("layers", c_int64),
        ("vocab", c_int64),
        ("seq", c_int64),
        ("batch", c_int64),
        ("dtype", c_int),
        ("parameters", c_int64),
        ("prune", c_double),
        ("experts", c_int64),
        ("top_k", c_int64),
    ]


class PlanParameters(ctypes.Structure):
    q: int
    k: int
    v: int
    out: int
    extra: int
    total: int
    _fields_ = [
        ("q", c_int64),
        ("k", c_int64),
        ("v", c_int64),
        ("out", c_int64),
        ("extra", c_int64),
        ("total", c_int64),
    ]


class PlanRow(ctypes.Structure):
    variant: int
    left_out: _Bytes | None
    refused: _Bytes | None
    heads: int
    head_dim: int
    kv_groups: int
    kv_heads: int
    weights: PlanParameters
    biases: PlanParameters
    reduction: float
    project_flops: float
    attend_flops: float
    kv_bytes: int
    prefill: float
    decode: float
    _fields_ = [
        ("variant", c_int),
        ("left_out", c_char_p),
        ("refused", c_char_p),
        ("heads", c_int64),
        ("head_dim", c_int64),
        ("kv_groups", c_int64),
        ("kv_heads", c_int64),
        ("weights", PlanParameters),
        ("biases", PlanParameters),
        ("reduction", c_double),
        ("project_flops", c_double),
        ("attend_flops", c_double),
        ("kv_bytes", c_int64),
        ("prefill", c_double),
        ("decode", c_double),
    ]


class PlanAdvice(ctypes.Structure):
    variant: int
    heads: int
    kv_heads: int
    experts: int
    top_k: int
    parameters: int
    reason: _Bytes
    _fields_ = [
        ("variant", c_int),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("experts", c_int64),
        ("top_k", c_int64),
        ("parameters", c_int64),
        ("reason", c_char * 512),
    ]

STRUCTS: dict[str, type[ctypes.Structure]] = {
    "mha_error": Error,
    "mha_cview": View,
    "mha_view": View,
    "mha_named_tensor": NamedTensor,
    "mha_allocator": Allocator,
    "mha_ctx_options": CtxOptions,
    "mha_attn_stats": AttnStats,
    "mha_attn_rows": AttnRows,
    "mha_attn_visitor": AttnVisitor,
    "mha_window": Window,
    "mha_shard": Shard,
    "mha_attn_desc": AttnDesc,
    "mha_attn_args": AttnArgs,
    "mha_attn_part": AttnPart,
    "mha_attn_merge_args": AttnMergeArgs,
    "mha_attn_partial": AttnPartial,
    "mha_attn_merge_partials_args": AttnMergePartialsArgs,
    "mha_attn_grads": AttnGrads,
    "mha_cache_desc": CacheDesc,
    "mha_cache_tokens": CacheTokens,
    "mha_rope_options": RopeOptions,
    "mha_rng": Rng,
    "mha_mask": Mask,
    "mha_variant_input": VariantInput,
    "mha_step_view": StepView,
    "mha_variant_gradient": VariantGradient,
    "mha_self_attention_options": SelfAttentionOptions,
    "mha_causal_attention_options": CausalAttentionOptions,
    "mha_stacked_heads_options": StackedHeadsOptions,
    "mha_weight_split_options": WeightSplitOptions,
    "mha_qkv_attention_options": QkvAttentionOptions,
    "mha_standard_mha_options": StandardMhaOptions,
    "mha_grouped_query_options": GroupedQueryOptions,
    "mha_llama_attention_options": LlamaAttentionOptions,
    "mha_moe_heads_options": MoeHeadsOptions,
    "mha_head_pruning_options": HeadPruningOptions,
    "mha_adaptive_heads_options": AdaptiveHeadsOptions,
    "mha_matrix": Matrix,
    "mha_linear_gradient": LinearGradient,
    "mha_norm": Norm,
    "mha_norm_gradient": NormGradient,
    "mha_cross_entropy_args": CrossEntropyArgs,
    "mha_layer_choice": LayerChoice,
    "mha_attn_layer_options": AttnLayerOptions,
    "mha_layer_activations": LayerActivations,
    "mha_layer_input": LayerInput,
    "mha_block_options": BlockOptions,
    "mha_tensor": Tensor,
    "mha_file_options": FileOptions,
    "mha_metadata": Metadata,
    "mha_tensors_writer_options": TensorsWriterOptions,
    "mha_encode_options": EncodeOptions,
    "mha_encoding": Encoding,
    "mha_tokenizer_train_options": TokenizerTrainOptions,
    "mha_tokenizer_trained": TokenizerTrained,
    "mha_model_options": ModelOptions,
    "mha_model_attention": ModelAttention,
    "mha_model_info": ModelInfo,
    "mha_model_cache_options": ModelCacheOptions,
    "mha_model_input": ModelInput,
    "mha_model_head": ModelHead,
    "mha_model_stats": ModelStats,
    "mha_model_activations": ModelActivations,
    "mha_model_output": ModelOutput,
    "mha_embed_options": EmbedOptions,
    "mha_sampling": Sampling,
    "mha_prompt": Prompt,
    "mha_generate_options": GenerateOptions,
    "mha_model_grads_options": ModelGradsOptions,
    "mha_model_dropout": ModelDropout,
    "mha_model_context_gradient": ModelContextGradient,
    "mha_model_gradient": ModelGradient,
    "mha_model_distill": ModelDistill,
    "mha_model_loss_args": ModelLossArgs,
    "mha_model_create_options": ModelCreateOptions,
    "mha_model_save_options": ModelSaveOptions,
    "mha_train_dropout": TrainDropout,
    "mha_train_gates": TrainGates,
    "mha_train_options": TrainOptions,
    "mha_train_batch": TrainBatch,
    "mha_train_report": TrainReport,
    "mha_train_file": TrainFile,
    "mha_trainer_save_options": TrainerSaveOptions,
    "mha_train_data_options": TrainDataOptions,
    "mha_train_data_info": TrainDataInfo,
    "mha_train_mask_options": TrainMaskOptions,
    "mha_train_digest": TrainDigest,
    "mha_train_store_options": TrainStoreOptions,
    "mha_train_sample": TrainSample,
    "mha_train_record": TrainRecord,
    "mha_head_data_options": HeadDataOptions,
    "mha_work_info": WorkInfo,
    "mha_work": Work,
    "mha_head_probe": HeadProbe,
    "mha_head_thresholds": HeadThresholds,
    "mha_heads_options": HeadsOptions,
    "mha_head_map": HeadMap,
    "mha_head_maps": HeadMaps,
    "mha_importance_options": ImportanceOptions,
    "mha_diversity_options": DiversityOptions,
    "mha_head_merge": HeadMerge,
    "mha_comparison": Comparison,
    "mha_edit_evaluation": EditEvaluation,
    "mha_prune_rule": PruneRule,
    "mha_prune_joint_options": PruneJointOptions,
    "mha_prune_options": PruneOptions,
    "mha_prune_point": PrunePoint,
    "mha_prune_search_options": PruneSearchOptions,
    "mha_regroup_options": RegroupOptions,
    "mha_plan_options": PlanOptions,
    "mha_plan_parameters": PlanParameters,
    "mha_plan_row": PlanRow,
    "mha_plan_advice": PlanAdvice,
}

# name: (result, parameters)
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "mha_status_text": (c_char_p, [c_int]),
    "mha_dtype_name": (c_char_p, [c_int]),
    "mha_dtype_size": (c_size_t, [c_int]),
    "mha_ctx_create": (c_int, [POINTER(CtxOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_ctx_free": (None, [c_void_p]),
    "mha_ctx_isa": (c_char_p, [c_void_p]),
    "mha_ctx_threads": (c_int, [c_void_p]),
    "mha_isa_list": (c_int, [POINTER(c_char_p), c_int]),
    "mha_alloc": (c_void_p, [c_void_p, c_size_t]),
    "mha_free": (None, [c_void_p, c_void_p]),
    "mha_attention": (c_int, [c_void_p, POINTER(AttnDesc), POINTER(AttnArgs), POINTER(Error)]),
    "mha_attn_plan_create": (c_int, [c_void_p, POINTER(AttnDesc), POINTER(c_void_p), POINTER(Error)]),
    "mha_attn_plan_free": (None, [c_void_p]),
    "mha_attn_plan_workspace": (c_size_t, [c_void_p]),
    "mha_attn_plan_weights": (c_int, [c_void_p]),
    "mha_attn_plan_describe": (c_size_t, [c_void_p, c_int, c_void_p, c_size_t]),
    "mha_attn_forward": (c_int, [c_void_p, POINTER(AttnArgs), c_void_p, c_size_t, POINTER(Error)]),
    "mha_attn_merge": (c_int, [c_void_p, POINTER(AttnMergeArgs), POINTER(Error)]),
    "mha_attn_subtree": (c_int64, [c_int64, c_int64]),
    "mha_attn_merge_partials": (c_int, [c_void_p, POINTER(AttnMergePartialsArgs), POINTER(Error)]),
    "mha_attn_backward": (c_int, [c_void_p, POINTER(AttnArgs), POINTER(AttnGrads), c_void_p, c_size_t, POINTER(Error)]),
    "mha_attention_backward": (c_int, [c_void_p, POINTER(AttnDesc), POINTER(AttnArgs), POINTER(AttnGrads), POINTER(Error)]),
    "mha_cache_create": (c_int, [c_void_p, POINTER(CacheDesc), POINTER(c_void_p), POINTER(Error)]),
    "mha_cache_free": (None, [c_void_p]),
    "mha_cache_append": (c_int, [c_void_p, c_int64, POINTER(CacheTokens), POINTER(Error)]),
    "mha_cache_truncate": (c_int, [c_void_p, c_int64, c_int64, POINTER(Error)]),
    "mha_cache_fork": (c_int, [c_void_p, c_int64, c_int64, c_int64, POINTER(Error)]),
    "mha_cache_clear": (c_int, [c_void_p, c_int64, POINTER(Error)]),
    "mha_cache_length": (c_int64, [c_void_p, c_int64]),
    "mha_cache_bytes": (c_size_t, [c_void_p]),
    "mha_cache_pages": (c_int64, [c_void_p]),
    "mha_cache_bind": (c_int, [c_void_p, c_int64, c_void_p, POINTER(AttnDesc), POINTER(AttnArgs), POINTER(Error)]),
    "mha_cache_describe": (c_int, [c_void_p, c_int64, c_int64, POINTER(AttnDesc), POINTER(Error)]),
    "mha_cache_save": (None, [c_void_p, POINTER(NamedTensor)]),
    "mha_cache_load": (c_int, [c_void_p, POINTER(NamedTensor), c_int, POINTER(Error)]),
    "mha_limit_fma": (c_int, [c_void_p, c_void_p, POINTER(Error)]),
    "mha_limit_read": (c_int, [c_void_p, c_void_p, c_int64, c_void_p, POINTER(Error)]),
    "mha_rope_frequencies": (c_int, [POINTER(RopeOptions), c_int64, c_void_p, c_void_p, POINTER(Error)]),
    "mha_rope_angles": (c_int, [POINTER(RopeOptions), c_void_p, c_int64, c_void_p, c_void_p, POINTER(Error)]),
    "mha_rope_turn": (c_int, [c_void_p, POINTER(RopeOptions), c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int64, c_int, POINTER(Error)]),
    "mha_rng_manual_seed": (None, [POINTER(Rng), c_uint64]),
    "mha_rng_next": (c_uint32, [POINTER(Rng)]),
    "mha_rng_rand": (c_int, [POINTER(Rng), c_void_p, c_int64, POINTER(Error)]),
    "mha_rng_rand_f64": (c_int, [POINTER(Rng), c_void_p, c_int64, POINTER(Error)]),
    "mha_rng_uniform": (c_int, [POINTER(Rng), c_double, c_double, c_void_p, c_int64, POINTER(Error)]),
    "mha_rng_randn": (c_int, [POINTER(Rng), c_void_p, c_int64, POINTER(Error)]),
    "mha_rng_normal": (c_int, [POINTER(Rng), c_double, c_double, c_void_p, c_int64, POINTER(Error)]),
    "mha_rng_randn_f64": (c_int, [POINTER(Rng), c_void_p, c_int64, POINTER(Error)]),
    "mha_rng_exponential": (c_int, [POINTER(Rng), c_void_p, c_int64, POINTER(Error)]),
    "mha_rng_randint": (c_int, [POINTER(Rng), c_int64, c_int64, c_void_p, c_int64, POINTER(Error)]),
    "mha_rng_randperm": (c_int, [POINTER(Rng), c_void_p, c_int64, POINTER(Error)]),
    "mha_rng_multinomial": (c_int, [POINTER(Rng), c_void_p, c_int64, c_int, c_void_p, c_void_p, c_int64, POINTER(Error)]),
    "mha_rng_bernoulli": (c_int, [POINTER(Rng), c_double, c_int, c_void_p, c_int64, POINTER(Error)]),
    "mha_rng_dropout_mask": (c_int, [POINTER(Rng), c_double, c_int, c_void_p, c_int64, POINTER(Error)]),
    "mha_rng_dropout": (c_int, [POINTER(Rng), c_double, c_int, c_void_p, c_void_p, c_int64, POINTER(Error)]),
    "mha_rng_kaiming_uniform": (c_int, [POINTER(Rng), c_int64, c_int64, c_double, c_void_p, POINTER(Error)]),
    "mha_rng_xavier_uniform": (c_int, [POINTER(Rng), c_int64, c_int64, c_double, c_void_p, POINTER(Error)]),
    "mha_rng_linear": (c_int, [POINTER(Rng), c_int64, c_int64, c_void_p, c_void_p, POINTER(Error)]),
    "mha_rng_embedding": (c_int, [POINTER(Rng), c_int64, c_int64, c_int64, c_void_p, POINTER(Error)]),
    "mha_rng_multihead": (c_int, [POINTER(Rng), c_int64, c_void_p, c_void_p, c_void_p, c_void_p, POINTER(Error)]),
    "mha_variant_free": (None, [c_void_p]),
    "mha_variant_parameter_count": (c_int64, [c_void_p]),
    "mha_variant_init": (c_int, [c_void_p, POINTER(Rng), POINTER(Error)]),
    "mha_variant_parameters": (POINTER(NamedTensor), [c_void_p, c_void_p]),
    "mha_variant_update": (c_int, [c_void_p, POINTER(Error)]),
    "mha_variant_gradients": (POINTER(NamedTensor), [c_void_p, c_void_p]),
    "mha_variant_zero_gradients": (c_int, [c_void_p, POINTER(Error)]),
    "mha_trace_create": (c_int, [c_void_p, POINTER(c_void_p), POINTER(Error)]),
    "mha_trace_free": (None, [c_void_p]),
    "mha_variant_forward": (c_int, [c_void_p, POINTER(VariantInput), c_void_p, c_void_p, POINTER(Error)]),
    "mha_trace_step": (c_int, [c_void_p, c_int, POINTER(StepView)]),
    "mha_trace_chosen": (c_void_p, [c_void_p, c_int64, c_void_p]),
    "mha_trace_heads": (c_int64, [c_void_p, c_int64]),
    "mha_trace_flops": (c_int64, [c_void_p]),
    "mha_variant_backward": (c_int, [c_void_p, POINTER(VariantInput), c_void_p, POINTER(VariantGradient), POINTER(Error)]),
    "mha_self_attention_create": (c_int, [c_void_p, POINTER(SelfAttentionOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_causal_attention_create": (c_int, [c_void_p, POINTER(CausalAttentionOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_stacked_heads_create": (c_int, [c_void_p, POINTER(StackedHeadsOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_weight_split_create": (c_int, [c_void_p, POINTER(WeightSplitOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_qkv_attention_create": (c_int, [c_void_p, POINTER(QkvAttentionOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_standard_mha_create": (c_int, [c_void_p, POINTER(StandardMhaOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_grouped_query_create": (c_int, [c_void_p, POINTER(GroupedQueryOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_llama_attention_create": (c_int, [c_void_p, POINTER(LlamaAttentionOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_moe_heads_create": (c_int, [c_void_p, POINTER(MoeHeadsOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_head_pruning_create": (c_int, [c_void_p, POINTER(HeadPruningOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_adaptive_heads_create": (c_int, [c_void_p, POINTER(AdaptiveHeadsOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_activation_forward": (c_int, [c_void_p, c_int, c_int64, c_int64, c_void_p, POINTER(Error)]),
    "mha_activation_backward": (c_int, [c_void_p, c_int, c_int64, c_int64, c_void_p, c_void_p, c_void_p, POINTER(Error)]),
    "mha_linear_create": (c_int, [c_void_p, c_int64, c_int64, c_void_p, c_void_p, POINTER(c_void_p), POINTER(Error)]),
    "mha_linear_create_stack": (c_int, [c_void_p, c_int64, POINTER(Matrix), c_int64, c_int, POINTER(c_void_p), POINTER(Error)]),
    "mha_linear_free": (None, [c_void_p]),
    "mha_linear_forward": (c_int, [c_void_p, c_void_p, c_int64, c_void_p, POINTER(Error)]),
    "mha_linear_backward": (c_int, [c_void_p, POINTER(LinearGradient), POINTER(Error)]),
    "mha_norm_forward": (c_int, [c_void_p, POINTER(Norm), c_int64, c_int64, c_void_p, c_void_p, c_void_p, POINTER(Error)]),
    "mha_norm_backward": (c_int, [c_void_p, POINTER(Norm), POINTER(NormGradient), POINTER(Error)]),
    "mha_cross_entropy": (c_int, [c_void_p, POINTER(CrossEntropyArgs), c_void_p, c_void_p, POINTER(Error)]),
    "mha_embedding_forward": (c_int, [c_char_p, c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int, c_void_p, POINTER(Error)]),
    "mha_embedding_backward": (c_int, [c_char_p, c_void_p, c_int64, c_int64, c_void_p, c_int64, c_void_p, POINTER(Error)]),
    "mha_attn_layer_create": (c_int, [c_void_p, POINTER(AttnLayerOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_attn_layer_free": (None, [c_void_p]),
    "mha_attn_layer_forward": (c_int, [c_void_p, POINTER(LayerInput), c_void_p, c_void_p, POINTER(Error)]),
    "mha_attn_layer_workspace": (c_int, [c_void_p, POINTER(LayerInput), c_void_p, POINTER(Error)]),
    "mha_block_create": (c_int, [c_void_p, POINTER(BlockOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_block_free": (None, [c_void_p]),
    "mha_block_forward": (c_int, [c_void_p, POINTER(LayerInput), c_void_p, POINTER(Error)]),
    "mha_block_workspace": (c_int, [c_void_p, POINTER(LayerInput), c_void_p, POINTER(Error)]),
    "mha_file_open": (c_int, [c_void_p, c_char_p, POINTER(FileOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_file_free": (None, [c_void_p]),
    "mha_checkpoint_open": (c_int, [c_void_p, c_char_p, POINTER(FileOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_file_path": (c_char_p, [c_void_p]),
    "mha_file_format": (c_char_p, [c_void_p]),
    "mha_file_count": (c_int64, [c_void_p]),
    "mha_file_tensor": (POINTER(Tensor), [c_void_p, c_int64]),
    "mha_file_find": (POINTER(Tensor), [c_void_p, c_char_p]),
    "mha_file_metadata_count": (c_int64, [c_void_p]),
    "mha_file_metadata": (c_int, [c_void_p, c_int64, POINTER(c_char_p), POINTER(c_void_p), c_void_p]),
    "mha_tensor_aligned": (c_int, [POINTER(Tensor)]),
    "mha_tensor_read": (c_int, [POINTER(Tensor), c_int, c_void_p, POINTER(Error)]),
    "mha_tensors_read": (c_int, [c_void_p, POINTER(NamedTensor), c_int64, POINTER(Error)]),
    "mha_tensors_writer_create": (c_int, [c_void_p, c_char_p, POINTER(Tensor), c_int64, POINTER(TensorsWriterOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_tensors_writer_put": (c_int, [c_void_p, c_int64, c_void_p, c_size_t, POINTER(Error)]),
    "mha_tensors_writer_finish": (c_int, [c_void_p, POINTER(Error)]),
    "mha_tensors_writer_free": (None, [c_void_p]),
    "mha_tensors_write": (c_int, [c_void_p, c_char_p, POINTER(NamedTensor), c_int64, c_int, POINTER(Error)]),
    "mha_npy_write": (c_int, [c_char_p, POINTER(Tensor), c_int, POINTER(Error)]),
    "mha_file_write": (c_int, [c_char_p, c_void_p, c_size_t, c_int, POINTER(Error)]),
    "mha_tokenizer_open": (c_int, [c_void_p, c_char_p, POINTER(c_void_p), POINTER(Error)]),
    "mha_tokenizer_free": (None, [c_void_p]),
    "mha_tokenizer_encode": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, POINTER(EncodeOptions), POINTER(POINTER(Encoding)), POINTER(Error)]),
    "mha_encoding_free": (None, [POINTER(Encoding)]),
    "mha_tokenizer_decode": (c_int, [c_void_p, c_void_p, c_int64, c_int, POINTER(c_void_p), c_void_p, POINTER(Error)]),
    "mha_tokenizer_text_free": (None, [c_void_p, c_void_p]),
    "mha_text_stream_create": (c_int, [c_void_p, c_int, POINTER(c_void_p), POINTER(Error)]),
    "mha_text_stream_free": (None, [c_void_p]),
    "mha_text_stream_put": (c_int, [c_void_p, c_int32, POINTER(c_void_p), c_void_p, POINTER(Error)]),
    "mha_text_stream_end": (c_int, [c_void_p, POINTER(c_void_p), c_void_p, POINTER(Error)]),
    "mha_tokenizer_size": (c_int64, [c_void_p]),
    "mha_tokenizer_token": (c_char_p, [c_void_p, c_int32]),
    "mha_tokenizer_id": (c_int32, [c_void_p, c_char_p]),
    "mha_tokenizer_is_special": (c_int, [c_void_p, c_int32]),
    "mha_tokenizer_trainer_create": (c_int, [c_void_p, POINTER(TokenizerTrainOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_tokenizer_trainer_free": (None, [c_void_p]),
    "mha_tokenizer_trainer_put": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(Error)]),
    "mha_tokenizer_trainer_end": (c_int, [c_void_p, POINTER(Error)]),
    "mha_tokenizer_trainer_run": (c_int, [c_void_p, POINTER(c_void_p), POINTER(Error)]),
    "mha_tokenizer_trainer_trained": (None, [c_void_p, POINTER(TokenizerTrained)]),
    "mha_tokenizer_trainer_save": (c_int, [c_void_p, c_char_p, c_int, POINTER(Error)]),
    "mha_model_open": (c_int, [c_void_p, c_char_p, POINTER(ModelOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_model_free": (None, [c_void_p]),
    "mha_model_ctx": (c_void_p, [c_void_p]),
    "mha_model_describe": (POINTER(ModelInfo), [c_void_p]),
    "mha_model_config_json": (c_char_p, [c_void_p]),
    "mha_model_tokenizer": (c_void_p, [c_void_p]),
    "mha_model_cache_create": (c_int, [c_void_p, POINTER(ModelCacheOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_model_cache_free": (None, [c_void_p]),
    "mha_model_cache_length": (c_int64, [c_void_p, c_int64]),
    "mha_model_cache_bytes": (c_size_t, [c_void_p]),
    "mha_model_cache_clear": (c_int, [c_void_p, c_int64, POINTER(Error)]),
    "mha_model_cache_truncate": (c_int, [c_void_p, c_int64, c_int64, POINTER(Error)]),
    "mha_model_cache_fork": (c_int, [c_void_p, c_int64, c_int64, c_int64, POINTER(Error)]),
    "mha_model_forward": (c_int, [c_void_p, POINTER(ModelInput), POINTER(ModelOutput), POINTER(Error)]),
    "mha_model_embed": (c_int, [c_void_p, POINTER(c_char_p), c_int64, POINTER(EmbedOptions), c_void_p, POINTER(Error)]),
    "mha_sampling_apply": (c_int, [c_void_p, POINTER(Sampling), c_void_p, c_int64, c_int64, c_void_p, POINTER(Error)]),
    "mha_model_generate": (c_int, [c_void_p, POINTER(Prompt), c_int64, POINTER(GenerateOptions), c_void_p, c_void_p, POINTER(Error)]),
    "mha_model_score": (c_int, [c_void_p, c_void_p, c_int64, c_void_p, POINTER(Error)]),
    "mha_model_grads_create": (c_int, [c_void_p, POINTER(ModelGradsOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_model_grads_free": (None, [c_void_p]),
    "mha_model_grads_list": (POINTER(NamedTensor), [c_void_p, c_void_p]),
    "mha_model_grads_zero": (None, [c_void_p]),
    "mha_model_grads_dropout": (c_int, [c_void_p, POINTER(ModelDropout), POINTER(Error)]),
    "mha_model_grads_forward": (c_int, [c_void_p, POINTER(ModelInput), POINTER(ModelOutput), POINTER(Error)]),
    "mha_model_grads_backward": (c_int, [c_void_p, POINTER(ModelGradient), POINTER(Error)]),
    "mha_model_grads_loss": (c_int, [c_void_p, POINTER(ModelInput), POINTER(ModelLossArgs), c_void_p, c_void_p, POINTER(Error)]),
    "mha_model_create": (c_int, [c_void_p, c_char_p, POINTER(ModelCreateOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_model_save": (c_int, [c_void_p, c_char_p, POINTER(ModelSaveOptions), POINTER(Error)]),
    "mha_model_save_check": (c_int, [c_char_p, c_int, POINTER(Error)]),
    "mha_train_rate": (c_double, [POINTER(TrainOptions), c_int64]),
    "mha_trainer_create": (c_int, [c_void_p, POINTER(TrainOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_trainer_free": (None, [c_void_p]),
    "mha_trainer_model": (c_void_p, [c_void_p]),
    "mha_trainer_step_count": (c_int64, [c_void_p]),
    "mha_trainer_weights": (POINTER(NamedTensor), [c_void_p, c_void_p]),
    "mha_trainer_refresh": (c_int, [c_void_p, POINTER(Error)]),
    "mha_trainer_gates": (c_int64, [c_void_p, c_void_p, c_void_p]),
    "mha_trainer_step": (c_int, [c_void_p, POINTER(TrainBatch), c_int64, POINTER(TrainReport), POINTER(Error)]),
    "mha_trainer_loss": (c_int, [c_void_p, POINTER(TrainBatch), c_int64, c_void_p, c_void_p, POINTER(Error)]),
    "mha_trainer_save": (c_int, [c_void_p, c_char_p, POINTER(TrainerSaveOptions), POINTER(Error)]),
    "mha_trainer_resume": (c_int, [c_void_p, c_char_p, POINTER(TrainOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_train_data_create": (c_int, [c_void_p, POINTER(TrainDataOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_train_data_free": (None, [c_void_p]),
    "mha_train_data_add_text": (c_int, [c_void_p, c_char_p, c_size_t, c_int, POINTER(Error)]),
    "mha_train_data_add_file": (c_int, [c_void_p, c_char_p, POINTER(Error)]),
    "mha_train_data_finish": (c_int, [c_void_p, POINTER(Error)]),
    "mha_train_data_describe": (POINTER(TrainDataInfo), [c_void_p]),
    "mha_train_data_sequence": (c_int64, [c_void_p, c_int64, c_void_p]),
    "mha_train_sequence_order": (c_int64, [c_uint64, c_int64, c_int64, c_int64]),
    "mha_train_mask_tokens": (c_int, [c_void_p, POINTER(TrainMaskOptions), c_int64, c_void_p, c_void_p, POINTER(Error)]),
    "mha_train_digest_add": (None, [POINTER(TrainDigest), c_void_p, c_size_t]),
    "mha_train_digest_add_number": (None, [POINTER(TrainDigest), c_uint64]),
    "mha_train_digest_text": (None, [POINTER(TrainDigest), c_void_p]),
    "mha_train_store_open": (c_int, [c_void_p, c_char_p, POINTER(TrainStoreOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_train_store_close": (c_int, [c_void_p, POINTER(Error)]),
    "mha_train_store_has_checkpoint": (c_int, [c_void_p]),
    "mha_train_store_step": (c_int64, [c_void_p, POINTER(Error)]),
    "mha_train_store_resume": (c_int, [c_void_p, POINTER(TrainOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_train_store_keep": (c_int, [c_void_p, c_int64, POINTER(Error)]),
    "mha_train_store_save": (c_int, [c_void_p, c_void_p, POINTER(TrainFile), c_int64, POINTER(Error)]),
    "mha_train_log_create": (c_int, [c_void_p, POINTER(c_void_p), POINTER(Error)]),
    "mha_train_log_read": (c_int, [c_void_p, c_char_p, c_int64, POINTER(c_void_p), POINTER(Error)]),
    "mha_train_log_free": (None, [c_void_p]),
    "mha_train_log_count": (c_int64, [c_void_p]),
    "mha_train_log_record": (POINTER(TrainRecord), [c_void_p, c_int64]),
    "mha_train_log_lines": (c_char_p, [c_void_p, c_void_p]),
    "mha_train_log_add": (c_int, [c_void_p, POINTER(TrainRecord), POINTER(Error)]),
    "mha_train_log_write_to": (c_int, [c_void_p, c_char_p, c_int, POINTER(Error)]),
    "mha_head_data_of_texts": (c_int, [c_void_p, POINTER(c_char_p), c_int64, POINTER(HeadDataOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_head_data_of_ids": (c_int, [c_void_p, c_void_p, c_void_p, c_int64, POINTER(HeadDataOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_head_data_free": (None, [c_void_p]),
    "mha_head_data_count": (c_int64, [c_void_p]),
    "mha_head_data_tokens": (c_int64, [c_void_p]),
    "mha_head_data_ids": (c_void_p, [c_void_p, c_int64, c_void_p]),
    "mha_head_metric_key": (c_char_p, [c_int]),
    "mha_head_metric_help": (c_char_p, [c_int]),
    "mha_head_label_key": (c_char_p, [c_int]),
    "mha_head_label_help": (c_char_p, [c_int]),
    "mha_heads_measure_data": (c_int, [c_void_p, c_void_p, POINTER(HeadsOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_heads_measure": (c_int, [c_void_p, POINTER(c_char_p), c_int64, POINTER(HeadsOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_heads_of_maps": (c_int, [c_void_p, POINTER(HeadMaps), POINTER(c_void_p), POINTER(Error)]),
    "mha_heads_free": (None, [c_void_p]),
    "mha_heads_layers": (c_int64, [c_void_p]),
    "mha_heads_count": (c_int64, [c_void_p, c_int64]),
    "mha_heads_value": (c_double, [c_void_p, c_int64, c_int64, c_int]),
    "mha_heads_label": (c_int, [c_void_p, c_int64, c_int64]),
    "mha_heads_sink_rate": (c_double, [c_void_p]),
    "mha_heads_received": (c_void_p, [c_void_p, c_int64, c_int64, c_void_p]),
    "mha_heads_map": (c_void_p, [c_void_p, c_int64, c_int64]),
    "mha_heads_tokens": (POINTER(Encoding), [c_void_p]),
    "mha_importance_score_key": (c_char_p, [c_int]),
    "mha_importance_score_help": (c_char_p, [c_int]),
    "mha_importance_score_needs_loss": (c_int, [c_int]),
    "mha_head_loss_key": (c_char_p, [c_int]),
    "mha_importance_measure": (c_int, [c_void_p, c_void_p, POINTER(ImportanceOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_importance_free": (None, [c_void_p]),
    "mha_importance_value": (c_double, [c_void_p, c_int64, c_int64]),
    "mha_importance_values": (c_void_p, [c_void_p, c_void_p]),
    "mha_importance_low": (c_double, [c_void_p, c_int64, c_int64]),
    "mha_importance_high": (c_double, [c_void_p, c_int64, c_int64]),
    "mha_importance_halves": (c_double, [c_void_p]),
    "mha_importance_loss": (c_double, [c_void_p]),
    "mha_importance_saturated": (c_int, [c_void_p]),
    "mha_importance_identity": (c_double, [c_void_p]),
    "mha_importance_texts_used": (c_int64, [c_void_p]),
    "mha_importance_pairs": (c_int, [c_void_p, c_void_p, POINTER(ImportanceOptions), c_void_p, POINTER(Error)]),
    "mha_diversity_key": (c_char_p, [c_int]),
    "mha_diversity_help": (c_char_p, [c_int]),
    "mha_diversity_measure": (c_int, [c_void_p, c_void_p, POINTER(DiversityOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_diversity_free": (None, [c_void_p]),
    "mha_diversity_heads": (c_int64, [c_void_p]),
    "mha_diversity_rows": (c_int64, [c_void_p]),
    "mha_diversity_value": (c_double, [c_void_p, c_int, c_int64, c_int64, c_int64, c_int64]),
    "mha_diversity_layer": (c_double, [c_void_p, c_int, c_int64]),
    "mha_diversity_map": (c_void_p, [c_void_p]),
    "mha_diversity_eigenvalues": (c_void_p, [c_void_p]),
    "mha_diversity_merges": (POINTER(HeadMerge), [c_void_p]),
    "mha_head_rollout": (c_int, [c_void_p, c_void_p, c_int64, c_void_p, POINTER(Error)]),
    "mha_models_compare": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, POINTER(Comparison), POINTER(Error)]),
    "mha_model_edit_free": (None, [c_void_p]),
    "mha_model_edit_open": (c_int, [c_void_p, POINTER(c_void_p), POINTER(Error)]),
    "mha_model_edit_tensors": (POINTER(NamedTensor), [c_void_p, c_void_p]),
    "mha_model_edit_evaluate": (c_int, [c_void_p, c_void_p, POINTER(EditEvaluation), POINTER(Error)]),
    "mha_model_edit_note": (c_int, [c_void_p, c_char_p, POINTER(Error)]),
    "mha_model_edit_save": (c_int, [c_void_p, c_char_p, c_int, POINTER(Error)]),
    "mha_head_number": (c_int64, [c_void_p, c_int64, c_int64]),
    "mha_head_place": (c_int64, [c_void_p, c_int64, c_int64]),
    "mha_prune_most": (c_int64, [c_void_p, POINTER(PruneRule)]),
    "mha_prune_choose": (c_int, [c_void_p, c_void_p, POINTER(PruneRule), c_void_p, POINTER(Error)]),
    "mha_prune_choose_joint": (c_int, [c_void_p, c_void_p, POINTER(PruneRule), POINTER(PruneJointOptions), c_void_p, POINTER(Error)]),
    "mha_prune": (c_int, [c_void_p, c_void_p, POINTER(PruneOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_prune_search": (c_int, [c_void_p, POINTER(PruneSearchOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_prune_curve_free": (None, [c_void_p]),
    "mha_prune_curve_points": (POINTER(PrunePoint), [c_void_p, c_void_p]),
    "mha_prune_curve_best": (POINTER(PrunePoint), [c_void_p]),
    "mha_regroup_method_key": (c_char_p, [c_int]),
    "mha_regroup_method_help": (c_char_p, [c_int]),
    "mha_regroup": (c_int, [c_void_p, POINTER(RegroupOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_plan_variant_key": (c_char_p, [c_int]),
    "mha_plan_variant_help": (c_char_p, [c_int]),
    "mha_plan_resolve": (c_int, [POINTER(PlanOptions), POINTER(PlanOptions), POINTER(Error)]),
    "mha_plan_layouts": (c_int, [POINTER(PlanOptions), POINTER(PlanRow), c_void_p, POINTER(Error)]),
    "mha_plan_variants": (c_int, [POINTER(PlanOptions), POINTER(PlanRow), POINTER(Error)]),
    "mha_plan_measure": (c_int, [c_void_p, POINTER(PlanOptions), POINTER(PlanRow), c_double, POINTER(Error)]),
    "mha_plan_advise": (c_int, [POINTER(PlanOptions), POINTER(PlanAdvice), POINTER(Error)]),
    "mha_version": (c_char_p, []),
}
