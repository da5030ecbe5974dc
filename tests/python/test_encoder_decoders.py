"""Tests heads of encoder-decoders in the binding: pruned models in transformers, and gradients of gates against PyTorch."""
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

DATA = Path(__file__).resolve().parents[1] / "golden/data/seq2seq"
SOURCE, TARGET = [[5, 9, 31, 7, 12, 40, 3]], [[0, 21, 8, 14, 30]]


def keep(shape, *removed):
    """Returns flags that keep all heads except `removed`, in every layer."""
    kept = np.ones(shape, bool)
    kept[:, list(removed)] = False
    return kept


class Folders(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)


class Pruning(Folders):
    def test_parts(self):
        model = mha.Model(DATA / "t5")
        layers, heads = model.info["layers"], model.info["heads"]
        with mha.prune(model, np.ones((layers, heads)), cross_keep=keep((layers, heads), 1)) as edit:
            edit.save(self.folder / "cross")
        pruned = mha.Model(self.folder / "cross")
        self.assertEqual(pruned.info["cross_heads_per_layer"], [heads - 1] * layers)
        self.assertEqual([mha.cross_head_number(pruned, 0, n) for n in range(4)], [0, 2, 3, -1])
        self.assertEqual((mha.cross_head_place(pruned, 0, 2), mha.cross_head_place(pruned, 0, 1)), (1, -1))
        gates = np.ones((layers, heads))
        gates[:, 1] = 0
        want = model.forward(TARGET, source=SOURCE, cross_gates=gates).logits
        self.assertTrue(np.array_equal(pruned.forward(TARGET, source=SOURCE).logits, want))
        with mha.prune(model, keep((3, heads), 0), part="encoder") as edit:
            self.assertEqual(edit.evaluate().heads, (3 * heads, 3 * (heads - 1)))
        with self.assertRaisesRegex(ValueError, "part must be 'encoder' for an encoder-decoder"):
            mha.prune(model, keep((3, heads), 0), part="image")

    @unittest.skipIf(transformers is None, "requires PyTorch and transformers")
    def test_transformers_loads_a_uniform_t5(self):
        for family in "t5", "t5-gated":
            model = mha.Model(DATA / family)
            heads = model.info["heads"]
            decoder, encoder = (model.info["layers"], heads), (model.config["num_layers"], heads)
            with mha.prune(model, keep(decoder, 0, 2), cross_keep=keep(decoder, 1, 3), encoder_keep=keep(encoder, 2, 3)) as edit:
                self.assertIsNone(edit.evaluate().broken_rule)
                edit.save(self.folder / family)
            theirs = transformers.T5ForConditionalGeneration.from_pretrained(self.folder / family).eval()
            self.assertEqual(theirs.config.num_heads, 2)
            self.check_logits(mha.Model(self.folder / family), theirs)
            self.assertLess(theirs.num_parameters(), model.info["parameters"])

    @unittest.skipIf(transformers is None, "requires PyTorch and transformers")
    def test_transformers_loads_compatible_models(self):
        for family, name in ("bart", "BartForConditionalGeneration"), ("marian", "MarianMTModel"), ("t5", "T5ForConditionalGeneration"):
            model = mha.Model(DATA / family)
            shape = model.info["layers"], model.info["heads"]
            with mha.prune(model, keep(shape, 0), cross_keep=keep(shape, 2), compatible=True) as edit:
                edit.save(self.folder / family)
            theirs = getattr(transformers, name).from_pretrained(self.folder / family).eval()
            self.check_logits(mha.Model(self.folder / family), theirs)

    def check_logits(self, ours, theirs):
        with torch.no_grad():
            want = theirs(input_ids=torch.tensor(SOURCE), decoder_input_ids=torch.tensor(TARGET)).logits.numpy()
        self.assertLess(np.abs(ours.forward(TARGET, source=SOURCE).logits - want).max(), 1e-4)


def gate(module, gates, heads):
    """Multiplies the outputs of the heads, which are the input of the output projection, by gates [B, heads]."""
    def scale(_module, inputs):
        x = inputs[0]
        return (x.view(*x.shape[:2], heads, -1) * gates[:, None, :, None]).view(x.shape)
    module.register_forward_pre_hook(scale)


@unittest.skipIf(transformers is None, "requires PyTorch and transformers")
class Gates(unittest.TestCase):
    def compare(self, family, theirs, attentions):
        """Compares the gradients of all gates. attentions(side, layer, cross) returns the output projection."""
        ours = mha.Model(DATA / family)
        labels = np.array([[21, 8, 14, 30, 2], [4, 17, 33, 9, 11]])
        source, target = np.array([SOURCE[0], SOURCE[0][::-1]]), np.array([TARGET[0], [0, 4, 17, 33, 9]])
        encoder = theirs.config.num_layers if family.startswith("t5") else theirs.config.encoder_layers
        heads = theirs.config.num_heads if family.startswith("t5") else theirs.config.encoder_attention_heads
        shapes = {"encoder": (encoder, 2, heads)}
        shapes["decoder"] = shapes["cross"] = (ours.info["layers"], 2, ours.info["heads"])
        rng, gates = np.random.default_rng(3), {}
        for kind, shape in shapes.items():
            gates[kind] = torch.tensor(rng.uniform(0.5, 1.5, shape), dtype=torch.float32, requires_grad=True)
            for layer in range(shape[0]):
                gate(attentions(kind, layer), gates[kind][layer], shape[2])
        logits = theirs(input_ids=torch.tensor(source), decoder_input_ids=torch.tensor(target)).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels).flatten())
        loss.backward()
        numbers = {kind: x.detach().numpy() for kind, x in gates.items()}
        for parameters in True, False:
            with mha.ModelGrads(ours, parameters=parameters) as grads:
                found = grads.loss(target, labels, gate=numbers["decoder"], cross_gate=numbers["cross"], gates=True, source=source,
                                   source_gate=numbers["encoder"])
            self.assertLess(abs(found.loss - loss.item()), 1e-5)
            for kind, got in ("decoder", found.gates), ("cross", found.cross_gates), ("encoder", found.encoder_gates):
                want = gates[kind].grad.numpy()
                self.assertLess(np.abs(got - want).max(), 1e-5 + 1e-4 * np.abs(want).max(), (family, kind))

    def test_errors_name_the_argument(self):
        source, target, text = np.array(SOURCE), np.array(TARGET), [[4, 17, 33]]
        with mha.ModelGrads(mha.Model(DATA / "bart")) as grads:
            for arguments in ({"gate": np.ones(3)}, {"cross_gate": np.ones((1, 2)), "source": source},
                              {"source_gate": np.ones((1, 2)), "source": source}, {"source_gate": np.ones((1, 2))},
                              {"cross_gate": np.ones((1, 2))}, {"gate": "open"}, {"source_gate": "open", "source": source}):
                with self.subTest(arguments), self.assertRaisesRegex((ValueError, TypeError), f"^{next(iter(arguments))} must "):
                    grads.loss(target, **{"source": None} | arguments)
        with mha.ModelGrads(mha.Model()) as grads, self.assertRaisesRegex(ValueError, r"^gate must be of shape \(2, 8\) or "):
            grads.forward(text, gate=np.ones(3))
        model = mha.Model(DATA / "bart")
        for name in "source_gates", "cross_gates", "gates":
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"^{name} must be of shape "):
                model.forward(target, source=source, **{name: np.ones(3)})

    def test_t5(self):
        for family in "t5", "t5-gated":
            theirs = transformers.T5ForConditionalGeneration.from_pretrained(DATA / family).eval()

            def attentions(kind, layer, theirs=theirs):
                block = (theirs.encoder if kind == "encoder" else theirs.decoder).block[layer]
                return block.layer[1].EncDecAttention.o if kind == "cross" else block.layer[0].SelfAttention.o
            self.compare(family, theirs, attentions)

    def test_bart_and_marian(self):
        for family, name in ("bart", "BartForConditionalGeneration"), ("marian", "MarianMTModel"), ("mbart", "MBartForConditionalGeneration"):
            theirs = getattr(transformers, name).from_pretrained(DATA / family).eval()

            def attentions(kind, layer, theirs=theirs):
                block = (theirs.model.encoder if kind == "encoder" else theirs.model.decoder).layers[layer]
                return (block.encoder_attn if kind == "cross" else block.self_attn).out_proj
            self.compare(family, theirs, attentions)


@unittest.skipUnless(torch, "requires PyTorch and transformers")
class Scores(unittest.TestCase):
    def test_language_codes(self):
        """The first decoder input of mBART is the last label, the language code of the target, as in the loss of transformers."""
        theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(DATA / "mbart", attn_implementation="eager", dtype=torch.float32).eval()
        with mha.Model(DATA / "mbart") as model:
            losses = []
            for code in 11, 12:
                labels = [21, 8, 14, 2, code]
                with torch.no_grad():
                    want = theirs(input_ids=torch.tensor(SOURCE), labels=torch.tensor([labels]))
                logprobs = model.score_target(SOURCE[0], labels)
                expected = torch.log_softmax(want.logits[0], -1)[range(5), labels].numpy()
                np.testing.assert_allclose(logprobs, expected, rtol=0, atol=1e-5)
                losses.append(want.loss.item())
                self.assertAlmostEqual(-float(logprobs.mean()), losses[-1], delta=1e-5)
            self.assertGreater(abs(losses[0] - losses[1]), 1e-3)


if __name__ == "__main__":
    unittest.main()
