"""Tests mean fill, refit and held-out evaluation of encoder-decoders on source/target pairs against PyTorch: small random T5 and BART
models whose heads are switched off by hooks, and whose output projections are fitted one after another in float64."""
import copy
import unittest

import numpy as np

import mha

try:
    import torch
    import transformers

    from pair_reference import HEADS, KINDS, PAIRS, SIZES, Reference, bart, open_references, t5
except ImportError:
    torch = transformers = None

RIDGE = 0.05


def keep_lists(seed):
    """Returns which heads are kept, {kind: [layers, heads]}; every layer keeps a head."""
    rng = np.random.default_rng(seed)
    lists = {kind: rng.random((SIZES["encoder" if kind == "encoder" else "decoder"], HEADS)) < 0.6 for kind in KINDS}
    for keep in lists.values():
        keep[:, 2] = True
    return lists


@unittest.skipIf(transformers is None, "requires PyTorch and transformers")
class PairPruning(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        open_references(cls)

    def prune(self, reference, keep, **options):
        return mha.prune(reference.ours, keep["decoder"], cross_keep=keep["cross"], encoder_keep=keep["encoder"], **options)

    def logits(self, model, pair, start):
        target = [start, *pair[1]]
        if isinstance(model, mha.Model):
            return model.forward([target], source=[pair[0]]).logits[0]
        with torch.no_grad():
            return model(input_ids=torch.tensor([pair[0]]), decoder_input_ids=torch.tensor([target])).logits[0].numpy()

    def compare(self, ours, theirs, reference):
        for pair in PAIRS:
            np.testing.assert_allclose(self.logits(ours, pair, reference.start), self.logits(theirs, pair, reference.start), atol=2e-4)

    def gated(self, reference, keep, means=None):
        """Switches off the heads that are not kept."""
        with torch.no_grad():
            for kind, gates in reference.gates.items():
                kept = torch.tensor(keep[kind], dtype=torch.float64)
                gates.copy_(kept)
                reference.fills[kind] = None if means is None else (1 - kept)[:, :, None] * means[kind]

    def whole(self, reference):
        self.gated(reference, {kind: np.ones(gates.shape) for kind, gates in reference.gates.items()})

    def test_mean_fill(self):
        reference, keep = self.references["bart"], keep_lists(1)
        self.gated(reference, keep, reference.means())
        with self.prune(reference, keep, fill=reference.data) as edit:
            self.compare(edit.open(), reference.model, reference)
        self.whole(reference)
        with self.assertRaisesRegex(ValueError, "fill must be NULL for t5, since its output projections have no bias"):
            self.prune(self.references["t5"], keep, fill=self.references["t5"].data)

    def fit(self, reference, keep):
        """Returns the model with removed heads, whose output projections are fitted in the order in which they run."""
        edited = copy.deepcopy(reference.model)
        modules = dict(zip(reference.model.modules(), edited.modules()))
        order = [("encoder", layer) for layer in range(SIZES["encoder"])]
        order += [(kind, layer) for layer in range(SIZES["decoder"]) for kind in ("decoder", "cross")]
        seen = {}
        for kind, layer in order:
            source = reference.projections[kind][layer]
            target = modules[source]
            columns = torch.tensor(keep[kind][layer]).repeat_interleave(source.in_features // HEADS)
            target.weight.data[:, ~columns] = 0
            for name, module in (("source", source), ("edited", target)):
                module.register_forward_hook(
                    lambda _, x, y, key=(name, kind, layer): seen.setdefault(key, []).append((x[0][0].detach(), y[0].detach())))
        for kind, layer in order:
            seen.clear()
            with torch.no_grad():
                for model in reference.model, edited:
                    for pair in PAIRS:
                        self.logits(model, pair, reference.start)
            target = modules[reference.projections[kind][layer]]
            columns = torch.tensor(keep[kind][layer]).repeat_interleave(target.in_features // HEADS)
            x = torch.cat([x for x, _ in seen["edited", kind, layer]])[:, columns]
            rest = torch.cat([y for _, y in seen["source", kind, layer]]) - torch.cat([y for _, y in seen["edited", kind, layer]])
            if target.bias is not None:
                x = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)
            gram = x.T @ x
            change = torch.linalg.solve(gram + RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=x.dtype), x.T @ rest)
            with torch.no_grad():
                target.weight[:, columns] += change[:int(columns.sum())].T
                if target.bias is not None:
                    target.bias += change[-1]
        return edited

    def test_refit(self):
        for name, build in ("t5", t5), ("bart", bart):
            reference, keep = Reference(build, self.folder / f"{name}-refit"), keep_lists(2)
            with self.prune(reference, keep, refit=reference.data, ridge=RIDGE) as edit, self.prune(reference, keep) as plain:
                self.compare(edit.open(), self.fit(reference, keep), reference)
                found, before = edit.evaluate(reference.data), plain.evaluate(reference.data)
            self.assertGreater(found.comparison.mean_cosine, before.comparison.mean_cosine)

    def test_evaluation(self):
        for name, reference in self.references.items():
            keep = keep_lists(3)
            with torch.no_grad():
                runs = []
                for lists in None, keep:
                    self.whole(reference) if lists is None else self.gated(reference, lists)
                    runs.append([reference.run(pair) for pair in PAIRS])
            self.whole(reference)
            tokens = sum(len(target) for _, target in PAIRS)
            losses = [sum(float(loss) for loss, _ in run) / tokens for run in runs]
            cosines = [float(torch.nn.functional.cosine_similarity(a[1].mean(0), b[1].mean(0), dim=0)) for a, b in zip(*runs)]
            with self.prune(reference, keep) as edit:
                found = edit.evaluate(reference.data)
            np.testing.assert_allclose(found.comparison.loss, losses, atol=2e-5, err_msg=name)
            self.assertAlmostEqual(found.comparison.mean_cosine, np.mean(cosines), delta=1e-5)
            self.assertEqual(found.comparison.predicted, tokens)
            self.assertTrue(all(x > 0 for x in found.tokens_per_second))

    def test_choice(self):
        for reference in self.references.values():
            found = mha.importance_measure(reference.ours, reference.data, by="gate")
            scores = np.concatenate([x.values.ravel() for x in (found, found.cross, found.encoder)])
            kept = mha.prune_choose_kinds(reference.ours, found, count=5)
            keep = np.concatenate([x.ravel() for x in (kept.keep, kept.cross, kept.encoder)])
            self.assertEqual((~keep).sum(), 5)
            self.assertLess(scores[~keep].max(), scores[keep].min())
            arrays = {"decoder": found.values.tolist(), "cross": found.cross.values, "encoder": found.encoder.values}
            again = mha.prune_choose_kinds(reference.ours, arrays, count=5)
            np.testing.assert_array_equal(np.concatenate([x.ravel() for x in (again.keep, again.cross, again.encoder)]), keep)
            del arrays["cross"]
            with self.assertRaisesRegex(ValueError, "got no cross"):
                mha.prune_choose_kinds(reference.ours, arrays, count=5)
            own = mha.importance_measure(reference.ours, None, by="ov_norm")
            own.cross = None
            with self.assertRaisesRegex(ValueError, "must be measured on mha.HeadData.of_pairs"):
                mha.prune_choose_kinds(reference.ours, own, count=5)
            each = mha.prune_choose_kinds(reference.ours, found, count=1, per_layer=True)
            for x in each.keep, each.cross, each.encoder:
                self.assertTrue((x.sum(1) == HEADS - 1).all())

    def test_joint_choice(self):
        """The first head that a joint choice removes is the one with the lowest loss without it."""
        for reference in self.references.values():
            scores = mha.importance_measure(reference.ours, reference.data, by="loo_loss")
            kept = mha.prune_choose_joint_kinds(reference.ours, reference.data, count=1)
            worth = np.concatenate([x.values.ravel() for x in (scores, scores.cross, scores.encoder)])
            keep = np.concatenate([x.ravel() for x in (kept.keep, kept.cross, kept.encoder)])
            self.assertEqual(np.flatnonzero(~keep).tolist(), [int(worth.argmin())])
            more = mha.prune_choose_joint_kinds(reference.ours, reference.data, ratio=0.5, fill=True, rounds=2)
            self.assertEqual(sum(int((~x).sum()) for x in (more.keep, more.cross, more.encoder)), 14)

    def test_search(self):
        for reference in self.references.values():
            found = mha.importance_measure(reference.ours, reference.data, by="gate")
            for options in {"scores": found}, {"learn": reference.data}:
                curve = mha.prune_search(reference.ours, reference.data, max_increase=1e9, refit=reference.data, **options)
                self.assertEqual((curve.points[0].increase, curve.best.count), (0, 28 - 7))
                point = curve.points[1]
                lists = dict(zip(KINDS, (point.keep, point.cross_keep, point.encoder_keep)))
                self.assertEqual(sum(int((~x).sum()) for x in lists.values()), point.count)
                with self.prune(reference, lists, refit=reference.data) as edit:
                    loss = edit.evaluate(reference.data).comparison.loss
                self.assertEqual(loss[1] - loss[0], point.increase)

    def test_refusals(self):
        reference, other = self.references["t5"], mha.Model()
        keep, texts = keep_lists(4), mha.HeadData(reference.ours, [[5, 6]], ids=True)
        for options in {"refit": texts}, {"fill": texts}:
            with self.assertRaisesRegex(ValueError, "data must be source/target pairs for t5"):
                self.prune(self.references["t5"], keep, **options)
        with self.prune(reference, keep) as edit, self.assertRaisesRegex(ValueError, "data must be source/target pairs for t5"):
            edit.evaluate(texts)
        whole = np.ones((other.info["layers"], other.info["heads"]))
        for options in {"refit": reference.data}, {"fill": reference.data}:
            with self.assertRaisesRegex(ValueError, "data must be texts for .* .got source/target pairs"):
                mha.prune(other, whole, **options)
        with mha.prune(other, whole) as edit, self.assertRaisesRegex(ValueError, "data must be texts for .* .got source/target pairs"):
            edit.evaluate(reference.data)


if __name__ == "__main__":
    unittest.main()
