"""Compares attn_implementation="mha" with eager attention: outputs, gradients, padding, caches, generation and torch.compile. The models
are the tiny models of this project and, if present, those of the folder models2 in MHA_SHARED (default: `shared` next to the source tree).
Also compares mha.transformers.heads with the maps of eager attention and with the results of the program."""
import json
import os
import subprocess
import unittest
from pathlib import Path

from hugging_face import torch, transformers  # imported first: skips the test if PyTorch is not installed
import mha.transformers
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / "tests/golden/data/models"
SHARED = Path(os.environ.get("MHA_SHARED") or ROOT.parent / "shared") / "models2"
OUTSIDE = ("bloom", "deberta-v2", "mpnet")  # architectures that do not use AttentionInterface
torch.set_num_threads(1)
mha.transformers.register()


def opened(folder, implementation):
    (name,) = json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"]
    return getattr(transformers, name).from_pretrained(folder, attn_implementation=implementation).eval()


def batch(config, padded):
    """Returns two sequences of ids; the second is padded on the left if `padded` is true and the model reads masks."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(5, config.vocab_size, (2, 11), generator=draw)
    mask = torch.ones_like(ids)
    if padded:
        mask[1, :4] = 0
        ids[1, :4] = config.pad_token_id or 0
    return {"input_ids": ids, "attention_mask": mask}


def inputs(model, padded):
    config, kind = model.config, model.config.model_type
    draw = torch.Generator().manual_seed(2)
    if kind == "vit":
        size = config.image_size if isinstance(config.image_size, list) else [config.image_size] * 2
        return {"pixel_values": torch.randn(2, config.num_channels, *size, generator=draw)}
    if kind == "clip":
        size = config.vision_config.image_size
        return batch(config.text_config, False) | {"pixel_values": torch.randn(2, 3, size, size, generator=draw)}
    if kind == "whisper":
        frames = 2 * config.max_source_positions
        return {"input_features": torch.randn(2, config.num_mel_bins, frames, generator=draw),
                "decoder_input_ids": torch.randint(5, config.vocab_size, (2, 7), generator=draw)}
    given = batch(config, padded)
    if config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.randint(5, config.vocab_size, (2, 7), generator=draw)
    return given


def result(model, given):
    """Runs the model and returns the output to compare, without padding positions."""
    out = model(**given)
    for name in "logits", "logits_per_image", "last_hidden_state":
        if getattr(out, name, None) is not None:
            x = getattr(out, name)
            mask = given.get("attention_mask")
            return x[mask.bool()] if mask is not None and x.shape[:2] == mask.shape else x
    raise AssertionError(f"{type(model).__name__} must have a known output")


class Beside(unittest.TestCase):
    def close(self, got, want, limit, what):
        scale = max(1.0, float(want.abs().max()))
        self.assertLessEqual(float((got - want).abs().max()), limit * scale, what)

    def check(self, folder):
        eager, fused = opened(folder, "eager"), opened(folder, "mha")
        for padded in False, True:
            given = inputs(eager, padded)
            found = []
            for model in eager, fused:
                model.zero_grad()
                out = result(model, given)
                gradient = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
                (out * gradient).sum().backward()
                found.append((out.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
            (want, grads), (got, ours) = found
            self.close(got, want, 2e-5, f"outputs, padded: {padded}")
            self.assertEqual(grads.keys(), ours.keys())
            for name, g in grads.items():
                self.close(ours[name], g, 1e-4, f"gradient of {name}, padded: {padded}")
        if eager.can_generate():
            self.generate(eager, fused)

    def generate(self, eager, fused):
        given = inputs(eager, True)
        given.pop("decoder_input_ids", None)
        options = dict(max_new_tokens=6, do_sample=False, min_new_tokens=6)
        want = eager.generate(**given, **options)
        self.assertTrue(torch.equal(fused.generate(**given, **options), want), "generation")
        if eager._can_compile_fullgraph and not eager.config.is_encoder_decoder:
            got = fused.generate(**given, **options, cache_implementation="static", disable_compile=True)
            self.assertTrue(torch.equal(got, want), "generation with a static cache")

    def test_own_models(self):
        names = [p.name for p in sorted(OURS.iterdir()) if (p / "model.safetensors").exists() and p.name.endswith("-tiny")]
        self.assertGreaterEqual(len(names), 4)
        for name in names:
            with self.subTest(name=name):
                self.check(OURS / name)

    def test_models2(self):
        if not SHARED.is_dir():
            self.skipTest(f"{SHARED} does not exist (set MHA_SHARED to the folder of the large recordings)")
        folders = [p for p in sorted(SHARED.iterdir()) if (p / "config.json").exists()]
        checked = 0
        for folder in folders:
            kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
            if kind not in OUTSIDE:
                with self.subTest(name=folder.name):
                    self.check(folder)
                    checked += 1
        print(f"{checked} of {len(folders)} models compute their attention with mha; {', '.join(OUTSIDE)} do not use AttentionInterface")

    def test_compile(self):
        for name in "bert-tiny", "gemma2-tiny":
            with self.subTest(name=name):
                eager, fused = opened(OURS / name, "eager"), opened(OURS / name, "mha")
                given = inputs(eager, True)
                compiled = torch.compile(fused, backend="aot_eager")
                with torch.no_grad():
                    self.close(result(compiled, given), result(eager, given), 2e-5, "compiled")

    def test_refuses(self):
        module = torch.nn.Identity()
        x = torch.randn(1, 1, 2, 4)
        with self.assertRaisesRegex(ValueError, "head_mask must be None with attn_implementation=\"mha\" .Identity passes it."):
            mha.transformers._forward(module, x, x, x, None, head_mask=x)


class Words:
    """A tokenizer that splits at spaces, with the interface of tokenizers in transformers."""

    def __call__(self, text, return_tensors):
        ids = [5 + sum(map(ord, w)) % 60 for w in text.split()]
        return {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.int64)}


TEXTS = ["the cat sat on the mat and the dog sat too", "one two three two one", "a b c a b c a b"]


class Heads(unittest.TestCase):
    def test_beside_eager(self):
        for name in "gpt2-tiny", "gemma2-tiny", "bert-tiny":
            with self.subTest(name=name):
                model, words = opened(OURS / name, "eager"), Words()
                found = mha.transformers.heads(model, words, TEXTS, maps=[(0, 1), (1, 0)])
                self.assertEqual(model.config._attn_implementation, "eager")
                sums, rows = {}, 0
                for n, text in enumerate(TEXTS):
                    with torch.no_grad():
                        maps = torch.stack(model(**words(text, "pt"), output_attentions=True).attentions)[:, 0].double()
                    length = maps.shape[-1]
                    place = torch.arange(length)
                    parts = {"entropy": -torch.where(maps > 0, maps * maps.clamp_min(1e-300).log2(), 0.0).sum(-1),
                             "confidence": maps.max(-1).values,
                             "distance": (maps * (place[:, None] - place).abs()).sum(-1), "sink": maps[..., 0]}
                    for metric, x in parts.items():
                        sums[metric] = sums.get(metric, 0) + x.sum(-1)
                    rows += length
                    for layer, head in (0, 1), (1, 0):
                        np.testing.assert_allclose(found.maps[layer, head][n], maps[layer, head], atol=2e-6)
                for metric, x in sums.items():
                    np.testing.assert_allclose(found.metrics[metric], x / rows, atol=1e-5, err_msg=metric)

    def test_gradients_and_importance(self):
        model, words = opened(OURS / "gpt2-tiny", "eager"), Words()
        found = mha.transformers.heads(model, words, TEXTS, gradients=True, importance=True)
        self.assertEqual(found.importance.shape, found.metrics["entropy"].shape)
        width = model.config.n_embd // model.config.n_head

        def loss(layer, head, gate):
            """Returns the loss of each text with one head's output scaled by `gate`, by scaling the head's rows of c_proj.weight."""
            rows = slice(head * width, (head + 1) * width)
            weight = model.transformer.h[layer].attn.c_proj.weight
            kept = weight.detach().clone()
            with torch.no_grad():
                weight[rows] *= gate
                value = [float(model(**words(t, "pt"), labels=words(t, "pt")["input_ids"]).loss) for t in TEXTS]
                weight.copy_(kept)
            return np.array(value)

        self.assertAlmostEqual(found.loss, loss(0, 0, 1).mean(), places=5)
        for layer, head in (0, 0), (1, 2):
            self.assertAlmostEqual(found.importance[layer, head], (loss(layer, head, 0) - loss(layer, head, 1)).mean(), places=5)
            slope = np.abs(loss(layer, head, 1.02) - loss(layer, head, 0.98)) / 0.04
            self.assertAlmostEqual(found.gate_gradients[layer, head], slope.mean(), delta=2e-3)

    def test_as_the_program(self):
        folder = OURS / "gpt2-tiny"
        tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), opened(folder, "mha")
        found = mha.transformers.heads(model, tokenizer, TEXTS)
        said = json.loads(subprocess.run([os.environ["MHA"], "heads", "-m", folder, "--json", "--no-probe", *TEXTS], check=True,
                                         capture_output=True, text=True).stdout)
        for metric in "entropy", "confidence", "distance", "sink":
            np.testing.assert_allclose(found.metrics[metric], np.array(said["metrics"][metric]), atol=2e-5, err_msg=metric)

    def test_refuses(self):
        model, words = opened(OURS / "gpt2-tiny", "eager"), Words()
        with self.assertRaisesRegex(ValueError, "texts must be a list of str"):
            mha.transformers.heads(model, words, "one text")
        with self.assertRaisesRegex(ValueError, r"maps must be pairs .* \(got \(9, 0\)\)"):
            mha.transformers.heads(model, words, TEXTS, maps=[(9, 0)])
        bloom = transformers.BloomModel(transformers.BloomConfig(vocab_size=80, hidden_size=16, n_layer=1, n_head=2))
        with self.assertRaisesRegex(ValueError, r"model must use AttentionInterface .* \(got BloomModel\)"):
            mha.transformers.heads(bloom, words, TEXTS)


if __name__ == "__main__":
    unittest.main()
