"""Tests folders of sentence-transformers: pooling and dense layers after the model, against the same steps in NumPy."""
import json
import shutil
import tempfile
import unittest
from pathlib import Path

import numpy as np

import mha

DATA = Path(__file__).resolve().parents[1] / "golden/data/models/bert-tiny"
TEXTS = ["the cat sat", "a dog", "one two three four"]
MODULE = "sentence_transformers.models."


def module(kind, path):
    return {"idx": 0, "name": "0", "path": path, "type": MODULE + kind}


class SentenceFolders(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp()) / "model"
        self.addCleanup(shutil.rmtree, self.folder.parent)
        shutil.copytree(DATA, self.folder)
        self.plain = mha.Model(DATA)
        self.width = self.plain.info["hidden"]
        self.layers = []

    def write(self, *modules):
        (self.folder / "modules.json").write_text(json.dumps([module("Transformer", ""), *modules]))

    def part(self, path, config):
        (self.folder / path).mkdir(exist_ok=True)
        (self.folder / path / "config.json").write_text(json.dumps(config))
        return module(path.split("_")[1], path)

    def pooling(self, **modes):
        return self.part("1_Pooling", {"word_embedding_dimension": self.width} | {f"pooling_mode_{name}": on for name, on in modes.items()})

    def dense(self, path, wide, narrow, bias, activation, more=()):
        """Writes a dense layer from `wide` to `narrow` elements; `more` replaces keys of its config."""
        rng = np.random.default_rng(len(self.layers))
        tensors = {"linear.weight": rng.normal(size=(narrow, wide)).astype(np.float32)}
        if bias:
            tensors["linear.bias"] = rng.normal(size=narrow).astype(np.float32)
        self.layers.append((tensors["linear.weight"], tensors.get("linear.bias", 0), np.tanh if activation == "activation.Tanh" else np.array))
        config = {"in_features": wide, "out_features": narrow, "bias": bias, "activation_function": f"torch.nn.modules.{activation}"} | dict(more)
        written = self.part(path, config)
        mha.tensors_write(self.folder / path / "model.safetensors", tensors, overwrite=True)
        return written

    def want(self, pooled):
        for weight, bias, activation in self.layers:
            pooled = activation(pooled.astype(np.float64) @ weight.T + bias)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    def pooled(self, how):
        return self.plain.embed(TEXTS, how, normalize=False)

    def test_dense_layers(self):
        """Two dense layers, as in EmbeddingGemma, and one with bias and tanh, as in LaBSE."""
        first = self.dense("2_Dense", self.width, 3 * self.width, False, "linear.Identity")
        second = self.dense("3_Dense", 3 * self.width, 10, True, "activation.Tanh")
        self.write(self.pooling(mean_tokens=True, cls_token=False), first, second, module("Normalize", "4_Normalize"))
        model = mha.Model(self.folder)
        self.assertEqual((model.info["embedding_width"], model.info["pool"]), (10, 0))
        np.testing.assert_allclose(model.embed(TEXTS), self.want(self.pooled("mean")), atol=1e-5)
        np.testing.assert_array_equal(model.embed(TEXTS[1:2]), model.embed(TEXTS)[1:2])
        for dtype in "f32", "bf16":
            self.assertEqual(mha.Model(self.folder, dtype).embed(TEXTS).shape, (3, 10))
        self.assertEqual(mha.Model(self.folder, weights=False).info["embedding_width"], 10)

    def test_pooling_of_the_folder(self):
        for config, how in (({"cls_token": True, "mean_tokens": False}, "cls"), ({"mean_tokens": True}, "mean"), ({}, "mean")):
            self.write(self.pooling(**config))
            model = mha.Model(self.folder)
            np.testing.assert_array_equal(model.embed(TEXTS), self.plain.embed(TEXTS, how))
            np.testing.assert_array_equal(model.embed(TEXTS, "cls"), self.plain.embed(TEXTS, "cls"))
        self.part("1_Pooling", {"pooling_mode": "cls"})
        np.testing.assert_array_equal(mha.Model(self.folder).embed(TEXTS), self.plain.embed(TEXTS, "cls"))

    def refused(self, message):
        """The folder opens and runs, but has no vectors of texts."""
        model = mha.Model(self.folder)
        model.forward([[1, 2]])
        with self.assertRaisesRegex(ValueError, message):
            model.embed(TEXTS)

    def test_unsupported_modules(self):
        self.write(self.pooling(lasttoken=True, mean_tokens=False))
        self.refused(r'1_Pooling/config.json: pooling_mode must be cls or mean for vectors of texts \(got "?lasttoken')
        self.write(self.pooling(mean_tokens=True, cls_token=True))
        self.refused("must be cls or mean .*more than one")
        self.write(self.pooling(mean_tokens=True), module("LSTM", "2_LSTM"))
        self.refused("modules.json: type must be one of Transformer, Pooling, Dense, Normalize .*LSTM")
        self.write(self.dense("2_Dense", self.width, 8, False, "activation.ReLU"))
        self.refused("2_Dense/config.json: activation_function must be Identity or Tanh .*ReLU")
        square = [self.dense(f"{n}_Dense", self.width, self.width, False, "linear.Identity") for n in range(2, 11)]
        self.write(*square)
        self.refused(r"10_Dense/config.json must be one of at most 8 dense layers for vectors of texts \(got another dense layer")
        self.write(self.dense("2_Dense", self.width, 8, False, "linear.Identity", {"module_input_name": "token_embeddings"}))
        self.refused("module_input_name must be sentence_embedding")
        self.write(self.dense("2_Dense", self.width, 8, False, "linear.Identity"))
        (self.folder / "2_Dense/model.safetensors").unlink()
        self.refused("2_Dense/model.safetensors must be a file")

    def test_order_of_modules(self):
        """Pooling replaces the vector of earlier modules in sentence-transformers, and Transformer replaces its tokens."""
        pooling, normalize = self.pooling(cls_token=True, mean_tokens=False), module("Normalize", "3_Normalize")
        dense = self.dense("2_Dense", self.width, 8, False, "linear.Identity")
        order = r"\(order: one Transformer, one Pooling, Dense, Normalize\) for vectors of texts"
        for modules, entry, last, kind in (
            ([dense, pooling], 2, "Dense", "Pooling"),
            ([pooling, pooling], 2, "Pooling", "Pooling"),
            ([pooling, dense, pooling], 3, "Dense", "Pooling"),
            ([pooling, normalize, dense], 3, "Normalize", "Dense"),
            ([pooling, module("Transformer", "")], 2, "Pooling", "Transformer"),
            ([module("Transformer", "")], 1, "Transformer", "Transformer"),
        ):
            self.write(*modules)
            self.refused(rf"modules.json: \[{entry}\].type must be a module that may follow {last} {order} \(got {kind}\)")
        self.write(pooling, normalize, normalize)
        np.testing.assert_array_equal(mha.Model(self.folder).embed(TEXTS), self.plain.embed(TEXTS, "cls"))

    def test_modules_after_a_refused_one(self):
        """A refused module does not prevent the folder from opening, whatever the width of the modules after it."""
        first = self.dense("2_Dense", self.width, 8, False, "activation.ReLU")
        self.write(self.pooling(mean_tokens=True), first, self.dense("3_Dense", 8, 4, False, "linear.Identity"))
        self.refused("2_Dense/config.json: activation_function must be Identity or Tanh .*ReLU")

    def damaged(self, message):
        with self.assertRaisesRegex((ValueError, OSError), message):
            mha.Model(self.folder)

    def test_damaged_files(self):
        (self.folder / "modules.json").write_text("{}")
        self.damaged("modules.json: must be a list of modules")
        (self.folder / "modules.json").write_text("[1]")
        self.damaged("modules.json: type must be")
        for path in "../2_Dense", "", "a/b":
            self.write(module("Dense", path))
            self.damaged("modules.json: path must be the name of a folder")
        self.write(module("Dense", "9_Dense"))
        self.damaged("9_Dense")
        self.write(self.dense("2_Dense", self.width + 1, 8, False, "linear.Identity"))
        self.damaged(f"2_Dense/config.json: in_features must be {self.width}, the width before the layer")
        self.write(self.dense("2_Dense", self.width, 8, False, "linear.Identity", {"out_features": 9}))
        self.damaged(rf'2_Dense/model.safetensors: tensor "linear.weight" must be of shape \[9, {self.width}\]')
        self.write(self.dense("2_Dense", self.width, 8, False, "linear.Identity", {"bias": True}))
        self.damaged('tensor "linear.bias" must be of shape .*no such tensor')
        self.write(self.dense("2_Dense", self.width, 8, False, "linear.Identity", {"out_features": 2**40}))
        self.damaged("2_Dense/config.json: out_features must be")


if __name__ == "__main__":
    unittest.main()
