#!/usr/bin/env python3
"""Writes tests/golden/data/families2: a tiny checkpoint of each family that make_families_golden.py does not cover,
with the options that differ most from the families there, and the results of transformers, gradients included, for
`mha verify --golden`.

    python tests/golden/make_families2_golden.py [OUT_DIR]

Uses make_families_golden.py. All results are computed in float64 and rounded to float32. Encoders get a text with
padding inside.
"""
import copy
import json
import os
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers as tr
from make_families_golden import MARGIN, PROMPT, SMALL, START, greedy
from safetensors.torch import save_file
from transformers.core_model_loading import revert_weight_conversion

ENCODER = {k: v for k, v in SMALL.items() if k != "num_key_value_heads"}
ROPE = dict(rope_theta=1e4, rope_type="default")
FAMILIES = {
    "roberta": tr.RobertaConfig(**{**ENCODER, "pad_token_id": 1, "bos_token_id": 0, "max_position_embeddings": 66}, type_vocab_size=1),
    "xlm-roberta": tr.XLMRobertaConfig(**{**ENCODER, "pad_token_id": 3, "bos_token_id": 0, "max_position_embeddings": 68}, type_vocab_size=2,
                                       hidden_act="relu", tie_word_embeddings=False),
    "mpnet": tr.MPNetConfig(**{**ENCODER, "pad_token_id": 1, "bos_token_id": 0, "max_position_embeddings": 66}, hidden_act="silu",
                            relative_attention_num_buckets=40),
    "distilbert": tr.DistilBertConfig(vocab_size=64, dim=32, hidden_dim=40, n_layers=2, n_heads=4, max_position_embeddings=64, activation="relu"),
    "electra": tr.ElectraConfig(**ENCODER, embedding_size=24, type_vocab_size=2, hidden_act="relu"),
    "electra-discriminator": tr.ElectraConfig(**ENCODER, embedding_size=32, type_vocab_size=1, hidden_act="silu",
                                              architectures=["ElectraForPreTraining"]),
    "albert": tr.AlbertConfig(**{**ENCODER, "num_hidden_layers": 4}, embedding_size=20, num_hidden_groups=2, type_vocab_size=2,
                              hidden_act="gelu"),
    "deberta-v2": tr.DebertaV2Config(**ENCODER, relative_attention=True, max_relative_positions=6, pos_att_type=["c2p"], share_att_key=False,
                                     type_vocab_size=2),
    "deberta-v3": tr.DebertaV2Config(**ENCODER, relative_attention=True, position_buckets=6, pos_att_type="p2c|c2p", share_att_key=True,
                                     norm_rel_ebd="layer_norm", position_biased_input=False, legacy=False, hidden_act="relu"),
    "deberta-v2-convolution": tr.DebertaV2Config(**ENCODER, relative_attention=True, position_buckets=6, pos_att_type="p2c|c2p", share_att_key=True,
                                                 norm_rel_ebd="layer_norm", position_biased_input=False, conv_kernel_size=5, conv_groups=2,
                                                 conv_act="gelu"),
    "nomic-bert": tr.NomicBertConfig(**ENCODER, type_vocab_size=2, hidden_act="gelu", rope_parameters={**ROPE, "rope_theta": 500.0}),
    "modernbert": tr.ModernBertConfig(**{**ENCODER, "num_hidden_layers": 4}, global_attn_every_n_layers=2, local_attention=10,
                                      cls_token_id=1, sep_token_id=2),
    "gemma": tr.GemmaConfig(**SMALL, head_dim=16),
    "gemma3": tr.Gemma3TextConfig(**{**SMALL, "num_hidden_layers": 3}, head_dim=16, query_pre_attn_scalar=12, sliding_window=5,
                                  layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                  rope_parameters={"full_attention": {"rope_theta": 1e5, "rope_type": "linear", "factor": 8.0},
                                                   "sliding_attention": {"rope_theta": 3e3, "rope_type": "default"}}),
    "phi": tr.PhiConfig(**SMALL, rope_parameters={**ROPE, "partial_rotary_factor": 0.25}),
    "phi3": tr.Phi3Config(**{**SMALL, "max_position_embeddings": 96}, sliding_window=7, original_max_position_embeddings=16,
                          rope_parameters={**ROPE, "rope_type": "longrope", "partial_rotary_factor": 0.75, "short_factor": [1.0, 1.1, 1.2],
                                           "long_factor": [1.5, 2.5, 4.0], "original_max_position_embeddings": 16}),
    "gpt-neox": tr.GPTNeoXConfig(**ENCODER, use_parallel_residual=False, rope_parameters={**ROPE, "partial_rotary_factor": 0.5}),
    "gpt-neox-parallel": tr.GPTNeoXConfig(**ENCODER, use_parallel_residual=True, attention_bias=False, hidden_act="gelu_new",
                                          rope_parameters={**ROPE, "partial_rotary_factor": 0.25}),
    "opt": tr.OPTConfig(vocab_size=64, hidden_size=32, ffn_dim=40, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
                        word_embed_proj_dim=32, pad_token_id=1, bos_token_id=2, eos_token_id=2, enable_bias=False),
    "opt-post": tr.OPTConfig(vocab_size=64, hidden_size=32, ffn_dim=40, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
                             word_embed_proj_dim=20, pad_token_id=1, bos_token_id=2, eos_token_id=2, do_layer_norm_before=False),
    "opt-mapped": tr.OPTConfig(vocab_size=64, hidden_size=32, ffn_dim=40, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
                               word_embed_proj_dim=12, pad_token_id=1, bos_token_id=2, eos_token_id=2, tie_word_embeddings=False),
    "olmo2": tr.Olmo2Config(**SMALL, attention_bias=True),
    "granite": tr.GraniteConfig(**SMALL, attention_bias=True, mlp_bias=True, embedding_multiplier=2.0, attention_multiplier=0.4,
                                residual_multiplier=1.5, logits_scaling=3.0),
    "smollm3": tr.SmolLM3Config(**{**SMALL, "num_hidden_layers": 4}, tie_word_embeddings=False, use_sliding_window=True, sliding_window=6,
                                no_rope_layer_interval=2, max_window_layers=0),
    "mixtral": tr.MixtralConfig(**SMALL, num_local_experts=3, num_experts_per_tok=2, sliding_window=6, rope_parameters=ROPE),
    "qwen2-moe": tr.Qwen2MoeConfig(**{**SMALL, "num_hidden_layers": 3}, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20,
                                   shared_expert_intermediate_size=28, mlp_only_layers=[1], qkv_bias=False, norm_topk_prob=True,
                                   use_sliding_window=True, sliding_window=5, max_window_layers=1),
    "qwen3-moe": tr.Qwen3MoeConfig(**{**SMALL, "num_hidden_layers": 4}, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=16,
                                   decoder_sparse_step=2, attention_bias=True, head_dim=16, use_sliding_window=True, sliding_window=7),
    "gpt-oss": tr.GptOssConfig(**{**SMALL, "num_hidden_layers": 3}, head_dim=16, num_local_experts=5, num_experts_per_tok=2, sliding_window=6,
                               layer_types=["full_attention", "sliding_attention", "sliding_attention"], attention_bias=False,
                               swiglu_alpha=1.3, swiglu_limit=0.75,
                               rope_parameters={"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
                                                "beta_fast": 16.0, "beta_slow": 1.0}),
    "deepseek-v3": tr.DeepseekV3Config(**{**SMALL, "num_key_value_heads": 4}, q_lora_rank=20, kv_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4,
                                       v_head_dim=14, n_routed_experts=6, n_group=3, topk_group=2, num_experts_per_tok=3, n_shared_experts=2,
                                       moe_intermediate_size=12, first_k_dense_replace=1, norm_topk_prob=False, attention_bias=True,
                                       rope_interleave=False, routed_scaling_factor=1.5, rope_parameters=ROPE),
    "deepseek-v3-plain": tr.DeepseekV3Config(**{**SMALL, "num_key_value_heads": 4}, q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=6,
                                             qk_rope_head_dim=6, v_head_dim=8, n_routed_experts=4, n_group=1, topk_group=1,
                                             num_experts_per_tok=2, moe_intermediate_size=16, first_k_dense_replace=0,
                                             rope_parameters={"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0, "mscale": 0.8,
                                                              "mscale_all_dim": 0.6, "original_max_position_embeddings": 16}),
    "cohere": tr.CohereConfig(**SMALL, attention_bias=True, logit_scale=0.5),
    "bloom": tr.BloomConfig(vocab_size=64, hidden_size=36, n_layer=2, n_head=6, pad_token_id=3, bos_token_id=1, eos_token_id=2),
}


def is_encoder(config):
    return config.model_type in ("roberta", "xlm-roberta", "mpnet", "distilbert", "electra", "albert", "nomic_bert", "modernbert", "deberta-v2")


def is_discriminator(config):
    return config.architectures == ["ElectraForPreTraining"]


def draw(config, seed):
    """Returns a model whose weights are exact in bfloat16, with random biases and norm weights."""
    torch.manual_seed(seed)
    kind = tr.AutoModelForMaskedLM if is_encoder(config) else tr.AutoModelForCausalLM
    if is_discriminator(config):
        kind = tr.AutoModelForPreTraining
    model = kind.from_config(config, attn_implementation="eager", experts_implementation="eager").eval().float()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.25 * torch.randn_like(p))
        if config.model_type.startswith("gemma"):
            model.get_input_embeddings().weight.mul_(0.1)  # tied and scaled by sqrt(E): otherwise, tokens predict themselves
        routing = [b for name, b in model.named_buffers() if name.endswith("e_score_correction_bias")]
        for b in routing:
            b.add_(0.25 * torch.randn_like(b))
        for p in [*model.parameters(), *routing]:
            p.copy_(p.to(torch.bfloat16))
    return model


def twin_of(model):
    twin = copy.deepcopy(model).double()
    for module in twin.modules():  # buffers computed in float32 keep their values in float64
        for name in ("embed_scale",):
            if isinstance(getattr(module, name, None), torch.Tensor):
                setattr(module, name, getattr(module, name).double())
    return twin


def text(config, count):
    ids = torch.randint(4, 64, (count,))
    if config.model_type in ("roberta", "xlm-roberta", "mpnet"):
        ids[count // 2] = config.pad_token_id  # positions must skip the padding
    return ids.tolist()


def train(model, config, tensors):
    ids = torch.tensor([text(config, 12), text(config, 12)])
    mask, labels = torch.ones_like(ids), torch.randint(4, 64, (2, 12))
    mask[1, 8:] = 0
    ids[1, 8:] = config.pad_token_id if config.pad_token_id is not None else 0
    labels[:, ::3] = -100
    if is_discriminator(config):
        labels = torch.randint(0, 2, (2, 12))
    labels[mask == 0] = -100
    twin = twin_of(model)
    loss = twin(input_ids=ids, attention_mask=mask, labels=labels).loss
    loss.backward()
    named = {n: p.grad if p.grad is not None else torch.zeros_like(p) for n, p in twin.named_parameters()}
    stored = revert_weight_conversion(model, named)
    tensors.update({"train/input_ids": ids, "train/attention_mask": mask, "train/labels": labels,
                    "train/loss": loss.detach().double()})
    return {"loss": loss.item(), "gradients": {n: {"shape": list(x.shape), "norm": x.norm().item(), "sum": x.sum().item(),
                                                   "first": x.reshape(-1)[:4].tolist()} for n, x in stored.items()}}


def record(model, config):
    ids, start = text(config, PROMPT), torch.randint(4, 64, (START,)).tolist()
    with torch.no_grad():
        out = twin_of(model)(torch.tensor([ids]), output_hidden_states=True, output_attentions=True)
    tensors = {"prompt/input_ids": torch.tensor(ids), "prompt/logits": out.logits[0].float(), "prompt/attn": torch.cat(out.attentions).float()}
    if out.hidden_states[0].shape == out.hidden_states[-1].shape:
        tensors["prompt/hidden"] = torch.cat(out.hidden_states).float()
    else:
        tensors.update({f"prompt/hidden/{n}": x[0].float() for n, x in enumerate(out.hidden_states)})
    entry = {"train": train(model, config, tensors)}
    if is_encoder(config):
        return tensors, entry, 1.0
    new, margin = greedy(model, start, True)
    other, same = greedy(model, start, False)
    tensors.update({"gen/prompt_ids": torch.tensor(start), "gen/new_ids": new})
    if not torch.equal(new, other):
        assert config.model_type == "phi3", "the cache must not change the text"
        tensors["gen/new_ids_no_cache"] = other
    return tensors, entry, min(margin, same)


def make(out, name, config):
    for seed in range(1, 200):
        model = draw(config, seed)
        tensors, entry, margin = record(model, config)
        if margin > MARGIN:
            break
    else:
        sys.exit(f"{name}: a seed must have a margin of {MARGIN}")
    model.to(torch.bfloat16).save_pretrained(out / name)
    (out / name / "generation_config.json").unlink(missing_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, out / f"{name}.safetensors")
    print(f"{name}: seed {seed}, margin {margin:.4f}")
    return {"name": name, "family": config.model_type, "class": type(model).__name__, "folder": name, "file": f"{name}.safetensors",
            "seed": seed, "parameters": model.num_parameters(), **entry}


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "data/families2"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    tr.logging.set_verbosity_error()
    tr.utils.logging.disable_progress_bar()
    models = [make(out, name, config) for name, config in FAMILIES.items()]
    index = {"format": 1, "title": "further families, with gradients", "torch": torch.__version__.split("+")[0],
             "transformers": tr.__version__, "models": models}
    (out / "index.json").write_text(json.dumps(index) + "\n")


if __name__ == "__main__":
    main()
