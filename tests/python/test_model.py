"""Tests mha.Model on a tiny decoder and a tiny encoder: logits, scores, generated ids, and error messages that name the argument."""
import os
import shutil
import tempfile
import unittest
from pathlib import Path

import numpy as np

import mha

MODELS = Path(__file__).resolve().parents[1] / "golden/data/models"
PROMPT = [36, 402, 88, 287, 292, 77]
NEW = [45, 124, 467, 320, 297, 45, 180, 180, 180, 180, 180, 436]  # the greedy continuation of PROMPT by transformers


class Decoder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = mha.Model(MODELS / "gpt2-tiny")

    def test_forward(self):
        got = self.model.forward([PROMPT, PROMPT[::-1]], hidden=True, attentions=True)
        self.assertEqual(got.logits.shape, (2, 6, 640))
        self.assertEqual(int(got.logits[0, -1].argmax()), NEW[0])
        self.assertEqual(([x.shape for x in got.hidden_states], [x.shape for x in got.attentions]),
                         ([(2, 6, 48)] * 4, [(2, 4, 6, 6)] * 3))
        self.assertTrue(np.array_equal(got.hidden_states[-1], got.last_hidden))
        self.assertTrue(np.array_equal(self.model.forward([PROMPT]).logits[0], got.logits[0]))
        self.assertLess(np.abs(np.triu(got.attentions[0][0, 0], 1)).max(), 1e-30)

    def test_gguf(self):
        with tempfile.TemporaryDirectory() as work:
            self.model.save_gguf(work + "/model.gguf")
            model = mha.Model(work + "/model.gguf")
            self.assertEqual(model.tokenize("the cat sat"), self.model.tokenize("the cat sat"))
            self.assertTrue(np.array_equal(model.forward([PROMPT]).logits, self.model.forward([PROMPT]).logits))
            mha.Model.create({"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50}).save_gguf(work + "/ids.gguf")
            with self.assertRaisesRegex(ValueError, "must have a tokenizer"):
                mha.Model(work + "/ids.gguf").tokenize("the cat sat")

    def test_chosen_heads(self):
        both = [PROMPT, PROMPT[::-1]]
        whole = self.model.forward(both, attentions=True)
        some = self.model.forward(both, attentions=[(2, 1), (0, 3)])
        self.assertEqual(set(some.attentions), {(0, 3), (2, 1)})
        for (layer, head), got in some.attentions.items():
            self.assertTrue(np.array_equal(got, whole.attentions[layer][:, head]))
        self.assertTrue(np.array_equal(some.logits, whole.logits))
        for bad in ([(3, 0)], [(0, 4)], [(-1, 0)], [(0, 1, 2)], [], [(0, 0.5)]):
            with self.assertRaises(ValueError):
                self.model.forward(both, attentions=bad)

    def test_stats(self):
        mask = [[1] * 6, [1] * 4 + [0] * 2]
        got = self.model.forward([PROMPT, PROMPT[::-1]], mask, attentions=True, stats=True)
        self.assertEqual([n["row_entropy"].shape for n in got.stats], [(2, 4, 6)] * 3)
        at = np.arange(6)
        for numbers, maps in zip(got.stats, got.attentions, strict=True):
            for b, n in enumerate((6, 4)):
                p = maps[b, :, :n, :n].astype(np.float64)
                want = {"row_entropy": -(p * np.log2(np.where(p > 0, p, 1))).sum(-1), "row_max": p.max(-1),
                        "row_distance": (p * abs(at[:n, None] - at[:n])).sum(-1), "received": p.sum(-2),
                        "row_argmax": p.argmax(-1)}
                for name, value in want.items():
                    self.assertLess(np.abs(numbers[name][b, :, :n] - value).max(), 1e-5, name)
        plain = self.model.forward([PROMPT])
        self.assertEqual(len(plain), 4)
        self.assertTrue(np.array_equal(self.model.forward([PROMPT], stats=True).logits, plain.logits))

    def test_gates(self):
        ones, half = np.ones((3, 4)), np.ones((3, 2, 4))
        half[1, 0, 2] = 0
        plain, off = (self.model.forward([PROMPT, PROMPT], gates=g).logits for g in (ones, half))
        self.assertTrue(np.array_equal(plain, self.model.forward([PROMPT, PROMPT]).logits))
        self.assertTrue(np.array_equal(off[1], plain[1]) and not np.array_equal(off[0], plain[0]))
        with self.assertRaisesRegex(ValueError, "gates"):
            self.model.forward([PROMPT], gates=half)

    def test_score(self):
        logits = self.model.forward([PROMPT]).logits[0].astype(np.float64)
        rows = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        want = [rows[i, PROMPT[i + 1]] for i in range(5)]
        self.assertLess(np.abs(self.model.score(PROMPT) - want).max(), 1e-5)
        for bad in ([1], [1, 640], [[1, 2]], [1.5, 2]):
            with self.assertRaises(ValueError):
                self.model.score(bad)

    def test_generate(self):
        self.assertEqual(self.model.generate(PROMPT, 12), NEW)
        self.assertEqual(self.model.generate(np.array(PROMPT), 12, cache=False), NEW)
        self.assertEqual(self.model.generate(PROMPT, 12, lookup=4), NEW)
        self.assertEqual(self.model.generate(PROMPT, 12, eos=[320]), NEW[:4])
        self.assertEqual(self.model.generate(PROMPT, 12, eos=[]), NEW)
        self.assertEqual(self.model.generate(PROMPT, 12, stop="--i"), NEW[:5])
        self.assertNotEqual(self.model.generate(PROMPT, 12, repetition_penalty=1.5), NEW)
        self.assertEqual(len(set(self.model.generate(PROMPT, 12, no_repeat_ngram=1))), 12)

    def test_generate_with_gates(self):
        """Each token must be the most likely one of a forward pass with the same gates, alone and among other prompts."""
        gates = np.ones((self.model.info["layers"], self.model.info["heads"]), np.float32)
        gates[0, :2], gates[1, 2] = 0, 0.5
        want = list(PROMPT)
        for _ in range(8):
            want.append(int(self.model.forward([want], gates=gates).logits[0, -1].argmax()))
        want = want[len(PROMPT):]
        self.assertNotEqual(want, NEW[:8])
        for more in {}, {"cache": False}, {"lookup": 4}:
            self.assertEqual(self.model.generate(PROMPT, 8, gates=gates, eos=[], **more), want)
        self.assertEqual(self.model.generate([[7], PROMPT, [8, 9]], 8, gates=gates, eos=[], at_once=2)[1], want)
        with self.assertRaises(ValueError):
            self.model.generate(PROMPT, 8, gates=gates[:1])

    def test_several_prompts(self):
        prompts = [PROMPT, [7], list(range(20)), list(range(25))]
        drawn = {"temperature": 1.2, "top_k": 60, "min_p": 0.001}
        together = self.model.generate(prompts, 9, seed=3, **drawn)
        alone = [self.model.generate(p, 9, seed=3 + i, **drawn) for i, p in enumerate(prompts)]
        self.assertEqual(together, alone)
        self.assertNotEqual(alone[0], self.model.generate(PROMPT, 9, seed=4, **drawn))

    def test_loss_and_grads(self):
        loss, grads = self.model.loss_and_grads([PROMPT])
        self.assertAlmostEqual(loss, -self.model.score(PROMPT).mean(), places=5)
        self.assertEqual(grads["transformer.wte.weight"].shape, (640, 48))
        self.assertEqual(grads["transformer.h.0.attn.c_attn.bias"].shape, (144,))
        masked = np.array([PROMPT + [0, 0]])
        again, padded = self.model.loss_and_grads(masked, mask=[[1] * 6 + [0] * 2])
        self.assertEqual(loss, again)
        self.assertTrue(all(np.array_equal(g, padded[n]) for n, g in grads.items()))
        half, _ = self.model.loss_and_grads([PROMPT], [PROMPT[:3] + [-100] * 3])
        self.assertAlmostEqual(half, -self.model.score(PROMPT[:3]).mean(), places=5)
        for bad in ([PROMPT[:3]], [[10**6] * 6], [[0.5] * 6]):
            with self.assertRaises(ValueError):
                self.model.loss_and_grads([PROMPT], bad)

    def test_save(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "out")
            self.model.save(out)
            with self.assertRaisesRegex(OSError, "it contains"):
                self.model.save(out)
            self.model.save(out, dtype="bf16", overwrite=True)
            again = mha.Model(out)
            self.assertEqual((again.config["dtype"], sorted(p.name for p in Path(folder).iterdir())), ("bfloat16", ["out"]))
            self.assertEqual(again.tokenize("the train"), self.model.tokenize("the train"))
            name = "transformer.ln_f.bias"
            self.model.save(out, overwrite=True, tensors={name: np.full(48, 2.5)})
            self.assertFalse(np.array_equal(mha.Model(out).forward([PROMPT]).logits, self.model.forward([PROMPT]).logits))
            for wrong in ({name: np.zeros(47)}, {name: np.zeros((1,) * 5)}):
                with self.assertRaises(ValueError):
                    self.model.save(out, overwrite=True, tensors=wrong)

    def test_text_as_it_comes(self):
        pieces = []
        self.model.generate(PROMPT, 12, on_text=lambda prompt, text: pieces.append((prompt, text)))
        self.assertEqual({p for p, _ in pieces}, {0})
        self.assertEqual("".join(t for _, t in pieces), self.model.decode(PROMPT + NEW)[len(self.model.decode(PROMPT)):])
        self.assertLess(len(self.model.generate(PROMPT, 12, on_text=lambda *_: True)), 12)

    def test_an_exception_comes_through(self):
        def interrupted(_prompt, _text):
            raise KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            self.model.generate([PROMPT, PROMPT], 12, on_text=interrupted)

    def test_refusals(self):
        for arguments, settings, sentence in (
                (([], 4), {}, "must have tokens"), (([640], 4), {}, "640"), ((PROMPT, 0), {}, "max_new must be from 1"), ((PROMPT, 95), {}, r"at most 96 \(got"),
                ((PROMPT, 4), {"temperature": -1}, "temperature"), ((PROMPT, 4), {"stop": ["a\0"]}, "NUL"),
                ((PROMPT, 4), {"seed": -1}, "seed must be from 0"), ((PROMPT, 4), {"stop": [""]}, "stop"), ((PROMPT, 4), {"eos": [-1]}, "eos")):
            with self.assertRaisesRegex(ValueError, sentence):
                self.model.generate(*arguments, **settings)
        for text in (None, b"x", 7):
            with self.assertRaisesRegex(ValueError, "text must be a str"):
                self.model.tokenize(text)
        with self.assertRaisesRegex(ValueError, "ids must have rows of equal length"):
            self.model.forward([[1, 2], [3]])
        with self.assertRaisesRegex((ValueError, OSError), "folder name must not be empty"):
            mha.Model("")
        for path, got in (("no/such/model", "a path that does not exist"), (MODELS, "a folder without config.json"),
                          (MODELS / "gpt2-tiny/config.json", "a file: pass its folder")):
            with self.assertRaisesRegex(OSError, "a model must be a folder with config.json, .*got " + got):
                mha.Model(path)
        for ids in ([[1, 2]], [1.7, 2], [2**33]):
            with self.assertRaisesRegex(ValueError, "ids"):
                self.model.decode(ids)


    def test_a_path_in_bytes(self):
        model = mha.Model(os.fsencode(MODELS / "gpt2-tiny"))
        self.assertEqual(model.generate(PROMPT, 12), NEW)
        self.assertEqual(model.tokenize("x"), self.model.tokenize("x"))

    def test_without_a_tokenizer(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("config.json", "model.safetensors"):
                shutil.copy(MODELS / "gpt2-tiny" / name, folder)
            bare = mha.Model(folder, no_map=True)
        self.assertEqual(bare.generate(PROMPT, 12), NEW)  # the folder was removed, so no file may be mapped
        for use in (lambda: bare.tokenize("x"), lambda: bare.decode(PROMPT), lambda: bare.embed(["x"]),
                    lambda: bare.generate(PROMPT, 4, stop="x")):
            with self.assertRaisesRegex(ValueError, "tokenizer"):
                use()


class Encoder(unittest.TestCase):
    def test_no_logits(self):
        model = mha.Model(MODELS / "bert-tiny")
        self.assertIsNone(model.forward([[2, 9, 3]]).logits)
        with self.assertRaisesRegex(ValueError, "must be a decoder"):
            model.generate([2, 9, 3], 4)

    def test_logits_of_a_masked_model(self):
        self.assertEqual(mha.Model(MODELS / "bert-mlm-tiny").forward([[2, 9, 3]]).logits.shape, (1, 3, 520))


class EncoderDecoder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = mha.Model(MODELS.parent / "seq2seq/bart")
        cls.source = cls.model.tokenize("The train to the coast leaves late.")

    def test_generate(self):
        alone = self.model.generate([], 8, eos=[], sources=self.source)
        self.assertEqual((len(alone), alone[-1]), (8, 2))  # forced_eos_token_id
        self.assertNotEqual(self.model.generate([], 8, eos=[], sources=self.source, rules=False)[-1], 2)
        both = self.model.generate([[], []], 8, eos=[], sources=[self.source[:5], self.source])
        self.assertEqual(both[1], alone)
        self.assertEqual(self.model.generate([2, *alone[:3]], 5, eos=[], sources=self.source), alone[3:])
        with self.assertRaisesRegex(ValueError, "sources must not be NULL, since bart is an encoder-decoder"):
            self.model.generate([2], 8)
        with self.assertRaisesRegex(ValueError, "sources must have one source per prompt, 2"):
            self.model.generate([[], []], 8, sources=[self.source])

    def test_scores_and_labels(self):
        best = self.model.generate([], 6, eos=[], sources=self.source, rules=False)
        scores = self.model.score_target(self.source, best)
        self.assertEqual(scores.shape, (6,))
        for i in range(6):  # greedy tokens have the highest probability
            other = [*best[:i], (best[i] + 1) % 400]
            self.assertLess(self.model.score_target(self.source, other)[i], scores[i])
        self.assertEqual(self.model.shift_labels([[7, 8, -100]]).tolist(), [[2, 7, 8]])

    def test_forward(self):
        maps = []
        ids = [[2, 9, 4], [2, 7, 7]]
        source = [self.source[:6], self.source[1:7]]
        got = self.model.forward(ids, source=source, on_cross_attention=lambda layer, p: maps.append(p.copy()))
        self.assertEqual([p.shape for p in maps], [(2, self.model.info["heads"], 3, 6)] * self.model.info["layers"])
        self.assertTrue(np.allclose(maps[0].sum(-1), 1, atol=1e-5))
        alone = self.model.forward(ids[:1], source=[self.source[:4]])
        masked = self.model.forward(ids[:1], source=source[:1], source_mask=[[1, 1, 1, 1, 0, 0]])
        self.assertTrue(np.array_equal(alone.logits, masked.logits))
        self.assertFalse(np.array_equal(alone.logits, got.logits[:1]))
        with mha.ModelCache(self.model, tokens=3) as cache:
            first = self.model.forward([[2]], source=source[:1], cache=cache).logits
            rest = self.model.forward([[9, 4]], cache=cache).logits
        self.assertTrue(np.array_equal(np.concatenate([first, rest], 1), got.logits[:1]))
        for arguments, message in (({}, "source must not be NULL"), ({"source_mask": [[1]]}, "source_mask must be None without source"),
                                   ({"on_cross_attention": print}, "on_cross_attention must be None without source"),
                                   ({"source": [self.source]}, "batch of source must be 2")):
            with self.assertRaisesRegex(ValueError, message):
                self.model.forward(ids, **arguments)

    def test_embed(self):
        vectors = self.model.embed(["The train", "The coast leaves late."])
        self.assertEqual(vectors.shape[0], 2)
        self.assertTrue(np.allclose((vectors**2).sum(1), 1, atol=1e-5))


class Speech(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = mha.Model(MODELS.parent / "seq2seq/whisper")
        cls.recorded = mha.File(MODELS.parent / "seq2seq/whisper.safetensors")
        cls.features = cls.recorded.read("seq2seq/input_features")

    def test_samples(self):
        head = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80\x3e\0\0\0\x7d\0\0\2\0\x10\0data"
        wav = head + (6).to_bytes(4, "little") + np.array([0, 8192, -16384], "<i2").tobytes()
        self.assertEqual(mha.audio_parse(wav).tolist(), [0, 0.25, -0.5])
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "a.wav").write_bytes(wav)
            self.assertEqual(mha.audio_read(Path(folder, "a.wav")).tolist(), [0, 0.25, -0.5])
            with self.assertRaisesRegex(OSError, "b.wav"):
                mha.audio_read(Path(folder, "b.wav"))
        with self.assertRaisesRegex(ValueError, "the rest of the file"):
            mha.audio_parse(wav[:-1])
        with self.assertRaisesRegex(ValueError, "must be a WAV file"):
            mha.audio_parse(b"")

    def test_features(self):
        self.assertEqual((self.model.audio_shape, mha.Model().audio_shape), ((80, 48), None))
        features = mha.audio_features(np.sin(np.arange(4000) / 9), *self.model.audio_shape)
        self.assertEqual(features.shape, (80, 48))
        self.assertTrue(1 < features.max() - features.min() <= 2)
        with self.assertRaisesRegex(ValueError, "bins must be from 1 to 128"):
            mha.audio_features([0.0], 129, 2)

    def test_transcript(self):
        new = self.model.generate([], 24, eos=[], features=self.features)
        self.assertEqual(new, self.recorded.read("gen/new_ids").tolist())
        self.assertEqual(self.model.generate([[396], [396]], 24, eos=[], features=[self.features] * 2), [new] * 2)
        logits = self.model.forward([[396, *new]], source=self.features[None]).logits
        self.assertEqual(logits[0, :24].argmax(1).tolist(), new)
        seconds = self.model.token_times(self.features, [396, *new], prompt=1, frames=40)
        self.assertEqual(seconds.shape, (24,))
        self.assertTrue((np.diff(seconds) >= 0).all() and seconds[-1] < 0.4)
        some = self.model.token_times(self.features, [396, *new], prompt=1, heads=[(1, 2), (0, 1)], median_width=3)
        self.assertEqual(some.shape, (24,))

    def test_refused_calls(self):
        with self.assertRaisesRegex(ValueError, "features must not be NULL"):
            self.model.generate([], 8)
        with self.assertRaisesRegex(ValueError, "features"):
            self.model.generate([], 8, features=self.features[:, :40])
        with self.assertRaisesRegex(ValueError, "features must have one array per prompt, 2"):
            self.model.generate([[], []], 8, features=[self.features])
        with self.assertRaisesRegex(ValueError, "prompt must be at least 0 and below count = 2"):
            self.model.token_times(self.features, [396, 7], prompt=2)
        with self.assertRaisesRegex(ValueError, "model must have an encoder that reads audio"):
            mha.Model().token_times(self.features, [1, 2])


if __name__ == "__main__":
    unittest.main()
