"""Loads the output folders of `mha regroup` in transformers. Folders written with --compatible must load and have the results of mha, which
must equal those without --compatible. Folders written without the option must load in
transformers if the family has the key num_key_value_heads and the model has as many key heads as value heads."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from hugging_face import torch  # imported first: skips the test if PyTorch is not installed
import numpy as np
from transformers import AutoModel

import mha

DATA = Path(__file__).resolve().parents[1] / "golden/data"
IDS = np.array([[5, 17, 42, 8, 33, 21, 60, 2, 9]])
WORDS = "one two count and once more you keep of them for all".split()


def ours(folder):
    return mha.Model(folder).forward(IDS).last_hidden[0]


def theirs(folder):
    model = AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor(IDS)).last_hidden_state[0].numpy()


class Regrouped(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.out = Path(place.name)
        self.texts = self.out / "texts"
        self.texts.write_text("".join(f"the {word} of all that they said\n" for word in WORDS))

    def run_mha(self, folder, out, *more):
        args = ["-m", DATA / folder, "-o", self.out / out, "--force", *more]
        done = subprocess.run([os.environ["MHA"], "regroup", *map(str, args)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.out / out

    def check(self, folder, *how, direct_too=False):
        direct = self.run_mha(folder, "direct", *how)
        repeated = self.run_mha(folder, "repeated", *how, "--compatible")
        want = theirs(repeated)
        scale = np.abs(want).max()
        np.testing.assert_allclose(ours(repeated), want, rtol=0, atol=2e-5 * scale)
        np.testing.assert_allclose(ours(direct), want, rtol=0, atol=1e-4 * scale)
        self.assertGreater(np.abs(theirs(DATA / folder) - want).max(), 1e-3 * scale)
        if direct_too:
            np.testing.assert_allclose(theirs(direct), want, rtol=0, atol=1e-4 * scale)

    def test_mean(self):
        for folder in "models/bert-tiny", "models/gpt2-tiny":
            with self.subTest(folder):
                self.check(folder, "--kv-heads", 2, "--method", "mean")
        for folder in "models/gemma2-tiny", "families/llama-f32", "families/qwen2", "families/qwen3", "families/mistral":
            with self.subTest(folder):
                self.check(folder, "--kv-heads", 1, "--method", "mean", direct_too=True)
                self.check(folder, "--value-heads", 1, "--method", "mean")

    def test_closed(self):
        for folder in "models/bert-tiny", "models/gpt2-tiny":
            with self.subTest(folder):
                self.check(folder, "--kv-heads", 2, "-f", self.texts)
                self.check(folder, "--key-heads", 1, "--value-heads", 2, "-f", self.texts)
        self.check("models/gemma2-tiny", "--kv-heads", 1, "--method", "values", "-f", self.texts, direct_too=True)


if __name__ == "__main__":
    unittest.main()
