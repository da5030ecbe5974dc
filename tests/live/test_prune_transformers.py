"""Loads the output folders of `mha prune` in transformers. Folders written with --compatible must load and have the results of mha. Other
folders must load in mha, have the same results, and be prunable again; if all layers have the same head counts and the family has config
keys for these, the folders must also load in transformers."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from hugging_face import torch  # imported first: skips the test if PyTorch is not installed
import numpy as np
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

import mha

DATA = Path(__file__).resolve().parents[1] / "golden/data"
IDS = np.array([[5, 17, 42, 8, 33, 21, 60, 2, 9]])
CASES = [  # for grouped-query attention: all query heads of a key/value head
    ("models/bert-tiny", "0.0,0.2,2.3"),
    ("models/gpt2-tiny", "0.1,1.0,1.3"),
    ("models/gemma2-tiny", "0.0,0.1,3.2,3.3"),
    ("families/llama-f32", "0.2,0.3"),
    ("families/qwen3", "1.0,1.1"),
    ("families/qwen2", "0.0,0.1"),
    ("families/mistral", "1.2,1.3"),
]
ALIKE = [  # the query heads of one key/value head per layer
    ("models/gemma2-tiny", "0.0,0.1,1.2,1.3,2.0,2.1,3.2,3.3"),
    ("families/llama-f32", "0.2,0.3,1.0,1.1"),
    ("families/qwen3", "0.0,0.1,1.2,1.3"),
    ("families/qwen2", "0.2,0.3,1.0,1.1"),
    ("families/mistral", "0.0,0.1,1.2,1.3"),
    ("families2/phi", "0.0,0.1,1.2,1.3"),
    ("families2/cohere", "0.2,0.3,1.0,1.1"),
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


def logits_of_theirs(folder):
    model, report = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32,
                                                         output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"], report
    with torch.no_grad():
        return model.eval()(torch.tensor(IDS)).logits[0].numpy()


def config_of(folder):
    return json.loads((Path(folder) / "config.json").read_text())


def config_of_count(folder, out, heads, width):
    """Copies a pruned folder, and states its head counts by the keys of transformers."""
    shutil.copytree(folder, out, dirs_exist_ok=True)
    config = config_of(folder) | {"num_attention_heads": heads, "head_dim": width}
    config["num_key_value_heads"] = config["num_key_value_heads"] * heads // config_of(folder)["num_attention_heads"]
    (out / "config.json").write_text(json.dumps(config))
    return out


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
        """The output projection of Gemma-2 has no bias, so --fill must add a bias, and transformers must read this bias."""
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

    def test_layers_alike(self):
        """If all layers keep the same number of heads, standard config keys must describe the pruned model, so that transformers can load
        it; the kept heads must still be recorded."""
        for folder, heads in ALIKE:
            with self.subTest(folder):
                direct = self.check(folder, heads)
                before, after = config_of(DATA / folder), config_of(direct)
                self.assertEqual((after["num_attention_heads"], after["num_key_value_heads"]), (2, 1))
                self.assertEqual(after["mha.original_heads"], before["num_attention_heads"])
                gone = {tuple(map(int, head.split("."))) for head in heads.split(",")}
                self.assertEqual(after["mha.heads"], [[h for h in range(4) if (layer, h) not in gone]
                                                      for layer in range(before["num_hidden_layers"])])
                want = mha.Model(direct).forward(IDS).logits[0]
                np.testing.assert_allclose(logits_of_theirs(direct), want, rtol=0, atol=2e-5 * np.abs(want).max())

    def test_families_without_a_key(self):
        """The head width of BERT and GPT-2 is hidden_size / num_attention_heads, so config keys cannot describe fewer heads of the same
        width."""
        for folder, key in ("models/bert-tiny", "num_attention_heads"), ("models/gpt2-tiny", "n_head"):
            with self.subTest(folder):
                layers = range(config_of(DATA / folder).get("num_hidden_layers") or config_of(DATA / folder)["n_layer"])
                direct = self.check(folder, ",".join(f"{layer}.0" for layer in layers))
                self.assertEqual(config_of(direct)[key], config_of(DATA / folder)[key])
                self.assertEqual(config_of(direct)["mha.heads"], [[1, 2, 3]] * len(layers))
                with self.assertRaises(RuntimeError):
                    AutoModel.from_pretrained(direct)

    def test_layers_alike_pruned_again(self):
        """Prunes one layer of a pruned model that standard config keys describe: without --compatible, the result must equal pruning all
        heads in one step; with --compatible, the folder must have the original shapes."""
        folder, heads = ALIKE[1]
        wide = self.out / "wide"
        self.make_wider(DATA / folder, wide)
        run("-m", wide, "--heads", "0.2,0.3,1.0,1.1", "-o", self.out / "alike")
        self.assertEqual(config_of(self.out / "alike")["num_attention_heads"], 6)
        logits_of_theirs(self.out / "alike")
        run("-m", self.out / "alike", "--heads", "1.6,1.7", "-o", self.out / "uneven")
        run("-m", self.out / "alike", "--heads", "1.6,1.7", "-o", self.out / "zeros", "--compatible")
        run("-m", wide, "--heads", "0.2,0.3,1.0,1.1,1.6,1.7", "-o", self.out / "once")
        self.assertEqual(config_of(self.out / "uneven")["mha.heads"], [[0, 1, 4, 5, 6, 7], [2, 3, 4, 5]])
        np.testing.assert_array_equal(ours(self.out / "uneven"), ours(self.out / "once"))
        self.assertEqual(config_of(self.out / "zeros")["num_attention_heads"], 8)
        self.assertNotIn("mha.original_heads", config_of(self.out / "zeros"))
        want = ours(self.out / "once")
        np.testing.assert_allclose(theirs(self.out / "zeros"), want, rtol=0, atol=2e-5 * np.abs(want).max())
        shared = [os.environ["MHA"], "regroup", "-m", self.out / "alike", "--kv-heads", 1, "--method", "mean", "-o", self.out / "shared"]
        subprocess.run(list(map(str, shared)), check=True, capture_output=True)
        self.assertEqual(config_of(self.out / "shared")["mha.heads"], config_of(self.out / "alike")["mha.heads"])
        want = mha.Model(self.out / "shared").forward(IDS).logits[0]
        np.testing.assert_allclose(logits_of_theirs(self.out / "shared"), want, rtol=0, atol=2e-5 * np.abs(want).max())
        self.assertIn("already removed", run("-m", self.out / "alike", "--heads", "0.3", "-o", self.out / "no", code=2))

    def test_widths_of_norms_and_factors(self):
        """The classes of Phi-3 and Phi read head_dim, but Phi-3 checks the count of LongRoPE factors, and Phi builds the norms of q and k,
        by the hidden size: without these, a pruned model loads, truly smaller; with them, only with --compatible."""
        plain = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
        phi = {"model_type": "phi", "num_key_value_heads": 4, "partial_rotary_factor": 0.5}
        for name, changes, reason in (("phi3", plain, None), ("phi3", {}, "short_factor field must have length 6, got 3"),
                                      ("phi", phi, None), ("phi", phi | {"qk_layernorm": True}, "mismatched")):
            with self.subTest(name, reason=reason):
                loads = reason is None
                wide, direct = self.out / "wide", self.out / "direct"
                self.make(config_of(DATA / "families2" / name) | changes, wide)
                said = run("-m", wide, "--heads", "0.0,0.1,1.2,1.3", "-o", direct, "--force")
                config = config_of(direct)
                self.assertEqual((config["num_attention_heads"], config.get("head_dim")), (2, 8) if loads else (4, None))
                self.assertEqual("head_dim must be the hidden size divided by the number of heads" in said, not loads)
                if not loads:
                    with self.assertRaisesRegex(Exception, reason):
                        AutoModelForCausalLM.from_pretrained(config_of_count(direct, self.out / "counted", 2, 8))
                    continue
                want = mha.Model(direct).forward(IDS).logits[0]
                np.testing.assert_allclose(logits_of_theirs(direct), want, rtol=0, atol=2e-5 * np.abs(want).max())
                size = [(folder / "model.safetensors").stat().st_size for folder in (direct, wide)]
                self.assertLess(size[0], size[1])

    def make_wider(self, folder, out):
        """Writes a random model with 8 query heads in groups of 2. The hidden size of 48 is a multiple of both 8 and 6."""
        self.make(config_of(folder) | {"num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 48, "head_dim": 8}, out)

    def make(self, config, out):
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).float().save_pretrained(out)


if __name__ == "__main__":
    unittest.main()
