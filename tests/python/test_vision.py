"""Tests models of images in the binding: pixels, forward passes of ViT and both towers of CLIP, losses, heads, and error messages."""
import json
import shutil
import tempfile
import unittest
from pathlib import Path

import numpy as np

import mha

DATA = Path(__file__).resolve().parents[1] / "golden/data"
IMAGES = DATA / "images"


def golden(name):
    return mha.tensors_read(DATA / "vision" / f"{name}.safetensors")


class Images(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copytree(DATA / "vision/clip-eos", self.folder / "clip")
        self.write({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 18}, "crop_size": 18})
        try:
            mha.read_image(IMAGES / "rgb.png")
        except ValueError as error:
            if "require a build" in str(error):
                self.skipTest(str(error))
            raise

    def write(self, config):
        (self.folder / "clip/preprocessor_config.json").write_text(json.dumps(config))
        self.model = mha.Model(self.folder / "clip")

    def test_pixels(self):
        rgb = mha.read_image(IMAGES / "rgb.png")
        self.assertEqual((rgb.shape, rgb.dtype), ((13, 17, 3), np.uint8))
        of_file, of_array = self.model.pixels([IMAGES / "rgb.png", rgb])
        self.assertEqual(of_file.shape, (3, 18, 18))
        self.assertTrue(np.array_equal(of_file, of_array))

    def test_no_resizing(self):
        exact = np.arange(18 * 20 * 3, dtype=np.uint16).astype(np.uint8).reshape(18, 20, 3)
        self.write({"do_resize": False, "crop_size": 18, "image_mean": [0.5, 0.25, 0], "image_std": [0.5, 2, 1]})
        want = (exact[:, 1:19] / 255 - [0.5, 0.25, 0]) / [0.5, 2, 1]
        self.assertLess(np.abs(self.model.pixels([exact])[0].transpose(1, 2, 0) - want).max(), 1e-6)
        self.write({"do_resize": False, "do_rescale": False, "do_normalize": False, "crop_size": {"height": 18, "width": 18}})
        small = exact[:15, :13]
        padded = np.pad(small, ((1, 2), (2, 3), (0, 0)))
        self.assertTrue(np.array_equal(self.model.pixels([small])[0].transpose(1, 2, 0), padded))

    def test_similarity(self):
        vectors = self.model.embed_images([IMAGES / "rgb.png", IMAGES / "gray.jpg"])
        self.assertEqual(vectors.shape, (2, 16))
        self.assertLess(np.abs(np.linalg.norm(vectors, axis=1) - 1).max(), 1e-6)
        got = self.model.similarity(vectors, vectors)
        self.assertLess(np.abs(got - np.exp(1.75) * vectors @ vectors.T).max(), 1e-5)

    def test_wrong_images(self):
        for bad, message in (([np.zeros((4, 4), np.uint8)], "uint8 array"), ([self.folder / "none.png"], "none.png"),
                             ([DATA / "vision/index.json"], "PNG or JPEG")):
            with self.assertRaisesRegex((ValueError, OSError), message):
                self.model.pixels(bad)
        with self.assertRaisesRegex(ValueError, "model of texts"):
            mha.Model().pixels([IMAGES / "rgb.png"])

    def test_heads(self):
        data = mha.HeadData.of_pixels(self.model, self.model.pixels([IMAGES / "rgb.png", IMAGES / "color.jpg"]))
        self.assertEqual((data.count, data.tokens, data.ids(1)), (2, 20, list(range(10))))
        found = mha.heads_measure(self.model, data)
        self.assertEqual(found.metrics["entropy"].shape, (2, 4))
        roll = mha.head_rollout(self.model, data, 1)
        self.assertLess(np.abs(roll.sum(axis=1) - 1).max(), 1e-5)
        scores = mha.importance_measure(self.model, data, by="jacobian_probe")
        self.assertEqual(scores.values.shape, (2, 4))
        self.assertEqual(mha.importance_pairs(self.model, data).shape, (8, 8))
        keep = np.ones((2, 4), bool)
        keep[1, 2] = False
        with mha.prune(self.model, keep, fill=data, part="image") as edit:
            self.assertEqual(edit.evaluate().heads[0] - edit.evaluate().heads[1], 1)

    def test_labels(self):
        vit = mha.Model(DATA / "vision/vit-classes")
        data = mha.HeadData.of_pixels(vit, golden("vit-classes")["train/pixel_values"])
        self.assertEqual(mha.importance_measure(vit, data, by="gate", labels=[3, 0, 4]).values.shape, (2, 2))
        for labels in [3], [3, 0, 4, 1]:
            with self.assertRaisesRegex(ValueError, "labels must have an element for each image, 3 in all"):
                mha.importance_measure(vit, data, by="gate", labels=labels)
            with self.assertRaisesRegex(ValueError, "labels must have an element for each image, 3 in all"):
                mha.importance_pairs(vit, data, labels=labels)
        with self.assertRaisesRegex(ValueError, "for each token, 3 in all .got 1"):
            mha.importance_measure(mha.Model(), mha.HeadData(mha.Model(), [[1, 2, 3]], ids=True), by="gate", labels=[1])


class Passes(unittest.TestCase):
    def test_classifier(self):
        model, want = mha.Model(DATA / "vision/vit-classes"), golden("vit-classes")
        x = want["train/pixel_values"]
        got = model.forward(pixels=x, hidden=True, attentions=True, stats=True)
        self.assertEqual((got.logits.shape, got.last_hidden.shape, got.attentions[0].shape), ((3, 5), (3, 13, 32), (3, 2, 13, 13)))
        self.assertEqual(got.stats[0]["row_entropy"].shape, (3, 2, 13))
        alone = model.forward(pixels=want["pixels/pixel_values"][None])
        self.assertTrue(np.array_equal(alone.logits[0], got.logits[0]))
        self.assertFalse(np.array_equal(model.forward(pixels=x, gates=np.zeros((2, 2))).logits, got.logits))
        with mha.ModelGrads(model) as grads:
            loss = grads.loss(pixels=x, labels=want["train/labels"], gates=True)
            self.assertAlmostEqual(loss.loss, float(want["train/loss"]), places=5)
            self.assertEqual(loss.gates.shape, (2, 3, 2))
            of_labels = grads.list()
            grads.zero()
            out = grads.forward(pixels=x)
            p = np.exp(out.logits - out.logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            p[np.arange(3), want["train/labels"]] -= 1
            grads.backward(logits=p / 3)
            for name, x in grads.list().items():
                self.assertLess(np.abs(x - of_labels[name]).max(), 1e-5 * max(1, np.abs(x).max()), name)

    def test_towers(self):
        model, want = mha.Model(DATA / "vision/clip-eos"), golden("clip-eos")
        texts = model.forward(want["pixels/input_ids"], want["pixels/attention_mask"], more=["embedding", "pooled"])
        images = model.forward(pixels=want["pixels/pixel_values"], more=["embedding"])
        self.assertLess(np.abs(texts.embedding - want["pixels/text_embeds"]).max(), 1e-5)
        self.assertLess(np.abs(images.embedding - want["pixels/image_embeds"]).max(), 1e-5)
        self.assertLess(np.abs(model.similarity(images.embedding, texts.embedding) - want["pixels/logits_per_image"]).max(), 1e-4)
        with mha.ModelGrads(model) as grads:
            loss = grads.clip_loss(want["train/input_ids"], want["train/pixel_values"], want["train/attention_mask"])
            self.assertAlmostEqual(loss, float(want["train/loss"]), places=5)
            got = grads.list()
            for name in got:
                self.assertIn(name, json.loads((DATA / "vision/index.json").read_text())["models"][3]["train"]["gradients"])

    def test_refusals(self):
        vit, text = mha.Model(DATA / "vision/vit-classes"), mha.Model()
        pixels = np.zeros((1, 1, 13, 21), np.float32)
        for call, message in ((lambda: vit.forward([[1, 2]]), "reads pixels"), (lambda: text.forward(pixels=pixels), "model of texts"),
                              (lambda: vit.forward(pixels=pixels[:, :, :12]), "pixels"), (lambda: vit.forward([[1]], pixels=pixels), "ids must be None"),
                              (lambda: vit.forward(pixels=pixels, mask=[[1]]), "mask must be None with pixels"),
                              (lambda: vit.forward(pixels=pixels, first_layer=1), "first_layer must be 0 with pixels"),
                              (lambda: mha.Trainer(vit), "model of texts"), (lambda: vit.similarity(pixels, pixels), "images")):
            with self.assertRaisesRegex(ValueError, message):
                call()

    def test_pruned_and_saved(self):
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        model = mha.Model(DATA / "vision/clip-eos")
        model.save(folder / "saved")
        again = mha.Model(folder / "saved")
        x = golden("clip-eos")["pixels/pixel_values"]
        self.assertTrue(np.array_equal(model.forward(pixels=x).last_hidden, again.forward(pixels=x).last_hidden))
        made = mha.Model.create({"model_type": "vit", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                                 "intermediate_size": 16, "image_size": 8, "patch_size": 4})
        self.assertEqual(made.forward(pixels=np.ones((2, 3, 8, 8), np.float32)).logits.shape, (2, 2))


if __name__ == "__main__":
    unittest.main()
