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

    def test_cached_queries(self):
        x, rope, at = self.k, self.rope, self.rng.integers(0, 99, (2, 4))
        with mha.Cache(batch=2, kv_heads=2, head_dim=16) as cache:
            cache.append(x, x, rope=rope)
            want = mha.attention(self.q[:, :, :4], x, x, rope=rope, causal=True, align="bottom_right", return_lse=True)
            found = cache.attention(self.q[:, :, :4], rope=rope, return_lse=True)
            for a, b in zip(found[:2], want[:2]):
                np.testing.assert_array_equal(a, b)
            want = cache.attention(rope.turn(self.q[:, :, :4], at))
            np.testing.assert_array_equal(cache.attention(self.q[:, :, :4], rope=rope, q_positions=at), want)
            with self.assertRaisesRegex(ValueError, "rope must be given with q_positions"):
                cache.attention(self.q[:, :, :4], q_positions=at)
            q = self.q[:, :, :3]
            found = cache.attend(q, x[:, :, :3], x[:, :, :3], rope=rope, return_lse=True)
            want = cache.attention(q, rope=rope, return_lse=True)
            for a, b in zip(found[:2], want[:2]):
                np.testing.assert_array_equal(a, b)

    def scaled(self, kind):
        factors = {"short_by": np.ones(8), "long_by": np.full(8, 2.5), "factor": 4.0, "original_positions": 20}
        return mha.Rope(16, kind=kind, **({"factor": 2.0, "max_positions": 20} if kind == "dynamic" else factors))

    def test_angles_of_the_length(self):
        """The angles of dynamic and longrope must be those of the given positions, in place of those of the shape."""
        q, k, v = self.q, self.k, self.v
        for kind in "dynamic", "longrope":
            rope, at = self.scaled(kind), np.arange(30) % 7
            self.assertTrue(rope.depends_on_length)
            want = mha.attention(rope.turn(q, at), k, v)
            np.testing.assert_array_equal(mha.attention(q, k, v, rope=rope, rotate="q", q_positions=at), want)
            places = np.arange(40) % 9
            want = mha.attention(q, rope.turn(k, places), v)
            np.testing.assert_array_equal(mha.attention(q, k, v, rope=rope, rotate="k", k_positions=places), want)
            at[0] = 33
            places[0] = 33
            want = mha.attention(rope.turn(q, at), rope.turn(k, places), v)
            np.testing.assert_array_equal(mha.attention(q, k, v, rope=rope, q_positions=at, k_positions=places), want)
            want = mha.attention(rope.turn(q, np.arange(10, 40)), rope.turn(k), v)
            np.testing.assert_array_equal(mha.attention(q, k, v, rope=rope, align="bottom_right"), want)

    def test_sequences_of_different_lengths(self):
        x, message = self.k[:, :, :12], "rope.kind must not be 'dynamic' or 'longrope' for sequences of different lengths"
        for kind in "dynamic", "longrope":
            rope = self.scaled(kind)
            with mha.Cache(batch=2, kv_heads=2, head_dim=16) as cache, mha.Cache(batch=1, kv_heads=2, head_dim=16) as alone:
                with self.assertRaisesRegex(ValueError, message):
                    cache.append(x, x, rope=rope, counts=[12, 5])
                cache.append(x, x, rope=rope)
                cache.append(x, x, rope=rope, counts=[12, 0])
                alone.append(x[1:], x[1:], rope=rope)
                for call, operands in (cache.append, 2), (cache.attend, 3), (cache.attention, 1):
                    with self.assertRaisesRegex(ValueError, message):
                        call(*[x] * operands, rope=rope)
                self.assertEqual(cache.lengths, [24, 12])
                found = cache.attend(x[1:], x[1:], x[1:], rope=rope, sequence=1)
                np.testing.assert_array_equal(found, alone.attend(x[1:], x[1:], x[1:], rope=rope))

    def test_refused_positions(self):
        far = np.array([2**40] + [0] * 29)
        for message, bad in (("q_positions must be below 2147483647", {"rope": self.rope, "q_positions": far}),
                             ("k_positions must be below 2147483647", {"rope": self.rope, "k_positions": np.resize(far, 40)}),
                             ("offsets must be at most 2147483617 with rope", {"rope": self.rope, "offsets": [2**40, 0]}),
                             ("rotate must contain 'q' if q_positions is given",
                              {"rope": self.rope, "rotate": "k", "q_positions": [0] * 30}),
                             ("rotate must contain 'k' if k_positions is given",
                              {"rope": self.rope, "rotate": "q", "k_positions": [0] * 40}),
                             ("rope must be given with q_positions, k_positions or rotate", {"rotate": "q"})):
            for function in mha.attention, mha.Plan:
                with self.assertRaisesRegex(ValueError, message):
                    function(self.q, self.k, self.v, **bad)
        with self.assertRaisesRegex(ValueError, "positions must be from 0 to 2147483647"):
            self.rope.table(2**40)
        with self.assertRaisesRegex(ValueError, "k_positions must be below"), mha.Cache(2, 2, 16) as cache:
            cache.append(self.k, self.v, rope=self.rope, positions=[2**40] * 40)

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
