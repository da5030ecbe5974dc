"""Tests the rotary embedding of mha.attention and mha.Cache, and gradients of pages, also against PyTorch if it is installed."""
import importlib.util
import unittest

import numpy as np

import mha


def pages_of(x, size, order):
    """Moves x [B, H, L, D] to pages [n, H, size, D]; page order[b, n] contains keys n * size ... of sequence b."""
    pages = np.full((order.max() + 1, x.shape[1], size, x.shape[3]), np.nan, x.dtype)
    for b, row in enumerate(order):
        for n, page in enumerate(row):
            part = x[b, :, n * size:(n + 1) * size]
            pages[page, :, :part.shape[1]] = part
    return pages


class RotationTest(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(9)
        self.rng = rng
        self.q = rng.standard_normal((2, 4, 30, 16), dtype=np.float32)
        self.k, self.v = (rng.standard_normal((2, 2, 40, 16), dtype=np.float32) for _ in range(2))
        self.rope = mha.Rope(16, rotary_dim=12, interleaved=True, theta=100)

    def test_call(self):
        q, k, v, rope = self.q, self.k, self.v, self.rope
        at = np.arange(10, 40)
        want = mha.attention(rope.turn(q, at), rope.turn(k), v, causal=True, align="bottom_right")
        found = mha.attention(q, k, v, causal=True, align="bottom_right", rope=rope)
        self.assertTrue(np.array_equal(found, want))
        places = self.rng.integers(0, 99, (2, 30))
        want = mha.attention(rope.turn(q, places), k, v)
        self.assertTrue(np.array_equal(mha.attention(q, k, v, rope=rope, rotate="q", q_positions=places), want))
        want = mha.attention(q, rope.turn(k, at[0] + np.arange(40)), v)
        self.assertTrue(np.array_equal(mha.attention(q, k, v, rope=rope, rotate="k", k_positions=at[0] + np.arange(40)), want))
        found = mha.attention(q, k, v, rope=rope, rotate="q", offsets=[3, 5])
        want = mha.attention(rope.turn(q, np.array([[3], [5]]) + np.arange(30)), k, v)
        self.assertTrue(np.array_equal(found, want))

    def test_plan(self):
        plan = mha.Plan(self.q, self.k, self.v, rope=self.rope, align="top_left")
        want = mha.attention(self.rope.turn(self.q), self.rope.turn(self.k), self.v)
        self.assertTrue(np.array_equal(plan(self.q, self.k, self.v), want))

    def test_cache(self):
        x, rope = self.k, self.rope
        whole = mha.attention(rope.turn(self.q[:, :, :30]), rope.turn(x[:, :, :30]), x[:, :, :30], causal=True)
        with mha.Cache(batch=2, kv_heads=2, head_dim=16) as cache, mha.Cache(batch=2, kv_heads=2, head_dim=16) as other:
            for i in range(0, 30, 3):
                q, k = self.q[:, :, i:i + 3], x[:, :, i:i + 3]
                self.assertTrue(np.array_equal(cache.attend(q, k, k, rope=rope), whole[:, :, i:i + 3]))
                other.append(k, k, rope=rope, positions=np.arange(i, i + 3))
            self.assertTrue(np.array_equal(cache.tensors()["k"], other.tensors()["k"]))
            with self.assertRaises(ValueError):
                cache.attend(self.q[:, :, :40], x, x, rope=mha.Rope(8))
            self.assertEqual(cache.lengths, [30, 30])

    def test_refusals(self):
        for bad in ({"rope": 3}, {"rope": mha.Rope(8)}, {"rope": self.rope, "rotate": "v"}, {"q_positions": [1]},
                    {"rope": self.rope, "q_positions": [1, 2]}, {"rope": self.rope, "q_positions": [-1] * 30}):
            with self.assertRaises(ValueError, msg=str(bad)):
                mha.attention(self.q, self.k, self.v, align="top_left", **bad)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_gradients(self):
        """Random descriptions in float64 against PyTorch, dense and paged, half-split and interleaved, forward and backward."""
        import torch
        for case in range(40):
            with self.subTest(case=case):
                self.compare(torch, np.random.default_rng(case))

    @staticmethod
    def turned(torch, x, cos, sin, interleaved):
        """The rotation in PyTorch; cos and sin are [L, R/2]."""
        pairs = cos.shape[1]
        r = x[..., :2 * pairs]
        a, b = (r[..., 0::2], r[..., 1::2]) if interleaved else (r[..., :pairs], r[..., pairs:])
        c, d = a * cos - b * sin, b * cos + a * sin
        y = torch.stack((c, d), -1).flatten(-2) if interleaved else torch.cat((c, d), -1)
        return torch.cat((y, x[..., 2 * pairs:]), -1)

    def compare(self, torch, rng):
        batch, groups, each = rng.integers(1, 3), rng.integers(1, 3), rng.integers(1, 4)
        rows, keys, width = int(rng.integers(1, 20)), int(rng.integers(20, 150)), int(rng.integers(2, 40))
        rope = mha.Rope(width, rotary_dim=2 * int(rng.integers(1, width // 2 + 1)), interleaved=bool(rng.integers(2)), theta=50)
        shapes = (batch, groups * each, rows, width), (batch, groups, keys, width), (batch, groups, keys, width)
        q, k, v = (rng.standard_normal(shape) for shape in shapes)
        dout, causal = rng.standard_normal(q.shape), bool(rng.integers(2))
        cos, sin = (torch.from_numpy(x) for x in rope.table(keys, wide=True))
        x, y, z = (torch.from_numpy(a).requires_grad_() for a in (q, k, v))
        turn = [self.turned(torch, x, cos[keys - rows:keys], sin[keys - rows:keys], rope.options.interleaved),
                self.turned(torch, y, cos[:keys], sin[:keys], rope.options.interleaved)]
        mask = torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows) if causal else None
        want = torch.nn.functional.scaled_dot_product_attention(
            turn[0], turn[1].repeat_interleave(each, 1), z.repeat_interleave(each, 1), attn_mask=mask)
        want.backward(torch.from_numpy(dout))
        options = {"causal": causal, "align": "bottom_right", "rope": rope}
        order = rng.permutation(batch * -(-keys // 16)).reshape(batch, -1)
        for paged in (False, True):
            k1, v1 = (pages_of(a, 16, order) if paged else a for a in (k, v))
            more = {"block_table": order, "kv_lens": [keys] * batch} if paged else {}
            out, lse, *_ = mha.attention(q, k1, v1, return_lse=True, **options, **more)
            g = mha.attention_backward(dout, q, k1, v1, out, lse, **options, **more)
            dk, dv = (pages_of(a.grad.numpy(), 16, order) if paged else a.grad.numpy() for a in (y, z))
            for found, right in ((out, want.detach().numpy()), (g.dq, x.grad.numpy()), (g.dk, dk), (g.dv, dv)):
                np.testing.assert_allclose(found, np.nan_to_num(right), rtol=0, atol=1e-12)


if __name__ == "__main__":
    unittest.main()
