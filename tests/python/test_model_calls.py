"""Calls of mha.Model beyond a plain pass: caches, packed sequences, rows and statistics of maps, generation, gradients, distillation,
new models; and tokenizers."""
import json
import tempfile
import unittest
from pathlib import Path

import numpy as np

import mha

MODELS = Path(__file__).resolve().parents[1] / "golden/data/models"
PROMPT = [36, 402, 88, 287, 292, 77]


class Positions(unittest.TestCase):
    """Default positions of families that do not number all tokens from 0."""

    def test_opt_counts_real_tokens(self):
        model = mha.Model.create({"model_type": "opt", "vocab_size": 60, "hidden_size": 32, "ffn_dim": 40, "num_hidden_layers": 2,
                                  "num_attention_heads": 2, "max_position_embeddings": 32, "word_embed_proj_dim": 32}, seed=3)
        ids = np.array([[5, 6, 7, 8, 9, 10]])
        for mask in [0, 0, 1, 1, 1, 1], [1, 0, 1, 0, 1, 1], [1, 1, 1, 1, 0, 0]:
            real = np.array([mask]) == 1
            alone = model.forward(ids[real][None]).logits[0]
            np.testing.assert_allclose(model.forward(ids, mask=real).logits[real], alone, rtol=0, atol=2e-6)

    def test_mpnet_counts_from_1(self):
        config = {"model_type": "mpnet", "vocab_size": 60, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
                  "num_attention_heads": 2, "max_position_embeddings": 32}
        ids = np.array([[0, 1, 5, 3, 1]])
        first, *rest = (mha.Model.create(config | {"pad_token_id": pad}, seed=3).forward(ids).last_hidden for pad in (1, 0, 3))
        for other in rest:
            np.testing.assert_array_equal(first, other)
        with self.assertRaisesRegex(ValueError, r"max_position_embeddings must be at least 3 \(got 2\)"):
            mha.Model.create(config | {"max_position_embeddings": 2, "pad_token_id": 0})


class Decoder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = mha.Model(MODELS / "gpt2-tiny")
        cls.whole = cls.model.forward([PROMPT], hidden=True, attentions=True, stats=True)

    def test_a_cache(self):
        with mha.ModelCache(self.model, batch=2) as cache:
            first = self.model.forward([PROMPT[:4]], cache=cache, sequence=1)
            rest = self.model.forward([PROMPT[4:]], cache=cache, sequence=1, attentions=True, stats=True, top_keys=2)
            np.testing.assert_array_equal(np.concatenate([first.logits, rest.logits], 1), self.whole.logits)
            np.testing.assert_array_equal(rest.attentions[2], self.whole.attentions[2][:, :, 4:])
            np.testing.assert_array_equal(rest.stats[1]["row_max"], self.whole.stats[1]["row_max"][:, :, 4:])
            self.assertEqual(rest.stats[0]["top_key"].shape, (1, 4, 2, 2))
            np.testing.assert_array_equal(rest.stats[0]["top_prob"][..., 0], rest.stats[0]["row_max"])
            self.assertEqual([cache.length(n) for n in range(2)], [0, 6])
            self.assertGreater(cache.bytes, 0)
            cache.fork(1, 0, 3)
            cache.truncate(4, sequence=1)
            self.assertEqual([cache.length(n) for n in range(2)], [3, 4])
            again = self.model.forward([PROMPT[3:]], cache=cache, sequence=0)
            np.testing.assert_array_equal(again.logits, self.whole.logits[:, 3:])
            cache.truncate(5)
            self.assertEqual([cache.length(n) for n in range(2)], [5, 4])
            with self.assertRaisesRegex(ValueError, "length must be from 0 to 5"):
                cache.truncate(-1)
            cache.clear()
            self.assertEqual(cache.length(0), 0)
            with self.assertRaises(IndexError):
                cache.length(2)
            with self.assertRaisesRegex(ValueError, "batch"):
                self.model.forward([PROMPT], cache=cache)
        with self.assertRaisesRegex(ValueError, "must be a decoder"):
            mha.ModelCache(mha.Model(MODELS / "bert-tiny"))

    def test_packed_sequences(self):
        packed = self.model.forward(PROMPT + PROMPT[:3], starts=[0, 6, 9], attentions=True, stats=True, hidden=True, more=["last_logits"])
        np.testing.assert_array_equal(packed.logits[:6], self.whole.logits[0])
        np.testing.assert_array_equal(packed.hidden_states[1][6:], self.whole.hidden_states[1][0, :3])
        np.testing.assert_array_equal(packed.attentions[0][1, :, :3, :3], self.whole.attentions[0][0, :, :3, :3])
        np.testing.assert_array_equal(packed.stats[2]["row_entropy"][:, :6], self.whole.stats[2]["row_entropy"][0])
        np.testing.assert_array_equal(packed.last_logits, [self.whole.logits[0, 5], self.whole.logits[0, 2]])
        with self.assertRaisesRegex(ValueError, "starts must begin with 0 and end with 9"):
            self.model.forward(PROMPT + PROMPT[:3], starts=[0, 6])

    def test_rows_of_maps(self):
        some = self.model.forward([PROMPT], attentions=True, map_rows=[[-1, 2]])
        for got, want in zip(some.attentions, self.whole.attentions):
            np.testing.assert_array_equal(got, want[:, :, [5, 2]])
        seen = {}

        def see(r):
            for n, row in enumerate(r["p"]):
                seen[r["layer"], r["head"], r["first"] + n] = row.copy(), float(r["largest"][n])
        self.model.forward([PROMPT], on_rows=see)
        self.assertEqual(len(seen), 3 * 4 * 6)
        for (layer, head, row), (p, largest) in seen.items():
            np.testing.assert_array_equal(p, self.whole.attentions[layer][0, head, row])
            self.assertEqual(np.float32(largest), p.max())

    def test_from_the_context_of_a_layer(self):
        seen = {}
        self.model.forward([PROMPT], on_activations=lambda a: seen.update({a["layer"]: a["context"].reshape(1, 6, 48).copy()}))
        got = self.model.forward([PROMPT], states=self.whole.hidden_states[1], first_layer=1, context=seen[1])
        with self.assertRaisesRegex(ValueError, r"context must be of shape \(1, 6, 48\)"):
            self.model.forward([PROMPT], states=self.whole.hidden_states[1], first_layer=1, context=seen[1][..., :7])
        np.testing.assert_array_equal(got.logits, self.whole.logits)

    def test_attention_and_heads_chosen_by_the_text(self):
        self.assertEqual({a["choice"] for a in self.model.attention}, {"none"})
        config = json.loads((MODELS / "bert-tiny/config.json").read_text()) | {
            "mha.attention": [{"head_pruning": {"prune_ratio": 0.5}}, None]}
        model = mha.Model.create(config | {"num_hidden_layers": 2}, seed=3)
        heads = model.info["heads"]
        self.assertEqual([(a["choice"], a["heads_per_text"]) for a in model.attention], [("heads", heads // 2), ("none", heads)])
        kept = model.forward([[2, 9, 3], [2, 4, 3]], more=["kept"]).kept
        self.assertEqual(kept.sum(-1).tolist(), [[heads // 2] * 2, [heads] * 2])

    def test_generation_calls(self):
        seen = []
        made = self.model.generate([PROMPT, PROMPT[:3]], 4, eos=[], on_prompt=lambda *x: seen.append(("prompt", *x)),
                                   on_token=lambda *x: seen.append(("token", *x)), on_end=lambda *x: seen.append(("end", *x)))
        self.assertEqual([[id for what, n, id in seen if what == "token" and n == p] for p in range(2)], made)
        self.assertEqual(sorted(x for x in seen if x[0] == "end"), [("end", 0, "length"), ("end", 1, "length")])
        self.assertEqual(len([x for x in seen if x[0] == "prompt"]), 2)
        self.assertEqual(len(self.model.generate(PROMPT, 4, eos=[], on_token=lambda *_: True)), 1)
        half = self.model.generate(PROMPT, 4, cache_dtype="f16")
        self.assertEqual(half[0], made[0][0])
        with self.assertRaisesRegex(ValueError, "cache_dtype must be one of None, 'f32'"):
            self.model.generate(PROMPT, 4, cache_dtype="f64")

    def test_sampling_and_scores(self):
        logits = self.whole.logits[0, -1]
        greedy = mha.sampling_apply(logits, PROMPT, repetition_penalty=2.0)
        want = logits.copy()
        want[PROMPT] = np.where(want[PROMPT] > 0, want[PROMPT] / 2, want[PROMPT] * 2)
        np.testing.assert_array_equal(greedy, want)
        self.assertEqual(np.isfinite(mha.sampling_apply(logits, temperature=1.0, top_k=5)).sum(), 5)
        np.testing.assert_array_equal(self.model.score_hidden(self.whole.last_hidden[0, :-1], PROMPT[1:]), self.model.score(PROMPT))

    # ---- gradients ----

    def test_a_custom_loss(self):
        with mha.ModelGrads(self.model) as grads:
            out = grads.forward([PROMPT])
            np.testing.assert_array_equal(out.logits, self.whole.logits)
            _, counted, dlogits = mha.cross_entropy(out.logits[0], PROMPT[1:] + [-100])
            gates, embeddings = grads.backward(logits=dlogits[None], gates=True, embeddings=True)
            ours = grads.list()
        loss, theirs = self.model.loss_and_grads([PROMPT])
        self.assertEqual((counted, gates.shape, embeddings.shape), (5, (3, 1, 4), (1, 6, 48)))
        for name, x in theirs.items():
            np.testing.assert_allclose(ours[name], x, atol=1e-6 * max(1, np.abs(x).max()), err_msg=name)
        step = 1e-2
        gate = np.ones((3, 4), np.float32)
        with mha.ModelGrads(self.model, parameters=False) as grads:
            losses = []
            for change in step, -step:
                gate[1, 2] = 1 + change
                losses.append(grads.loss([PROMPT], gate=gate, loss_only=True).loss)
            self.assertAlmostEqual(gates[1, 0, 2], (losses[0] - losses[1]) / (2 * step), delta=2e-4)
            self.assertEqual(grads.list(), {})
            self.assertAlmostEqual(grads.loss([PROMPT], loss_only=True).loss, loss, places=7)

    def test_callbacks_of_the_backward_pass(self):
        seen = {}
        with mha.ModelGrads(self.model, parameters=False) as grads:
            found = grads.loss([PROMPT], gates=True, taylor=True, on_context=lambda g: seen.update({g["layer"]: (
                (g["context"] * g["dcontext"]).sum((0, 2)), g["row_taylor"].shape)}))
        self.assertEqual(list(seen), [2, 1, 0])
        for layer, (product, shape) in seen.items():
            np.testing.assert_allclose(product, found.gates[layer, 0], atol=1e-6)
            self.assertEqual(shape, (4, 6))

    def test_accumulation_and_dropout(self):
        with mha.ModelGrads(self.model, attention_only=True) as grads:
            grads.loss([PROMPT])
            once = grads.list()
            self.assertTrue(all(".attn." in name for name in once))
            grads.loss([PROMPT])
            name = "transformer.h.1.attn.c_attn.weight"
            np.testing.assert_allclose(grads.list()[name], 2 * once[name], rtol=1e-5, atol=1e-7)
            grads.zero()
            self.assertFalse(grads.list()[name].any())
            plain = grads.loss([PROMPT]).loss
            grads.dropout(residual=0.5, seed=3)
            self.assertNotEqual(grads.loss([PROMPT]).loss, plain)
            with self.assertRaisesRegex(ValueError, "attention"):
                grads.dropout(attention=1.5)

    def test_distillation(self):
        student = mha.Model.create(json.loads((MODELS / "gpt2-tiny/config.json").read_text()), seed=5)
        with mha.ModelGrads(student) as grads:
            plain = grads.loss([PROMPT], loss_only=True).loss
            taught = grads.loss([PROMPT], teacher=self.model, distill=mha.Distill(logits=1.0, temperature=2.0)).loss
            p, q = (m.forward([PROMPT]).logits[0, :-1].astype(np.float64) / 2 for m in (self.model, student))
            p, q = (x - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)) - x.max(-1, keepdims=True) for x in (p, q))
            self.assertAlmostEqual(taught, 4 * (np.exp(p) * (p - q)).sum(-1).mean(), places=5)
            mixed = grads.loss([PROMPT], teacher=self.model, loss_only=True).loss
            self.assertAlmostEqual(mixed, (plain + taught) / 2, places=5)
        with mha.ModelGrads(self.model) as grads:
            self.assertAlmostEqual(grads.loss([PROMPT], teacher=self.model, distill=mha.Distill(hidden=1.0)).loss, 0, places=9)

    # ---- new models ----

    def test_create_and_replace(self):
        config = json.loads((MODELS / "gpt2-tiny/config.json").read_text())
        new = mha.Model.create(config, seed=1, tokenizer=MODELS / "gpt2-tiny")
        self.assertEqual(new.tokenize("the train"), self.model.tokenize("the train"))
        self.assertTrue(np.array_equal(new.forward([PROMPT]).logits, mha.Model.create(json.dumps(config), seed=1).forward([PROMPT]).logits))
        with tempfile.TemporaryDirectory() as folder:
            mha.model_save_check(Path(folder, "out"))
            new.save(Path(folder, "out"), config=new.config | {"note": 7})
            again = mha.Model(Path(folder, "out"))
            self.assertEqual(again.config["note"], 7)
            with self.assertRaisesRegex(OSError, "out"):
                mha.model_save_check(Path(folder, "out"))
        np.testing.assert_array_equal(again.forward([PROMPT]).logits, new.forward([PROMPT]).logits)
        name = "transformer.ln_f.bias"
        shifted = mha.Model(MODELS / "gpt2-tiny", tensors={name: np.full(48, 2.5)})
        self.assertFalse(np.array_equal(shifted.forward([PROMPT]).logits, self.whole.logits))
        with self.assertRaisesRegex(ValueError, "weights"):
            mha.Model(MODELS / "gpt2-tiny", weights=False).forward([PROMPT])
        with self.assertRaisesRegex(ValueError, "odd"):
            mha.Model.create({"model_type": "odd"})


class Encoder(unittest.TestCase):
    def test_pooled(self):
        model = mha.Model(MODELS / "bert-tiny")
        weights, got = mha.tensors_read(MODELS / "bert-tiny"), model.forward([[2, 9, 3]], more=["pooled"])
        name = next(n for n in weights if n.endswith("pooler.dense.weight")).removesuffix(".weight")
        want = np.tanh(got.last_hidden[:, 0] @ weights[f"{name}.weight"].T + weights[f"{name}.bias"])
        np.testing.assert_allclose(got.pooled, want, atol=1e-6)
        with self.assertRaisesRegex(ValueError, "more must be one of 'pooled', 'last_logits', 'kept'"):
            model.forward([[2, 9, 3]], more=["odd"])


class Tokenizers(unittest.TestCase):
    TEXT = "the cat sat on the mat. the dog sat on the log.\nThe cat and the dog sat.\n" * 4

    def test_open(self):
        tokenizer, model = mha.Tokenizer(MODELS / "gpt2-tiny"), mha.Model(MODELS / "gpt2-tiny")
        self.assertEqual(tokenizer.encode("the train", special=False), model.encode("the train", special=False))
        self.assertEqual(tokenizer.vocabulary, model.vocabulary)
        with self.assertRaisesRegex(OSError, "tokenizer.json"):
            mha.Tokenizer("no/such/folder")

    def test_long_texts_are_not_truncated(self):
        model = mha.Model(MODELS / "gpt2-tiny")
        self.assertGreater(len(model.tokenize("the train " * 200)), model.info["max_positions"])

    def test_offsets_are_those_of_the_text(self):
        text = "Zoë isn't here"
        data, tokens = text.encode(), mha.Model().encode(text)
        self.assertEqual((tokens.offsets[0][0], tokens.offsets[-1][1]), (0, len(data)))
        for (_, end), (begin, _) in zip(tokens.offsets, tokens.offsets[1:]):
            self.assertIn(begin, (end, end - 2))  # two tokens hold the bytes of one character
        self.assertEqual(data[tokens.offsets[-1][0]:].decode(), text[-len(data[tokens.offsets[-1][0]:]):])

    def test_a_stream(self):
        model = mha.Model(MODELS / "gpt2-tiny")
        ids = model.tokenize("naïve 😀 train")
        stream = model.stream()
        parts = [stream.put(id) for id in ids]
        self.assertEqual("".join(parts) + stream.end(), model.decode(ids))
        with self.assertRaisesRegex(ValueError, "id"):
            model.stream().put(10**6)
        stream = model.stream()
        model.close()
        self.assertEqual("".join(stream.put(id) for id in ids) + stream.end(), "naïve 😀 train")
        with self.assertRaisesRegex(ValueError, "Model is closed"):
            model.stream()

    def test_training(self):
        for kind, options in ("bpe", {"special": ["<pad>"]}), ("wordpiece", {"lowercase": True}):
            with self.subTest(kind=kind), tempfile.TemporaryDirectory() as folder:
                trainer = mha.TokenizerTrainer(kind, 300, **options)
                trainer.put(self.TEXT[:50])
                trainer.put(self.TEXT[50:].encode())
                trainer.end()
                tokenizer = trainer.run()
                self.assertEqual(trainer.trained.bytes, len(self.TEXT))
                self.assertEqual(trainer.trained.tokens, tokenizer.vocabulary)
                ids = tokenizer.tokenize("the cat sat", special=False)
                self.assertEqual(tokenizer.decode(ids), "the cat sat")
                self.assertLess(len(ids), 6)
                trainer.save(Path(folder, "out"))
                again = mha.Tokenizer(Path(folder, "out"))
                self.assertEqual(again.tokenize("the cat sat", special=False), ids)
                for token in options.get("special", []):
                    self.assertTrue(again.is_special(again.token_id(token)))
        for use in (lambda: mha.TokenizerTrainer("odd", 300), lambda: mha.TokenizerTrainer("bpe", 0),
                    lambda: mha.TokenizerTrainer("bpe", 300, special="x")):
            with self.assertRaises(ValueError):
                use()
        trainer = mha.TokenizerTrainer("bpe", 300)
        with self.assertRaisesRegex(ValueError, "UTF-8"):
            trainer.put(b"\xff\n")
            trainer.end()


if __name__ == "__main__":
    unittest.main()
