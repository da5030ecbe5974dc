"""Tests importance scores of encoder-decoders on source/target pairs against PyTorch: small random T5 and BART models, whose heads are
gated by hooks before the output projections of encoder, decoder and cross-attention."""
import shutil
import tempfile
import unittest
from pathlib import Path

import numpy as np

import mha

try:
    import torch
    import transformers
except ImportError:
    torch = transformers = None

SIZES = {"decoder": 2, "encoder": 3}  # layers
HEADS, VOCAB = 4, 50
PAIRS = [([5, 9, 31, 7, 12, 40, 3], [21, 8, 14, 30, 1]), ([6, 11], [33, 1]), ([8, 8, 10, 44], [6, 7, 1, 19, 2, 13]),
         ([41, 3, 17, 29, 4], [9, 25, 1])]
KINDS = "decoder", "cross", "encoder"


def t5():
    """A random T5, in which scores, gains and tables are large enough that every head matters."""
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=VOCAB, d_model=24, d_kv=8, d_ff=48, num_layers=SIZES["encoder"], num_decoder_layers=SIZES["decoder"],
        num_heads=HEADS, relative_attention_num_buckets=8, relative_attention_max_distance=16, dropout_rate=0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1))
    blocks = {"encoder": model.encoder.block, "decoder": model.decoder.block}
    return model, {"encoder": [b.layer[0].SelfAttention.o for b in blocks["encoder"]],
                   "decoder": [b.layer[0].SelfAttention.o for b in blocks["decoder"]],
                   "cross": [b.layer[1].EncDecAttention.o for b in blocks["decoder"]]}


def bart():
    torch.manual_seed(1)
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(
        vocab_size=VOCAB, d_model=32, encoder_layers=SIZES["encoder"], decoder_layers=SIZES["decoder"], encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=32, dropout=0, init_std=0.2,
        decoder_start_token_id=2, pad_token_id=1, bos_token_id=0, eos_token_id=2, forced_eos_token_id=None))
    layers = {"encoder": model.model.encoder.layers, "decoder": model.model.decoder.layers}
    return model, {"encoder": [b.self_attn.out_proj for b in layers["encoder"]],
                   "decoder": [b.self_attn.out_proj for b in layers["decoder"]],
                   "cross": [b.encoder_attn.out_proj for b in layers["decoder"]]}


class Reference:
    """A model of transformers in float64 with a gate on every head, and the same model opened by this library."""

    def __init__(self, build, folder):
        self.model, self.projections = build()
        self.model.eval().save_pretrained(folder)
        self.ours = mha.Model(folder)
        self.data = mha.HeadData.of_pairs(self.ours, PAIRS, ids=True)
        self.model.double()
        self.gates = {kind: torch.ones(len(x), HEADS, dtype=torch.float64, requires_grad=True) for kind, x in self.projections.items()}
        self.fills = dict.fromkeys(KINDS)  # [layers, heads, width] added to the gated outputs
        self.seen = {kind: [[] for _ in x] for kind, x in self.projections.items()}
        self.start = self.model.config.decoder_start_token_id
        for kind, projections in self.projections.items():
            for layer, projection in enumerate(projections):
                projection.register_forward_pre_hook(self.hook(kind, layer))

    def hook(self, kind, layer):
        def gate(_, inputs):
            heads = inputs[0].unflatten(-1, (HEADS, -1))
            self.seen[kind][layer].append(heads.detach().flatten(0, 1))
            heads = heads * self.gates[kind][layer][:, None]
            if self.fills[kind] is not None:
                heads = heads + self.fills[kind][layer]
            return (heads.flatten(-2),)
        return gate

    def run(self, pair):
        """Returns the sum of the cross entropy of the target, and the last hidden states of the decoder."""
        target = [self.start, *pair[1]]  # the last token is only read for the hidden states
        out = self.model(input_ids=torch.tensor([pair[0]]), decoder_input_ids=torch.tensor([target]), output_hidden_states=True)
        loss = torch.nn.functional.cross_entropy(out.logits[0, :-1], torch.tensor(pair[1]), reduction="sum")
        return loss, out.decoder_hidden_states[-1][0]

    def scaled(self, pair):
        """Returns the part of one pair in the mean loss of all tokens."""
        return self.run(pair)[0] / sum(len(target) for _, target in PAIRS)

    def means(self):
        """Returns the mean output of each head over all tokens."""
        for layers in self.seen.values():
            for layer in layers:
                layer.clear()
        with torch.no_grad():
            for pair in PAIRS:
                self.run(pair)
        return {kind: torch.stack([torch.cat(x).mean(0) for x in layers]) for kind, layers in self.seen.items()}

    def each_head(self, means=None):
        """Yields kind, layer, head with the head switched off: its output is 0 or its mean."""
        for kind, gates in self.gates.items():
            for layer in range(len(gates)):
                for head in range(HEADS):
                    with torch.no_grad():
                        gates[layer, head] = 0
                        if means:
                            self.fills[kind] = torch.zeros_like(means[kind])
                            self.fills[kind][layer, head] = means[kind][layer, head]
                        yield kind, layer, head
                        gates[layer, head] = 1
                        self.fills[kind] = None


@unittest.skipIf(transformers is None, "requires PyTorch and transformers")
class PairImportance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.references = {build.__name__: Reference(build, cls.folder / build.__name__) for build in (t5, bart)}

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
