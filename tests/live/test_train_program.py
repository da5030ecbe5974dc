"""Loads the output folders of `mha train` in transformers: no weight may be missing, the tokenizers must return the same ids, and the loss
printed by the program must equal the loss of transformers on the same ids."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from hugging_face import torch, transformers  # imported first: skips the test if PyTorch is not installed
import numpy as np

LENGTH, VOCAB = 24, 50


def ids(count, seed):
    """Returns token ids. Three of four ids are determined by the preceding id."""
    draw, list_ = np.random.default_rng(seed), [3]
    while len(list_) < count:
        list_.append(int(draw.integers(VOCAB)) if draw.random() < 0.25 else (7 * list_[-1] + 3) % VOCAB)
    return np.array(list_)


class Program(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.here = Path(cls.folder.name)
        np.save(cls.here / "ids.npy", ids(4000, 1).astype(np.int32))
        ids(1 + 6 * (LENGTH - 1), 2).astype(np.uint16).tofile(cls.here / "held.bin")
        np.save(cls.here / "held.npy", ids(1 + 6 * (LENGTH - 1), 2))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def train(self, name, *options):
        command = [os.environ["MHA"], "train", "-q", "--json", "-t", "1", "--tokens", "ids.npy", "--length", str(LENGTH), "--steps", "60",
                   "--rate", "0.01", "-o", name, *options]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=self.here).stdout)

    def load(self, kind, name):
        model, said = kind.from_pretrained(self.here / name, output_loading_info=True, attn_implementation="eager")
        self.assertEqual([list(said[key]) for key in ("missing_keys", "unexpected_keys", "mismatched_keys")], [[], [], []])
        return model.eval()

    def test_decoders(self):
        for shape in ("gpt2:2x2x32", "llama:2x2x32", "mistral:1x2x32", "qwen2:1x2x32", "qwen3:1x2x32"):
            with self.subTest(shape):
                name = shape.split(":")[0]
                said = self.train(name, "--shape", shape, "--vocab", str(VOCAB), "--eval", "held.bin")
                again = self.train(name + "-again", "--shape", shape, "--vocab", str(VOCAB), "--eval", "held.npy")
                self.assertEqual(said["eval_loss"], again["eval_loss"])
                held = ids(1 + 6 * (LENGTH - 1), 2)
                rows = torch.tensor(np.stack([held[n * (LENGTH - 1):][:LENGTH] for n in range(6)]))
                with torch.no_grad():
                    loss = self.load(transformers.AutoModelForCausalLM, name)(input_ids=rows, labels=rows).loss.item()
                print(f"{shape}: {said['eval_loss']:.6f} in mha, {loss:.6f} in transformers")
                self.assertAlmostEqual(said["eval_loss"], loss, delta=2e-5)
                self.assertLess(loss, np.log(VOCAB) - 0.5)

    def test_from_text(self):
        text = "".join(f"the number {n} comes before the number {n + 1}\n" for n in range(200))
        (self.here / "text").write_text(text)
        for type_, shape, kind in (("bpe", "gpt2:1x2x16", transformers.AutoModelForCausalLM), ("wordpiece", "bert:1x2x16", transformers.AutoModelForMaskedLM)):
            with self.subTest(shape):
                run = lambda *arguments: subprocess.run([os.environ["MHA"], *arguments], check=True, capture_output=True, cwd=self.here)
                run("tokenizer", "train", "-q", "--type", type_, "--vocab-size", "300", "-o", type_, "-f", "text")
                run("train", "-q", "--shape", shape, "--tokenizer", type_, "-f", "text", "--length", "16", "--steps", "5", "-o", type_ + "-model")
                model = self.load(kind, type_ + "-model")
                tokenizer = transformers.AutoTokenizer.from_pretrained(self.here / (type_ + "-model"))
                self.assertEqual(len(tokenizer), model.config.vocab_size)
                data = json.loads((self.here / (type_ + "-model") / "training.json").read_text())["data"]
                lines = tokenizer(text.splitlines(), add_special_tokens=False)["input_ids"]
                self.assertEqual(data["tokens"], sum(len(line) + 1 for line in lines))  # + 1 for the end-of-text token


if __name__ == "__main__":
    unittest.main()
