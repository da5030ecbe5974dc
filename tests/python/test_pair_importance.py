"""Tests importance scores of encoder-decoders on source/target pairs against PyTorch: small random T5 and BART models, whose heads are
gated by hooks before the output projections of encoder, decoder and cross-attention."""
import unittest

import numpy as np

import mha

try:
    import torch
    import transformers

    from pair_reference import HEADS, KINDS, PAIRS, open_references
except ImportError:
    torch = transformers = None

@unittest.skipIf(transformers is None, "requires PyTorch and transformers")
class PairImportance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        open_references(cls)

    def compare(self, want, by, **options):
        """Compares the scores {kind: [layers, heads]} of each model."""
        for name, reference in self.references.items():
            found = mha.importance_measure(reference.ours, reference.data, by=by, **options)
            expected = want(reference)
            for kind, scores in zip(KINDS, (found, found.cross, found.encoder)):
                np.testing.assert_allclose(scores.values, expected[kind], rtol=2e-3, atol=2e-3 * np.abs(expected[kind]).max(),
                                           err_msg=f"{name} {by} {kind}")
            if np.isfinite(found.identity):
                self.assertLess(found.identity, 1e-4, f"{name} {by}")

    def gradients(self, reference, pair):
        gates = list(reference.gates.values())
        return dict(zip(reference.gates, (g.numpy() for g in torch.autograd.grad(reference.scaled(pair), gates))))

    def test_gradients_of_gates(self):
        def summed(reference, form):
            each = [self.gradients(reference, pair) for pair in PAIRS]
            return {kind: form(np.stack([x[kind] for x in each])) for kind in KINDS}

        def layer_l2(x):
            total = np.abs(x).sum(0)
            return total / np.linalg.norm(total, axis=1, keepdims=True)

        self.compare(lambda r: summed(r, lambda x: np.abs(x).sum(0)), "gate")
        self.compare(lambda r: summed(r, lambda x: np.abs(x.sum(0))), "gate_batch")
        self.compare(lambda r: summed(r, layer_l2), "gate_layer_l2")

    def test_loss(self):
        for reference in self.references.values():
            with torch.no_grad():
                want = sum(float(reference.scaled(pair)) for pair in PAIRS)
            found = mha.importance_measure(reference.ours, reference.data, by="gate")
            self.assertAlmostEqual(found.loss, want, delta=1e-5)
            self.assertEqual(found.texts_used, len(PAIRS))

    def ablation(self, reference, mean):
        means = reference.means() if mean else None
        with torch.no_grad():
            base = sum(float(reference.scaled(pair)) for pair in PAIRS)
            want = {kind: np.zeros(gates.shape) for kind, gates in reference.gates.items()}
            for kind, layer, head in reference.each_head(means):
                want[kind][layer, head] = sum(float(reference.scaled(pair)) for pair in PAIRS) - base
        return want

    def test_ablation(self):
        self.compare(lambda r: self.ablation(r, False), "loo_loss")
        self.compare(lambda r: self.ablation(r, True), "loo_mean_loss")

    def distance(self, reference):
        def embeddings():
            return torch.nn.functional.normalize(torch.stack([reference.run(pair)[1].mean(0) for pair in PAIRS]), dim=1)
        with torch.no_grad():
            base = embeddings()
            want = {kind: np.zeros(gates.shape) for kind, gates in reference.gates.items()}
            for kind, layer, head in reference.each_head():
                want[kind][layer, head] = float((1 - (embeddings() * base).sum(1)).mean())
        return want

    def test_distance(self):
        self.compare(self.distance, "loo")

    def jacobian(self, reference):
        want = {kind: np.zeros(gates.shape) for kind, gates in reference.gates.items()}
        for pair in PAIRS:
            unit = torch.nn.functional.normalize(reference.run(pair)[1].mean(0), dim=0)
            for element in unit:
                for kind, g in zip(reference.gates, torch.autograd.grad(element, list(reference.gates.values()), retain_graph=True)):
                    want[kind] += 0.5 * g.numpy()**2 / len(PAIRS)
        return want

    def test_jacobian(self):
        self.compare(self.jacobian, "jacobian")

    def taylor(self, reference):
        want = {kind: np.zeros(gates.shape) for kind, gates in reference.gates.items()}
        for pair in PAIRS:
            kept = {}
            handles = [p.register_forward_pre_hook(lambda _, x, key=(kind, n): kept.__setitem__(key, x[0]))
                       for kind, all_ in reference.projections.items() for n, p in enumerate(all_)]
            loss = reference.scaled(pair)
            for (kind, layer), context in kept.items():
                gradient, = torch.autograd.grad(loss, context, retain_graph=True)
                worth = (context * gradient)[0].unflatten(-1, (HEADS, -1)).sum(-1)
                want[kind][layer] += worth.abs().sum(0).detach().numpy()
            for handle in handles:
                handle.remove()
        return want

    def test_taylor(self):
        self.compare(self.taylor, "taylor_token")

    def weights(self, reference):
        """The mean absolute gradients of the rows of each head in the projections of queries, keys and values."""
        loss, want = sum(reference.scaled(pair) for pair in PAIRS), {}
        for kind, outputs in reference.projections.items():
            owners = [next(m for m in reference.model.modules() if outputs[n] in m.children()) for n in range(len(outputs))]
            names = ("q", "k", "v") if hasattr(owners[0], "q") else ("q_proj", "k_proj", "v_proj")
            want[kind] = np.stack([sum(torch.autograd.grad(loss, getattr(owner, name).weight, retain_graph=True)[0]
                                       .unflatten(0, (HEADS, -1)).abs().mean((1, 2)) for name in names).numpy() for owner in owners])
        return want

    def test_gradients_of_weights(self):
        self.compare(self.weights, "gradmag")

    def norms(self, reference):
        """The norms of the products of the output and value projections."""
        want = {}
        for kind, outputs in reference.projections.items():
            owners = [next(m for m in reference.model.modules() if o in m.children()) for o in outputs]
            values = [getattr(owner, "v", None) or owner.v_proj for owner in owners]
            want[kind] = np.array([[float(torch.linalg.norm(o.weight.unflatten(1, (HEADS, -1))[:, h] @ v.weight.unflatten(0, (HEADS, -1))[h]))
                                    for h in range(HEADS)] for o, v in zip(outputs, values)])
        return want

    def test_norms_of_weights(self):
        for reference in self.references.values():
            found = mha.importance_measure(reference.ours, None, by="ov_norm")
            with torch.no_grad():
                want = self.norms(reference)
            for kind, scores in zip(KINDS, (found, found.cross, found.encoder)):
                np.testing.assert_allclose(scores.values, want[kind], rtol=1e-5)

    def test_batches_change_no_bit(self):
        for reference in self.references.values():
            one = mha.HeadData.of_pairs(reference.ours, PAIRS, ids=True, batch_tokens=1)
            for by in "loo_loss", "loo_mean_loss":
                first, second = (mha.importance_measure(reference.ours, data, by=by) for data in (reference.data, one))
                for kind in "values", "cross", "encoder":
                    a, b = (getattr(x, kind) if kind == "values" else getattr(x, kind).values for x in (first, second))
                    self.assertTrue(np.array_equal(a, b), f"{by} {kind}")

    def test_refusals(self):
        ours, data = self.references["t5"].ours, self.references["t5"].data
        other = mha.Model()
        with self.assertRaisesRegex(ValueError, "encoder-decoder for source/target pairs"):
            mha.HeadData.of_pairs(other, [("a", "b")])
        texts = mha.HeadData(ours, [[5, 6]], ids=True)
        for model, given, message in ((ours, texts, "data must be source/target pairs for t5 .got texts"),
                                      (other, data, "data must be texts for .* .got source/target pairs")):
            with self.assertRaisesRegex(ValueError, message):
                mha.importance_measure(model, given, by="gate")
        for call, message in ((lambda: mha.importance_measure(ours, data, by="confidence"), "confidence must not be requested"),
                              (lambda: mha.heads_measure(ours, data), "must consist of texts"),
                              (lambda: mha.importance_pairs(ours, data), "must not be an encoder-decoder")):
            with self.assertRaisesRegex(ValueError, message):
                call()
        with self.assertRaisesRegex(ValueError, "must be \"lm\" without labels"):
            mha.importance_measure(ours, data, by="gate", loss="pairs")


if __name__ == "__main__":
    unittest.main()
