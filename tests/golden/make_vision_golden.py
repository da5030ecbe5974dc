#!/usr/bin/env python3
"""Writes tests/golden/data/vision: tiny models of images and CLIP models, and the results of transformers, gradients
included, for `mha verify --golden`.

    python tests/golden/make_vision_golden.py [OUT_DIR]

All results are computed in float64 and rounded to float32. Weights are exact in bfloat16.
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
from safetensors.torch import save_file
from transformers.core_model_loading import revert_weight_conversion

TEXT = dict(vocab_size=64, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=20,
            projection_dim=16)
IMAGE = dict(hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, image_size=18, patch_size=6, projection_dim=16)
MODELS = {  # name: class, config, seed
    "vit-classes": (tr.ViTForImageClassification, tr.ViTConfig(hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
                                                               image_size=[13, 21], patch_size=[4, 5], num_channels=1, hidden_act="gelu_new",
                                                               layer_norm_eps=1e-6, id2label={n: f"class {n}" for n in range(5)}), 1),
    "vit-pooler": (tr.ViTModel, tr.ViTConfig(hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=4, image_size=12,
                                             patch_size=4, num_channels=4, hidden_act="relu", qkv_bias=False), 2),
    "clip-largest": (tr.CLIPModel, tr.CLIPConfig(text_config={**TEXT, "eos_token_id": 2, "hidden_act": "gelu"},
                                                 vision_config={**IMAGE, "hidden_act": "gelu"}, projection_dim=16), 3),
    "clip-eos": (tr.CLIPModel, tr.CLIPConfig(text_config={**TEXT, "eos_token_id": 7, "pad_token_id": 7}, vision_config=IMAGE,
                                             projection_dim=16), 4),
}


def draw(kind, config, seed):
    """Returns a model with random biases and norm weights."""
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    model = kind(config).eval().float()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name == "logit_scale":
                p.fill_(1.75)
            else:
                p.add_(0.2 * torch.randn_like(p))
            p.copy_(p.to(torch.bfloat16))
    return model


def gradients(model, twin, loss):
    loss.backward()
    named = {n: p.grad if p.grad is not None else torch.zeros_like(p) for n, p in twin.named_parameters()}
    stored = revert_weight_conversion(model, named)
    return {"loss": loss.item(), "gradients": {n: {"shape": list(x.shape), "norm": x.norm().item(), "sum": x.sum().item(),
                                                   "first": x.reshape(-1)[:4].tolist()} for n, x in stored.items()}}


def narrow(tensors):
    return {k: (v.float() if v.dtype == torch.float64 and k != "train/loss" else v).detach().contiguous() for k, v in tensors.items()}


def record_vit(model, twin, config):
    size = config.image_size if isinstance(config.image_size, list) else [config.image_size] * 2
    x = torch.randn(3, config.num_channels, *size, dtype=torch.float64).float().double()
    with torch.no_grad():
        out = twin(pixel_values=x[:1], output_attentions=True, output_hidden_states=True)
    t = {"pixels/pixel_values": x[0], "pixels/hidden": torch.cat(out.hidden_states), "pixels/attn": torch.cat(out.attentions)}
    for key in ("logits", "pooler_output", "last_hidden_state"):
        if getattr(out, key, None) is not None:
            t["pixels/" + key] = getattr(out, key)[0]
    t["train/pixel_values"] = x
    if hasattr(out, "logits"):
        t["train/labels"] = torch.tensor([4, 0, 2])
        loss = twin(pixel_values=x, labels=t["train/labels"]).loss
    else:
        t["train/upstream"] = torch.randn(3, config.hidden_size).double()
        loss = (twin(pixel_values=x).pooler_output * t["train/upstream"]).sum()
    t["train/loss"] = loss
    return t, {"pixels": {}, "train": gradients(model, twin, loss)}


def record_clip(model, twin, config):
    ids = torch.randint(8, 60, (3, 12))
    mask = torch.ones_like(ids)
    end = 7 if config.text_config.eos_token_id == 7 else 63
    for row, length in enumerate((12, 7, 9)):
        ids[row, length - 1:] = end
        if end == 63:
            ids[row, length:] = 0
        mask[row, length:] = 0
    x = torch.randn(3, 3, 18, 18, dtype=torch.float64).float().double()
    with torch.no_grad():
        out = twin(input_ids=ids, attention_mask=mask, pixel_values=x)
        sides = {"text": twin.text_model(input_ids=ids[1:2], attention_mask=mask[1:2], output_attentions=True, output_hidden_states=True),
                 "vision": twin.vision_model(pixel_values=x[:1], output_attentions=True, output_hidden_states=True)}
    t = {"pixels/pixel_values": x, "pixels/input_ids": ids, "pixels/attention_mask": mask}
    for name, side in sides.items():
        t[f"pixels/{name}_hidden"] = torch.cat(side.hidden_states)
        t[f"pixels/{name}_attn"] = torch.cat(side.attentions)
        t[f"pixels/{name}_last_hidden_state"] = side.last_hidden_state[0]
        t[f"pixels/{name}_pooled"] = side.pooler_output[0]
    for key in ("text_embeds", "image_embeds", "logits_per_image", "logits_per_text"):
        t["pixels/" + key] = getattr(out, key)
    loss = twin(input_ids=ids, attention_mask=mask, pixel_values=x, return_loss=True).loss
    t.update({"train/input_ids": ids.clone(), "train/attention_mask": mask.clone(), "train/pixel_values": x.clone(), "train/loss": loss})
    return t, {"pixels": {}, "train": gradients(model, twin, loss)}


def change_config(path):
    """Moves the object of the text tower to its key in old files, whose values replace those of text_config."""
    config = json.loads(path.read_text())
    config["text_config_dict"] = config["text_config"]
    config["text_config"] = {**config["text_config"], "num_attention_heads": 6}
    path.write_text(json.dumps(config, indent=2) + "\n")


def make(out, name, kind, config, seed):
    model = draw(kind, config, seed)
    twin = copy.deepcopy(model).double()
    tensors, entry = (record_clip if config.model_type == "clip" else record_vit)(model, twin, config)
    model.to(torch.bfloat16).save_pretrained(out / name)
    if name == "clip-largest":
        change_config(out / name / "config.json")
    save_file(narrow(tensors), out / f"{name}.safetensors")
    return {"name": name, "family": config.model_type, "class": kind.__name__, "folder": name, "file": f"{name}.safetensors", "seed": seed,
            "parameters": model.num_parameters(), **entry}


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "data/vision"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    tr.logging.set_verbosity_error()
    tr.utils.logging.disable_progress_bar()
    index = {"format": 1, "title": "models of images, with gradients", "torch": torch.__version__.split("+")[0], "transformers": tr.__version__,
             "models": [make(out, name, *how) for name, how in MODELS.items()]}
    (out / "index.json").write_text(json.dumps(index) + "\n")


if __name__ == "__main__":
    main()
