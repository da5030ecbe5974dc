"""mha.Plan must be bitwise identical to mha.attention, reject operands of another shape or type, and be usable by several threads. The
plans that mha.attention caches must not change its results. Calls must release the interpreter lock."""
import copy
import gc
import os
import pickle
import re
import threading
import time
import unittest
import weakref

import mha
import numpy as np


def arrays(*shapes, dtype=np.float32, seed=0):
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(shape).astype(dtype) for shape in shapes]


HEADER = os.path.join(os.path.dirname(__file__), "..", "..", "include", "mha", "attn.h")


class Descriptions(unittest.TestCase):
    def _keys(self, value):
        """Returns the keys of an object and of all objects in it."""
        if isinstance(value, list):
            return set().union(*(self._keys(x) for x in value)) if value else set()
        return set(value).union(*(self._keys(x) for x in value.values())) if isinstance(value, dict) else set()

    def test_keys_are_those_of_the_header(self):
        """attn.h documents the keys as a table, in which an object is followed by its keys."""
        with open(HEADER, encoding="utf-8") as file:
            table = re.search(r"key +type or unit +meaning\n(.*?) \*/\nMHA_API size_t mha_attn_plan_describe", file.read(), re.S)
        rows = re.findall(r"^ \*     +((?:[a-z_]+, )*[a-z_]+) {2,}\S", table[1], re.M)
        documented = {key for row in rows for key in row.split(", ")}
        q, = arrays((1, 2, 4, 8))
        more = dict(return_lse=True, return_probs=True, return_stats=True, top_keys=2, scores="raw")
        found = self._keys(mha.attention_plan(q, q, q, **more))
        self.assertEqual(found, documented | {"lse", "stats"})  # which the row of `out` names


class Plans(unittest.TestCase):
    def same(self, got, want):
        np.testing.assert_array_equal(got, want)

    def test_equals_attention(self):
        for dtype in np.float32, np.float16, np.float64:
            q, k, v = arrays((2, 4, 7, 16), (2, 2, 9, 16), (2, 2, 9, 8), dtype=dtype)
            want = mha.attention(q, k, v, causal=True, align="bottom_right", scale=0.3, return_probs=True)
            plan = mha.Plan(q, k, v, causal=True, align="bottom_right", scale=0.3)
            for _ in range(3):
                self.same(plan(q, k, v), want.out)
            q2, k2, v2 = arrays(q.shape, k.shape, v.shape, dtype=dtype, seed=1)
            other = mha.attention(q2, k2, v2, causal=True, align="bottom_right", scale=0.3, return_probs=True).out
            self.same(plan(q2, k2, v2), other)
            self.same(plan(q, k, v), want.out)
            out = np.empty_like(other)
            self.assertIs(plan(q2, k2, v2, out=out), out)
            self.same(out, other)

    def test_values_change_in_place(self):
        q, = arrays((1, 2, 5, 8))
        keep = np.ones((5, 5), bool)
        plan = mha.Plan(q, q, q, keep=keep)
        self.same(plan(q, q, q), mha.attention(q, q, q, keep=keep))
        q *= 2
        keep[:, 3] = False
        self.same(plan(q, q, q), mha.attention(q, q, q, keep=keep))

    def test_more_results(self):
        q, k = arrays((2, 3, 6, 8), (2, 3, 11, 8))
        more = dict(return_lse=True, return_probs=True, return_stats=True, top_keys=2, scores="raw")
        want = mha.attention(q, k, k, **more)
        plan = mha.Plan(q, k, k, **more)
        first, second = plan(q, k, k), plan(k[:, :, :6].copy(), k, k)
        for got, expected in ((first, want), (second, mha.attention(k[:, :, :6].copy(), k, k, **more))):
            for name in "out", "lse", "probs", "scores":
                self.same(getattr(got, name), getattr(expected, name))
            for name, x in expected.stats.items():
                self.same(got.stats[name], x)

    def test_packed(self):
        q, = arrays((9, 2, 8))
        ends = [0, 4, 9]
        want = mha.attention(q, q, q, cu_seqlens_q=ends, cu_seqlens_k=ends, causal=True, return_lse=True)
        got = mha.Plan(q, q, q, cu_seqlens_q=ends, cu_seqlens_k=ends, causal=True, return_lse=True)(q, q, q)
        self.same(got.out, want.out)
        self.same(got.lse, want.lse)

    def test_layouts_and_strides(self):
        q, = arrays((2, 6, 3, 8))
        view = q.transpose(0, 2, 1, 3)
        want = mha.attention(q, q, q, layout="blhd", return_probs=True).out
        self.same(mha.Plan(q, q, q, layout="blhd")(q, q, q), want)
        plan = mha.Plan(view, view, view)
        self.same(plan(view, view, view), want.transpose(0, 2, 1, 3))
        other = q.copy()
        self.same(plan(view, other.transpose(0, 2, 1, 3), view), want.transpose(0, 2, 1, 3))
        frozen = q.copy()
        frozen.flags.writeable = False
        self.same(mha.Plan(q, q, q, layout="blhd")(frozen, q, q), want)

    def test_expanded_scalars(self):
        """An array expanded from one element has only zero strides, and is copied at each call."""
        q, k, v = (np.broadcast_to(np.float32(x), (1, 2, n, 8)) for x, n in ((0.5, 5), (1.5, 7), (2, 7)))
        dense = [np.array(x) for x in (q, k, v)]
        want = mha.attention(*dense, return_probs=True).out
        for plan in mha.Plan(q, k, v), mha.Plan(*dense):
            for _ in range(2):
                self.same(plan(q, k, v), want)
                self.same(plan(*dense), want)
        with self.assertRaisesRegex(ValueError, "^out must have the strides"):
            mha.Plan(q, k, v)(q, k, v, out=np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), q.shape, (0, 0, 0, 0)))

    def test_refuses(self):
        q, k, wide = arrays((2, 3, 6, 8), (2, 3, 11, 8), (2, 3, 6, 16))
        plan = mha.Plan(q, k, k)
        with self.assertRaisesRegex(ValueError, r"^k must be of the shape and dtype that the plan was made for, \(2, 3, 11, 8\)"):
            plan(q, q, k)
        with self.assertRaisesRegex(ValueError, r"of float32 \(got \(2, 3, 6, 8\) of float64\)"):
            plan(q.astype(np.float64), k, k)
        with self.assertRaisesRegex(ValueError, "q must have the strides"):
            plan(wide[..., ::2], k, k)
        with self.assertRaisesRegex(ValueError, "^out must be of the shape"):
            plan(q, k, k, out=k)
        frozen = np.empty_like(q)
        frozen.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "^out must be writable"):
            plan(q, k, k, out=frozen)
        with self.assertRaisesRegex(ValueError, "overlap"):
            plan(q, k, k, out=k.reshape(-1)[:q.size].reshape(q.shape))
        self.same(plan(q, k, k), mha.attention(q, k, k, return_probs=True).out)
        with self.assertRaisesRegex(ValueError, "align must be set"):
            mha.Plan(q, k, k, causal=True)
        with self.assertRaisesRegex(TypeError, "no_such"):
            mha.Plan(q, k, k, no_such=1)

    def test_closes(self):
        q, = arrays((1, 1, 4, 8))
        with mha.Plan(q, q, q) as plan:
            plan(q, q, q)
        plan.close()
        for use in (lambda: plan(q, q, q), plan.describe):
            with self.assertRaisesRegex(ValueError, "mha.Plan is closed"):
                use()

    def test_is_not_copied(self):
        plan = mha.Plan(*[np.ones((1, 2, 4, 8), np.float32)] * 3)
        for make in copy.copy, copy.deepcopy, pickle.dumps:
            with self.assertRaisesRegex(TypeError, "mha.Plan cannot be copied or pickled"):
                make(plan)

    def test_threads_share(self):
        q, = arrays((1, 4, 64, 32))
        plan, wrong = mha.Plan(q, q, q), []
        inputs = [q * n for n in range(1, 5)]
        wants = [mha.attention(x, q, q, return_probs=True).out for x in inputs]

        def work(x, want):
            for _ in range(50):
                if not (plan(x, q, q) == want).all() or not (mha.attention(x, q, q) == want).all():
                    wrong.append(1)

        threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, wants)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


class Kept(unittest.TestCase):
    """Tests the plans that mha.attention caches, which calls with return_probs=True do not use."""

    def test_values_and_options(self):
        for seed in range(80):  # more plans than the cache can contain
            q, = arrays((1, 2, 3 + seed % 40, 8), seed=seed)
            for causal in False, True:
                for scale in None, 0.5:
                    want = mha.attention(q, q, q, causal=causal, scale=scale, return_lse=True, return_probs=True)
                    np.testing.assert_array_equal(mha.attention(q, q, q, causal=causal, scale=scale), want.out)
                    got = mha.attention(q, q, q, causal=causal, scale=scale, return_lse=True)
                    np.testing.assert_array_equal(got.out, want.out)
                    np.testing.assert_array_equal(got.lse, want.lse)
                    self.assertEqual(got[2:], (None, None, None))

    def test_expanded_scalars(self):
        q, k, v = (np.broadcast_to(np.float32(x), (1, 2, n, 8)) for x, n in ((0.5, 5), (1.5, 7), (2, 7)))
        for _ in range(3):
            np.testing.assert_array_equal(mha.attention(q, k, v), np.full(q.shape, 2, np.float32))

    def test_lse_of_packed_sequences(self):
        q, = arrays((9, 2, 8))
        more = dict(cu_seqlens_q=(0, 4, 9), cu_seqlens_k=(0, 4, 9), return_lse=True)
        want = mha.attention(q, q, q, **more, return_stats=True)
        for _ in range(2):
            got = mha.attention(q, q, q, **more)
            np.testing.assert_array_equal(got.out, want.out)
            np.testing.assert_array_equal(got.lse, want.lse)

    def test_errors_stay(self):
        q, k = arrays((1, 2, 3, 8), (1, 2, 5, 8))
        for _ in range(2):
            with self.assertRaisesRegex(ValueError, "align must be set"):
                mha.attention(q, k, k, causal=True)
            with self.assertRaisesRegex(ValueError, "causal must be one of"):
                mha.attention(q, q, q, causal=2)
            with self.assertRaisesRegex(ValueError, r"q.dtype must be one of .* \(got >f4\)"):
                mha.attention(q.astype(">f4"), q, q)

    def test_holds_nothing(self):
        q, = arrays((1, 2, 3, 8))
        alive = weakref.ref(q)
        out = weakref.ref(mha.attention(q, q, q))
        lse = weakref.ref(mha.attention(q, q, q, return_lse=True).lse)
        del q
        gc.collect()
        for reference in alive, out, lse:
            self.assertIsNone(reference())

    def test_settings(self):
        q, = arrays((1, 2, 33, 8))
        want = mha.attention(q, q, q)
        try:
            mha.set_isa("scalar")
            np.testing.assert_allclose(mha.attention(q, q, q), want, atol=1e-5)
            mha.set_isa(None)
            np.testing.assert_array_equal(mha.attention(q, q, q, threads=1), want)
        finally:
            mha.set_isa(None)


class Lock(unittest.TestCase):
    def progress(self, work):
        """Returns how often another thread can increment a counter while `work` runs, and the seconds of `work`."""
        counts, stop = [0], threading.Event()

        def count():
            while not stop.is_set():
                counts[0] += 1
                time.sleep(0)

        counter = threading.Thread(target=count)
        counter.start()
        start, before = time.perf_counter(), counts[0]
        work()
        made, seconds = counts[0] - before, time.perf_counter() - start
        stop.set()
        counter.join()
        return made, seconds

    def test_released(self):
        q, = arrays((1, 8, 2048, 64))
        plan = mha.Plan(q, q, q, threads=1)
        for work in (lambda: mha.attention(q, q, q, threads=1), lambda: plan(q, q, q),
                     lambda: mha.attention(q, q, q, threads=1, return_lse=True)):
            made, seconds = self.progress(work)
            self.assertGreater(made, 100, f"another thread must not be blocked (got {seconds:.3f} s)")


class Merge(unittest.TestCase):
    def test_merge(self):
        for dtype in np.float32, np.float64:
            q, k, v = arrays((2, 4, 5, 16), (2, 4, 12, 16), (2, 4, 12, 8), dtype=dtype)
            want = mha.attention(q, k, v, return_lse=True)
            parts = [mha.attention(q, k[:, :, s], v[:, :, s], return_lse=True)[:2] for s in (slice(0, 3), slice(3, 4), slice(4, 12))]
            out, lse = mha.attn_merge(parts)
            self.assertEqual(out.dtype, dtype)
            np.testing.assert_allclose(out, want.out, atol=2e-6)
            np.testing.assert_allclose(lse, want.lse, atol=2e-6)
        with self.assertRaisesRegex(ValueError, "parts must not be empty"):
            mha.attn_merge([])
        with self.assertRaisesRegex(ValueError, r"parts\[1\] must be of shapes"):
            mha.attn_merge([parts[0], (parts[1][0][:1], parts[1][1])])
        with self.assertRaisesRegex(ValueError, r"parts\[1\] must be of float32 or float64"):
            mha.attn_merge([parts[0], tuple(x.astype(np.float32) for x in parts[1])])


class Caches(unittest.TestCase):
    def test_decoding(self):
        x, q = arrays((2, 2, 20, 16), (2, 4, 20, 16))
        want = mha.attention(q, x, x, causal=True, scale=0.2, return_lse=True)
        with mha.Cache(2, 2, 16, page_size=16) as cache:
            cache.append(x[:, :, :5], x[:, :, :5])
            out = [cache.attention(q[:, :, :5], scale=0.2)]
            for i in range(5, 20):
                cache.append(x[:, :, i:i + 1], x[:, :, i:i + 1])
                got = cache.attention(q[:, :, i:i + 1], scale=0.2, return_lse=True)
                out.append(got.out)
                np.testing.assert_array_equal(got.lse, want.lse[:, :, i:i + 1])
            np.testing.assert_array_equal(np.concatenate(out, axis=2), want.out)
            self.assertEqual((cache.lengths, cache.pages > 0, cache.bytes > 0), ([20, 20], True, True))

    def test_forks_and_one_sequence(self):
        x, = arrays((1, 1, 8, 8))
        with mha.Cache(3, 1, 8) as cache:
            cache.append(x, x, sequence=1)
            cache.fork(1, 2, 5)
            self.assertEqual(cache.lengths, [0, 8, 5])
            want = mha.attention(x[:, :, 4:5], x[:, :, :5], x[:, :, :5])
            np.testing.assert_array_equal(cache.attention(x[:, :, 4:5], sequence=2), want)
            cache.truncate(2, sequence=1)
            cache.truncate(4)
            self.assertEqual(cache.lengths, [0, 2, 4])
            cache.clear(sequence=2)
            self.assertEqual(cache.lengths, [0, 2, 0])
            with self.assertRaisesRegex(IndexError, "sequence must be from 0 to 2"):
                cache.length(3)

    def test_truncates_all_or_none(self):
        x, = arrays((1, 1, 40, 8))
        with mha.Cache(2, 1, 8, page_size=16, window=4) as cache:
            cache.append(x[:, :, :6], x[:, :, :6], sequence=0)
            cache.append(x, x, sequence=1)
            cache.append(x, x, sequence=1)  # drops the keys before the window
            with self.assertRaisesRegex(ValueError, "position must not require dropped keys .*in sequence 1"):
                cache.truncate(5)
            self.assertEqual(cache.lengths, [6, 80])
            with self.assertRaisesRegex(ValueError, "length must be from 0 to 6"):
                cache.truncate(-1)
            cache.truncate(79)
            self.assertEqual(cache.lengths, [6, 79])

    def test_types_and_storing(self):
        x, = arrays((2, 2, 6, 32))
        for dtype, tolerance in ("f32", 0), ("f16", 2e-3), ("bf16", 2e-2), ("q8_0", 3e-2), ("f8_e4m3", 0.3), ("q4_0", 0.6):
            cache = mha.Cache(2, 2, 32, dtype=dtype)
            cache.append(x, x, counts=[6, 4])
            out = cache.attention(x[:, :, 5:], q_lens=[1, 1])
            want = mha.attention(x[:1, :, 5:], x[:1], x[:1])
            np.testing.assert_allclose(out[:1], want, atol=tolerance)
            again = mha.Cache(2, 2, 32, dtype=dtype)
            again.load(cache.tensors())
            self.assertEqual(again.lengths, [6, 4])
            np.testing.assert_array_equal(again.attention(x[:, :, 5:], q_lens=[1, 1]), out)

    def test_refuses(self):
        x, = arrays((2, 2, 6, 8))
        cache = mha.Cache(2, 2, 8)
        with self.assertRaisesRegex(ValueError, r"k must be of shape \(1, 2, 6, 8\)"):
            cache.append(x, x, sequence=0)
        with self.assertRaisesRegex(ValueError, "dtype must be one of"):
            mha.Cache(1, 1, 8, dtype="int4")
        with self.assertRaisesRegex(ValueError, "q must be of shape"):
            cache.attention(x[:, :1])
        cache.close()
        with self.assertRaisesRegex(ValueError, "mha.Cache is closed"):
            cache.append(x, x)


class Ropes(unittest.TestCase):
    def test_formula(self):
        x, = arrays((2, 3, 5, 8))
        positions = np.array([[0, 1, 2, 3, 4], [7, 9, 11, 2, 0]])
        rope = mha.Rope(8, rotary_dim=6, theta=100.0)
        f, gain = rope.frequencies()
        np.testing.assert_allclose(f, 100.0 ** (-2 * np.arange(3) / 6))
        self.assertEqual(gain, 1)
        angle = (positions[:, :, None] * f)[:, None]
        want = x.astype(np.float64)
        a, b = want[..., :3].copy(), want[..., 3:6].copy()
        want[..., :3], want[..., 3:6] = a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)
        np.testing.assert_allclose(rope.turn(x, positions), want, atol=1e-6)
        swapped = rope.turn(x.transpose(0, 2, 1, 3), positions, layout="blhd")
        np.testing.assert_array_equal(swapped, rope.turn(x, positions).transpose(0, 2, 1, 3))
        np.testing.assert_allclose(rope.turn(rope.turn(x, positions), positions, back=True), x, atol=1e-6)

    def test_scalings(self):
        plain, _ = mha.Rope(8).frequencies()
        np.testing.assert_allclose(mha.Rope(8, kind="linear", factor=4).frequencies()[0], plain / 4)
        f, gain = mha.Rope(8, kind="longrope", short_by=[1, 2, 3, 4], long_by=[5, 6, 7, 8], original_positions=16,
                           max_positions=64).frequencies(32)
        np.testing.assert_allclose(f, plain / [5, 6, 7, 8])
        self.assertGreater(gain, 1)
        for wrong, sentence in (dict(kind="linear"), "factor"), (dict(kind="odd"), "kind must be one of"), (dict(theta=-1), "theta"):
            with self.assertRaisesRegex(ValueError, sentence):
                mha.Rope(8, **wrong)
        with self.assertRaisesRegex(TypeError, "thheta"):
            mha.Rope(8, thheta=1)


if __name__ == "__main__":
    unittest.main()
