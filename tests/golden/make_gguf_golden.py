#!/usr/bin/env python3
"""make_gguf_golden.py - writes data/gguf by gguf-py: types.gguf, a file with every tensor type that mha reads, and types.safetensors, the same
tensors as gguf-py converts them to float32; models of data/families; and tokenizers of data/models, without tensors. Requires gguf (0.19), numpy
and safetensors."""

import base64
import json
import math
import re
import struct
import sys
from pathlib import Path

import gguf
import gguf.quants as quants
import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import GGUFReader, GGUFWriter
from safetensors.numpy import save_file


def types(out):
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
        at = {Q.Q6_K: 208, Q.Q3_K: 108, Q.Q2_K: 80}.get(q, 0)  # of the scale
        if q == Q.MXFP4: b[:, 0] = np.resize([0, 1, 2, 60, 127, 200, 250, 254], n)
        else: b[:, at:at + 2] = h
        if q in (Q.Q4_1, Q.Q5_1, Q.Q4_K, Q.Q5_K, Q.Q2_K): b[:, at + 2:at + 4] = halves(n)[::-1]
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
    for q, cols in [(Q.Q4_1, 64), (Q.Q5_0, 64), (Q.Q5_1, 64), (Q.IQ4_NL, 64), (Q.MXFP4, 64), (Q.Q2_K, 512), (Q.Q3_K, 512), (Q.Q5_K, 512),
                    (Q.IQ4_XS, 512)]:
        block, size = gguf.constants.GGML_QUANT_SIZES[q]
        put(q.name.lower(), q, 6, cols, blocks(q, 6 * cols // block).reshape(6, cols // block * size))
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
    r = GGUFReader(out + "/types.gguf")
    for t in r.tensors:  # gguf-py reads back what it wrote
        assert np.array_equal(quants.dequantize(t.data, t.tensor_type).reshape(exp[t.name].shape).view(np.uint32), exp[t.name].view(np.uint32)), t.name
    save_file({k: np.ascontiguousarray(v.reshape(exp[k].shape)) for k, v in exp.items()}, out + "/types.safetensors")


def load(folder):
    with open(folder + "/model.safetensors", "rb") as f: data = f.read()
    n = struct.unpack("<Q", data[:8])[0]; head = json.loads(data[8:8 + n]); out = {}
    for k, v in head.items():
        if k == "__metadata__": continue
        raw = data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]
        if v["dtype"] == "BF16": x = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif v["dtype"] == "U8": x = np.frombuffer(raw, np.uint8)
        else: x = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16, "I64": np.int64}[v["dtype"]]).astype(np.float32)
        out[k] = x.reshape(v["shape"])
    return out
def permute(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)
def experts(weights):
    """Stacks the matrices of experts."""
    out, stacks = {}, {}
    for k, x in weights.items():
        m = re.match(r"(.*\.experts)\.(\d+)\.(.*)", k)
        if m: stacks.setdefault(m[1] + "." + m[3], {})[int(m[2])] = x
        else: out[k] = x
    return out | {k: np.stack([v[n] for n in range(len(v))]) for k, v in stacks.items()}
def repack(codes, scales):
    """Returns MXFP4 of gpt-oss, with two neighbors in a byte, as blocks of ggml: a scale, then bytes with elements i and 16 + i."""
    x = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], 32)
    return np.concatenate([scales[..., None], x[..., :16] | x[..., 16:] << 4], -1).reshape(*codes.shape[:-2], -1)
def oss_experts(weights):
    """Splits the experts of gpt-oss: names of GGUF, and arrays of bytes for MXFP4 or of floats."""
    out = {}
    for k, x in weights.items():
        m = re.match(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up|down)_proj(_blocks|_bias)$", k)
        if not m: continue
        if m[3] == "_blocks": x = repack(x, weights[k.replace("_blocks", "_scales")])
        suffix = ".bias" if m[3] == "_bias" else ".weight"
        parts = {"gate": x[:, ::2], "up": x[:, 1::2]} if m[2] == "gate_up" else {"down": x}
        out |= {f"blk.{m[1]}.ffn_{n}_exps{suffix}": np.ascontiguousarray(v) for n, v in parts.items()}
    return out
def convert(folder, out, kind="f32", tensors=True, changes=None):
    """Writes a folder, with changes of its config, as GGUF: by the rules of llama.cpp's convert_hf_to_gguf.py and the tensor names of
    gguf-py."""
    c = json.load(open(folder + "/config.json")) | (changes or {}); path = Path(folder) / "tokenizer.json"
    t = json.loads(path.read_text()) if path.exists() else None
    family = c["model_type"]
    arch = {"mistral": "llama", "mixtral": "llama", "gemma3_text": "gemma3", "qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss",
            "nomic_bert": "nomic-bert"}.get(family, family)
    permuted = family in ("llama", "mistral", "mixtral", "granite", "smollm3")
    A = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[arch]
    w = gguf.GGUFWriter(out, arch)
    g = lambda *names: next((c[n] for n in names if c.get(n) is not None), None)
    E, L, H = g("hidden_size", "n_embd"), g("num_hidden_layers", "n_layer"), g("num_attention_heads", "n_head")
    KV = g("num_key_value_heads") or H
    w.add_context_length(g("max_position_embeddings", "n_positions")); w.add_embedding_length(E); w.add_block_count(L)
    w.add_feed_forward_length(g("intermediate_size", "n_inner") or 4 * E); w.add_head_count(H)
    if family in ("bert", "gpt2", "nomic_bert"): w.add_layer_norm_eps(g("layer_norm_eps", "layer_norm_epsilon"))
    else:
        w.add_head_count_kv(KV); w.add_layer_norm_rms_eps(c["rms_norm_eps"])
        D = c.get("head_dim") or E // H
        w.add_key_length(D); w.add_value_length(D); w.add_vocab_size(c["vocab_size"])
        rope = c.get("rope_parameters") or {}
        local = rope.get("sliding_attention"); rope = rope.get("full_attention", rope)
        w.add_rope_freq_base(rope.get("rope_theta", c.get("rope_theta", 10000.0)))
        if permuted: w.add_rope_dimension_count(D)
        if rope.get("rope_type") == "linear":
            w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR); w.add_rope_scaling_factor(rope["factor"])
        if local: w.add_rope_freq_base_swa(local["rope_theta"])
        if family == "gemma3_text":
            w.add_sliding_window(c["sliding_window"]); w.add_sliding_window_pattern([k[0] == "s" for k in c["layer_types"]])
        if family == "granite":
            w.add_attention_scale(c["attention_multiplier"]); w.add_embedding_scale(c["embedding_multiplier"])
            w.add_residual_scale(c["residual_multiplier"]); w.add_logit_scale(c["logits_scaling"])
        if family == "gpt_oss":
            w.add_sliding_window(c["sliding_window"]); w.add_expert_feed_forward_length(c["intermediate_size"])
            w.add_rope_dimension_count(D); w.add_rope_scaling_type(gguf.RopeScalingType.YARN); w.add_rope_scaling_factor(rope["factor"])
            w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
            w.add_rope_scaling_yarn_beta_fast(rope["beta_fast"]); w.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        if family in ("mixtral", "qwen3_moe", "gpt_oss"):
            w.add_expert_count(g("num_local_experts", "num_experts")); w.add_expert_used_count(c["num_experts_per_tok"])
            if family == "qwen3_moe": w.add_expert_feed_forward_length(c["moe_intermediate_size"])
        if family == "phi3":
            old = c["original_max_position_embeddings"]
            w.add_rope_dimension_count(int(rope["partial_rotary_factor"] * D)); w.add_sliding_window(c["sliding_window"] or 0)
            w.add_rope_scaling_orig_ctx_len(old)
            w.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(c["max_position_embeddings"] / old) / math.log(old)))
            for n in ("long", "short"): w.add_tensor(f"rope_factors_{n}.weight", np.array(rope[n + "_factor"], np.float32))
        if family in ("gemma2",):
            w.add_attn_logit_softcapping(c["attn_logit_softcapping"]); w.add_final_logit_softcapping(c["final_logit_softcapping"])
            w.add_sliding_window(c["sliding_window"])
    if family in ("bert", "nomic_bert"): w.add_causal_attention(False)
    if family == "nomic_bert": w.add_rope_freq_base(c["rope_parameters"]["rope_theta"])
    if t: tokenizer(w, t, c)
    else: w.add_tokenizer_model("no_vocab")
    names = gguf.get_tensor_name_map(A, L)
    weights = load(folder) if tensors else {}
    for name, x in oss_experts(weights).items():
        w.add_tensor(name, x, raw_dtype=gguf.GGMLQuantizationType.MXFP4 if x.dtype == np.uint8 else None)
    for k, x in experts({k: x for k, x in weights.items() if family != "gpt_oss" or ".mlp.experts." not in k}).items():
        if k.endswith((".attn.bias", ".attn.masked_bias", "position_ids")) or "pooler" in k or k.startswith("cls."): continue
        if k.endswith(("q_proj.weight", "q_proj.bias")) and permuted: x = permute(x, H)
        if k.endswith(("k_proj.weight", "k_proj.bias")) and permuted: x = permute(x, KV)
        if k.endswith("norm.weight") and family.startswith("gemma"): x = x + np.float32(1)
        if family == "gpt2" and k.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")): x = np.ascontiguousarray(x.T)
        if k.endswith(".sinks"): k += ".weight"
        key = k.removeprefix("bert.").removeprefix("nomic_bert.")
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert name, k
        q = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_0": gguf.GGMLQuantizationType.Q4_0}[kind]
        if x.ndim < 2 or ".ffn_gate_inp" in name or x.shape[-1] % 32 and kind.startswith("q"): q = gguf.GGMLQuantizationType.F32
        w.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(x), q), raw_dtype=q)
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
def t5(folder, out, changes=None):
    """Writes a T5 with its Unigram tokenizer, by the rules of llama.cpp's converter; a tied T5 has no output matrix."""
    c = json.load(open(folder + "/config.json")) | (changes or {}); t = json.load(open(folder + "/tokenizer.json"))
    w = gguf.GGUFWriter(out, "t5"); T = gguf.TokenType
    w.add_context_length(c.get("n_positions", 512)); w.add_embedding_length(c["d_model"]); w.add_feed_forward_length(c["d_ff"])
    w.add_block_count(c["num_layers"]); w.add_decoder_block_count(c["num_decoder_layers"]); w.add_head_count(c["num_heads"])
    w.add_key_length(c["d_kv"]); w.add_value_length(c["d_kv"]); w.add_layer_norm_eps(c["layer_norm_epsilon"])
    w.add_relative_attn_buckets_count(c["relative_attention_num_buckets"]); w.add_layer_norm_rms_eps(c["layer_norm_epsilon"])
    w.add_decoder_start_token_id(c["decoder_start_token_id"])
    tokens, scores = [list(x) for x in zip(*t["model"]["vocab"])]; special = {a["id"] for a in t["added_tokens"]}
    types = [T.UNKNOWN if i == t["model"]["unk_id"] else T.CONTROL if i in special else T.NORMAL for i in range(len(tokens))]
    w.add_tokenizer_model("t5"); w.add_tokenizer_pre("default"); w.add_token_list(tokens); w.add_token_scores(scores); w.add_token_types(types)
    w.add_add_space_prefix(True); w.add_remove_extra_whitespaces(True)
    for step in t["normalizer"].get("normalizers", [t["normalizer"]]):
        if step["type"] == "Precompiled": w.add_precompiled_charsmap(base64.b64decode(step["precompiled_charsmap"]))
    w.add_eos_token_id(1); w.add_pad_token_id(0); w.add_unk_token_id(t["model"]["unk_id"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.T5, max(c["num_layers"], c["num_decoder_layers"]))
    for k, x in load(folder).items(): w.add_tensor(names.get_name(k, try_suffixes=(".weight",)), np.ascontiguousarray(x))
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
def tokenizer(w, t, c):
    m = t["model"]; vocab = {i: s for s, i in m["vocab"].items()}; T = gguf.TokenType
    types = {i: T.NORMAL for i in vocab}
    for a in t["added_tokens"]:
        vocab[a["id"]] = a["content"]; types[a["id"]] = T.CONTROL if a["special"] else T.USER_DEFINED
    V = max(max(vocab) + 1, c["vocab_size"])
    tokens = [vocab.get(i, f"[PAD{i}]") for i in range(V)]; types = [types.get(i, T.UNUSED) for i in range(V)]
    if m["type"] == "WordPiece":
        w.add_tokenizer_model("bert")
        tokens = [s if s.startswith("[") and s.endswith("]") else s[2:] if s.startswith("##") else "\u2581" + s for s in tokens]
        w.add_token_list(tokens); w.add_token_types(types)
        w.add_bos_token_id(tokens.index("[CLS]")); w.add_sep_token_id(tokens.index("[SEP]")); w.add_unk_token_id(tokens.index("[UNK]")); w.add_pad_token_id(tokens.index("[PAD]"))
    else:
        pre = json.dumps(t["pre_tokenizer"])
        if m.get("byte_fallback"):
            w.add_tokenizer_model("llama"); rank = {}
            for n, x in enumerate(m["merges"]):
                a, b = x if isinstance(x, list) else x.split(" "); rank.setdefault(a + b, n)
            types = [T.BYTE if len(s) == 6 and s.startswith("<0x") else k for s, k in zip(tokens, types)]
            w.add_token_list(tokens); w.add_token_scores([-float(rank.get(s, 10**6)) for s in tokens]); w.add_token_types(types)
            if "Prepend" not in json.dumps(t["normalizer"]): w.add_add_space_prefix(False)
            if m.get("unk_token") in m["vocab"]: w.add_unk_token_id(m["vocab"][m["unk_token"]])
        else:
            w.add_tokenizer_model("gpt2"); w.add_tokenizer_pre("llama-bpe" if "{1,3}" in pre else "qwen2" if "Split" in pre else "gpt-2")
            w.add_token_list(tokens); w.add_token_types(types)
            w.add_token_merges([x if isinstance(x, str) else " ".join(x) for x in m["merges"]])
        if c.get("bos_token_id") is not None: w.add_bos_token_id(c["bos_token_id"])
        if c.get("eos_token_id") is not None: w.add_eos_token_id(c["eos_token_id"])


if __name__ == "__main__":
    data = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/data")
    out = str(data / "gguf")
    types(out)
    for family in ("llama", "llama-f16", "llama-linear", "qwen2", "qwen3", "gpt2", "gemma2"):
        convert(str(data / "families" / family), f"{out}/{family}.gguf", "f16" if family == "llama-f16" else "bf16")
    for family, changes in (("olmo2", {}), ("granite", {}), ("phi3", {}),
                            ("mixtral", {"sliding_window": None}), ("nomic-bert", {"hidden_act": "silu"}),
                            ("gemma3", {"query_pre_attn_scalar": 16}),
                            ("smollm3", {"no_rope_layers": [1, 1, 1, 0], "use_sliding_window": False})):
        convert(str(data / "families2" / family), f"{out}/{family}.gguf", "bf16", changes=changes)
    convert(str(data / "quantized/gpt-oss-mxfp4"), f"{out}/gpt-oss.gguf", "bf16")
    t5(str(data / "seq2seq/t5"), f"{out}/t5.gguf", {"relative_attention_max_distance": 128})
    t5(str(data / "seq2seq/t5-gated"), f"{out}/t5-gated.gguf")
    for model in ("gpt2-tiny", "bert-tiny"):
        convert(str(data / "models" / model), f"{out}/{model}.gguf", "f32", tensors=False)
