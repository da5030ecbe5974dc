"""Tests mha.Functions: functions in Python and compiled ones, both passes, exceptions, and rejected arguments."""
import ctypes
import unittest

import numpy as np

import mha

SCORE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 5, ctypes.POINTER(ctypes.c_float))


def cap(s, b, h, i, j):
    return 5 * np.tanh(s / 5)


def cap_back(s, ds, b, h, i, j):
    return ds * (1 - np.tanh(s / 5) ** 2)


class FunctionsTest(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(3)
        self.q = rng.standard_normal((2, 4, 150, 16), dtype=np.float32)
        self.k, self.v = (rng.standard_normal((2, 2, 200, 16), dtype=np.float32) for _ in range(2))
        self.operands = self.q, self.k, self.v

    def test_mask(self):
        seen = []

        def block(b, h, i, rows, j, keys):
            seen.append((rows, keys))
            return "none" if j > i + rows - 1 else "all" if j + keys - 1 <= i else "some"

        causal = mha.Functions(keep=lambda b, h, i, j: j <= i, block=block)
        for align in ("top_left", "bottom_right"):
            want = mha.attention(*self.operands, causal=True, align=align)
            self.assertTrue(np.array_equal(mha.attention(*self.operands, functions=causal, align=align), want))
        self.assertTrue(all(1 <= rows <= 128 and 1 <= keys <= 128 for rows, keys in seen))

    def test_both_passes(self):
        for dtype in (np.float32, np.float64):
            q, k, v = (x.astype(dtype) for x in self.operands)
            functions = mha.Functions(score=cap, score_back=cap_back)
            results = []
            for d in ({"functions": functions, "align": "top_left"}, {"softcap": 5.0}):
                r = mha.attention(q, k, v, return_lse=True, bias=np.zeros((1, 1, 1, 200), dtype), **d)
                g = mha.attention_backward(np.ones_like(r.out), q, k, v, r.out, r.lse, bias=np.zeros((1, 1, 1, 200), dtype), **d)
                results.append((r.out, r.lse, g.dq, g.dk, g.dv, g.dbias))
            for x, y in zip(*results):
                np.testing.assert_allclose(x, y, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-12)

    def test_decode(self):
        alibi = mha.Functions(score=lambda s, b, h, i, j: s - abs(i - j).astype(s.dtype) / 4, score_added=True)
        whole = mha.attention(self.q, self.k, self.v, functions=alibi, align="bottom_right", threads=1)
        last = mha.attention(self.q[:, :, -1:], self.k, self.v, functions=alibi, align="bottom_right")
        self.assertTrue(np.array_equal(last, whole[:, :, -1:]))

    def test_compiled(self):
        @SCORE
        def double(user, b, h, i, j0, count, scores):
            for n in range(count):
                scores[n] *= 2

        want = mha.attention(*self.operands, scale=0.5)
        address = ctypes.cast(double, ctypes.c_void_p).value
        for function in (double, address):
            got = mha.attention(*self.operands, functions=mha.Functions(score=function), align="top_left", scale=0.25)
            self.assertTrue(np.array_equal(got, want))

    def test_user_pointer(self):
        @SCORE
        def scale(user, b, h, i, j0, count, scores):
            factor = ctypes.cast(user, ctypes.POINTER(ctypes.c_float))[h]
            for n in range(count):
                scores[n] *= factor

        factors = np.array([2, 2, 2, 2], np.float32)
        functions = mha.Functions(score=scale, user=factors.ctypes.data)
        with mha.Plan(*self.operands, functions=functions, align="top_left", scale=0.25) as plan:
            self.assertTrue(np.array_equal(plan(*self.operands), mha.attention(*self.operands, scale=0.5)))

    def test_exceptions(self):
        def fail(*_):
            raise KeyError("the function failed")

        cases = [{"score": fail}, {"keep": fail}, {"block": fail}, {"block": lambda *_: "many"}, {"score": lambda s, *_: np.ones(3)}]
        for given in cases:
            with self.assertRaises((KeyError, ValueError)):
                mha.attention(*self.operands, functions=mha.Functions(**given), align="top_left")
        functions = mha.Functions(score=cap, score_back=fail)
        r = mha.attention(*self.operands, functions=functions, align="top_left", return_lse=True)
        with self.assertRaises(KeyError):
            mha.attention_backward(r.out, *self.operands, r.out, r.lse, functions=functions, align="top_left")
        with mha.Plan(*self.operands, functions=mha.Functions(score=fail), align="top_left") as plan, self.assertRaises(KeyError):
            plan(*self.operands)

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "keep must be a function, a compiled callback or an address"):
            mha.Functions(keep="causal")
        with self.assertRaisesRegex(ValueError, "score must be a function, a compiled callback or an address .got bool"):
            mha.Functions(score=True)
        for null in (SCORE(), 0):
            with self.assertRaisesRegex(ValueError, "score must not be a null pointer"):
                mha.Functions(score=null)
        with self.assertRaisesRegex(ValueError, "functions must be of type mha.Functions"):
            mha.attention(*self.operands, functions=cap)
        with self.assertRaisesRegex(ValueError, "align must be set"):
            mha.attention(*self.operands, functions=mha.Functions(score=cap))
        with self.assertRaisesRegex(ValueError, "functions.score, keep or block must be set"):
            mha.attention(*self.operands, functions=mha.Functions(), align="top_left")
        r = mha.attention(*self.operands, return_lse=True)
        with self.assertRaisesRegex(ValueError, "score_back must be set in the backward pass"):
            mha.attention_backward(r.out, *self.operands, r.out, r.lse, functions=mha.Functions(score=cap), align="top_left")


def compiled_by(name):
    try:
        return __import__(name)
    except ImportError:
        return None


class Compilers(unittest.TestCase):
    """Callbacks of Numba and cffi, if they are installed."""

    def check(self, function):
        q = np.random.default_rng(3).standard_normal((1, 2, 40, 16), dtype=np.float32)
        got = mha.attention(q, q, q, functions=mha.Functions(score=function), scale=0.25)
        self.assertTrue(np.array_equal(got, mha.attention(q, q, q, scale=0.5)))

    @unittest.skipUnless(compiled_by("numba"), "Numba is not installed")
    def test_numba(self):
        from numba import cfunc, types

        @cfunc(types.void(types.voidptr, *[types.int64] * 5, types.CPointer(types.float32)))
        def double(user, b, h, i, j0, count, scores):
            for n in range(count):
                scores[n] *= 2

        self.check(double)

    @unittest.skipUnless(compiled_by("cffi"), "cffi is not installed")
    def test_cffi(self):
        from cffi import FFI

        ffi = FFI()

        @ffi.callback("void(void *, int64_t, int64_t, int64_t, int64_t, int64_t, float *)")
        def double(user, b, h, i, j0, count, scores):
            for n in range(count):
                scores[n] *= 2

        self.check(double)


if __name__ == "__main__":
    unittest.main()
