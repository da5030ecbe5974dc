"""Compares GGUF files written by mha with the constants of gguf-py: every key and every tensor must be one of the architecture, and every
tensor must contain the elements of the folder, under the name and in the layout that llama.cpp's converter uses. The models are created by
transformers with random weights; their logits must be those of transformers, and bitwise identical in both formats."""
import re
import sys
import tempfile
import unittest

from hugging_face import disturbed, torch  # imported first: skips the test if PyTorch is not installed
import numpy as np
import transformers

try:
    import gguf
    from safetensors.numpy import load_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import mha

SMALL = dict(vocab_size=80, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
EXPERTS = dict(num_local_experts=4, num_experts_per_tok=2)
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 16, "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.5, 2.0, 3.0, 4.0]}
CASES = [  # model_type, architecture, options
    ("llama", "llama", {}),
    ("llama", "llama", {"rope_parameters": YARN}),
    ("qwen2", "qwen2", {}),
    ("qwen3", "qwen3", {"head_dim": 16}),
    ("gemma2", "gemma2", {"head_dim": 8, "query_pre_attn_scalar": 8, "tie_word_embeddings": True}),
    ("gemma3_text", "gemma3", {"head_dim": 8, "query_pre_attn_scalar": 8, "tie_word_embeddings": True}),
    ("olmo2", "olmo2", {}),
    ("granite", "granite", {"attention_multiplier": 0.3, "embedding_multiplier": 2.5, "residual_multiplier": 0.7, "logits_scaling": 1.5}),
    ("smollm3", "smollm3", {"num_hidden_layers": 4}),
    ("phi3", "phi3", {}),
    ("phi3", "phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 16}),
    ("mixtral", "llama", EXPERTS),
    ("qwen3_moe", "qwen3moe", EXPERTS | {"head_dim": 16, "moe_intermediate_size": 24, "norm_topk_prob": True, "num_experts": 4}),
]
PERMUTED = {"llama", "granite", "smollm3", "mixtral"}
IDS = np.array([[5, 17, 42, 8, 33, 21, 60, 2, 9, 1, 77, 40]])


def keys_of(group, architecture):
    """Returns all keys that gguf-py knows, with the name of the architecture."""
    out = set()
    for name, value in vars(group).items():
        if isinstance(value, str) and not name.startswith("_"): out.add(value.replace("{arch}", architecture))
        if isinstance(value, type): out |= keys_of(value, architecture)
    return out


def stacked(weights):
    """Joins the matrices of experts, as the converter does."""
    out, stacks = {}, {}
    for name, x in weights.items():
        m = re.match(r"(.*\.experts)\.(\d+)\.(.*)", name)
        if m: stacks.setdefault(m[1] + "." + m[3], {})[int(m[2])] = x
        else: out[name] = x
    return out | {name: np.stack([x[n] for n in range(len(x))]) for name, x in stacks.items()}


def neighbors(x, heads):
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def expected(family, name, x):
    """Returns the elements that the converter stores."""
    if family in PERMUTED and re.search(r"\.[qk]_proj\.", name):
        return neighbors(x, SMALL["num_attention_heads" if "q_proj" in name else "num_key_value_heads"])
    return x + np.float32(1) if family.startswith("gemma") and name.endswith("norm.weight") else x


class Names(unittest.TestCase):
    def convert(self, family, options, work):
        torch.manual_seed(3)
        config = transformers.AutoConfig.for_model(family, **(SMALL | options))
        model = disturbed(transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")).eval()
        model.save_pretrained(work + "/folder")
        with torch.no_grad(): want = model(torch.tensor(IDS)).logits[0].numpy()
        ours = mha.Model(work + "/folder")
        ours.save_gguf(work + "/model.gguf")
        folder, file = (m.forward(IDS).logits[0] for m in (ours, mha.Model(work + "/model.gguf")))
        self.assertEqual(folder.tobytes(), file.tobytes(), f"logits of {family}")
        np.testing.assert_allclose(folder, want, rtol=1e-4, atol=1e-4)
        return gguf.GGUFReader(work + "/model.gguf")

    def check_tensors(self, family, architecture, reader, work):
        arch = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[architecture]
        names = gguf.get_tensor_name_map(arch, 4)
        allowed = {gguf.TENSOR_NAMES[t] for t in gguf.MODEL_TENSORS[arch]}
        tensors = {t.name: t for t in reader.tensors if not t.name.startswith("rope_")}
        weights = stacked(load_file(work + "/folder/model.safetensors"))
        for name, x in weights.items():
            own = names.get_name(name, try_suffixes=(".weight", ".bias"))
            self.assertIn(own, tensors, name)
            self.assertIn(re.sub(r"\d+", "{bid}", own, count=1).rsplit(".", 1)[0], allowed)
            self.assertEqual(tensors[own].data.tobytes(), np.ascontiguousarray(expected(family, name, x)).tobytes(), name)
        self.assertEqual(len(tensors), len(weights))

    def test_names(self):
        for family, architecture, options in CASES:
            with self.subTest(family=family, options=options), tempfile.TemporaryDirectory() as work:
                reader = self.convert(family, options, work)
                known = keys_of(gguf.Keys, architecture)
                for key in reader.fields:
                    if not key.startswith("GGUF."): self.assertIn(key, known)
                self.check_tensors(family, architecture, reader, work)


if __name__ == "__main__":
    unittest.main()
