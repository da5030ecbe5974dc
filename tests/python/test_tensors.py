"""Tests mha.attention on PyTorch tensors: negation and conjugation, which are flags of a tensor, and error messages that name the
argument."""
import sys
import unittest

import numpy as np

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import mha


class Tensors(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(3)
        self.q = rng.standard_normal((1, 2, 3, 4), dtype=np.float32)
        self.x = torch.from_numpy(self.q)

    def test_lazy_negation(self):
        """Tests a negated tensor, whose memory is not negated: PyTorch only sets a flag."""
        lazy = self.x._neg_view()
        self.assertTrue(lazy.is_neg())
        want = mha.attention(-self.q, self.q, -self.q, bias=-self.q[..., :3], sinks=[-1.0, -2.0])
        got = mha.attention(lazy, self.x, lazy, bias=lazy[..., :3], sinks=torch.tensor([1.0, 2.0])._neg_view())
        self.assertTrue(np.array_equal(got.numpy(), want))
        lengths = mha.attention(self.x, self.x, self.x, kv_lens=torch.tensor([-2])._neg_view())
        self.assertTrue(torch.equal(lengths, mha.attention(self.x, self.x, self.x, kv_lens=[2])))

    def test_imaginary_part_is_a_negated_view(self):
        lazy = torch.complex(self.x, self.x).conj().imag
        self.assertTrue(lazy.is_neg())
        got = mha.attention(self.x, self.x, lazy)
        self.assertTrue(torch.equal(got, mha.attention(self.x, self.x, -self.x)))

    def test_refusals_are_sentences(self):
        x = self.x
        wanting = torch.ones(2, requires_grad=True)
        for pattern, arrays, description in (
                ("q must not require a gradient: use mha.torch", (x.clone().requires_grad_(), x, x), {}),
                ("sinks must not require a gradient: use mha.torch", (x, x, x), {"sinks": wanting}),
                ("slopes must hold real numbers", (x, x, x), {"slopes": torch.ones(2) * 1j}),
                ("k: .*meta", (x, x.to("meta"), x), {}), ("v: .*strided", (x, x, x.to_sparse()), {}),
                ("gates: .*meta", (x, x, x), {"gates": torch.ones(2, device="meta")}),
                ("kv_lens: .*strided", (x, x, x), {"kv_lens": torch.tensor([3]).to_sparse()}),
                (r"q.dtype must be one of .* \(got torch.complex64\)", (x * 1j, x, x), {}),
                (r"q.dtype must be one of .* \(got torch.complex64\)", ((x * 1j).conj(), x, x), {})):
            with self.subTest(pattern), self.assertRaisesRegex(ValueError, pattern):
                mha.attention(*arrays, **description)
        with torch.no_grad():
            got = mha.attention(x, x, x, sinks=wanting)
        self.assertTrue(torch.equal(got, mha.attention(x, x, x, sinks=[1, 1])))


if __name__ == "__main__":
    unittest.main()
