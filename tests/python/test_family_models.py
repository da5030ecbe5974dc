"""Tests model families against transformers in one process: small random models, whose hidden states, logits, maps, losses, gradients
and greedy texts are computed in float64."""
import copy
import os
import shutil
import tempfile
import unittest
from pathlib import Path

import numpy as np

import mha

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import torch
    import transformers
    from transformers.core_model_loading import revert_weight_conversion
except ImportError:
    torch = transformers = None

SMALL = dict(vocab_size=64, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
GEMMA3 = dict(SMALL, head_dim=16, query_pre_attn_scalar=12, sliding_window=7,
              layer_types=["sliding_attention", "full_attention", "sliding_attention"],
              rope_parameters={"full_attention": {"rope_theta": 1e5, "rope_type": "linear", "factor": 8.0},
                               "sliding_attention": {"rope_theta": 3e3, "rope_type": "default"}})
LENGTH, NEW = 13, 8


def randomize(model, seed):
    """Adds noise to all weights, so that biases and gains matter; returns the model."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in filter(lambda p: p.requires_grad, model.parameters()):
            p.add_((0.1 if model.config.is_encoder_decoder else 0.2) * torch.randn_like(p))
        if model.config.model_type.startswith("gemma3"):
            model.get_input_embeddings().weight.mul_(0.1)  # otherwise, tokens predict themselves
    return model.eval()


def near(case, got, want, what):
    np.testing.assert_allclose(got, want.detach().numpy(), atol=2e-5 * max(1, want.abs().max().item()), rtol=0, err_msg=f"{case}: {what}")


@unittest.skipIf(transformers is None, "requires PyTorch and transformers")
class FamilyModels(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        torch.set_num_threads(1)
        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()

    def make(self, name, kind, config, seed=1):
        """Returns a random model of transformers in float64, and the same model opened by this library."""
        model = randomize(kind._from_config(config, attn_implementation="eager"), seed)
        model.save_pretrained(self.folder / name)
        return copy.deepcopy(model).double(), mha.Model(self.folder / name, threads=1)

    def compare_states(self, name, theirs, ours):
        """Compares two texts, of which the second has padding; returns their ids."""
        ids = torch.randint(4, 64, (2, LENGTH))
        mask = torch.ones_like(ids)
        mask[1, 11:] = 0  # no row of a window of the test models has only padding
        with torch.no_grad():
            want = theirs(input_ids=ids, attention_mask=mask, output_hidden_states=True, output_attentions=True)
        got = ours.forward(ids.numpy(), mask=mask.numpy(), hidden=True, attentions=True)
        for b, n in ((0, LENGTH), (1, 11)):
            for k, states in enumerate(want.hidden_states):
                near(name, got.hidden_states[k][b, :n], states[b, :n], f"hidden states {k}")
            for k, maps in enumerate(want.attentions):
                near(name, got.attentions[k][b, :, :n, :n], maps[b, :, :n, :n], f"maps of layer {k}")
            if "logits" in want:
                near(name, got.logits[b, :n], want.logits[b, :n], "logits")
        return ids

    def compare_text(self, name, theirs, ours, ids):
        start = ids[:1, :5]
        with torch.no_grad():
            want = theirs.generate(start, attention_mask=torch.ones_like(start), max_new_tokens=NEW, do_sample=False, eos_token_id=None)
        got = ours.generate(start[0].tolist(), NEW, eos=[])
        self.assertEqual(got, want[0, 5:].tolist(), name)

    def compare_gradients(self, name, theirs, ours, ids):
        labels = ids.clone()
        labels[:, ::4] = -100
        loss = theirs(input_ids=ids, labels=labels).loss
        loss.backward()
        got, gradients = ours.loss_and_grads(ids.numpy(), labels.numpy())
        self.assertAlmostEqual(got, loss.item(), delta=1e-5)
        named = {n: p.grad for n, p in theirs.named_parameters(remove_duplicate=False) if p.grad is not None}
        stored = revert_weight_conversion(theirs, named)
        self.assertEqual({id(stored[n]) for n in gradients}, {id(gradient) for gradient in stored.values()}, name)
        for n, gradient in gradients.items():
            near(name, gradient, stored[n], f"gradient of {n}")

    def check_decoder(self, name, theirs, ours):
        ids = self.compare_states(name, theirs, ours)
        self.compare_text(name, theirs, ours, ids)
        self.compare_gradients(name, theirs, ours, ids)

    def test_windows_of_smollm3(self):
        """Without use_sliding_window, layers have a window only if layer_types lists them."""
        types = ["sliding_attention", "full_attention", "sliding_attention"]
        for more in {"layer_types": types}, {"use_sliding_window": True}, {}:
            config = transformers.SmolLM3Config(**SMALL, sliding_window=4, no_rope_layer_interval=2, **more)
            self.check_decoder(f"smollm3 {more}", *self.make("smollm3", transformers.SmolLM3ForCausalLM, config))

    def test_starcoder2(self):
        for more in {"use_bias": True, "sliding_window": 5}, {"use_bias": False, "tie_word_embeddings": False}:
            config = transformers.Starcoder2Config(**SMALL, **more)
            self.check_decoder(f"starcoder2 {more}", *self.make("starcoder2", transformers.Starcoder2ForCausalLM, config))

    def test_camembert(self):
        config = transformers.CamembertConfig(**{**SMALL, "pad_token_id": 1, "bos_token_id": 5}, type_vocab_size=1)
        theirs, ours = self.make("camembert", transformers.CamembertForMaskedLM, config)
        ids = self.compare_states("camembert", theirs, ours)
        self.compare_gradients("camembert", theirs, ours, ids)

    # encoder-decoders

    def check_seq2seq(self, name, theirs, ours):
        source, target = torch.randint(5, 62, (1, 11)), torch.randint(5, 62, (1, 9))
        labels = torch.randint(5, 62, (1, 9))
        out = theirs(input_ids=source, decoder_input_ids=target, labels=labels, output_hidden_states=True)
        got = ours.forward(target.numpy(), source=source.numpy(), hidden=True)
        near(name, got.logits, out.logits, "logits")
        for k, states in enumerate(out.decoder_hidden_states):
            near(name, got.hidden_states[k], states, f"hidden states {k}")
        out.loss.backward()
        with mha.ModelGrads(ours) as grads:
            self.assertAlmostEqual(grads.loss(target.numpy(), labels.numpy(), source=source.numpy()).loss, out.loss.item(), delta=1e-5)
            gradients = grads.list()
        for n, p in theirs.named_parameters():
            if p.requires_grad and n in gradients:
                near(name, gradients[n], p.grad, f"gradient of {n}")
        self.assertLessEqual(set(gradients), {n for n, p in theirs.named_parameters() if p.grad is not None})
        with torch.no_grad():
            text = theirs.generate(source, max_new_tokens=NEW, do_sample=False, eos_token_id=None, forced_eos_token_id=None)
        self.assertEqual(ours.generate([], NEW, eos=[], sources=source[0].tolist(), rules=False), text[0, 1:].tolist(), name)

    def test_mt5(self):
        for feed in "gated-gelu", "relu":
            config = transformers.MT5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=40, num_layers=3, num_decoder_layers=2, num_heads=4,
                                            relative_attention_num_buckets=8, relative_attention_max_distance=20, feed_forward_proj=feed,
                                            dropout_rate=0)
            self.check_seq2seq(f"mt5 {feed}", *self.make("mt5", transformers.MT5ForConditionalGeneration, config))

    def test_pegasus(self):
        config = transformers.PegasusConfig(vocab_size=64, d_model=32, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4,
                                            decoder_attention_heads=2, encoder_ffn_dim=40, decoder_ffn_dim=48, max_position_embeddings=64,
                                            scale_embedding=True, activation_function="relu", dropout=0)
        theirs, ours = self.make("pegasus", transformers.PegasusForConditionalGeneration, config)
        self.check_seq2seq("pegasus", theirs, ours)
        with torch.no_grad():
            theirs.model.encoder.embed_positions.weight[3, 5] += 0.1
        theirs.float().save_pretrained(self.folder / "learned")
        with self.assertRaisesRegex(ValueError, r'"model.encoder.embed_positions.weight" must be the table \[64, 32\] of sines and cosines'):
            mha.Model(self.folder / "learned")

    # Gemma 3

    def images_model(self, tied):
        text = transformers.Gemma3TextConfig(**GEMMA3, tie_word_embeddings=tied)
        vision = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
        return transformers.Gemma3Config(text_config=text.to_dict(), vision_config=vision, mm_tokens_per_image=4, image_token_index=60,
                                         boi_token_index=61, eoi_token_index=62, tie_word_embeddings=tied)

    def test_text_part_of_a_model_of_images(self):
        for tied in (True, False):
            name = f"gemma3-tied-{tied}"
            theirs, ours = self.make(name, transformers.Gemma3ForConditionalGeneration, self.images_model(tied))
            self.assertTrue(ours.info["images_ignored"])
            ids = self.compare_states(name, theirs, ours)
            self.compare_text(name, theirs, ours, ids)

    def check_pruned(self, name, kind, config):
        """A model without half of its heads loads in transformers, with smaller tensors."""
        _, ours = self.make(name, kind, config)
        with mha.prune(ours, np.tile([True, True, False, False], (3, 1))) as edit:
            edit.save(self.folder / "pruned", overwrite=True)
        theirs, loading = kind.from_pretrained(self.folder / "pruned", attn_implementation="eager", output_loading_info=True)
        self.assertFalse(any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading)
        self.compare_states(f"pruned {name}", theirs.eval().double(), mha.Model(self.folder / "pruned", threads=1))

    def test_pruned_models_load_in_transformers(self):
        self.check_pruned("gemma3", transformers.Gemma3ForConditionalGeneration, self.images_model(True))
        self.check_pruned("starcoder2", transformers.Starcoder2ForCausalLM, transformers.Starcoder2Config(**SMALL))
        self.check_pruned("phi3", transformers.Phi3ForCausalLM, transformers.Phi3Config(**SMALL))
        latent = dict(q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=10, n_routed_experts=4,
                      n_group=1, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=20, first_k_dense_replace=3)
        config = transformers.DeepseekV3Config(**SMALL | latent | dict(num_key_value_heads=4))
        self.check_pruned("deepseek_v3", transformers.DeepseekV3ForCausalLM, config)

    def test_pruned_models_that_transformers_rejects(self):
        """The evaluation names the rule that a pruned model violates."""
        cases = ((transformers.RobertaForMaskedLM, transformers.RobertaConfig(**SMALL | dict(num_key_value_heads=4)), "head_dim must be"),
                 (transformers.Gemma3ForCausalLM, transformers.Gemma3TextConfig(**GEMMA3 | dict(num_key_value_heads=4)), "must be a multiple"))
        for kind, config, rule in cases:
            name = f"rejected-{kind.__name__}"
            _, ours = self.make(name, kind, config)
            heads = 2 if "head_dim" in rule else 3
            with mha.prune(ours, np.tile(np.arange(4) < heads, (ours.info["layers"], 1))) as edit:
                self.assertIn(rule, edit.evaluate().broken_rule or "")
                edit.save(self.folder / name / "pruned")
            with self.assertRaises(Exception):
                kind.from_pretrained(self.folder / name / "pruned")

    def test_encoder(self):
        config = transformers.Gemma3TextConfig(**GEMMA3, use_bidirectional_attention=True)
        theirs, ours = self.make("embedding", transformers.Gemma3TextModel, config)
        self.assertFalse(ours.info["causal"])
        self.compare_states("embedding", theirs, ours)
        with self.assertRaisesRegex(ValueError, "use_bidirectional_attention must be false in a GGUF file"):
            ours.save_gguf(self.folder / "embedding.gguf")

    def test_encoder_gradients(self):
        """The gradients of a scalar of the hidden states, through all parameters."""
        theirs, ours = self.make("embedding", transformers.Gemma3TextModel, transformers.Gemma3TextConfig(**GEMMA3, use_bidirectional_attention=True))
        ids, weights = torch.randint(4, 64, (2, LENGTH)), torch.randn(2, LENGTH, 32, dtype=torch.float64)
        (theirs(input_ids=ids).last_hidden_state * weights).sum().backward()
        with mha.ModelGrads(ours) as grads:
            grads.forward(ids.numpy())
            grads.backward(last_hidden=weights.numpy().astype(np.float32))
            got = grads.list()
        for name, p in theirs.named_parameters():
            near("embedding", got[name], p.grad, f"gradient of {name}")


if __name__ == "__main__":
    unittest.main()
