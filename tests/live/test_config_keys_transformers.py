"""Compares mha.Model with transformers on keys of config.json that transformers treats specially: older names, defaults, keys that a family
ignores, and values with another meaning than their name. Both libraries read the same folder and must compute the same logits."""
import json
import tempfile
import unittest
from pathlib import Path

from hugging_face import disturbed, torch  # imported first: skips the test if PyTorch is not installed
import numpy as np
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, WhisperForConditionalGeneration
from transformers import BloomConfig, DebertaV2Config, Gemma2Config, Gemma3TextConfig, GemmaConfig, GPT2Config, GPTNeoXConfig, LlamaConfig
from transformers import MistralConfig, NomicBertConfig, Phi3Config, Qwen2Config, WhisperConfig

import mha

SMALL = dict(hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, vocab_size=97, num_key_value_heads=2,
             max_position_embeddings=64)
ENCODER = {k: v for k, v in SMALL.items() if k != "num_key_value_heads"}
GPT2 = dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=97)
ALTERNATE = ["full_attention", "sliding_attention"]
LLAMA3 = dict(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
LONG = dict(short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.5, 2.0, 3.0, 4.0])
SCALED = dict(rope_type="longrope", **LONG)
PHI3 = SMALL | dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
IDS = np.random.default_rng(8).integers(3, 97, (2, 12))
# Keys removed from and added to the saved config. A Mistral with layer_types is a Ministral.
CASES = (
    (MistralConfig(**SMALL, sliding_window=4), (), {"layer_types": ALTERNATE}),
    (Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=4), (), {"layer_types": ALTERNATE}),
    (Gemma2Config(**SMALL, head_dim=8), ("hidden_activation",), {"hidden_act": "relu"}),
    (MistralConfig(**SMALL), (), {"attention_bias": True, "mlp_bias": True}),
    (Qwen2Config(**SMALL), (), {"attention_bias": True, "mlp_bias": True}),
    (LlamaConfig(**SMALL, rope_parameters=LLAMA3), (),
     {"rope_parameters": LLAMA3 | {"original_max_position_embeddings": 8}, "original_max_position_embeddings": 32}),
    (GPT2Config(**GPT2), ("n_head", "n_layer", "n_embd", "n_positions"),
     {"num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": 32, "max_position_embeddings": 64}),
    (GemmaConfig(**SMALL, head_dim=8), (), {"hidden_act": "gelu"}),
    (Gemma3TextConfig(**SMALL, head_dim=8), (), {"attn_logit_softcapping": 0.5}),
    (GPTNeoXConfig(**ENCODER), (), {"hidden_act": "gelu_fast"}),
    (GPTNeoXConfig(**ENCODER), (), {"hidden_act": "gelu_python"}),
    (Phi3Config(**PHI3, original_max_position_embeddings=8), ("rope_parameters",), {"rope_scaling": dict(type="su", original_max_position_embeddings=8, **LONG)}),
    (Phi3Config(**PHI3, original_max_position_embeddings=8), ("rope_parameters",), {"rope_scaling": dict(type="yarn", **LONG)}),
    (Phi3Config(**PHI3, original_max_position_embeddings=8), ("rope_parameters", "original_max_position_embeddings"), {"rope_scaling": SCALED}),
    (NomicBertConfig(**ENCODER), ("rope_parameters",), {"rope_theta": 5.0}),
    (DebertaV2Config(**ENCODER, legacy=False), (), {"tie_word_embeddings": False}),
)


class ConfigKeys(unittest.TestCase):
    def saved(self, auto, config, removed=(), added=None):
        """Saves a random model and changes its config.json. Returns the folder, and the model that transformers reads from it."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        torch.manual_seed(9)
        disturbed(auto._from_config(config) if auto is WhisperForConditionalGeneration else auto.from_config(config)).save_pretrained(folder.name)
        path = Path(folder.name) / "config.json"
        keys = {k: v for k, v in json.loads(path.read_text()).items() if k not in removed}
        path.write_text(json.dumps(keys | (added or {})))
        return folder.name, auto.from_pretrained(folder.name, attn_implementation="eager").eval()

    def agree(self, got, want):
        self.assertLess(np.abs(got - want.detach().numpy()).max(), 1e-4)

    def test_logits(self):
        for config, removed, added in CASES:
            with self.subTest(config.model_type, removed=removed, added=added):
                encoder = config.model_type in ("nomic_bert", "deberta-v2")
                folder, theirs = self.saved(AutoModelForMaskedLM if encoder else AutoModelForCausalLM, config, removed, added)
                self.agree(mha.Model(folder).forward(IDS).logits, theirs(torch.tensor(IDS)).logits)

    def test_norms_with_weights_per_head_keep_the_heads(self):
        model = mha.Model.create(SMALL | dict(model_type="cohere", use_qk_norm=True))
        with self.assertRaisesRegex(ValueError, "heads of cohere must not be removed or regrouped, since a norm has weights for each"):
            mha.prune(model, np.array([[False, False, True, True]] * 2))
        with self.assertRaisesRegex(ValueError, "mha.heads and mha.kv_heads must be absent, since the norms of cohere have weights per head"):
            mha.Model.create(SMALL | {"model_type": "cohere", "use_qk_norm": True, "mha.heads": [[0, 1], [0, 1]]})

    def test_whisper_ignores_scale_embedding(self):
        config = WhisperConfig(vocab_size=97, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
                               encoder_ffn_dim=40, decoder_ffn_dim=40, max_source_positions=8, max_target_positions=16, pad_token_id=0,
                               bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, scale_embedding=True)
        folder, theirs = self.saved(WhisperForConditionalGeneration, config)
        features = np.random.default_rng(4).normal(size=(2, 80, 16)).astype(np.float32)
        self.agree(mha.Model(folder).forward(IDS, source=features).logits,
                   theirs(input_features=torch.tensor(features), decoder_input_ids=torch.tensor(IDS)).logits)

    def test_padding_has_a_gradient_where_transformers_computes_it(self):
        ids = IDS.copy()
        ids[:, 3] = 5
        for config, has in ((GPTNeoXConfig(**ENCODER, pad_token_id=5), True),
                            (BloomConfig(vocab_size=97, hidden_size=32, n_layer=2, n_head=4, pad_token_id=5, tie_word_embeddings=False), True),
                            (LlamaConfig(**SMALL, pad_token_id=5), False)):
            with self.subTest(config.model_type):
                folder, theirs = self.saved(AutoModelForCausalLM, config)
                theirs(torch.tensor(ids), labels=torch.tensor(ids)).loss.backward()
                name, words = next((n, p) for n, p in theirs.named_parameters() if p is theirs.get_input_embeddings().weight)
                self.assertEqual(words.grad[5].abs().max() > 1e-4, has)
                self.agree(mha.Model(folder).loss_and_grads(ids)[1][name], words.grad)


if __name__ == "__main__":
    unittest.main()
