"""Tests mha.attention_backward on NumPy arrays: shapes, layouts, sums over broadcast axes, and rejected arguments."""
import unittest

import numpy as np

import mha


class Backward(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(5)
        self.q, self.k, self.v = (rng.standard_normal(s) for s in ((2, 4, 6, 5), (2, 2, 7, 5), (2, 2, 7, 3)))
        self.dout, self.dlse = rng.standard_normal((2, 4, 6, 3)), rng.standard_normal((2, 4, 6))
        self.bias = rng.standard_normal((1, 4, 1, 7))
        self.slopes, self.sinks, self.gates = 0.1 * rng.random((2, 4)), rng.standard_normal(4), rng.standard_normal((2, 4))

    def both(self, q, k, v, dout, dlse=None, threads=None, **d):
        r = mha.attention(q, k, v, return_lse=True, threads=threads, **d)
        return mha.attention_backward(dout, q, k, v, r.out, r.lse, dlse=dlse, threads=threads, **d)

    def loss(self, q, k, v, bias, slopes, sinks, gates):
        r = mha.attention(q, k, v, bias=bias, slopes=slopes, sinks=sinks, gates=gates, align="top_left", return_lse=True)
        return (r.out * self.dout).sum() + (r.lse * self.dlse).sum()

    def test_differences(self):
        names = ("bias", "slopes", "sinks", "gates")
        given = {n: getattr(self, n) for n in names}
        g = self.both(self.q, self.k, self.v, self.dout, self.dlse, align="top_left", **given)
        x, h = [self.q, self.k, self.v, *given.values()], 1e-5
        for n, name in enumerate(("dq", "dk", "dv", *(f"d{n}" for n in names))):
            u = np.random.default_rng(n).standard_normal(x[n].shape)
            up, down = ([y + s * h * u if i == n else y for i, y in enumerate(x)] for s in (1, -1))
            found = getattr(g, name)
            self.assertEqual(found.shape, x[n].shape)
            self.assertAlmostEqual((found * u).sum(), (self.loss(*up) - self.loss(*down)) / (2 * h), places=6)
        g = self.both(self.q, self.k, self.v, self.dout, sinks=self.sinks)
        self.assertTrue(g.dslopes is None and g.dgates is None and g.dsinks.dtype == np.float64)

    def test_layout_and_threads(self):
        want = self.both(self.q, self.k, self.v, self.dout)
        turned = [x.transpose(0, 2, 1, 3) for x in (self.q, self.k, self.v, self.dout)]
        for threads in (1, 2, 5):
            got = self.both(*turned, layout="blhd", threads=threads)
            for a, b in zip(want[:3], got[:3]):
                self.assertTrue(np.array_equal(a, b.transpose(0, 2, 1, 3)))

    def test_packed_is_alone(self):
        q, k, v, dout = (x.transpose(0, 2, 1, 3).reshape(-1, *x.shape[1::2]) for x in (self.q, self.k, self.v, self.dout))
        got = self.both(q, k, v, dout, cu_seqlens_q=[0, 6, 12], cu_seqlens_k=[0, 7, 14])
        want = self.both(self.q, self.k, self.v, self.dout)
        for a, b in zip(want[:3], got[:3]):
            self.assertTrue(np.array_equal(a.transpose(0, 2, 1, 3).reshape(b.shape), b))

    def test_long_packed_is_alone(self):
        """Gradients of each packed sequence must be bitwise identical to those of the sequence alone. One sequence is long enough to be
        split."""
        rng = np.random.default_rng(6)
        lengths = [1500, 3, 140]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        q, k, v, dout = (rng.standard_normal((ends[-1], h, 8), dtype=np.float32) for h in (2, 1, 1, 2))
        d = {"causal": True, "align": "top_left"}
        got = self.both(q, k, v, dout, cu_seqlens_q=ends, cu_seqlens_k=ends, **d)
        for a, b in zip(ends, ends[1:]):
            one = self.both(*(x[a:b].transpose(1, 0, 2)[None] for x in (q, k, v, dout)), **d)
            for whole, part in zip(got[:3], one[:3]):
                self.assertTrue(np.array_equal(whole[a:b].transpose(1, 0, 2), part[0]))

    def test_expanded_gradient(self):
        """Tests a dout with strides of 0, as PyTorch passes it for the gradient of a sum."""
        ones = np.broadcast_to(np.float64(1), self.dout.shape)
        got, want = (self.both(self.q, self.k, self.v, x) for x in (ones, np.ones(self.dout.shape)))
        self.assertTrue(all(np.array_equal(a, b) for a, b in zip(got[:3], want[:3])))

    def test_refusals(self):
        r = mha.attention(self.q, self.k, self.v, return_lse=True)
        for wrong, words in (({"dout": self.dout[:, :3]}, "dout.*shape"), ({"lse": r.lse.astype(np.float32)}, "lse.*float64"),
                             ({"out": r.out.astype(np.float32)}, "out.*dtype"), ({"dlse": r.lse[:1]}, "dlse.*shape")):
            x = {"dout": self.dout, "q": self.q, "k": self.k, "v": self.v, "out": r.out, "lse": r.lse} | wrong
            with self.assertRaisesRegex(ValueError, words):
                mha.attention_backward(**x)


if __name__ == "__main__":
    unittest.main()
