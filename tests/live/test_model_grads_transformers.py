"""Compares mha.Model with transformers on a tiny model of each family: logits, greedy tokens, the gradient of every
parameter, and saved checkpoints that transformers loads."""
import json
import os
import tempfile
import unittest
from pathlib import Path

from hugging_face import disturbed, torch  # imported first: skips the test if PyTorch is not installed
import numpy as np
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers import AlbertConfig, CohereConfig, DebertaV2Config, DeepseekV3Config, ElectraConfig, GptOssConfig, MixtralConfig
from transformers import Qwen2MoeConfig, Qwen3MoeConfig
from transformers.core_model_loading import revert_weight_conversion
from transformers import Gemma2Config, GPT2Config, LlamaConfig, MistralConfig, PhiConfig, Qwen2Config, Qwen3Config

import mha

TINY = Path(__file__).resolve().parents[1] / "golden/data/models"
SMALL = dict(hidden_size=32, intermediate_size=56, num_hidden_layers=3, num_attention_heads=4, vocab_size=97,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
# One configuration per family, with the features that distinguish the family.
FAMILIES = {
    "llama": LlamaConfig(**SMALL, num_key_value_heads=2, attention_bias=True, mlp_bias=True),
    "mistral": MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=7, head_dim=16),
    "qwen2": Qwen2Config(**SMALL, num_key_value_heads=1, tie_word_embeddings=True, use_sliding_window=True,
                         sliding_window=6, max_window_layers=1),
    "qwen3": Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=16),
    "gemma2": Gemma2Config(**SMALL, num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=8, sliding_window=6),
    "cohere with norms of q and k": CohereConfig(**SMALL, num_key_value_heads=2, use_qk_norm=True),
    "phi with norms of q and k": PhiConfig(**SMALL, num_key_value_heads=2, qk_layernorm=True),
    "mixtral": MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4),
    "qwen2_moe": Qwen2MoeConfig(**SMALL, num_key_value_heads=2, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
                                shared_expert_intermediate_size=40, mlp_only_layers=[0]),
    "qwen3_moe": Qwen3MoeConfig(**SMALL, num_key_value_heads=2, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24,
                                norm_topk_prob=True, head_dim=16, decoder_sparse_step=2),
    "deepseek_v3": DeepseekV3Config(**SMALL, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=20, qk_nope_head_dim=10, qk_rope_head_dim=6,
                                    v_head_dim=18, n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=3, moe_intermediate_size=24,
                                    first_k_dense_replace=1),
    "deepseek_v3 with padded values and biases": DeepseekV3Config(
        **SMALL, num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=20, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=10,
        n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=3, moe_intermediate_size=24, first_k_dense_replace=1,
        attention_bias=True),
    "gpt_oss": GptOssConfig(**SMALL, num_key_value_heads=2, head_dim=16, num_local_experts=6, num_experts_per_tok=2, sliding_window=7,
                            swiglu_limit=1.0),
    "gpt2": GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=97, scale_attn_by_inverse_layer_idx=True,
                       tie_word_embeddings=False),
}


NARROW = {k: v for k, v in SMALL.items() if k != "num_hidden_layers"}
ENCODERS = {
    "electra": ElectraConfig(**NARROW, num_hidden_layers=2, embedding_size=20),
    "deberta-v2": DebertaV2Config(**NARROW, num_hidden_layers=2, relative_attention=True, position_buckets=8, pos_att_type=["p2c"],
                                  share_att_key=True, legacy=False),
    "deberta-v2 with a convolution": DebertaV2Config(**NARROW, num_hidden_layers=2, relative_attention=True, position_buckets=8,
                                                     pos_att_type=["p2c", "c2p"], share_att_key=True, norm_rel_ebd="layer_norm",
                                                     position_biased_input=False, conv_kernel_size=3, conv_act="gelu"),
    "deberta-v2 with a grouped convolution": DebertaV2Config(**NARROW, num_hidden_layers=1, conv_kernel_size=7, conv_groups=4),
    "albert": AlbertConfig(**NARROW, num_hidden_layers=5, num_hidden_groups=2, embedding_size=24),
}


def make(config, folder):
    """Writes a checkpoint with random weights, including biases and norm weights. The folder must contain a tokenizer, although the tests
    do not use it."""
    torch.manual_seed(5)
    kind = AutoModelForMaskedLM if config.model_type in ENCODERS else AutoModelForCausalLM
    model = disturbed(kind.from_config(config, attn_implementation="eager", experts_implementation="eager").eval())
    model.save_pretrained(folder)
    (Path(folder) / "tokenizer.json").write_bytes((TINY / "gpt2-tiny/tokenizer.json").read_bytes())
    return model


def batch(vocab, encoder):
    draw = np.random.default_rng(3)
    ids = draw.integers(3, vocab, (3, 14))
    ids[0, 2:9:3] = 0  # the padding token occurs as a real token
    mask = np.ones_like(ids)
    mask[1, 9:] = 0
    mask[2, 13:] = 0
    labels = np.where(draw.random(ids.shape) < 0.7, draw.integers(3, vocab, ids.shape) if encoder else ids, -100)
    labels[mask == 0] = -100
    return ids, mask, labels


def theirs_of(model, ids, mask, labels):
    """Returns the loss and {name: gradient} of transformers, computed in float64."""
    model = model.double()
    model.zero_grad()
    out = model(torch.tensor(ids), attention_mask=torch.tensor(mask), labels=torch.tensor(labels))
    out.loss.backward()
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return out.loss.item(), {n: g.numpy() for n, g in revert_weight_conversion(model, grads).items()}


class AgainstTransformers(unittest.TestCase):
    def compare(self, folder, model, encoder=False):
        ours = mha.Model(folder)
        ids, mask, labels = batch(ours.config["vocab_size"], encoder)
        want_loss, want = theirs_of(model, ids, mask, labels)
        loss, grads = ours.loss_and_grads(ids, labels, mask)
        self.assertLess(abs(loss - want_loss), 2e-6 * want_loss)
        whole = np.sqrt(sum((g ** 2).sum() for g in want.values()))
        self.assertEqual(set(grads) - set(want), set())
        for name, theirs in want.items():
            norm, off = np.linalg.norm(theirs), np.linalg.norm(grads[name] - theirs)
            self.assertLess(off, max(2e-5 * norm, 1e-6 * whole), name)

    def test_logits_and_text_of_each_family(self):
        for name, config in FAMILIES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                theirs, ours = make(config, folder), mha.Model(folder)
                ids = np.random.default_rng(6).integers(3, 97, (2, 21))
                with torch.no_grad():
                    want = theirs(torch.tensor(ids)).logits.numpy()
                self.assertLess(np.abs(ours.forward(ids).logits - want).max(), 5e-5)
                for row in ids:
                    text = theirs.generate(torch.tensor(row[None]), attention_mask=torch.ones(1, 21), max_new_tokens=16,
                                           do_sample=False, eos_token_id=None)[0, 21:].tolist()
                    self.assertEqual(ours.generate(row, 16, eos=[]), text)

    def test_saved_checkpoints_of_each_family(self):
        for name, config in FAMILIES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                make(config, folder)
                logits, stored, ours = self.saved(Path(folder))
                self.assertTrue(np.array_equal(logits, stored))
                self.assertLess(np.abs(ours - stored).max(), 1e-4)

    def test_gradients_of_each_family(self):
        for name, config in FAMILIES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                self.compare(folder, make(config, folder))

    def test_logits_and_gradients_of_encoders(self):
        for name, config in ENCODERS.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                theirs, ours = make(config, folder), mha.Model(folder)
                ids = np.random.default_rng(6).integers(3, 97, (2, 21))
                with torch.no_grad():
                    want = theirs(torch.tensor(ids)).logits.numpy()
                self.assertLess(np.abs(ours.forward(ids).logits - want).max(), 5e-5)
                self.compare(folder, theirs, True)
                logits, stored, ours = self.saved(Path(folder))
                self.assertTrue(np.array_equal(logits, stored))
                self.assertLess(np.abs(ours - stored).max(), 1e-4)

    def test_a_convolution_does_not_read_masked_tokens(self):
        """Masks with zeros anywhere: the hidden states of the tokens, and the gradients."""
        config = ENCODERS["deberta-v2 with a convolution"]
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = make(config, folder), mha.Model(folder)
            draw = np.random.default_rng(7)
            ids, mask = draw.integers(3, 97, (2, 21)), np.ones((2, 21), np.int64)
            mask[0, [0, 4, 5, 11]] = mask[1, 17:] = 0
            other = np.where(mask, ids, 3)
            with torch.no_grad():
                want = theirs(torch.tensor(ids), attention_mask=torch.tensor(mask), output_hidden_states=True).hidden_states
            for entry, state in enumerate(ours.forward(ids, mask, hidden=True).hidden_states):
                self.assertLess(np.abs(state - want[entry].numpy())[mask == 1].max(), 5e-5, entry)
            labels = np.where(mask, ids, -100)
            loss, grads = ours.loss_and_grads(ids, labels, mask)
            want_loss, want = theirs_of(theirs, ids, mask, labels)
            self.assertLess(abs(loss - want_loss), 2e-6 * want_loss)
            for name, theirs in want.items():
                self.assertLess(np.linalg.norm(grads[name] - theirs), max(2e-5 * np.linalg.norm(theirs), 2e-6), name)
            self.assertEqual(ours.loss_and_grads(other, labels, mask)[0], loss)

    def test_gradients_of_an_encoder(self):
        folder = TINY / "bert-mlm-tiny"
        self.compare(folder, AutoModelForMaskedLM.from_pretrained(folder, attn_implementation="eager").eval(), True)

    def test_the_bias_of_an_encoders_logits(self):
        """Tests a bias that has two names in a checkpoint, if one or both of them are stored."""
        kind, name, own = AutoModelForMaskedLM, "cls.predictions.bias", "cls.predictions.decoder.bias"
        config = AutoConfig.from_pretrained(TINY / "bert-mlm-tiny")
        torch.manual_seed(6)
        first, other = torch.randn(2, config.vocab_size)
        for tied, stored in ((True, {name: first}), (True, {own: other}), (True, {name: first, own: other}),
                             (False, {own: other}), (False, {name: first, own: other})):
            with self.subTest(tied=tied, stored=list(stored)), tempfile.TemporaryDirectory() as folder:
                config.tie_word_embeddings = tied
                kind.from_config(config).save_pretrained(folder)
                weights = load_file(Path(folder) / "model.safetensors")
                weights.pop(name, None), weights.pop(own, None)
                save_file(weights | stored, Path(folder) / "model.safetensors", metadata={"format": "pt"})
                (Path(folder) / "tokenizer.json").write_bytes((TINY / "bert-mlm-tiny/tokenizer.json").read_bytes())
                ids = np.random.default_rng(4).integers(0, config.vocab_size, (2, 11))
                with torch.no_grad():
                    want = kind.from_pretrained(folder).eval()(torch.tensor(ids)).logits.numpy()
                self.assertLess(np.abs(mha.Model(folder).forward(ids).logits - want).max(), 1e-4)

    def saved(self, folder, **options):
        """Saves a model with mha and loads the folder in transformers, which must find all weights."""
        encoder = json.loads((folder / "config.json").read_text())["model_type"] in ("bert", *ENCODERS)
        kind = AutoModelForMaskedLM if encoder else AutoModelForCausalLM
        with tempfile.TemporaryDirectory() as out:
            mha.Model(folder).save(Path(out) / "new", **options)
            self.assertEqual(os.listdir(out), ["new"])
            again = mha.Model(Path(out) / "new")
            before = AutoConfig.from_pretrained(folder).to_dict()
            after = AutoConfig.from_pretrained(Path(out) / "new").to_dict()
            for key in ("_name_or_path", "dtype", "torch_dtype"):
                before.pop(key, None), after.pop(key, None)
            self.assertEqual(before, after)
            ids = np.random.default_rng(4).integers(3, again.config["vocab_size"], (2, 11))
            model, report = kind.from_pretrained(Path(out) / "new", dtype=torch.float32, output_loading_info=True)
            self.assertFalse(report["missing_keys"] or report["mismatched_keys"])
            with torch.no_grad():
                logits = model.eval()(torch.tensor(ids)).logits.numpy()
                stored = kind.from_pretrained(folder, dtype=torch.float32).eval()(torch.tensor(ids)).logits.numpy()
            return logits, stored, again.forward(ids).logits

    def test_saved_checkpoints_have_the_same_logits(self):
        for name in ("gpt2-tiny", "gemma2-tiny", "bert-mlm-tiny", "bert-mlm-tiny-hubnames"):
            with self.subTest(name):
                logits, stored, ours = self.saved(TINY / name)
                self.assertTrue(np.array_equal(logits, stored))
                self.assertLess(np.abs(ours - stored).max(), 1e-4)

    def test_other_dtypes(self):
        for dtype in ("bf16", "f16"):
            with self.subTest(dtype):
                logits, stored, ours = self.saved(TINY / "gpt2-tiny", dtype=dtype)
                self.assertFalse(np.array_equal(logits, stored))
                self.assertLess(np.abs(ours - logits).max(), 1e-4)  # both compute with the rounded weights in float32

    def test_a_step_of_training(self):
        """After a gradient step, the saved model must have a lower loss, and the loss must be the same in both libraries."""
        folder = TINY / "gpt2-tiny"
        ours = mha.Model(folder)
        ids, _, _ = batch(ours.config["vocab_size"], False)
        loss, grads = ours.loss_and_grads(ids)
        model = AutoModelForCausalLM.from_pretrained(folder)
        weights = {n: p.detach().numpy() - 0.05 * grads[n] for n, p in model.named_parameters()}
        with tempfile.TemporaryDirectory() as out:
            ours.save(Path(out) / "new", tensors=weights)
            fallen = mha.Model(Path(out) / "new").loss_and_grads(ids)[0]
            theirs = AutoModelForCausalLM.from_pretrained(Path(out) / "new").eval()
            with torch.no_grad():
                also = theirs(torch.tensor(ids), labels=torch.tensor(ids)).loss.item()
        self.assertLess(fallen, loss)
        self.assertAlmostEqual(fallen, also, places=4)


if __name__ == "__main__":
    unittest.main()
