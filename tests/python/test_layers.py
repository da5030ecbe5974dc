"""The building blocks of a transformer from Python, against NumPy and against mha.attention; files of tensors; random numbers."""
import math
import os
import tempfile
import unittest
from pathlib import Path

import numpy as np

import mha

OPS = Path(__file__).resolve().parents[1] / "golden/data/ops"


def slope(f, x, at, step=1e-3):
    """Returns the difference quotient of the scalar function f at an element of x."""
    more, less = x.copy(), x.copy()
    more[at] += step
    less[at] -= step
    return (f(more) - f(less)) / (2 * step)


class Rows(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(3)
        self.x = self.rng.standard_normal((2, 4, 6)).astype(np.float32)

    def test_activations(self):
        erf = np.vectorize(math.erf)
        x = self.x.astype(np.float64)
        references = {"none": x, "gelu": x / 2 * (1 + erf(x / 2**0.5)), "relu": np.maximum(x, 0), "tanh": np.tanh(x),
                      "gelu_tanh": x / 2 * (1 + np.tanh((2 / np.pi)**0.5 * (x + 0.044715 * x**3))), "silu": x / (1 + np.exp(-x)),
                      "quick_gelu": x / (1 + np.exp(-1.702 * x)), "sigmoid": 1 / (1 + np.exp(-x)), "softplus": np.log1p(np.exp(x))}
        for name, want in references.items():
            np.testing.assert_allclose(mha.activation_forward(name, self.x), want, atol=3e-7, rtol=2e-6, err_msg=name)
            if name != "relu":
                dx = mha.activation_backward(name, self.x, np.ones_like(self.x))
                got = slope(lambda y, n=name: float(mha.activation_forward(n, y).sum(dtype=np.float64)), self.x, (1, 2, 3), 1e-2)
                self.assertAlmostEqual(dx[1, 2, 3], got, delta=2e-3, msg=name)
        with self.assertRaisesRegex(ValueError, "activation must be one of 'none', 'gelu'"):
            mha.activation_forward("swish", self.x)

    def test_linear(self):
        w, b = self.rng.standard_normal((3, 6)).astype(np.float32), self.rng.standard_normal(3).astype(np.float32)
        want = self.x @ w.T + b
        np.testing.assert_allclose(mha.Linear(mha.Matrix(w, b)).forward(self.x), want, atol=2e-6)
        np.testing.assert_allclose(mha.Linear(mha.Matrix(w.T, b, transposed=True)).forward(self.x), want, atol=2e-6)
        stack = mha.Linear(mha.Matrix(w, b), mha.Matrix(2 * w), activation="relu").forward(self.x)
        np.testing.assert_allclose(stack, np.maximum(np.concatenate([want, 2 * (want - b)], -1), 0), atol=4e-6)
        for packed, error in ("bf16", 0.1), ("f16", 0.01), ("q8_0", 0.2):
            half = mha.Linear(mha.Matrix(w, b, packed=packed)).forward(self.x)
            self.assertTrue(0 < np.abs(half - want).max() < error, packed)
        dy = self.rng.standard_normal((2, 4, 3)).astype(np.float32)
        for matrix in mha.Matrix(w, b), mha.Matrix(w.T, b, transposed=True):
            dx, dweight, dbias = mha.linear_backward(self.x, dy, matrix)
            np.testing.assert_allclose(dx, dy @ w, atol=4e-6)
            wanted = np.einsum("blo,bli->oi", dy, self.x)
            np.testing.assert_allclose(dweight, wanted.T if matrix.transposed else wanted, atol=6e-6)
            np.testing.assert_allclose(dbias, dy.sum((0, 1)), atol=4e-6)
        with self.assertRaisesRegex(ValueError, r"parts\[1\].weight must have 6 inputs"):
            mha.Linear(mha.Matrix(w), mha.Matrix(w.T))
        with self.assertRaisesRegex(ValueError, r"x must be of shape \[..., 6\]"):
            mha.Linear(mha.Matrix(w)).forward(np.zeros((2, 5)))

    def test_norms(self):
        w, b = (self.rng.standard_normal(6).astype(np.float32) for _ in range(2))
        x = self.x.astype(np.float64)
        layer = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b
        rms = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w
        for norm, want in (mha.Norm(w, b), layer), (mha.Norm(w, kind="rms"), rms):
            np.testing.assert_allclose(mha.norm_forward(norm, self.x), want, atol=2e-6)
            np.testing.assert_allclose(mha.norm_forward(norm, self.x / 2, self.x / 2), want, atol=2e-6)
            dy = self.rng.standard_normal(self.x.shape).astype(np.float32)
            dx, dweight, dbias = mha.norm_backward(norm, self.x, dy)
            got = slope(lambda y, n=norm, d=dy: float((mha.norm_forward(n, y) * d).sum(dtype=np.float64)), self.x, (0, 1, 2), 1e-2)
            self.assertAlmostEqual(dx[0, 1, 2], got, delta=2e-3)
            np.testing.assert_allclose(dweight, (dy * (want - (b if norm.kind == "layer" else 0)) / w).sum((0, 1)), atol=2e-5)
            self.assertEqual(dbias is None, norm.kind == "rms")

    def test_cross_entropy(self):
        logits = self.rng.standard_normal((5, 7)).astype(np.float32)
        labels = [3, -100, 0, 6, 3]
        lse = np.log(np.exp(logits.astype(np.float64)).sum(-1))
        want = np.mean([lse[n] - logits[n, y] for n, y in enumerate(labels) if y >= 0])
        loss, counted, dlogits = mha.cross_entropy(logits, labels)
        self.assertAlmostEqual(loss, want, places=6)
        self.assertEqual((counted, dlogits[1].any()), (4, False))
        self.assertAlmostEqual(mha.cross_entropy(logits, labels, scale=1.0, gradient=False).loss, 4 * want, places=5)
        np.testing.assert_allclose(dlogits.sum(-1), 0, atol=1e-7)
        with self.assertRaisesRegex(ValueError, "label"):
            mha.cross_entropy(logits, [7] * 5)

    def test_embedding(self):
        table, ids = self.rng.standard_normal((5, 3)).astype(np.float32), np.array([[4, 0], [4, 2]])
        np.testing.assert_array_equal(mha.embedding_forward(table, ids), table[ids])
        np.testing.assert_array_equal(mha.embedding_forward(table, ids, add=table[ids]), 2 * table[ids])
        dtable = mha.embedding_backward(ids, np.ones((2, 2, 3)), 5)
        self.assertEqual(dtable[:, 0].tolist(), [1, 0, 1, 0, 2])
        with self.assertRaisesRegex(ValueError, r"words\[1\] must be"):
            mha.embedding_forward(table, [0, 5], what="words")


class Layers(unittest.TestCase):
    def setUp(self):
        self.rng = mha.Rng(7)
        self.m = {name: mha.Matrix(*self.rng.linear(8, n)) for name, n in (("q", 8), ("k", 4), ("v", 4))}
        self.o = mha.Matrix(*self.rng.linear(8, 8))
        self.x = self.rng.randn((2, 5, 8))
        self.parts = {name: mha.Linear(m).forward(self.x).reshape(2, 5, -1, 2).swapaxes(1, 2) for name, m in self.m.items()}

    def whole(self, **options):
        found = mha.attention(*self.parts.values(), return_probs=True, return_stats=True, **options)
        return mha.Linear(self.o).forward(found.out.swapaxes(1, 2).reshape(2, 5, 8)), found

    def test_attention(self):
        layer = mha.AttnLayer(4, self.o, **self.m, kv_heads=2, causal=True)
        want, found = self.whole(causal=True)
        got = layer.forward(self.x, return_probs=True, return_stats=True, return_activations=True)
        np.testing.assert_array_equal(got.y, want)
        np.testing.assert_array_equal(got.probs, found.probs)
        for name, x in found.stats.items():
            np.testing.assert_array_equal(got.stats[name], x, err_msg=name)
        np.testing.assert_array_equal(got.activations["input"], self.x)
        np.testing.assert_array_equal(got.activations["out"], want)
        np.testing.assert_array_equal(got.activations["context"], found.out.swapaxes(1, 2).reshape(2, 5, 8))
        np.testing.assert_array_equal(layer.forward(self.x, context=got.activations["context"]), want)
        gated = layer.forward(self.x, gates=[1, 0, 1, 1], fills=np.ones((4, 2)))
        context = got.activations["context"].reshape(2, 5, 4, 2) * np.array([1, 0, 1, 1])[:, None] + 1
        np.testing.assert_allclose(gated, mha.Linear(self.o).forward(context.reshape(2, 5, 8)), atol=1e-6)

    def test_masks(self):
        layer = mha.AttnLayer(4, self.o, **self.m, kv_heads=2)
        keep = np.arange(5)[None, None, None, :] < np.array([3, 5])[:, None, None, None]
        np.testing.assert_array_equal(layer.forward(self.x, keep=keep), self.whole(keep=keep)[0])
        np.testing.assert_array_equal(layer.forward(self.x, lengths=[3, 5])[0, :3], self.whole(keep=keep)[0][0, :3])
        bias = self.rng.randn((4, 5, 5))
        np.testing.assert_array_equal(layer.forward(self.x, bias=bias), self.whole(bias=bias)[0])

    def test_a_cache(self):
        rope = mha.Rope(2)
        layer = mha.AttnLayer(4, self.o, **self.m, kv_heads=2, causal=True, rope=rope)
        whole = layer.forward(self.x)
        for capacity in 256, 0:
            with mha.Cache(batch=2, kv_heads=2, head_dim=2, capacity=capacity) as cache:
                parts = [layer.forward(self.x[:, n:m], cache=cache, return_probs=True) for n, m in ((0, 3), (3, 4), (4, 5))]
            np.testing.assert_array_equal(np.concatenate([p.y for p in parts], 1), whole)
            self.assertEqual(parts[-1].probs.shape, (2, 4, 1, 5))
        np.testing.assert_array_equal(layer.forward(self.x, positions=np.arange(5)), whole)

    def test_heads_chosen_by_the_text(self):
        score = mha.Matrix(*self.rng.linear(8, 4))
        full = {name: mha.Matrix(*self.rng.linear(8, 8)) for name in "qkv"}
        choice = mha.HeadChoice("heads", score, keep=2, selection="soft")
        layer = mha.AttnLayer(4, self.o, **full, choice=choice)
        got = layer.forward(self.x, return_kept=True)
        variant = mha.HeadPruning(8, 4, 0.5, selection="soft")
        named = {f"{name}_proj": m for name, m in full.items()} | {"o_proj": self.o, "head_importance": score}
        variant.load({f"{name}.{part}": getattr(m, part) for name, m in named.items() for part in ("weight", "bias")})
        want, trace = variant.forward(self.x, trace=True)
        np.testing.assert_allclose(got.y, want, atol=1e-6)
        self.assertEqual([set(np.flatnonzero(k)) for k in got.kept], [set(trace.chosen(n)) for n in range(2)])
        options = mha.HeadChoice("options", mha.Matrix(*self.rng.linear(3, 2)), hidden=mha.Matrix(*self.rng.linear(8, 3)), options=(1, 2))
        kept = mha.AttnLayer(4, self.o, **full, choice=options).forward(self.x, return_kept=True).kept
        self.assertEqual(kept.sum(1).tolist(), [1, 1])
        with self.assertRaisesRegex(ValueError, "causal"):
            mha.AttnLayer(4, self.o, **full, choice=choice, causal=True)

    def test_block(self):
        up, down = (mha.Matrix(*self.rng.linear(n, m)) for n, m in ((8, 12), (12, 8)))
        norms = {name: mha.Norm(self.rng.randn(8), self.rng.randn(8)) for name in ("attn_norm", "mlp_norm")}
        attention = mha.AttnLayer(4, self.o, **self.m, kv_heads=2)

        def feed_forward(x):
            return mha.Linear(down).forward(mha.activation_forward("gelu", mha.Linear(up).forward(x)))
        for pre in False, True:
            block = mha.Block(4, self.o, **self.m, kv_heads=2, up=up, down=down, activation="gelu", pre_norm=pre, **norms)
            if pre:
                x = self.x + attention.forward(mha.norm_forward(norms["attn_norm"], self.x))
                want = x + feed_forward(mha.norm_forward(norms["mlp_norm"], x))
            else:
                x = mha.norm_forward(norms["attn_norm"], attention.forward(self.x), self.x)
                want = mha.norm_forward(norms["mlp_norm"], feed_forward(x), x)
            np.testing.assert_allclose(block.forward(self.x), want, atol=2e-6)
        with self.assertRaisesRegex(ValueError, "up and down must be given together"):
            mha.Block(4, self.o, **self.m, kv_heads=2, up=up, **norms)

    def test_refusals(self):
        layer = mha.AttnLayer(4, self.o, **self.m, kv_heads=2)
        for use, sentence in ((lambda: mha.AttnLayer(4, self.o, **self.m), "k must have 8 outputs"),
                              (lambda: layer.forward(self.x, positions=[0] * 5), "positions must be None"),
                              (lambda: layer.forward(self.x, return_kept=True), "return_kept must be False"),
                              (lambda: layer.forward(self.x, gates=np.ones(3)), r"gates must be of shape \(4\)"),
                              (lambda: layer.forward(self.x, keep=np.ones((3, 5))), "keep must be of a shape that broadcasts"),
                              (lambda: layer.forward(self.x, keep=np.ones((5, 3))), "keep must be of a shape that broadcasts")):
            with self.assertRaisesRegex(ValueError, sentence):
                use()

    def test_weights_are_converted_once(self):
        class Counted:
            def __init__(self, x):
                self.x, self.read = x, 0

            def __array__(self, dtype=None, copy=None):
                self.read += 1
                return np.asarray(self.x, dtype)
        weights = {name: Counted(np.eye(8)) for name in "qkvo"}
        mha.AttnLayer(2, **{name: mha.Matrix(x) for name, x in weights.items()})
        mha.Linear(mha.Matrix(weights["q"]))
        self.assertEqual({name: x.read for name, x in weights.items()}, {"q": 2, "k": 1, "v": 1, "o": 1})

    def test_widths(self):
        """A part of another width must be refused, since the library reads as many elements as the layer needs."""
        small, wide = mha.Norm(np.ones(3), np.zeros(3)), mha.Matrix(*self.rng.linear(4, 8))
        up, down, gate = (mha.Matrix(*self.rng.linear(n, m)) for n, m in ((8, 12), (12, 8), (8, 4)))
        full = {name: mha.Matrix(*self.rng.linear(8, 8)) for name in "qkv"}
        layer = mha.AttnLayer(4, self.o, **self.m, kv_heads=2)
        for use, sentence in ((lambda: mha.AttnLayer(4, wide, **self.m, kv_heads=2), "o.weight must have 8 inputs"),
                              (lambda: mha.AttnLayer(4, self.o, **self.m, kv_heads=2, q_norm=small), r"q_norm.weight must be of shape \(2\)"),
                              (lambda: mha.AttnLayer(4, self.o, **self.m, kv_heads=2, whole_norms=True, k_norm=small), r"shape \(4\)"),
                              (lambda: mha.Block(4, self.o, **self.m, kv_heads=2, attn_norm=small), r"attn_norm.weight must be of shape \(8\)"),
                              (lambda: mha.Block(4, self.o, **self.m, kv_heads=2, up=up, down=down, gate=gate), "gate must have the outputs of up"),
                              (lambda: mha.AttnLayer(4, self.o, **full, choice=mha.HeadChoice("heads", gate, keep=5)), "keep"),
                              (lambda: mha.AttnLayer(4, self.o, **full, choice=mha.HeadChoice("heads", wide, keep=2)), "choice.score"),
                              (lambda: layer.forward(self.x, cache=mha.Cache(2, 2, 4)), "of the cache must be 2, 2, 2 "),
                              (lambda: layer.forward(self.x, cache=mha.Cache(2, 1, 2)), r"of the cache must be 2, 2, 2 \(got 1, 2, 2\)")):
            with self.assertRaisesRegex(ValueError, sentence):
                use()


class Files(unittest.TestCase):
    def test_nul_characters(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a\0b")
            for use in (lambda: mha.file_write(path, b""), lambda: mha.npy_write(path, np.ones(2)), lambda: mha.File(path),
                        lambda: mha.tensors_write(path, {"a": np.ones(2)}), lambda: mha.Tokenizer(path), lambda: mha.TrainStore(path)):
                with self.assertRaisesRegex(ValueError, r"must not contain a NUL character \(got '"):
                    use()
            with self.assertRaisesRegex(ValueError, r"^name must not contain a NUL character \(got 'w\\x00x'\)"):
                mha.tensors_write(os.path.join(folder, "x.safetensors"), {"w\0x": np.ones(2)})
            self.assertEqual(os.listdir(folder), [])

    def test_round_trip(self):
        arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b.c": np.arange(3), "h": np.ones(2, np.float16), "s": np.array(2.5)}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x.safetensors")
            mha.tensors_write(path, arrays)
            found = mha.tensors_read(path)
            for name, x in arrays.items():
                np.testing.assert_array_equal(found[name], x)
                self.assertEqual(found[name].dtype, x.dtype)
            with self.assertRaisesRegex(OSError, "x.safetensors"):
                mha.tensors_write(path, arrays)
            mha.tensors_write(path, {"a": arrays["a"]}, overwrite=True)
            wide = {"a": np.empty((2, 3), np.float64)}
            mha.tensors_read_into(path, wide)
            np.testing.assert_array_equal(wide["a"], arrays["a"])
            with self.assertRaisesRegex(ValueError, "a"):
                mha.tensors_read_into(path, {"a": np.empty((3, 2))})
            with mha.File(path) as file, self.assertRaises(KeyError):
                file.read("odd")
            self.assertEqual((file.closed, mha.File(path).format, mha.File(path).path), (True, "safetensors", str(path)))
            self.assertTrue(mha.File(path, no_map=True).aligned("a"))
            mha.npy_write(Path(folder, "x.npy"), arrays["a"])
            np.testing.assert_array_equal(np.load(Path(folder, "x.npy")), arrays["a"])
            np.testing.assert_array_equal(mha.File(Path(folder, "x.npy")).read(""), arrays["a"])
            mha.file_write(Path(folder, "x.txt"), b"text")
            self.assertEqual(Path(folder, "x.txt").read_bytes(), b"text")

    def test_a_writer(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x.safetensors")
            with mha.TensorsWriter(path, {"w": ((3, 2), np.float32)}, metadata={"key": "value"}) as writer:
                writer.put("w", np.arange(4, dtype=np.float32))
                self.assertFalse(path.exists())
                with self.assertRaisesRegex(ValueError, "w"):
                    writer.finish()
                writer.put("w", np.arange(2, dtype=np.float32))
            self.assertEqual(mha.tensors_read(path)["w"].tolist(), [[0, 1], [2, 3], [0, 1]])
            self.assertEqual(mha.File(path).metadata["key"], "value")
            with self.assertRaises(RuntimeError), mha.TensorsWriter(Path(folder, "y"), {"w": ((1,), np.float32)}):
                raise RuntimeError
            self.assertEqual([p.name for p in Path(folder).iterdir()], ["x.safetensors"])

    def test_a_checkpoint_folder(self):
        folder = OPS.parent / "models/gpt2-tiny"
        found = mha.tensors_read(folder)
        self.assertEqual(found["transformer.wte.weight"].shape, (640, 48))


class Random(unittest.TestCase):
    """The generator itself is tested against PyTorch in C; here, each function must be reached with its own arguments."""

    def test_ranges(self):
        rng = mha.Rng(1)
        self.assertTrue(2 <= rng.uniform(2, 3, 100).min() and rng.uniform(2, 3, 100).max() < 3)
        self.assertLess(abs(rng.normal(5, 0.1, (50, 40)).mean() - 5), 0.02)
        self.assertEqual(sorted(rng.randperm(9)), list(range(9)))
        self.assertTrue({*rng.randint(-2, 1, 99)} == {-2, -1, 0})
        self.assertEqual({*rng.multinomial([0, 1, 0, 2], 2)}, {1, 3})
        self.assertGreater(rng.exponential(50).min(), 0)
        self.assertTrue(0.3 < rng.bernoulli(0.5, 200).mean() < 0.7)
        self.assertEqual(rng.rand(3, dtype=np.float64).dtype, np.float64)
        self.assertEqual(rng.randn((2, 3), dtype=np.float64).shape, (2, 3))

    def test_the_same_state(self):
        a, b = mha.Rng(5), mha.Rng(6)
        b.manual_seed(5)
        self.assertEqual([a.next() for _ in range(3)], [b.next() for _ in range(3)])
        c = a.copy()
        np.testing.assert_array_equal(a.dropout_mask(0.3, 9), c.dropout_mask(0.3, 9))
        x = a.copy().dropout(np.ones(9), 0.5)
        np.testing.assert_array_equal(x, 2 * a.dropout_mask(0.5, 9))

    def test_weights(self):
        weight, bias = mha.Rng(3).linear(4, 2)
        np.testing.assert_array_equal(mha.Rng(3).kaiming_uniform(2, 4), weight)
        self.assertEqual((weight.shape, bias.shape, mha.Rng(3).linear(4, 2, bias=False)[1]), ((2, 4), (2,), None))
        self.assertLessEqual(np.abs(mha.Rng(3).xavier_uniform(2, 4)).max(), 1)
        self.assertFalse(mha.Rng(3).embedding(4, 3, padding=1)[1].any())
        self.assertEqual({n: x.shape for n, x in mha.Rng(3).multihead(4).items()},
                         {"in_proj_weight": (12, 4), "out_proj.weight": (4, 4), "in_proj_bias": (12,), "out_proj.bias": (4,)})
        self.assertEqual(len(mha.Rng(3).multihead(4, bias=False)), 2)


if __name__ == "__main__":
    unittest.main()
