"""The conversions of KV caches in f8_e4m3 against ml_dtypes.float8_e4m3fn: rounding of appended elements, and all codes. Skipped without
ml_dtypes."""
import sys
import unittest

import numpy as np

try:
    from ml_dtypes import float8_e4m3fn
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import mha


def stored(x):
    """Returns the codes of x [L, D] in a cache."""
    with mha.Cache(1, 1, x.shape[1], dtype="f8_e4m3", page_size=16) as cache:
        cache.append(x[None, None], x[None, None])
        saved = cache.tensors()
        pages = saved["pages"][0]
        return saved["k"][pages[pages >= 0]].reshape(-1, x.shape[1])[:len(x)].view(np.uint8)


class Float8(unittest.TestCase):
    def test_rounding(self):
        """100,000 elements of all magnitudes, and the middles between two neighbors. Only overflow differs: the cache saturates."""
        rng = np.random.default_rng(5)
        codes = np.arange(0x7F, dtype=np.uint8).view(float8_e4m3fn).astype(np.float32)
        middles = (codes[1:] + codes[:-1]) / 2
        near = np.concatenate((codes, middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(1e9))))
        x = rng.standard_normal(100_000).astype(np.float32) * np.exp2(rng.uniform(-14, 9, 100_000)).astype(np.float32)
        x = np.concatenate((near, -near, x, np.zeros(-(2 * len(near) + len(x)) % 50, np.float32)))
        want = np.clip(x, -448, 448).astype(float8_e4m3fn).view(np.uint8)
        np.testing.assert_array_equal(stored(x.reshape(-1, 50)).reshape(-1), want)
        rare = np.array([[np.nan, np.inf, -np.inf, 1e30, -1e30, 464.1, -0.0, 1e-30]], np.float32)
        np.testing.assert_array_equal(stored(rare)[0] & 0x7F, [0x7F, 0x7F, 0x7F, 0x7E, 0x7E, 0x7E, 0, 0])

    def test_codes(self):
        """The output of a query on one key is the value of this key, exactly; all codes, loaded as tensors."""
        codes = np.arange(256, dtype=np.uint8).reshape(8, 32)
        want = codes.view(float8_e4m3fn).astype(np.float32)
        with mha.Cache(8, 1, 32, dtype="f8_e4m3", page_size=16) as cache:
            cache.append(*[np.ones((8, 1, 1, 32), np.float32)] * 2)
            saved = cache.tensors()
            for b in range(8):
                saved["v"][saved["pages"][b, 0], 0, 0] = codes[b].view(np.int8)
            cache.load(saved)
            np.testing.assert_array_equal(cache.attention(np.ones((8, 1, 1, 32), np.float32))[:, 0, 0], want)


if __name__ == "__main__":
    unittest.main()
