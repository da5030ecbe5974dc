"""Head measurements and edits from Python must equal those of the program: the printed results to the last digit, and the written models.
Also tests callbacks and options of mha.Model.forward."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import mha
import numpy as np

DATA = Path(__file__).resolve().parents[1] / "golden/data/models"
TEXTS = ["the cat sat on the mat", "a dog ran home", "one two three two one", "the cat ran", "the old dog sat on the old mat",
         "a cat and a dog", "home is here", "three cats sat"]


def program(*arguments):
    return subprocess.run([os.environ["MHA"], *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def printed(x):
    """Returns a float as printed by the program, with nine digits, or None for NaN."""
    return None if np.isnan(x) else float(f"{x:.9g}")


def table(x):
    return [[printed(v) for v in row] for row in x]


class Measures(unittest.TestCase):
    maxDiff = None

    def models(self):
        for name in "builtin", "gpt2-tiny", "bert-tiny":
            folder = name if name == "builtin" else DATA / name
            with self.subTest(model=name):
                yield folder, mha.Model(folder)

    def test_heads(self):
        for folder, model in self.models():
            said = json.loads(program("heads", "-m", folder, "--json", "-s", 3, *TEXTS))
            found = mha.heads_measure(model, TEXTS, seed=3)
            self.assertEqual(set(found.metrics), set(said["metrics"]))
            for name, x in said["metrics"].items():
                self.assertEqual(table(found.metrics[name]), x, name)
            self.assertEqual(found.labels, said["labels"])
            self.assertEqual(printed(found.sink_rate), said["sink_rate"])
            self.assertEqual(set(mha.metric_help()), set(found.metrics))
            self.assertLessEqual({x for row in found.labels for x in row}, set(mha.label_help()))

    def test_maps(self):
        model = mha.Model()
        found = mha.heads_measure(model, TEXTS[:1], keep_maps=True)
        want = model.forward([model.tokenize(TEXTS[0])], attentions=True).attentions
        for (layer, head), x in found.maps.items():
            np.testing.assert_array_equal(x, want[layer][0, head])
        self.assertEqual(found.tokens, model.tokenize(TEXTS[0]))

    def test_importance(self):
        for folder, model in self.models():
            for by in ("gate", "loo") if model.info["causal"] else ("jacobian_probe", "loo"):
                whole = json.loads(program("heads", "-m", folder, "--json", "--no-probe", "-s", 0, "--by", by, *TEXTS))
                plain = json.loads(program("heads", "-m", folder, "--json", "--no-probe", *TEXTS))
                said, found = whole.pop("importance"), mha.importance_measure(model, TEXTS, by=by, heads=True)
                self.assertEqual(whole, plain)
                measured = mha.heads_measure(model, TEXTS)
                self.assertEqual(found.heads.labels, measured.labels)
                for name, values in measured.metrics.items():
                    np.testing.assert_array_equal(found.heads.metrics[name], values, name)
                for name in "values", "low", "high":
                    self.assertEqual(table(getattr(found, name)), said[name], (by, name))
                self.assertEqual(printed(found.halves), said["halves"])
                self.assertEqual((found.by, found.texts_used), (said["by"], said["texts"]))
            self.assertIn(by, mha.score_help())
        weights = mha.importance_measure(mha.Model(), None, by="ov_norm")
        np.testing.assert_array_equal(weights.values, weights.low)
        with self.assertRaisesRegex(ValueError, "by must be one of 'gate'"):
            mha.importance_measure(model, TEXTS, by="odd")

    def test_pairs(self):
        model = mha.Model()
        pairs = mha.importance_pairs(model, TEXTS[:2], by="loo_loss")
        np.testing.assert_array_equal(pairs, pairs.T)
        single = mha.importance_measure(model, TEXTS[:2], by="loo_loss").values.ravel()
        np.testing.assert_allclose(np.diag(pairs), single, atol=1e-6)

    def test_diversity(self):
        model = mha.Model()
        found = mha.diversity_measure(model, TEXTS)
        self.assertEqual(set(found.values), set(mha.diversity_help()))
        maps = [m for t in TEXTS for m in [model.forward([model.tokenize(t)], attentions=True).attentions]]
        flat = [np.concatenate([m[layer][0, head].ravel() for m in maps]).astype(np.float64) for layer in range(2) for head in range(8)]
        for a, b in (0, 3), (8, 9):
            want = flat[a] @ flat[b] / np.sqrt((flat[a] @ flat[a]) * (flat[b] @ flat[b]))
            self.assertAlmostEqual(found.values["cosine"][a, b], want, places=6)
        self.assertTrue(np.isnan(found.values["cosine"][0, 8]))
        self.assertEqual((found.map.shape, found.merges.shape), ((16, 2), (15, 4)))
        self.assertEqual(found.merges[-1, 3], 16)
        rollout = mha.head_rollout(model, TEXTS, 1)
        np.testing.assert_allclose(rollout.sum(1), 1, atol=1e-5)

    def test_data(self):
        model = mha.Model()
        with mha.HeadData(model, TEXTS, max_tokens=3) as data:
            self.assertEqual((data.count, data.ids(1)), (len(TEXTS), model.tokenize(TEXTS[1], max_tokens=3)))
            self.assertEqual(data.tokens, sum(len(data.ids(n)) for n in range(data.count)))
            same = mha.HeadData(model, [data.ids(n) for n in range(data.count)], ids=True)
            a, b = (mha.heads_measure(model, x).metrics["entropy"] for x in (data, same))
            np.testing.assert_array_equal(a, b)
            with self.assertRaisesRegex(IndexError, "text must be from 0 to 7"):
                data.ids(8)
        with self.assertRaisesRegex(ValueError, "mha.HeadData is closed"):
            mha.heads_measure(model, data)

    def test_data_of_another_tokenizer(self):
        """Data must be an error if their ids have other texts in the vocabulary of the measured model."""
        with tempfile.TemporaryDirectory() as place:
            models = []
            for name, text in ("a", "the cat sat on the mat"), ("b", "two green boats drift slowly"):
                trainer = mha.TokenizerTrainer("bpe", 270)
                trainer.put(text * 9)
                trainer.end()
                trainer.run()
                trainer.save(Path(place, name))
                config = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 270}
                models += [mha.Model.create(config, seed=seed, tokenizer=Path(place, name)) for seed in (1, 2)]
            first, again, other, _ = models
            data, keep = mha.HeadData(first, TEXTS), np.array([[1, 0], [1, 1]])
            for model in (again, mha.prune(first, keep).open()):  # an edited model has no tokenizer
                self.assertEqual(mha.heads_measure(model, data).metrics["entropy"].shape, (2, 2))
            for measure in (lambda: mha.heads_measure(other, data), lambda: mha.importance_measure(other, data, by="gate"),
                            lambda: mha.importance_pairs(other, data, by="loo"), lambda: mha.head_rollout(other, data),
                            lambda: mha.diversity_measure(other, data), lambda: mha.models_compare(first, other, data),
                            lambda: mha.prune(other, keep, fill=data), lambda: mha.prune(other, keep, refit=data),
                            lambda: mha.regroup(other, 1, 1, fit=data), lambda: mha.prune(other, keep).evaluate(data),
                            lambda: mha.prune_choose_joint(other, data, count=1)):
                with self.assertRaisesRegex(ValueError, "data must hold tokens of the model's tokenizer"):
                    measure()

    def test_masked_data(self):
        model = mha.Model(DATA / "bert-mlm-tiny")
        masked, labels = mha.HeadData(model, TEXTS).mask(model, seed=3)
        self.assertGreater((labels != -100).sum(), 0)
        self.assertEqual(mha.heads_measure(model, masked).metrics["entropy"].ndim, 2)
        vision = mha.Model(DATA.parent / "vision/vit-classes")
        shape = [vision.info[f"image_{name}"] for name in ("channels", "height", "width")]
        with self.assertRaisesRegex(ValueError, "data must consist of texts for this measure .got images."):
            mha.HeadData.of_pixels(vision, np.zeros((2, *shape))).mask(model)


class Edits(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = Path(folder.name)
        self.texts = self.place / "texts.txt"
        self.texts.write_text("\n".join(TEXTS))

    def same_weights(self, a, b):
        self.assertEqual((a / "model.safetensors").read_bytes(), (b / "model.safetensors").read_bytes())
        configs = [json.loads((x / "config.json").read_text()) for x in (a, b)]
        for config in configs:
            config.pop("mha.record")
        self.assertEqual(*configs)

    def test_prune(self):
        model = mha.Model()
        keep = np.ones((2, 8), bool)
        keep[0, 3] = keep[1, 0] = keep[1, 7] = False
        program("prune", "--heads", "0.3,1.0,1.7", "-q", "-o", self.place / "theirs")
        with mha.prune(model, keep) as edit:
            edit.save(self.place / "ours")
            self.same_weights(self.place / "ours", self.place / "theirs")
            judged = edit.evaluate(TEXTS)
            self.assertEqual(judged.heads, (16, 13))
            pruned = edit.open()
            self.assertTrue(edit.tensors())
        model.close()  # objects that depend on the model must keep it open
        ids = [[5, 6, 7, 8]]
        want = mha.Model().forward(ids, gates=keep).logits
        np.testing.assert_allclose(pruned.forward(ids).logits, want, atol=2e-5)
        self.assertEqual([mha.head_number(pruned, 0, n) for n in range(8)], [0, 1, 2, 4, 5, 6, 7, -1])
        self.assertEqual((mha.head_place(pruned, 0, 4), mha.head_place(pruned, 0, 3)), (3, -1))
        compared = mha.models_compare(mha.Model(), pruned, mha.HeadData(mha.Model(), TEXTS))
        self.assertEqual((judged.comparison.mean_cosine, judged.comparison.loss), (compared.mean_cosine, compared.loss))
        self.assertEqual(compared.losses.shape, (2, len(TEXTS)))

    def test_choose(self):
        model = mha.Model()
        scores = np.arange(16.0).reshape(2, 8)
        keep = mha.prune_choose(model, scores, count=3)
        self.assertEqual(np.argwhere(~keep).tolist(), [[0, 0], [0, 1], [0, 2]])
        self.assertEqual((~mha.prune_choose(model, scores, ratio=0.25, per_layer=True)).sum(1).tolist(), [2, 2])
        self.assertEqual(mha.prune_most(model), 14)
        joint, order = mha.prune_choose_joint(model, TEXTS, count=2, rounds=2)
        self.assertEqual(((~joint).sum(), sorted(order[~joint])), (2, [1, 2]))
        with self.assertRaisesRegex(ValueError, r"scores must be of shape \(2, 8\)"):
            mha.prune_choose(model, scores[:1], count=1)

    def test_regroup(self):
        program("regroup", "-m", DATA / "gpt2-tiny", "--method", "mean", "--kv-heads", 2, "-q", "-o", self.place / "theirs")
        with mha.regroup(mha.Model(DATA / "gpt2-tiny"), 2, 2, method="mean") as edit:
            edit.save(self.place / "ours")
        self.same_weights(self.place / "ours", self.place / "theirs")

    def test_regroup_rotated_keys(self):
        model = mha.Model(DATA / "gemma2-tiny")
        with self.assertRaisesRegex(ValueError, 'method must not be "closed" for the keys of gemma2'):
            mha.regroup(model, 1, 1, method="closed", fit=TEXTS)
        for method in None, "values":
            with mha.regroup(model, 1, 1, method=method, fit=TEXTS) as edit:
                edit.save(self.place / str(method))
        self.same_weights(self.place / "None", self.place / "values")


class Passes(unittest.TestCase):
    """Tests mha.Model.forward."""

    def setUp(self):
        self.model, self.ids = mha.Model(DATA / "gpt2-tiny"), np.array([[5, 6, 7, 8, 9], [9, 8, 7, 6, 5]])
        self.want = self.model.forward(self.ids, hidden=True, attentions=True)

    def test_starts_at_a_layer(self):
        got = self.model.forward(self.ids, first_layer=1, states=self.want.hidden_states[1])
        np.testing.assert_array_equal(got.logits, self.want.logits)
        with self.assertRaisesRegex(ValueError, r"first_layer must be 0 unless states is given \(got 1\)"):
            self.model.forward(self.ids, first_layer=1)

    def test_positions_and_types(self):
        places = np.tile(np.arange(5), (2, 1))
        np.testing.assert_array_equal(self.model.forward(self.ids, positions=places).logits, self.want.logits)
        moved = self.model.forward(self.ids, positions=places + 3).logits
        self.assertGreater(np.abs(moved - self.want.logits).max(), 1e-3)
        bert = mha.Model(DATA / "bert-tiny")
        plain = bert.forward(self.ids).last_hidden
        np.testing.assert_array_equal(bert.forward(self.ids, type_ids=np.zeros((2, 5), int)).last_hidden, plain)
        self.assertGreater(np.abs(bert.forward(self.ids, type_ids=np.ones((2, 5), int)).last_hidden - plain).max(), 1e-3)
        with self.assertRaisesRegex(ValueError, r"positions must be of shape \(2, 5\)"):
            self.model.forward(self.ids, positions=places[:1])

    def test_fills(self):
        """If a head's output is the same for every token, a gate of 0 with this output as the fill must not change the logits."""
        info = self.model.info
        gates = np.ones((info["layers"], info["heads"]))
        fills = np.zeros((info["layers"], info["heads"], info["head_dim"]))
        np.testing.assert_array_equal(self.model.forward(self.ids, gates=gates, fills=fills).logits, self.want.logits)
        gates[0, 1], one = 0, [[5]]  # the head's output for a single token is the token's value
        seen = {}
        self.model.forward(one, on_activations=lambda a: seen.setdefault(a["layer"], a["context"].copy()) is None)
        fills[0, 1] = seen[0][0, 0, 1]
        np.testing.assert_allclose(self.model.forward(one, gates=gates, fills=fills).logits, self.model.forward(one).logits, atol=1e-5)

    def test_callbacks(self):
        states, maps, shapes = [], [], []

        def activations(a):
            shapes.append((a["layer"], a["q"].shape, a["v"].shape, a["input"].shape))
            np.testing.assert_array_equal(a["context"][:, 0], a["v"][:, 0])  # the first token must attend only to itself

        self.model.forward(self.ids, on_hidden=lambda entry, x: states.append((entry, x.copy())) and None,
                           on_attention=lambda layer, x: maps.append(x.copy()) and None, on_activations=activations)
        self.assertEqual([entry for entry, _ in states], list(range(len(self.want.hidden_states))))
        for (_, x), y in zip(states, self.want.hidden_states):
            np.testing.assert_array_equal(x, y)
        for x, y in zip(maps, self.want.attentions, strict=True):
            np.testing.assert_array_equal(x, y)
        info = self.model.info
        each = (2, 5, info["heads"], info["head_dim"])
        self.assertEqual(shapes, [(n, each, each, (2, 5, info["hidden"])) for n in range(info["layers"])])

    def test_exceptions_end_the_pass(self):
        def wrong(entry, x):
            raise LookupError(f"entry {entry}")

        with self.assertRaisesRegex(LookupError, "entry 0"):
            self.model.forward(self.ids, on_hidden=wrong)
        with self.assertRaises(KeyboardInterrupt):
            self.model.forward(self.ids, on_hidden=lambda *_: True)

    def test_closes(self):
        with mha.Model() as model:
            self.assertEqual(model.info["heads_per_layer"], [8, 8])
        for use in (lambda: model.forward([[1]]), lambda: model.info, lambda: model.tokenize("a"), lambda: model.embed(["a"])):
            with self.assertRaisesRegex(ValueError, "mha.Model is closed"):
                use()


class Texts(unittest.TestCase):
    def test_offsets(self):
        model, text = mha.Model(DATA / "bert-tiny"), "Hello, wörld"
        found = model.encode(text, "again")
        said = json.loads(program("tokenize", "-m", DATA / "bert-tiny", "--json", text))
        alone = model.encode(text)
        self.assertEqual((alone.ids, [list(x) for x in alone.offsets]), (said["ids"], said["offsets"]))
        self.assertEqual(set(found.sequences), {0, 1, -1})
        data = {0: text.encode(), 1: b"again"}
        for (begin, end), sequence in zip(found.offsets, found.sequences):
            self.assertTrue(sequence < 0 or data[sequence][begin:end].decode())

    def test_truncates_only_if_asked(self):
        model = mha.Model(DATA / "bert-tiny")
        text = "word " * (model.info["max_positions"] + 10)
        self.assertGreater(len(model.tokenize(text)), model.info["max_positions"])
        self.assertEqual(len(model.tokenize(text, max_tokens=7)), 7)
        self.assertGreater(model.encode(text, max_tokens=7).truncated, 0)

    def test_vocabulary(self):
        model = mha.Model(DATA / "bert-tiny")
        cls = model.token_id("[CLS]")
        self.assertEqual((model.token(cls), model.is_special(cls), model.is_special(model.vocabulary - 1)), ("[CLS]", True, False))
        self.assertEqual((model.token(10**6), model.token_id("no such token")), (None, None))


if __name__ == "__main__":
    unittest.main()
