"""Results of heads in Python: layouts of new models, searches, metrics of given maps, and what notebooks show; the numbers must be those of
the program to the last digit."""
import html
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np

import mha

TEXTS = ["the cat sat on the mat", "a dog ran home", "one two three two one", "the cat ran", "the old dog sat on the old mat"]


def program(*arguments):
    done = subprocess.run([os.environ["MHA"], *map(str, arguments)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def printed(x):
    return float(f"{x:.9g}")


class Layouts(unittest.TestCase):
    def test_as_the_program(self):
        options = mha.HeadLayoutOptions(768, layers=12, vocab=50257, seq=1024)
        said = program("plan", "--d-model", 768, "--layers", 12, "--vocab", 50257, "--seq", 1024, "--json")
        for found, rows in ((mha.head_layouts(options), said["rows"]), (mha.head_layout_variants(options), said["variants"])):
            self.assertEqual(len(found), len(rows))
            for ours, theirs in zip(found, rows):
                if ours.left_out is None:
                    for name in "variant", "heads", "head_dim", "kv_groups", "kv_heads", "weights", "biases", "kv_bytes":
                        self.assertEqual(getattr(ours, name), theirs[name], (ours.variant, name))
                    for name in "reduction", "project_flops", "attend_flops":
                        self.assertEqual(printed(getattr(ours, name)), theirs[name])
        self.assertEqual(mha.head_layout_advise(options).reason, said["recommendation"]["reason"])
        self.assertEqual(list(mha.head_layout_variant_help()), [r.variant for r in mha.head_layout_variants(options)])

    def test_resolved_and_measured(self):
        options = mha.head_layout_resolve(mha.HeadLayoutOptions(64, layers=1, seq=32))
        self.assertEqual((options.heads, options.vocab, options.dtype), (1, 32000, "f32"))
        row = mha.head_layouts(options)[0]
        self.assertEqual((row.prefill, row.decode), (0, 0))
        measured = mha.head_layout_measure(options, row, 0.01)
        self.assertTrue(measured.prefill > 0 < measured.decode)
        advice = mha.head_layout_advise(mha.HeadLayoutOptions(8192, layers=80))
        self.assertEqual((advice.variant, advice.experts > 0), ("gqa", True))
        self.assertIn("billion", advice.reason)
        for bad, sentence in ((mha.HeadLayoutOptions(0), "d_model"), (mha.HeadLayoutOptions(64, dtype="f64"), "dtype must be one of 'f32'"),
                              (mha.HeadLayoutOptions(64, heads=5), "heads")):
            with self.assertRaisesRegex(ValueError, sentence):
                mha.head_layout_resolve(bad)


class Search(unittest.TestCase):
    def test_curve(self):
        model, seen = mha.Model(), []
        scores = mha.importance_measure(model, TEXTS, by="gate").values
        curve = mha.prune_search(model, TEXTS, scores=scores, max_increase=0.3, on_point=lambda p: seen.append(p.count))
        counts = [p.count for p in curve.points]
        self.assertEqual((counts, sorted(seen)), (sorted(counts), counts))
        self.assertEqual(curve.best.count, max(p.count for p in curve.points if p.within))
        np.testing.assert_array_equal(curve.best.keep, mha.prune_choose(model, scores, count=curve.best.count))
        with mha.prune(model, curve.best.keep) as edit:
            found = edit.evaluate(TEXTS).comparison
        self.assertAlmostEqual(curve.best.increase, found.loss[1] - found.loss[0], places=12)
        with self.assertRaises(KeyboardInterrupt):
            mha.prune_search(model, TEXTS, scores=scores, on_point=lambda p: True)

        def fails(_point):
            raise ZeroDivisionError
        with self.assertRaises(ZeroDivisionError):
            mha.prune_search(model, TEXTS, scores=scores, on_point=fails)
        joint = mha.prune_search(model, TEXTS, learn=TEXTS, max_increase=0.1, floor=7)
        self.assertEqual([p.count for p in joint.points], [0, 1, 2])


class HeldOut(unittest.TestCase):
    def test_masked_tokens_as_the_program(self):
        folder = Path(__file__).resolve().parents[1] / "golden/data/models/bert-mlm-tiny"
        texts = ["you keep the count, and then again", "they said: wait for the tank", "old men of age, and the sun"]
        model = mha.Model(folder)
        data = mha.HeadData(model, texts)
        masked, labels = data.mask(model, seed=7)
        whole = np.concatenate([data.ids(n) for n in range(3)])
        seen = np.concatenate([masked.ids(n) for n in range(3)])
        np.testing.assert_array_equal(seen, np.where(labels == -100, whole, model.mask_id()))
        self.assertTrue((labels != -100).any())
        found = mha.importance_measure(model, masked, by="gate", loss="mlm", labels=labels, seed=7)
        with tempfile.TemporaryDirectory() as place:
            file = Path(place, "texts")
            file.write_text("\n".join(texts) + "\n")
            said = program("heads", "-m", folder, "-f", file, "--by", "gate", "--loss", "mlm", "--seed", 7, "--json")
        self.assertEqual([[printed(x) for x in row] for row in found.values.tolist()], said["importance"]["values"])
        self.assertIsNone(mha.Model().mask_id())
        with self.assertRaisesRegex(ValueError, "must have a mask token"):
            mha.HeadData(mha.Model(), TEXTS).mask(mha.Model())

    def test_split(self):
        learned, held = mha.held_out_split(16, pairs=True)
        self.assertEqual((learned.tolist(), held.tolist()), ([0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14], [3, 7, 11, 15]))
        for count, pairs in (3, False), (-1, False), (9, True):
            with self.assertRaisesRegex(ValueError, "count must be"):
                mha.held_out_split(count, pairs)
        self.assertEqual(mha.held_out_distinct([], TEXTS), [0, 1, 2, 3, 4])
        self.assertEqual(mha.held_out_distinct(TEXTS[:2], TEXTS), [2, 3, 4])


class Maps(unittest.TestCase):
    def test_the_metrics_of_given_maps(self):
        model = mha.Model()
        measured = mha.heads_measure(model, TEXTS[:2])
        maps = [np.stack([a[0] for a in model.forward([model.tokenize(t)], attentions=True).attentions]) for t in TEXTS[:2]]
        kinds = [[int(model.is_special(id)) for id in model.tokenize(t)] for t in TEXTS[:2]]
        found = mha.heads_of_maps(maps, causal=True, kinds=kinds)
        for name in "entropy", "distance", "prev", "first", "vertical", "toeplitz":
            np.testing.assert_allclose(found.metrics[name], measured.metrics[name], atol=1e-6, err_msg=name)
        self.assertTrue(np.isnan(found.metrics["induction_probe"]).all())
        with self.assertRaisesRegex(ValueError, "0..1|from 0 to 1"):
            mha.heads_of_maps([2 * maps[0]])
        with self.assertRaisesRegex(ValueError, r"maps\[1\] must be of shape \[2, 8, n, n\]"):
            mha.heads_of_maps([maps[0], maps[1][:1]])

    def test_cross_attention(self):
        maps = [[[[0, 0, 1, 0], [0.5, 0.25, 0.25, 0], [1, 0, 0, 0]]]]
        found = mha.heads_of_maps([np.array(maps)], kinds=[[1, 4, 3, 0]], query_kinds=[[1, 0, 0]])
        for name, value in {"first": 0.75, "sep": 0.125, "punct": 0.125, "broad": 0.375}.items():
            self.assertAlmostEqual(float(found.metrics[name][0, 0]), value, msg=name)
        self.assertEqual((found.labels, len(found.received[0, 0])), ([["first"]], 4))
        self.assertTrue(np.isnan(found.metrics["prev"]).all())
        for wrong, message in (([], "one entry per text: 1"), ([[0]], r"query_kinds\[0\] must be of shape \(3,\)")):
            with self.assertRaisesRegex(ValueError, message):
                mha.heads_of_maps([np.array(maps)], query_kinds=wrong)

    def test_kinds_of_tokens(self):
        tokenizer = mha.Tokenizer(Path(__file__).resolve().parents[1] / "golden/data/seq2seq/mbart")
        kinds = dict(zip((tokenizer.token(id) for id in tokenizer.tokenize("a .")), tokenizer.kinds(tokenizer.tokenize("a .")).tolist()))
        self.assertEqual({name: kinds[name] for name in (".", "</s>", "en_XX")}, {".": 4, "</s>": 3, "en_XX": 1})

    def test_thresholds_and_probes(self):
        model = mha.Model()
        strict = mha.heads_measure(model, TEXTS, thresholds=mha.HeadThresholds(*[1.0] * 7))
        self.assertEqual(({x for row in strict.labels for x in row}, strict.sink_rate), ({"mixed"}, 0))
        ids = [model.tokenize("the cat sat on", special=False)]
        probed = mha.heads_measure(model, TEXTS, probe_ids=ids)
        self.assertFalse(np.array_equal(probed.metrics["induction_probe"], mha.heads_measure(model, TEXTS).metrics["induction_probe"]))

    def test_scores(self):
        self.assertTrue(mha.score_needs_loss("gate"))
        self.assertFalse(mha.score_needs_loss("jacobian"))
        self.assertEqual(set(mha.regroup_method_help()), {"closed", "mean", "values"})


class Shown(unittest.TestCase):
    """The HTML of results must have the numbers of the results, in every cell, and escape tokens."""

    def setUp(self):
        self.model = mha.Model()
        self.found = mha.heads_measure(self.model, ["the cat & <b> sat"], keep_maps=True)

    def test_html(self):
        text = self.found._repr_html_()
        said = re.findall(r'title="layer (\d+) head (\d+): ([^"]*)"', text)
        self.assertEqual([[int(a), int(b), float(x)] for a, b, x in said],
                         [[a, b, printed(x)] for (a, b), x in np.ndenumerate(self.found.metrics["entropy"])])
        self.assertEqual(re.findall(r"<small>(\w+)</small>", text), [x for row in self.found.labels for x in row])
        one = self.found.map(1, 2)
        said = re.findall(r'title="[^"]*: ([^":]*)"', one._repr_html_())
        np.testing.assert_array_equal(np.array(said, float), [printed(x) for x in one.values.ravel()])
        self.assertNotIn("<b>", one._repr_html_())
        scores = mha.importance_measure(self.model, TEXTS, by="gate")
        self.assertEqual(scores._repr_html_().count("title="), 16)
        with mha.prune(self.model, mha.prune_choose(self.model, scores.values, count=3)) as edit:
            self.assertIn("<td style=\"padding:2px 8px\">13</td>", edit.evaluate(TEXTS)._repr_html_())
        curve = mha.prune_search(self.model, TEXTS, scores=scores.values, floor=7)
        self.assertEqual(curve._repr_html_().count("<tr>"), 1 + len(curve.points))
        self.assertIn("gqa", mha.head_layout_variants(mha.HeadLayoutOptions(768))._repr_html_())
        with self.assertRaisesRegex(ValueError, "keep_maps must be True"):
            mha.heads_measure(self.model, TEXTS).map(0, 0)
        with self.assertRaises(IndexError):
            self.found.map(2, 0)

    def test_plots(self):
        try:
            import matplotlib
        except ImportError:
            self.skipTest("matplotlib is not installed")
        matplotlib.use("Agg")
        import matplotlib.pyplot
        scores = mha.importance_measure(self.model, TEXTS, by="gate")
        np.testing.assert_array_equal(self.found.map(0, 3).plot().images[0].get_array(), self.found.maps[0, 3])
        np.testing.assert_array_equal(self.found.plot("prev").images[0].get_array(), self.found.metrics["prev"])
        bars = scores.plot().patches
        np.testing.assert_array_equal([b.get_height() for b in bars], sorted(scores.values.ravel(), reverse=True))
        curve = mha.prune_search(self.model, TEXTS, scores=scores.values, floor=7)
        np.testing.assert_array_equal(curve.plot().lines[0].get_ydata(), [p.increase for p in curve.points])
        points = mha.diversity_measure(self.model, TEXTS, ["js"])
        np.testing.assert_array_equal(points.plot().collections[0].get_offsets(), points.map)
        log = mha.TrainLog()
        log.add(mha.TrainRecord(1, loss=2.0))
        log.add(mha.TrainRecord(2, loss=1.0))
        self.assertEqual(list(log.plot().lines[0].get_ydata()), [2.0, 1.0])
        matplotlib.pyplot.close("all")
        with self.assertRaisesRegex(ValueError, "metric must be one of 'entropy'"):
            self.found.plot("odd")


class Reports(unittest.TestCase):
    def test_the_page_is_that_of_the_program(self):
        model = mha.Model()
        page = mha.report(model, ["the cat & <b> sat", "--odd"], by="gate", seed=3)
        with tempfile.TemporaryDirectory() as folder:
            said = program("report", "-m", "builtin", "--by", "gate", "-s", 3, "--json", "-q", "-o", f"{folder}/x.html", "--",
                           "the cat & <b> sat", "--odd")
            self.assertEqual(page.html, Path(folder, "x.html").read_text())
            page.save(f"{folder}/y.html")
            self.assertEqual(Path(folder, "y.html").read_text(), page.html)
        self.assertEqual(page.values["importance"], said["importance"])
        shown = re.search(r'srcdoc="([^"]*)"', page._repr_html_())[1]
        self.assertEqual(html.unescape(shown), page.html)

    def test_refusals(self):
        model = mha.Model()
        for use, sentence in ((lambda: mha.report(model, ["a"], by="odd"), "--by"), (lambda: mha.report(model, "a"), "list of str"),
                              (lambda: mha.report(model, []), "text"),
                              (lambda: mha.report(mha.Model.create(model.config), ["a"]), "opened from folders")):
            with self.assertRaisesRegex(ValueError, sentence):
                use()


class Knockout(unittest.TestCase):
    def test_logits_of_a_discriminator(self):
        folder = Path(__file__).resolve().parents[1] / "golden/data/families2/electra-discriminator"
        ids, edges = [5, 9, 12, 7], [(0, -1, 3, 1)]
        logits = mha.knockout_logits(mha.Model(folder), ids, edges)
        said = program("logits", "-m", folder, "--ids", ",".join(map(str, ids)), "--knockout", "0:3-1", "--json")["replaced"]
        self.assertEqual(logits.shape, (len(ids), 1))
        self.assertEqual([printed(x) for x in logits[:, 0]], [item["logit"] for item in said])


class Machine(unittest.TestCase):
    def test_limits(self):
        self.assertGreater(mha.machine_peak_fma(), 1e7)
        self.assertGreater(mha.machine_peak_read(np.zeros(1 << 20, np.float32)), 1e6)
        self.assertIn(mha.isa(), mha.isa_list())
        self.assertGreaterEqual(mha.threads(), 1)
        with self.assertRaisesRegex(ValueError, "memory must be a contiguous array"):
            mha.machine_peak_read(np.zeros((64, 64))[:, ::2])
        q = np.ones((1, 1, 2, 4), np.float32)
        self.assertEqual(mha.Plan(q, q, q).weights, "float32")


if __name__ == "__main__":
    unittest.main()
