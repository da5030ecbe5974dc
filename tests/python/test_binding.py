"""Tests mha.attention on NumPy arrays: layouts, requested results, and error messages that name the argument."""
import inspect
import threading
import unittest

import numpy as np

import mha


def reference(q, k, v, allow=None, scale=None, bias=0, sinks=None):
    """Returns softmax(scale q k^T + bias) v in float64; `allow` and `bias` are broadcast to [B, H, Lq, Lk]."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    s = q @ k.swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5) + bias
    if allow is not None:
        s = np.where(allow, s, -np.inf)
    top = np.max(s, -1, keepdims=True)
    p = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = p.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None, None] - np.where(np.isfinite(top), top, 0))
    p = np.divide(p, total, out=np.zeros_like(p), where=total > 0)
    return p @ v, p


class Attention(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(7)
        self.q = rng.standard_normal((2, 4, 9, 16), dtype=np.float32)
        self.k = rng.standard_normal((2, 2, 13, 16), dtype=np.float32)
        self.v = rng.standard_normal((2, 2, 13, 8), dtype=np.float32)

    def close(self, a, b, tolerance=2e-6):
        self.assertLessEqual(float(np.abs(np.asarray(a, np.float64) - b).max()), tolerance)

    def test_plain(self):
        out = mha.attention(self.q, self.k, self.v)
        self.assertEqual((out.shape, out.dtype), ((2, 4, 9, 8), np.float32))
        self.close(out, reference(self.q, self.k, self.v)[0])

    def test_blhd_is_the_same_bits(self):
        moved = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (self.q, self.k, self.v)]
        out = mha.attention(*moved, layout="blhd")
        self.assertTrue(np.array_equal(out.swapaxes(1, 2), mha.attention(self.q, self.k, self.v)))

    def test_any_strides(self):
        q = np.asfortranarray(self.q)[:, ::-1, ::2]
        self.close(mha.attention(q, self.k, self.v), reference(q, self.k, self.v)[0])

    def test_f64(self):
        q, k, v = (x.astype(np.float64) for x in (self.q, self.k, self.v))
        out = mha.attention(q, k, v, return_lse=True)
        self.assertEqual((out.out.dtype, out.lse.dtype), (np.float64, np.float64))
        self.close(out.out, reference(q, k, v)[0], 1e-14)

    def test_halves(self):
        q, k, v = (x.astype(np.float16) for x in (self.q, self.k, self.v))
        want = reference(q, k, v)[0]
        out = mha.attention(q, k, v, return_lse=True)
        self.assertEqual((out.out.dtype, out.lse.dtype), (np.float16, np.float32))
        self.close(out.out, want, np.abs(want).max() * 2.0 ** -11 + 2e-6)
        mixed = mha.attention(q.astype(np.float32), k, v)
        self.assertEqual(mixed.dtype, np.float32)
        self.close(mixed, want)

    def test_everything_asked_for(self):
        r = mha.attention(self.q, self.k, self.v, return_lse=True, return_probs=True)
        self.assertEqual((r.lse.shape, r.probs.shape), ((2, 4, 9), (2, 4, 9, 13)))
        self.close(r.probs, reference(self.q, self.k, self.v)[1])
        self.assertIsNone(r.stats)

    def test_statistics(self):
        r = mha.attention(self.q, self.k, self.v, return_probs=True, return_stats=True, top_keys=3, align="top_left")
        p = r.probs.astype(np.float64)
        self.close(r.stats["row_entropy"], -(p * np.log2(p)).sum(-1))
        self.assertTrue(np.array_equal(r.stats["row_max"], r.probs.max(-1)))
        self.assertTrue(np.array_equal(r.stats["row_argmax"], r.probs.argmax(-1)))
        self.close(r.stats["row_distance"], (p * np.abs(np.arange(9)[:, None] - np.arange(13))).sum(-1), 1e-5)
        self.close(r.stats["received"], p.sum(2))
        order = np.argsort(-r.probs, -1, kind="stable")[..., :3]
        self.assertTrue(np.array_equal(r.stats["top_key"], order))
        self.assertTrue(np.array_equal(r.stats["top_prob"], np.take_along_axis(r.probs, order, -1)))

    def test_statistics_of_packed_sequences(self):
        flat = [np.concatenate([x[0].swapaxes(0, 1)[:n], x[1].swapaxes(0, 1)[:m]]) for x, n, m in (
            (self.q, 5, 9), (self.k, 13, 7), (self.v, 13, 7))]
        packed = mha.attention(*flat, return_stats=True, cu_seqlens_q=[0, 5, 14], cu_seqlens_k=[0, 13, 20])
        one = mha.attention(self.q[:1, :, :5], self.k[:1], self.v[:1], return_stats=True)
        two = mha.attention(self.q[1:], self.k[1:, :, :7], self.v[1:, :, :7], return_stats=True)
        for name, x in packed.stats.items():
            self.assertTrue(np.array_equal(x, np.concatenate([one.stats[name][0], two.stats[name][0]], -1)), name)

    def test_masks(self):
        i, j = np.arange(9)[:, None], np.arange(13)
        keep = np.random.default_rng(1).random((2, 1, 9, 13)) < 0.7
        out = mha.attention(self.q, self.k, self.v, causal=True, align="bottom_right", window=(3, -1), keep=keep,
                            kv_lens=[13, 11])
        for b, n in enumerate((13, 11)):
            p = i + n - 9
            allow = (j <= p) & (j >= p - 3) & (j < n) & keep[b:b + 1]
            self.close(out[b:b + 1], reference(self.q[b:b + 1], self.k[b:b + 1], self.v[b:b + 1], allow)[0])

    def test_short_keep_masks_the_rest(self):
        keep = np.ones((9, 5), bool)
        self.close(mha.attention(self.q, self.k, self.v, keep=keep),
                   reference(self.q, self.k, self.v, np.arange(13) < 5)[0])

    def test_prefix(self):
        i, j = np.arange(9)[:, None], np.arange(13)
        out = mha.attention(self.q, self.k, self.v, causal=True, align="top_left", window=(2, -1), prefix_lens=[3, 0])
        for b, n in enumerate((3, 0)):
            allow = ((j <= i) & (j >= i - 2)) | (j < n)
            self.close(out[b:b + 1], reference(self.q[b:b + 1], self.k[b:b + 1], self.v[b:b + 1], allow)[0])

    def test_block_keep(self):
        blocks = np.random.default_rng(3).random((4, 3, 4)) < 0.6
        keep = blocks.repeat(4, 1).repeat(4, 2)[:, :9, :13]
        out = mha.attention(self.q, self.k, self.v, block_keep=blocks, block_size=(4, 4))
        self.close(out, reference(self.q, self.k, self.v, keep)[0])
        out = mha.attention(self.q, self.k, self.v, block_keep=blocks[:1], block_size=(4, 4))
        self.close(out, reference(self.q, self.k, self.v, keep[:1])[0])

    def test_packed(self):
        rng = np.random.default_rng(5)
        cu_q, cu_k = np.array([0, 4, 4, 9]), np.array([0, 7, 8, 13])
        q, k, v = (rng.standard_normal((n, h, 8), dtype=np.float32) for n, h in ((9, 4), (13, 2), (13, 2)))
        r = mha.attention(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, causal=True, align="bottom_right",
                          return_lse=True)
        self.assertEqual((r.out.shape, r.lse.shape), ((9, 4, 8), (4, 9)))
        for n in range(3):
            rows, keys = slice(cu_q[n], cu_q[n + 1]), slice(cu_k[n], cu_k[n + 1])
            alone = [x.swapaxes(0, 1)[None] for x in (q[rows], k[keys], v[keys])]
            a = mha.attention(*alone, causal=True, align="bottom_right", return_lse=True)
            self.assertTrue(np.array_equal(r.out[rows], a.out[0].swapaxes(0, 1)))
            self.assertTrue(np.array_equal(r.lse[:, rows], a.lse[0]))

    def test_packed_masks_and_maps(self):
        rng = np.random.default_rng(8)
        cu_q, cu_k = [0, 4, 4, 9], [0, 7, 8, 14]
        q, k, v = (rng.standard_normal((n, h, 8), dtype=np.float32) for n, h in ((9, 4), (14, 2), (14, 2)))
        keep, bias = rng.random((3, 1, 5, 7)) < 0.7, rng.standard_normal((1, 5, 7), dtype=np.float32)
        r = mha.attention(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, keep=keep, bias=bias, return_probs=True,
                          scores="biased")
        self.assertEqual((r.probs.shape, r.scores.shape), ((3, 4, 5, 7), (3, 4, 5, 7)))
        for n in range(3):
            rows, keys = cu_q[n + 1] - cu_q[n], cu_k[n + 1] - cu_k[n]
            alone = [x[cu[n]:cu[n + 1]].swapaxes(0, 1)[None] for x, cu in ((q, cu_q), (k, cu_k), (v, cu_k))]
            out, p = reference(*alone, keep[n, :, :rows, :keys], bias=bias[:, :rows, :keys])
            self.close(r.out[cu_q[n]:cu_q[n + 1]], out[0].swapaxes(0, 1)) if rows else None
            self.close(r.probs[n], np.pad(p[0], ((0, 0), (0, 5 - rows), (0, 7 - keys))))

    def test_packed_queries_on_pages(self):
        k, v = (np.full((4, 2, 16, x.shape[3]), np.nan, np.float32) for x in (self.k, self.v))
        k[2, :, :13], k[0, :, :7] = self.k[0], self.k[1, :, :7]
        v[2, :, :13], v[0, :, :7] = self.v[0], self.v[1, :, :7]
        q = np.concatenate([self.q[0, :, :4], self.q[1]], 1).swapaxes(0, 1)
        how = {"kv_lens": [13, 7], "causal": True, "align": "bottom_right", "return_stats": True}
        r = mha.attention(q, k, v, cu_seqlens_q=[0, 4, 13], block_table=[[2], [0]], **how)
        whole = mha.attention(self.q, self.k, self.v, q_lens=[4, 9], **how)
        self.assertTrue(np.array_equal(r.out[:4], whole.out[0, :, :4].swapaxes(0, 1)))
        self.assertTrue(np.array_equal(r.out[4:], whole.out[1].swapaxes(0, 1)))
        self.assertTrue(np.array_equal(r.stats["received"][:, :, :13], whole.stats["received"]))
        self.assertTrue(np.array_equal(r.stats["row_max"][:, 4:], whole.stats["row_max"][1]))

    def test_chosen_maps(self):
        whole = mha.attention(self.q, self.k, self.v, return_probs=True, scores="raw")
        r = mha.attention(self.q, self.k, self.v, return_probs=True, scores="raw", map_heads=[3, 0], map_rows=[-1, 0, 4])
        self.assertTrue(np.array_equal(r.probs, whole.probs[:, [3, 0]][:, :, [-1, 0, 4]]))
        self.assertTrue(np.array_equal(r.scores, whole.scores[:, [3, 0]][:, :, [-1, 0, 4]]))
        r = mha.attention(self.q, self.k, self.v, return_probs=True, map_rows=[[1], [8]], q_lens=[9, 5])
        self.assertTrue(np.array_equal(r.probs[0], whole.probs[0, :, 1:2]))
        self.assertEqual(float(r.probs[1].max()), 0)  # row 8 is beyond the 5 queries of sequence 1
        plan = mha.attention_plan(self.q, self.k, self.v, return_probs=True, map_rows=range(2), scores="probs")
        self.assertIn("probs", plan["outputs"])

    def test_heads(self):
        whole = mha.attention(self.q, self.k, self.v, return_lse=True, return_probs=True)
        r = mha.attention(self.q, self.k, self.v, heads=[3, 0], return_lse=True, return_probs=True)
        for got, all_ in zip(r[:3], whole):
            self.assertTrue(np.array_equal(got, all_[:, [3, 0]]))

    def test_scores(self):
        q, k = self.q.astype(np.float64), self.k.astype(np.float64).repeat(2, 1)
        raw = q @ k.swapaxes(-1, -2) / 4
        bias = np.random.default_rng(6).standard_normal((9, 13), dtype=np.float32)
        keep = np.arange(13) < 7
        biased = np.where(keep, 2 * np.tanh(raw / 2) + bias, -np.inf)
        p = np.exp(biased - biased.max(-1, keepdims=True))
        wanted = {"raw": raw, "softcapped": 2 * np.tanh(raw / 2), "biased": biased, "probs": p / p.sum(-1, keepdims=True)}
        for stage, want in wanted.items():
            got = mha.attention(self.q, self.k, self.v, softcap=2.0, bias=bias, keep=keep, scores=stage).scores
            self.assertTrue(np.allclose(got, want, rtol=0, atol=5e-6), stage)

    def test_dropout(self):
        ones = np.ones((2, 2, 13, 8), np.float32)
        a, b, other = (mha.attention(self.q, self.k, ones, dropout=0.25, seed=s, return_probs=True) for s in (1, 1, 2))
        self.assertTrue(np.array_equal(a.out, b.out))
        self.assertFalse(np.array_equal(a.out, other.out))
        self.close(a.probs, reference(self.q, self.k, self.v)[1])
        self.assertLess(abs(float(a.out.mean()) - 1), 0.15)  # kept weights are multiplied by 1 / (1 - p), so that the mean is unchanged
        self.assertEqual(float(np.abs(mha.attention(self.q, self.k, self.v, dropout=1.0)).max()), 0)
        kept = np.random.default_rng(4).random((2, 1, 9, 13)) < 0.5
        out = mha.attention(self.q, self.k, self.v, dropout=0.5, dropout_keep=kept)
        self.close(out, (a.probs.astype(np.float64) * kept * 2) @ self.v.astype(np.float64).repeat(2, 1))

    def test_slopes_sinks_gates(self):
        rng = np.random.default_rng(2)
        slopes, sinks, gates = 0.1 * rng.random(4), rng.standard_normal(4), rng.standard_normal((2, 4))
        r = mha.attention(self.q, self.k, self.v, align="bottom_right", slopes=slopes, sinks=sinks, gates=gates,
                          return_probs=True)
        distance = np.abs(np.arange(9)[:, None] + 4 - np.arange(13))
        p = reference(self.q, self.k, self.v, bias=-slopes[:, None, None] * distance, sinks=sinks)[1]
        self.close(r.probs, p)
        self.close(r.out, p @ self.v.astype(np.float64).repeat(2, 1) * gates[..., None, None])

    def test_offsets_are_align(self):
        a = mha.attention(self.q, self.k, self.v, causal=True, offsets=np.array([4, 4]))
        self.assertTrue(np.array_equal(a, mha.attention(self.q, self.k, self.v, causal=True, align="bottom_right")))

    def test_threads_do_not_change_bits(self):
        a = [mha.attention(self.q, self.k, self.v, threads=n) for n in (1, 2, 3)]
        self.assertTrue(all(np.array_equal(a[0], x) for x in a))

    def test_many_callers(self):
        want = mha.attention(self.q, self.k, self.v)
        same = []
        callers = [threading.Thread(target=lambda: same.append(
            np.array_equal(want, mha.attention(self.q, self.k, self.v)))) for _ in range(8)]
        for c in callers:
            c.start()
        for c in callers:
            c.join()
        self.assertEqual(same, [True] * 8)

    def test_plan(self):
        plan = mha.attention_plan(self.q, self.k, self.v, causal=True, align="top_left")
        # all ISAs, oldest first; mha.isa() is the newest one that may be used
        older = ["scalar", "neon", "wasm128", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx"]
        self.assertIn(plan["isa"], older[:older.index(mha.isa()) + 1])
        self.assertLessEqual({"kernel", "isa", "workspace", "flops", "bytes", "refused"}, plan.keys())
        self.assertGreater(plan["flops"], 0)

    def test_isa(self):
        before = mha.isa()
        mha.set_isa("scalar")
        self.assertEqual(mha.isa(), "scalar")
        self.close(mha.attention(self.q, self.k, self.v), reference(self.q, self.k, self.v)[0])
        mha.set_isa(None)
        self.assertEqual(mha.isa(), before)
        with self.assertRaisesRegex(ValueError, "sse9"):
            mha.set_isa("sse9")
        self.assertEqual(mha.isa(), before)

    def test_pages(self):
        whole = mha.attention(self.q, self.k, self.v, kv_lens=[13, 7])
        k, v = (np.full((5, 2, 16, x.shape[3]), np.nan, np.float32) for x in (self.k, self.v))
        k[3, :, :13], k[1, :, :7] = self.k[0], self.k[1, :, :7]
        v[3, :, :13], v[1, :, :7] = self.v[0], self.v[1, :, :7]
        out = mha.attention(self.q, k, v, block_table=[[3], [1]], kv_lens=[13, 7])
        self.assertTrue(np.array_equal(out, whole))
        self.assertEqual(float(np.abs(mha.attention(self.q, k, v, block_table=[[3], [-1]], kv_lens=[13, 7])[1]).max()), 0)


class Refusals(unittest.TestCase):
    q = np.zeros((1, 3, 4, 8), np.float32)

    def refuses(self, pattern, *arrays, **description):
        with self.assertRaisesRegex(ValueError, pattern):
            mha.attention(*(arrays or (self.q,) * 3), **description)

    def test_shapes(self):
        two = np.zeros((1, 2, 4, 8), np.float32)
        self.refuses("3.*2|2.*3", self.q, two, two)
        self.refuses("must agree in batch", self.q, self.q[:, :, :3], self.q)
        self.refuses("q.ndim must be 4", self.q[0], self.q, self.q)

    def test_types(self):
        self.refuses("int32", *(self.q.astype(np.int32),) * 3)
        self.refuses("same dtype", self.q, self.q.astype(np.float64), self.q)
        self.refuses("list", [1.0], self.q, self.q)

    def test_nothing_is_rounded_or_wrapped(self):
        self.refuses("heads must hold integers", heads=[0.7])
        self.refuses("heads must hold integers", heads=[True, False, True])
        self.refuses("heads must be from", heads=np.array([2**32]))
        self.refuses("heads.ndim must be 1", heads=[[0, 1], [1, 0]])
        self.refuses("map_rows must hold integers", return_probs=True, map_rows=[0.7])
        self.refuses("map_heads must be from", return_probs=True, map_heads=np.array([2**32]))
        self.refuses("kv_lens must be from", kv_lens=np.array([2**63], dtype=np.uint64))
        self.refuses("got 18446744073709551617", window=(2**64 + 1, 0), align="top_left")
        self.refuses("got 1.5", window=(1.5, 0), align="top_left")
        self.refuses("got 18446744073709551621", dropout=0.1, seed=2**64 + 5)
        self.refuses("softcap must be a number", softcap="a")
        self.refuses("block_size must be .rows, keys. .got 2", block_keep=np.ones((3, 2, 2), bool), block_size=2)
        self.refuses("block_keep", block_keep=np.ones((3, 2, 2), np.float32), block_size=(2, 2))

    def test_sizes_of_zero(self):
        self.refuses("heads of width at least 1", self.q, self.q, self.q[..., :0])
        self.refuses("heads of width at least 1", self.q, self.q[:, :0], self.q[:, :0])
        none = mha.attention(self.q, self.q, self.q, keep=np.ones((1, 1, 4, 4), bool)[..., :0])
        self.assertTrue((none == 0).all())

    def test_position_must_be_named(self):
        self.refuses("align", self.q[:, :, :2], self.q, self.q, causal=True)

    def test_values(self):
        self.refuses("window", window=(-2, 0))
        self.refuses(r"window must be \(left, right\) \(got \(3,\)\)", window=(3,))
        self.refuses("softcap", softcap=-1.0)
        self.refuses("scale", scale=float("nan"))
        self.refuses("kv_lens", kv_lens=[5])
        self.refuses("kv_lens", kv_lens=[1, 2])
        self.refuses("keep", keep=np.ones((2, 3, 5, 4), bool))
        self.refuses("align", align="middle", causal=True)
        self.refuses("layout", layout="hbld")
        self.refuses("scores", scores="final")
        self.refuses("dropout", dropout=1.5)
        self.refuses(r"top_keys must be .* \(got 33\)", return_stats=True, top_keys=33)
        self.refuses(r"head_list\[1\] must be .* \(got 3\)", heads=[0, 3])
        self.refuses("listed_heads", heads=[])
        flat = self.q[0].swapaxes(0, 1)
        self.refuses("together", flat, flat, flat, cu_seqlens_q=[0, 4])
        self.refuses(r"cu_seqlens_k\[1\] must be .* \(got 5\)", flat, flat, flat, cu_seqlens_q=[0, 4], cu_seqlens_k=[0, 5])
        self.refuses("keep", flat, flat, flat, cu_seqlens_q=[0, 4], cu_seqlens_k=[0, 4], keep=np.ones((4, 5), bool))
        self.refuses("together", flat, self.q, self.q, cu_seqlens_k=[0, 4], block_table=[[0]])
        self.refuses("together", flat, self.q, self.q, cu_seqlens_q=[0, 4], cu_seqlens_k=[0, 4], block_table=[[0]])
        self.refuses(r"map_heads\[0\] must be .* \(got 3\)", return_probs=True, map_heads=[3])
        self.refuses(r"map_rows\[0\]\[1\] must be .* \(got 4\)", return_probs=True, map_rows=[0, 4])
        self.refuses(r"map_rows must be .* \(got 0\)", return_probs=True, map_rows=[])
        self.refuses("map_rows must be of shape", return_probs=True, map_rows=[[0], [1]])
        self.refuses("MHA_ATTN_PROBS", map_rows=[0])
        self.refuses("prefix_lens", prefix_lens=[5])
        self.refuses("block_size", block_keep=np.ones((1, 1, 1), bool))
        self.refuses("block_size", block_keep=np.ones((1, 1, 1), bool), block_size=(0, 4))
        self.refuses("block_keep", block_keep=np.ones((2, 1, 1), bool), block_size=(4, 4))

    def test_tables_of_pages(self):
        q, k = np.zeros((2, 2, 3, 8), np.float32), np.zeros((5, 2, 16, 8), np.float32)
        self.refuses(r"block_table\[1\]\[0\] must be .* \(got 5\)", q, k, k, block_table=[[3], [5]])
        self.refuses("block_table", q, k, k, block_table=[3, 1])
        self.refuses("page_size", q, k[:, :, :13], k[:, :, :13], block_table=[[3], [1]])

    def test_nothing_is_ignored(self):
        self.refuses("causal must be one of False, True", causal="no")
        self.refuses(r"threads must be an integer", threads=1.5)
        self.refuses("threads must be an integer \\(got 'x'\\)", threads="x")
        self.refuses("got -1", threads=-1)
        self.refuses("got 4294967297", threads=2**32 + 1)
        self.refuses(r"block_size must be None unless block_keep is given \(got \(4, 4\)\)", block_size=(4, 4))
        self.refuses("top_keys must be 0 unless return_stats is True", top_keys=3)
        self.refuses("top_keys must be an integer", top_keys="x", return_stats=True)
        with self.assertRaisesRegex(ValueError, "top_keys must be 0 unless return_stats is True"):
            mha.attention_plan(self.q, self.q, self.q, top_keys=3)
        with self.assertRaisesRegex(ValueError, "got 1.5"):
            mha.set_threads(1.5)
        for name in ("slopes", "sinks", "gates"):
            self.refuses(f"{name} must hold real numbers .got complex128", **{name: np.ones(3) * 1j}, align="top_left")
            self.refuses(f"{name} must hold real numbers", **{name: "abc"}, align="top_left")
        for yes in (np.True_, 1):
            self.assertTrue((mha.attention(self.q, self.q, self.q, causal=yes) == 0).all())

    def test_what_was_given_is_named(self):
        self.refuses("keep must be of type bool", keep=np.ones((4, 4), np.float32))
        self.refuses("bias must be of a floating type", bias=np.ones((4, 4), bool))
        self.refuses("block_keep must be of type bool", block_keep=np.ones((1, 1, 1)), block_size=(4, 4))

    def test_names(self):
        self.assertIn("softcap", inspect.signature(mha.attention).parameters)
        with self.assertRaisesRegex(TypeError, "causl"):
            mha.attention(self.q, self.q, self.q, causl=True)


if __name__ == "__main__":
    unittest.main()
