"""What `mha prune` writes, beside transformers: --compatible folders load there and give our numbers; the direct form loads here,
has the same numbers, and is pruned again."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from hugging_face import torch  # first: it skips the test where there is none
import numpy as np
from transformers import AutoModel, AutoModelForCausalLM

import mha

DATA = Path(__file__).resolve().parents[1] / "golden/data"
IDS = np.array([[5, 17, 42, 8, 33, 21, 60, 2, 9]])
CASES = [  # whole groups where keys are shared
    ("models/bert-tiny", "0.0,0.2,2.3"),
    ("models/gpt2-tiny", "0.1,1.0,1.3"),
    ("models/gemma2-tiny", "0.0,0.1,3.2,3.3"),
    ("families/llama-f32", "0.2,0.3"),
    ("families/qwen3", "1.0,1.1"),
    ("families/qwen2", "0.0,0.1"),
    ("families/mistral", "1.2,1.3"),
]


def run(*args, code=0):
    done = subprocess.run([os.environ["MHA"], "prune", *map(str, args)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stderr


def ours(folder):
    return mha.Model(folder).forward(IDS).last_hidden[0]


def theirs(folder):
    model = AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor(IDS)).last_hidden_state[0].numpy()


class Pruned(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.out = Path(self.place.name)

    def check(self, folder, heads, *more):
        direct, zeros = self.out / "direct", self.out / "zeros"
        run("-m", DATA / folder, "--heads", heads, "-o", direct, "--force", *more)
        run("-m", DATA / folder, "--heads", heads, "-o", zeros, "--force", "--compatible", *more)
        want = theirs(zeros)
        scale = np.abs(want).max()
        np.testing.assert_allclose(ours(zeros), want, rtol=0, atol=2e-5 * scale)
        np.testing.assert_allclose(ours(direct), want, rtol=0, atol=2e-5 * scale)
        self.assertGreater(np.abs(theirs(DATA / folder) - want).max(), 1e-3 * scale)
        return direct

    def test_families(self):
        for folder, heads in CASES:
            with self.subTest(folder):
                self.check(folder, heads)

    def test_fill_and_refit(self):
        """Gemma-2 has no output bias: the fill adds one, which transformers reads too."""
        texts = self.out / "texts"
        texts.write_text("".join(f"the {word} of all that they said\n" for word in "one two count and once more you keep".split()))
        for folder in "models/bert-tiny", "models/gemma2-tiny":
            with self.subTest(folder):
                direct = self.check(folder, "0.0,0.1", "-f", texts, "--fill", "--refit")
                config = json.loads((direct / "config.json").read_text())
                self.assertEqual(config.get("attention_bias"), None if "bert" in folder else True)

    def test_pruned_again(self):
        direct = self.check("models/bert-tiny", "0.0,2.3")
        run("-m", direct, "--heads", "0.3,1.1", "-o", self.out / "again")
        run("-m", DATA / "models/bert-tiny", "--heads", "0.0,2.3,0.3,1.1", "-o", self.out / "once")
        np.testing.assert_array_equal(ours(self.out / "again"), ours(self.out / "once"))
        config = json.loads((self.out / "again/config.json").read_text())
        self.assertEqual(config["mha.heads"], [[1, 2], [0, 2, 3], [0, 1, 2]])
        self.assertEqual([entry["removed"] for entry in config["mha.record"]], [[[0], [], [3]], [[3], [1], []]])


if __name__ == "__main__":
    unittest.main()
