#!/usr/bin/env python3
"""Writes tests/golden/data/quantized: tiny checkpoints whose weights are codes with scales, with the results of
transformers for the dequantized weights, gradients included, for `mha verify --golden`; and elements.safetensors, codes,
scales and the elements to which PyTorch converts them.

    python tests/golden/make_quantized_golden.py [OUT_DIR]

Uses make_families2_golden.py. MXFP4 is dequantized by transformers; 8-bit floats are multiplied by their scales in
float32.
"""
import json
import shutil
import sys
import tempfile
from pathlib import Path

import make_families2_golden as golden
import torch
import transformers as tr
from make_families_golden import MARGIN, SMALL
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [16, 12]}
COMPRESSED = {"quant_method": "compressed-tensors", "format": "float-quantized", "sparsity_config": {}, "transform_config": {},
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}}
MODELS = {
    "gpt-oss-mxfp4": (tr.GptOssConfig(**{**SMALL, "hidden_size": 64, "intermediate_size": 32, "initializer_range": 0.1}, head_dim=16,
                                      num_local_experts=3, num_experts_per_tok=2, sliding_window=6,
                                      rope_parameters={"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0, "beta_slow": 1.0,
                                                       "original_max_position_embeddings": 16, "truncate": False}),
                      {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}),
    "deepseek-v3-fp8": (tr.DeepseekV3Config(**{**SMALL, "num_key_value_heads": 4}, q_lora_rank=20, kv_lora_rank=12, qk_nope_head_dim=8,
                                            qk_rope_head_dim=4, v_head_dim=10, n_routed_experts=4, n_group=2, topk_group=1,
                                            num_experts_per_tok=2, moe_intermediate_size=20, first_k_dense_replace=1,
                                            rope_parameters=golden.ROPE), FP8),
    "llama-compressed": (tr.LlamaConfig(**SMALL), COMPRESSED),
}


def mxfp4(tensors):
    """Returns the stored tensors, with random codes instead of experts, and the dequantized tensors."""
    codes, plain = {}, {}
    for name, x in tensors.items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            codes[name], plain[name] = x, x.float()
            continue
        experts, columns, rows = x.shape
        blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8)
        scales = torch.randint(120, 124, (experts, rows, columns // 32), dtype=torch.uint8)
        codes[name + "_blocks"], codes[name + "_scales"] = blocks, scales
        plain[name] = convert_moe_packed_tensors(blocks, scales).float()
    return codes, plain


def is_quantized(name, x):
    return x.ndim == 2 and not any(part in name for part in ("embed", "lm_head", "mlp.gate.", "norm"))


def fp8(tensors, block):
    codes, plain = {}, {}
    for name, x in tensors.items():
        if not is_quantized(name, x):
            codes[name], plain[name] = x, x.float()
            continue
        x, (rows, columns) = x.float(), x.shape
        grid = torch.full((-(-rows // block[0]), -(-columns // block[1])), 1 / 256).mul(torch.rand(-(-rows // block[0]), -(-columns // block[1])) + 1)
        wide = grid.repeat_interleave(block[0], 0)[:rows].repeat_interleave(block[1], 1)[:, :columns]
        small = (x / wide).to(E4M3)
        codes[name], codes[name + "_scale_inv"] = small, grid
        plain[name] = small.float() * wide
    return codes, plain


def compressed(tensors):
    """Quantizes attention per row with scales in bfloat16, gates per row, and the rest as one, with a type of its own."""
    codes, plain = {}, {}
    for name, x in tensors.items():
        if not is_quantized(name, x):
            codes[name], plain[name] = x, x.float()
            continue
        kind = E5M2 if "down_proj" in name else E4M3
        scale = (x.float().abs().amax(1, keepdim=True) / 400).to(torch.bfloat16)
        if "mlp" in name:
            scale = scale.amax().reshape(1) if "up_proj" in name else scale.float().squeeze(1)
        wide = scale.float().reshape(-1, 1)
        small = (x.float() / wide).to(kind)
        codes[name], codes[name + "_scale"] = small, scale
        codes[name.removesuffix("weight") + "input_scale"] = torch.ones(1)
        plain[name] = small.float() * wide
    return codes, plain


def quantize(tensors, how):
    if how["quant_method"] == "mxfp4":
        return mxfp4(tensors)
    return fp8(tensors, how["weight_block_size"]) if how["quant_method"] == "fp8" else compressed(tensors)


def draw(config, how, seed, work):
    """Returns a model with dequantized weights, and the stored tensors."""
    golden.draw(config, seed).to(torch.bfloat16).save_pretrained(work)
    codes, plain = quantize(load_file(work / "model.safetensors"), how)
    save_file({k: v.contiguous() for k, v in plain.items()}, work / "model.safetensors", {"format": "pt"})
    model = tr.AutoModelForCausalLM.from_pretrained(work, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
    return model.eval(), codes


def check_with_transformers(folder, model):
    """Checks that transformers dequantizes the folder to the same weights."""
    own = tr.AutoModelForCausalLM.from_pretrained(folder, quantization_config=tr.Mxfp4Config(dequantize=True), dtype=torch.bfloat16)
    for (name, a), (_, b) in zip(own.named_parameters(), model.named_parameters()):
        assert torch.equal(a.float(), b), name


def make(out, name, config, how, work):
    for seed in range(1, 200):
        model, codes = draw(config, how, seed, work)
        tensors, entry, margin = golden.record(model, config)
        if margin > MARGIN:
            break
    else:
        sys.exit(f"{name}: a seed must have a margin of {MARGIN}")
    (out / name).mkdir()
    text = json.loads((work / "config.json").read_text()) | {"quantization_config": how, "dtype": "bfloat16"}
    (out / name / "config.json").write_text(json.dumps(text, indent=2) + "\n")
    save_file({k: v.contiguous() for k, v in codes.items()}, out / name / "model.safetensors", {"format": "pt"})
    save_file({k: v.contiguous() for k, v in tensors.items()}, out / f"{name}.safetensors")
    if how["quant_method"] == "mxfp4":
        check_with_transformers(out / name, model)
    print(f"{name}: seed {seed}, margin {margin:.4f}")
    return {"name": name, "family": config.model_type, "class": type(model).__name__, "folder": name, "file": f"{name}.safetensors",
            "seed": seed, "parameters": model.num_parameters(), **entry}


def elements(path):
    """Writes all codes and scales of each type, and a matrix that is not a multiple of a tile."""
    torch.manual_seed(1)
    blocks = torch.randint(0, 256, (2, 19, 9, 16), dtype=torch.uint8)
    scales = torch.randint(0, 256, (2, 19, 9), dtype=torch.uint8)
    scales.view(-1)[:256] = torch.arange(256, dtype=torch.uint8)
    t = {"mxfp4_blocks": blocks, "mxfp4_scales": scales, "mxfp4": convert_moe_packed_tensors(blocks, scales).float()}
    every = torch.arange(256, dtype=torch.uint8).reshape(8, 32).repeat(3, 9)[:, :270].contiguous()
    for name, kind in (("e4m3", E4M3), ("e5m2", E5M2)):
        x = every.clone().view(kind)
        grid, rows, one = torch.randn(5, 3), torch.randn(24, 1).to(torch.bfloat16), torch.randn(1).half()
        wide = grid.repeat_interleave(5, 0)[:24].repeat_interleave(100, 1)[:, :270]
        t |= {f"{name}.weight": x, f"{name}.blocks": grid, f"{name}.rows": rows, f"{name}.one": one, f"{name}.by_blocks": x.float() * wide,
              f"{name}.by_rows": x.float() * rows.float(), f"{name}.by_one": x.float() * one.float()}
    save_file(t, path)


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "data/quantized"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    tr.logging.set_verbosity_error()
    tr.utils.logging.disable_progress_bar()
    elements(out / "elements.safetensors")
    with tempfile.TemporaryDirectory() as work:
        models = [make(out, name, config, how, Path(work)) for name, (config, how) in MODELS.items()]
    index = {"format": 1, "title": "quantized checkpoints, with gradients", "torch": torch.__version__.split("+")[0],
             "transformers": tr.__version__, "models": models}
    (out / "index.json").write_text(json.dumps(index) + "\n")


if __name__ == "__main__":
    main()
