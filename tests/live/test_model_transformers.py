"""Compares mha.Model with transformers on tiny models and, if installed, MiniLM: ids, hidden states, attention maps and embeddings; for
decoders also logits, log-probabilities and generated tokens."""
import json
import os
import tempfile
import unittest
from pathlib import Path

from hugging_face import disturbed, torch  # imported first: skips the test if PyTorch is not installed
import numpy as np
from tokenizers import Tokenizer
from transformers import (AutoModelForCausalLM, BertModel, LlamaConfig, LlamaForCausalLM, LlamaModel, MPNetConfig, MPNetModel, OPTConfig,
                          OPTForCausalLM, OPTModel, PhiConfig, PhiModel)

import mha

TINY = Path(__file__).resolve().parents[1] / "golden/data/models"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
FOLDERS = [p for p in (TINY / "bert-tiny", TINY / "bert-mlm-tiny", CACHE / "mha/minilm") if p.exists()]
TEXTS = ["The ferry leaves the harbour at dawn.", "short", "A much longer text, with commas, Ångström and numbers 1234, than the others."]


DECODERS = [TINY / "gpt2-tiny", TINY / "gemma2-tiny", TINY.parents[3] / "share/mha/builtin"]


def padded(rows, pad):
    longest = max(map(len, rows))
    ids = np.array([r + [pad] * (longest - len(r)) for r in rows])
    mask = np.array([[1] * len(r) + [0] * (longest - len(r)) for r in rows])
    return ids, mask


class AgainstTransformers(unittest.TestCase):
    def each(self):
        self.assertTrue(FOLDERS)
        for folder in FOLDERS:
            with self.subTest(folder.name):
                yield folder, mha.Model(folder)

    def test_tokens(self):
        for folder, ours in self.each():
            theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
            theirs.no_padding(), theirs.no_truncation()
            for text in TEXTS:
                self.assertEqual(ours.tokenize(text), theirs.encode(text).ids)
                self.assertEqual(ours.tokenize(text, special=False), theirs.encode(text, add_special_tokens=False).ids)

    def test_forward(self):
        for folder, ours in self.each():
            ids, mask = padded([ours.tokenize(t) for t in TEXTS], 0)
            theirs = BertModel.from_pretrained(folder, attn_implementation="eager", add_pooling_layer=False).eval()
            with torch.no_grad():
                want = theirs(torch.tensor(ids), torch.tensor(mask), output_attentions=True, output_hidden_states=True)
            got = ours.forward(ids, mask, hidden=True, attentions=True)
            real = mask.astype(bool)
            self.assertEqual(len(got.hidden_states), len(want.hidden_states))
            for a, b in zip(got.hidden_states, want.hidden_states):
                self.assertLess(np.abs(a - b.numpy())[real].max(), 2e-5)
            for a, b in zip(got.attentions, want.attentions):
                difference = np.abs(a - b.numpy()).max(axis=(1, 3))  # [B, L]: the largest difference per query row
                self.assertLess(difference[real].max(), 1e-5)
            self.assertTrue(np.array_equal(got.last_hidden, got.hidden_states[-1]))

    def test_embed_is_the_mean_of_the_last_states(self):
        for _, ours in self.each():
            vectors = ours.embed(TEXTS)
            for text, vector in zip(TEXTS, vectors):
                mean = ours.forward([ours.tokenize(text)]).last_hidden[0].astype(np.float64).mean(0)
                self.assertLess(np.abs(vector - mean / np.linalg.norm(mean)).max(), 2e-6)
                self.assertTrue(np.array_equal(vector, ours.embed([text])[0]))

    def test_a_cut_is_a_warning_here(self):
        for _, ours in self.each():
            long = "the " * (ours.config["max_position_embeddings"] + 20)
            with self.assertWarnsRegex(UserWarning, r"22 were truncated; the model accepts \d+") as caught:
                ours.embed(["the", long])
            self.assertEqual(caught.filename, __file__)
            self.assertEqual(len(ours.tokenize(long)), ours.config["max_position_embeddings"] + 22)

    def test_refusals(self):
        for folder, ours in self.each():
            for bad in ([[10**6]], [[-1]], [1, 2], [[1.5]]):
                with self.assertRaises(ValueError):
                    ours.forward(bad)
            with self.assertRaisesRegex(ValueError, "NUL"):
                ours.embed(["a\0b"])
        with self.assertRaises((ValueError, OSError)):
            mha.Model("/nowhere/at/all")


class Decoders(unittest.TestCase):
    def each(self):
        for folder in DECODERS:
            with self.subTest(folder.name):
                theirs = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
                yield mha.Model(folder), theirs.eval()

    def test_forward(self):
        for ours, theirs in self.each():
            rows = [ours.tokenize(t) for t in TEXTS]
            ids, mask = padded(rows, 0)
            with torch.no_grad():
                want = theirs(torch.tensor(ids), attention_mask=torch.tensor(mask),
                              position_ids=torch.arange(ids.shape[1]).expand(ids.shape), output_attentions=True,
                              output_hidden_states=True)
            got = ours.forward(ids, mask, hidden=True, attentions=True)
            real = mask.astype(bool)
            self.assertLess(np.abs(got.logits - want.logits.numpy())[real].max(), 5e-5)
            for a, b in zip(got.hidden_states, want.hidden_states, strict=True):
                self.assertLess(np.abs(a - b.numpy())[real].max(), 5e-5)
            for a, b in zip(got.attentions, want.attentions, strict=True):
                self.assertLess(np.abs(a - b.numpy()).max(axis=(1, 3))[real].max(), 1e-5)

    def test_score(self):
        for ours, theirs in self.each():
            ids = torch.tensor([ours.tokenize(TEXTS[2])])
            with torch.no_grad():
                rows = torch.log_softmax(theirs(ids).logits[0, :-1].double(), -1)
            want = rows.gather(1, ids[0, 1:, None])[:, 0].numpy()
            self.assertLess(np.abs(ours.score(ids[0]) - want).max(), 5e-5)

    def test_generate(self):
        for ours, theirs in self.each():
            for text in TEXTS:
                ids = ours.tokenize(text)
                for sampling in ({"do_sample": False}, {"do_sample": False, "repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
                                 {"do_sample": True, "temperature": 1.3, "top_k": 50, "top_p": 0.9}):
                    torch.manual_seed(5)
                    want = theirs.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=24,
                                           pad_token_id=0, **sampling)[0, len(ids):].tolist()
                    settings = {"no_repeat_ngram" if k == "no_repeat_ngram_size" else k: v for k, v in sampling.items()
                                if k != "do_sample"}
                    self.assertEqual(ours.generate(ids, 24, seed=5, **settings), want)


class OddCheckpoints(unittest.TestCase):
    """Tests checkpoints whose config.json and tensors disagree: mha must read them as transformers does."""
    IDS = [[1, 5, 7, 9, 30]]

    def saved_as(self, kind, config):
        torch.manual_seed(0)
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        model = kind(config).eval()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.1 * torch.randn_like(p))
        model.save_pretrained(folder)
        return model, folder

    def saved(self, kind, **options):
        return self.saved_as(kind, LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                                               num_key_value_heads=1, max_position_embeddings=64, **options))

    def change(self, folder, change):
        config = json.loads((folder / "config.json").read_text())
        change(config)
        (folder / "config.json").write_text(json.dumps(config))

    def logits_agree(self, folder):
        theirs = AutoModelForCausalLM.from_pretrained(folder).eval()
        with torch.no_grad():
            want = theirs(torch.tensor(self.IDS)).logits.numpy()
        self.assertLess(np.abs(mha.Model(folder).forward(self.IDS).logits - want).max(), 1e-5)
        return theirs

    def test_tied_beside_a_head_of_its_own(self):
        for tied in (False, True):  # whether the stored lm_head.weight equals the input embeddings
            model, folder = self.saved(LlamaForCausalLM, tie_word_embeddings=False)
            if tied:
                model.lm_head.weight.data.copy_(model.model.embed_tokens.weight)
                model.save_pretrained(folder)
            self.change(folder, lambda c: c.update(tie_word_embeddings=True))
            theirs = self.logits_agree(folder)
            ids = torch.tensor(self.IDS)
            theirs(ids, labels=ids).loss.backward()
            _, got = mha.Model(folder).loss_and_grads(self.IDS)
            self.assertEqual("lm_head.weight" in got, not tied)
            for name, p in theirs.named_parameters():
                if name in got:
                    self.assertLess(np.abs(got[name] - p.grad.numpy()).max(), 1e-5, name)

    def test_a_part_of_a_head_that_turns(self):
        _, folder = self.saved(LlamaForCausalLM)
        self.change(folder, lambda c: c["rope_parameters"].update(partial_rotary_factor=0.5))
        self.logits_agree(folder)
        self.change(folder, lambda c: c["rope_parameters"].update(rope_type="linear", factor=2.0))
        with self.assertRaises(RuntimeError):
            AutoModelForCausalLM.from_pretrained(folder)(torch.tensor(self.IDS))
        with self.assertRaisesRegex(ValueError, "partial_rotary_factor must be 1"):
            mha.Model(folder)

    def test_saved_without_a_head(self):
        for tied in (False, True):
            model, folder = self.saved(LlamaModel, tie_word_embeddings=tied)
            ours = mha.Model(folder)
            got = ours.forward(self.IDS)
            with torch.no_grad():
                want = model(torch.tensor(self.IDS)).last_hidden_state.numpy()
            self.assertLess(np.abs(got.last_hidden - want).max(), 1e-5)
            if tied:
                self.logits_agree(folder)
                continue
            with self.assertRaisesRegex(ValueError, "must have an output head in a GGUF file"):
                ours.save_gguf(folder / "x.gguf")
            self.assertIsNone(got.logits)
            for use in (lambda: ours.generate([1], 2), lambda: ours.score([1, 2]), lambda: ours.loss_and_grads(self.IDS)):
                with self.assertRaisesRegex(ValueError, r"output head for logits \(lm_head.weight is absent\)"):
                    use()

    def test_other_families_without_a_head(self):
        small = dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
        for kind, config, lacks in (
                (PhiModel, PhiConfig(**small, intermediate_size=48, tie_word_embeddings=True), "bias"),
                (OPTModel, OPTConfig(**small, ffn_dim=48, word_embed_proj_dim=32, tie_word_embeddings=False), "weight")):
            model, folder = self.saved_as(kind, config)
            got = mha.Model(folder).forward(self.IDS)
            with torch.no_grad():
                want = model(torch.tensor(self.IDS)).last_hidden_state.numpy()
            self.assertLess(np.abs(got.last_hidden - want).max(), 1e-5)
            self.assertIsNone(got.logits)
            with self.assertRaisesRegex(ValueError, rf"output head for logits \(lm_head.{lacks} is absent\)"):
                mha.Model(folder).score([1, 2])

    def test_padding_of_mpnet(self):
        """MPNetEmbeddings has padding_idx 1, whatever pad_token_id is."""
        for pad in 1, 0, 3:
            model, folder = self.saved_as(MPNetModel, MPNetConfig(
                vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, max_position_embeddings=40,
                pad_token_id=pad))
            for ids in self.IDS, [[0, 3, 5, 1, 7, 1]], [list(range(2, 40))]:
                with torch.no_grad():
                    want = model(torch.tensor(ids)).last_hidden_state.numpy()
                self.assertLess(np.abs(mha.Model(folder).forward(ids).last_hidden - want).max(), 1e-5)

    def test_positions_of_opt(self):
        model, folder = self.saved_as(OPTForCausalLM, OPTConfig(
            vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, ffn_dim=48, word_embed_proj_dim=32,
            max_position_embeddings=64))
        ids = np.arange(5, 15).reshape(2, 5)
        for mask in ([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], [[1, 0, 1, 0, 1], [1, 1, 0, 1, 1]], [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]):
            mask = np.array(mask)
            with torch.no_grad():
                want = model(torch.tensor(ids), attention_mask=torch.tensor(mask)).logits.numpy()
            self.assertLess(np.abs(mha.Model(folder).forward(ids, mask).logits - want)[mask == 1].max(), 1e-5)

    def test_parameters_of_yarn_that_are_zero(self):
        yarn = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 16}
        for more in ({"mscale": 1.0, "mscale_all_dim": 0.0}, {"mscale": 0, "mscale_all_dim": 1.0}, {"beta_slow": 0}, {"beta_fast": 0}):
            self.logits_agree(self.saved(LlamaForCausalLM, rope_parameters={**yarn, **more})[1])

    def test_sampling_at_its_edges(self):
        folder = self.saved(LlamaForCausalLM)[1]
        ours, theirs = mha.Model(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
        for settings in ({"top_p": 0.0}, {"top_p": 1.0}, {"min_p": 0.0}, {"min_p": 1.0}, {"top_k": 1}, {"top_k": 1000},
                         {"temperature": 1e-9}, {"temperature": 100.0}):
            with self.subTest(**settings):
                torch.manual_seed(3)
                want = theirs.generate(torch.tensor(self.IDS), max_new_tokens=8, do_sample=True, pad_token_id=0,
                                       **{"top_k": 0, "eos_token_id": None, **settings})[0, 5:].tolist()
                self.assertEqual(ours.generate(self.IDS[0], 8, eos=[], seed=3, **{"temperature": 1.0, **settings}), want)


if __name__ == "__main__":
    unittest.main()
