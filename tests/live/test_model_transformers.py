"""mha.Model beside transformers on the tiny BERT folders (and MiniLM where it has been fetched): ids, hidden states, maps, embeddings."""
import os
import sys
import unittest
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import numpy as np
    import torch
    from tokenizers import Tokenizer
    from transformers import BertModel
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import mha

TINY = Path(__file__).resolve().parents[1] / "golden/data/models"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
FOLDERS = [p for p in (TINY / "bert-tiny", TINY / "bert-mlm-tiny", CACHE / "mha/minilm") if p.exists()]
TEXTS = ["The ferry leaves the harbour at dawn.", "short", "A much longer text, with commas, Ångström and numbers 1234, than the others."]


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
                difference = np.abs(a - b.numpy()).max(axis=(1, 3))  # [B, L]: by query row
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
            for run in (lambda: ours.embed(["the", long]), lambda: ours.tokenize(long)):
                with self.assertWarnsRegex(UserWarning, r"22 were cut off; the model takes \d+") as caught:
                    run()
                self.assertEqual(caught.filename, __file__)

    def test_refusals(self):
        for folder, ours in self.each():
            for bad in ([[10**6]], [[-1]], [1, 2], [[1.5]]):
                with self.assertRaises(ValueError):
                    ours.forward(bad)
            with self.assertRaisesRegex(ValueError, "NUL"):
                ours.embed(["a\0b"])
        with self.assertRaises((ValueError, OSError)):
            mha.Model("/nowhere/at/all")


if __name__ == "__main__":
    unittest.main()
