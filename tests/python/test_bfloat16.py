"""mha.attention, its gradients and plans, and mha.Linear on arrays of ml_dtypes.bfloat16: the results have the bits of PyTorch tensors of
bfloat16, or, without PyTorch, of the rounded float32 result. Skipped without ml_dtypes."""
import sys
import unittest

import numpy as np

try:
    from ml_dtypes import bfloat16
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import mha


class Bfloat16(unittest.TestCase):
    def setUp(self):
        wide = np.random.default_rng(3).standard_normal((1, 2, 40, 16), dtype=np.float32)
        self.x = wide.astype(bfloat16)

    def test_forward(self):
        out = mha.attention(self.x, self.x, self.x, causal=True, return_lse=True)
        self.assertEqual((out.out.dtype, out.lse.dtype), (bfloat16, np.float32))
        wide = mha.attention(*[self.x.astype(np.float32)] * 3, causal=True)
        np.testing.assert_allclose(out.out.astype(np.float32), wide, atol=0.02)
        plan = mha.Plan(self.x, self.x, self.x, causal=True)
        for _ in range(2):
            np.testing.assert_array_equal(plan(self.x, self.x, self.x), out.out)
            np.testing.assert_array_equal(mha.attention(self.x, self.x, self.x, causal=True), out.out)

    def test_backward(self):
        out, lse, *_ = mha.attention(self.x, self.x, self.x, return_lse=True)
        found = mha.attention_backward(self.x, self.x, self.x, self.x, out, lse)
        wide = [a.astype(np.float32) for a in (self.x, self.x, self.x, self.x, out)]
        want = mha.attention_backward(*wide, lse)
        for name in "dq", "dk", "dv":
            got = getattr(found, name)
            self.assertEqual(got.dtype, bfloat16)
            np.testing.assert_allclose(got.astype(np.float32), getattr(want, name), atol=0.03, err_msg=name)

    def test_other_types_of_the_module_are_refused(self):
        import ml_dtypes
        with self.assertRaisesRegex(ValueError, r"q.dtype must be one of float32, .* \(got float8_e4m3fn\)"):
            mha.attention(*[self.x.astype(ml_dtypes.float8_e4m3fn)] * 3)

    def test_linear(self):
        w = np.random.default_rng(4).standard_normal((24, 16), dtype=np.float32)
        many = np.random.default_rng(5).standard_normal((1100, 16), dtype=np.float32).astype(bfloat16)
        many.flags.writeable = False
        stacks = [[mha.Matrix(w, w[:, 0], packed="bf16")], [mha.Matrix(w, w[:, 0], packed="bf16"), mha.Matrix(w[:3], packed="bf16")],
                  [mha.Matrix(w)], [mha.Matrix(w, packed="q8_0")]]
        for stack in stacks:
            layer = mha.Linear(*stack, activation="gelu")
            for x in self.x, self.x[0, 0, 0], self.x[:, :, ::-2], self.x[..., ::-1], self.x[:, :, :0], many:
                got = layer.forward(x)
                self.assertEqual(got.dtype, bfloat16)
                np.testing.assert_array_equal(got, layer.forward(x.astype(np.float32)).astype(bfloat16))

    def test_linear_refusals(self):
        layer = mha.Linear(mha.Matrix(np.eye(16, dtype=np.float32)))
        for x, shape in (self.x[..., ::2], "1, 2, 40, 8"), (np.array(self.x[0, 0, 0, 0]), ""):
            with self.assertRaisesRegex(ValueError, rf"x must be of shape \[..., 16\] \(got \({shape}\)\)"):
                layer.forward(x)

    def test_linear_as_pytorch(self):
        try:
            import torch
        except ImportError as missing:
            self.skipTest(str(missing))
        layer = mha.Linear(mha.Matrix(np.eye(16, dtype=np.float32)[:8], packed="bf16"))
        tensor = torch.from_numpy(self.x.view(np.int16)).view(torch.bfloat16)
        for x in tensor, tensor.transpose(1, 2), tensor[:, :, :0]:
            got = layer.forward(x)
            self.assertEqual((got.dtype, got.is_contiguous()), (torch.bfloat16, True))
            self.assertTrue(torch.equal(got, x[..., :8]))
        tensor.requires_grad = True
        with self.assertRaisesRegex(ValueError, "x must not require a gradient"):
            layer.forward(tensor)
        with torch.no_grad():
            self.assertTrue(torch.equal(layer.forward(tensor), tensor[..., :8]))

    def test_as_pytorch(self):
        try:
            import torch
        except ImportError as missing:
            self.skipTest(str(missing))
        tensor = torch.from_numpy(self.x.view(np.int16)).view(torch.bfloat16)
        want = mha.attention(tensor, tensor, tensor, causal=True).view(torch.int16).numpy()
        np.testing.assert_array_equal(mha.attention(self.x, self.x, self.x, causal=True).view(np.int16), want)


if __name__ == "__main__":
    unittest.main()
