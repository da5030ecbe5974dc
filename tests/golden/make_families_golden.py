#!/usr/bin/env python3
"""Writes tests/golden/data/families: a tiny checkpoint of each decoder family, each rotation and each way of storing
weights, with the results of transformers, for `mha verify --golden`.

    python tests/golden/make_families_golden.py [OUT_DIR]

Weights are random and, unless stated otherwise, stored as bfloat16, to keep the folder small. transformers computes in
float32, and again in float64, from which the recorded results are rounded. Prompts are longer than
max_position_embeddings if the rotation depends on it. Texts are greedy; the seed is chosen so that each generated token
leads the others by at least MARGIN.
"""
import json
import os
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

PROMPT, START, NEW, MARGIN = 24, 6, 24, 2e-3
SMALL = dict(hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=64,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def llama(most=64, **rope):
    """Returns the config of a LLaMA model with this rotation and `most` positions."""
    return LlamaConfig(**{**SMALL, "max_position_embeddings": most}, **({"rope_parameters": {"rope_theta": 1e4, **rope}} if rope else {}))


HALF = SMALL["hidden_size"] // SMALL["num_attention_heads"] // 2
FAMILIES = {
    "llama": LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True),
    "llama-f32": LlamaConfig(**SMALL, tie_word_embeddings=True),
    "llama-f16": llama(),
    "llama-linear": llama(rope_type="linear", factor=4.0),
    "llama-dynamic": llama(16, rope_type="dynamic", factor=2.0),
    "llama-llama3": llama(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16),
    "llama-yarn": llama(rope_type="yarn", factor=4.0, original_max_position_embeddings=16),
    "llama-longrope": llama(rope_type="longrope", factor=4.0, original_max_position_embeddings=16,
                            short_factor=[1.0 + 0.1 * n for n in range(HALF)], long_factor=[1.0 + 1.5 * n for n in range(HALF)]),
    "mistral": MistralConfig(**SMALL, head_dim=16, sliding_window=7),
    "qwen2": Qwen2Config(**SMALL),
    "qwen2-window": Qwen2Config(**SMALL, tie_word_embeddings=True, use_sliding_window=True, sliding_window=6, max_window_layers=1),
    "qwen3": Qwen3Config(**SMALL, head_dim=16),
    "gemma2": Gemma2Config(**SMALL, head_dim=16, query_pre_attn_scalar=16, sliding_window=6),
    "gpt2": GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=64, bos_token_id=1, eos_token_id=2),
}
STORED = {"llama-f32": torch.float32, "llama-f16": torch.float16}


def draw(config, seed, dtype):
    """Returns a model whose weights are exact in `dtype`, with random biases and norm weights."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.25 * torch.randn_like(p))
        if config.model_type == "gemma2":
            model.get_input_embeddings().weight.mul_(0.1)  # tied and scaled by sqrt(E): otherwise, tokens predict themselves
        for p in model.parameters():
            p.copy_(p.to(dtype))
    return model


def greedy(model, ids, use_cache):
    """Returns the new tokens, and the smallest difference between the best and the second-best logit of a token."""
    out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=NEW, do_sample=False, eos_token_id=None,
                         use_cache=use_cache, output_logits=True, return_dict_in_generate=True)
    best = torch.stack(out.logits)[:, 0].topk(2).values
    return out.sequences[0, len(ids):], (best[:, 0] - best[:, 1]).min().item()


def record(model):
    ids = torch.randint(3, 64, (PROMPT,)).tolist()
    start = torch.randint(3, 64, (max(START, 12 if model.config.max_position_embeddings < PROMPT else 0),)).tolist()
    with torch.no_grad():  # runs before any text, because a dynamic rotation keeps the length of the longest sequence
        out = model.double()(torch.tensor([ids]), output_hidden_states=True, output_attentions=True)
    model.float()
    new, margin = greedy(model, start, True)
    other, same = greedy(model, start, False)
    tensors = {"prompt/input_ids": torch.tensor(ids), "prompt/logits": out.logits[0].float(), "prompt/hidden": torch.cat(out.hidden_states).float(),
               "prompt/attn": torch.cat(out.attentions).float(), "gen/prompt_ids": torch.tensor(start), "gen/new_ids": new}
    if not torch.equal(new, other):
        assert model.config.rope_parameters["rope_type"] in ("dynamic", "longrope"), "the cache must not change the text"
        tensors["gen/new_ids_no_cache"] = other
    return tensors, min(margin, same)


def make(out, name, config):
    dtype = STORED.get(name, torch.bfloat16)
    for seed in range(1, 200):
        model = draw(config, seed, dtype)
        tensors, margin = record(model)
        if margin > MARGIN and len(set(tensors["gen/new_ids"].tolist())) > 5:
            break
    else:
        sys.exit(f"{name}: a seed must have a margin of {MARGIN}")
    model.to(dtype).save_pretrained(out / name)
    (out / name / "generation_config.json").unlink(missing_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, out / f"{name}.safetensors")
    print(f"{name}: seed {seed}, margin {margin:.4f}")
    return {"name": name, "family": config.model_type, "class": type(model).__name__, "folder": name, "file": f"{name}.safetensors",
            "seed": seed, "parameters": model.num_parameters()}


def other_forms(out):
    """Writes the same weights in several files, and with the names of the original GPT-2 on the hub."""
    model = AutoModelForCausalLM.from_pretrained(out / "llama-f32")
    model.save_pretrained(out / "llama-sharded", max_shard_size="30KB")
    shutil.copytree(out / "gpt2", out / "gpt2-hubnames")
    tensors = load_file(out / "gpt2/model.safetensors")
    tensors = {name.removeprefix("transformer."): t for name, t in tensors.items()}
    for n in range(2):
        tensors[f"h.{n}.attn.bias"] = torch.tril(torch.ones(1, 1, 64, 64)).to(torch.uint8)
    save_file(tensors, out / "gpt2-hubnames/model.safetensors", {"format": "pt"})
    (out / "llama-sharded/generation_config.json").unlink(missing_ok=True)
    return [{"name": name, "family": name.split("-")[0], "folder": name, "same_golden_as": same}
            for name, same in (("llama-sharded", "llama-f32"), ("gpt2-hubnames", "gpt2"))]


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "data/families"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    models = [make(out, name, config) for name, config in FAMILIES.items()] + other_forms(out)
    index = {"format": 1, "title": "every decoder family, rotation and way of storing weights", "torch": torch.__version__.split("+")[0],
             "transformers": transformers.__version__, "models": models}
    (out / "index.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
