"""Tests the operators of mha.torch: outputs and gradients for PyTorch's samples of scaled_dot_product_attention in four types, opcheck,
torch.compile and torch.export."""
import sys
import types
import unittest

from hugging_face import torch  # imported first: skips the test if PyTorch is not installed
import numpy as np
import mha.torch

# The samples are in a module that imports a package of PyTorch's test runner; this empty module replaces the package.
sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))
from torch.testing._internal.common_methods_invocations import op_db

theirs, ours = torch.nn.functional.scaled_dot_product_attention, mha.torch.scaled_dot_product_attention
TYPES = torch.float32, torch.float64, torch.float16, torch.bfloat16
BETWEEN = {torch.float32: 1e-6, torch.float64: 1e-13, torch.float16: 1e-3, torch.bfloat16: 1e-2}  # a few rounding errors of the type


def results(function, tensors, keywords, dtype):
    """Returns the output of `function` and its gradients for inputs converted to `dtype`."""
    leaves = [x.detach().to(dtype).requires_grad_() for x in tensors]
    keywords = {n: x.detach().to(dtype).requires_grad_() if isinstance(x, torch.Tensor) else x for n, x in keywords.items()}
    torch.manual_seed(7)
    out = function(*leaves, **keywords)
    generator = torch.Generator().manual_seed(3)
    gradient = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    inputs = leaves + [x for x in keywords.values() if isinstance(x, torch.Tensor)]
    return [out, *torch.autograd.grad(out, inputs, gradient)]


def distance(a, b):
    return float((a.detach().double() - b.detach().double()).abs().max()) if a.numel() else 0.0


class Samples(unittest.TestCase):
    def agree(self, tensors, keywords, dtype):
        """The difference from the result in double precision must be at most twice PyTorch's difference, plus a few rounding errors."""
        got, want = results(ours, tensors, keywords, dtype), results(theirs, tensors, keywords, dtype)
        # the elements that dropout drops depend on the type, so PyTorch must run in the same type
        exact = want if keywords.get("dropout_p") else results(theirs, tensors, keywords, torch.float64)
        for a, b, c in zip(got, want, exact, strict=True):
            self.assertEqual((a.shape, a.dtype), (b.shape, b.dtype))
            limit = 2 * distance(b, c) + 16 * BETWEEN[dtype] * max(1.0, distance(c, 0 * c))
            self.assertLessEqual(distance(a, c), limit)

    def test_opinfo(self):
        (info,) = (o for o in op_db if o.name == "nn.functional.scaled_dot_product_attention")
        for dtype in TYPES:
            count = 0
            for sample in info.sample_inputs("cpu", torch.float64, requires_grad=True):
                with self.subTest(dtype=dtype, shape=sample.input.shape, **{n: str(x) for n, x in sample.kwargs.items()}):
                    # small inputs that are exact in all types, so that rounding does not change the key with the largest weight
                    self.agree([(x / 8).to(torch.bfloat16) for x in (sample.input, *sample.args)],
                               {n: (x / 8).to(torch.bfloat16) if isinstance(x, torch.Tensor) else x for n, x in sample.kwargs.items()}, dtype)
                count += 1
            self.assertGreaterEqual(count, 25)

    def test_opinfo_as_they_are(self):
        """In double precision, the unchanged samples, which have large scores, must agree within 1e-12."""
        (info,) = (o for o in op_db if o.name == "nn.functional.scaled_dot_product_attention")
        for sample in info.sample_inputs("cpu", torch.float64, requires_grad=True):
            got, want = (results(f, (sample.input, *sample.args), sample.kwargs, torch.float64) for f in (ours, theirs))
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)

    def test_shapes(self):
        shapes = [((5, 8), (7, 8)), ((3, 5, 8), (3, 7, 8)), ((1, 5, 8), (3, 7, 8)), ((2, 3, 4, 5, 8), (2, 3, 4, 7, 8)),
                  ((3, 1, 5, 8), (2, 1, 4, 7, 8)), ((2, 4, 5, 8), (1, 1, 7, 8)), ((2, 4, 0, 8), (2, 4, 7, 8)), ((0, 4, 5, 8), (0, 4, 7, 8)),
                  ((3, 3, 5, 8), (3, 3, 8)), ((2, 2, 5, 8), (2, 2, 2, 7, 8))]
        for q, k in shapes:
            tensors = [torch.randn(q), torch.randn(k), torch.randn(*k[:-1], 6)]
            with self.subTest(q=q, k=k):
                self.agree(tensors, {}, torch.float32)
        q, k = torch.randn(2, 3, 4, 5, 8), torch.randn(2, 3, 4, 7, 8)
        for mask in torch.randn(5, 7), torch.randn(4, 5, 7), torch.randn(3, 4, 5, 7), torch.randn(2, 1, 1, 1, 7), torch.randn(1, 3, 1, 5, 1):
            with self.subTest(mask=mask.shape):
                self.agree([q, k, k], {"attn_mask": mask}, torch.float32)

    def test_groups_and_scale(self):
        q, k, v = torch.randn(2, 8, 5, 16), torch.randn(2, 2, 7, 16), torch.randn(2, 4, 7, 16)
        self.agree([q, k, k], {"enable_gqa": True}, torch.float32)
        torch.testing.assert_close(ours(q, k, v, enable_gqa=True), theirs(q, k.repeat_interleave(4, 1), v.repeat_interleave(2, 1)))
        self.agree([q, q, q], {"scale": 0.0}, torch.float32)
        with self.assertRaisesRegex(ValueError, "key must have a number of heads that divides the query's"):
            ours(q, torch.randn(2, 3, 7, 16), v, enable_gqa=True)
        with self.assertRaisesRegex(ValueError, "query must have at least 2 axes"):
            ours(q[0, 0, 0], k, v)


class Operators(unittest.TestCase):
    @staticmethod
    def arguments(**more):
        q, k, v = (torch.randn(2, h, 5, 8, requires_grad=True) for h in (4, 2, 2))
        tensors = dict.fromkeys(mha.torch._TENSORS) | {"q": q, "k": k, "v": v}
        given = tensors | {n: default for n, (_, default) in mha.torch._OPTIONS.items()} | more
        return tuple(given.values())

    def test_opcheck(self):
        bias, gates = torch.randn(5, 5, requires_grad=True), torch.rand(4, requires_grad=True)
        for more in ({}, {"causal": True, "softcap": 3.0}, {"bias": bias, "gates": gates, "keep": torch.rand(5) > 0.2},
                     {"layout": "blhd", "q": torch.randn(2, 5, 4, 8), "k": torch.randn(2, 5, 2, 8), "v": torch.randn(2, 5, 2, 6)},
                     {"heads": torch.tensor([2, 0])}, {"dropout": 0.5, "seed": torch.tensor(3)},
                     {"q": torch.randn(9, 4, 8), "k": torch.randn(9, 2, 8), "v": torch.randn(9, 2, 8),
                      "cu_seqlens_q": torch.tensor([0, 4, 9]), "cu_seqlens_k": torch.tensor([0, 4, 9])}):
            with self.subTest(**{n: str(x)[:40] for n, x in more.items()}):
                torch.library.opcheck(torch.ops.mha.attention.default, self.arguments(**more))

    def test_compile(self):
        def layer(x, w):
            q = (x @ w).unflatten(-1, (4, 8)).transpose(1, 2)
            return ours(q, q, q, is_causal=True).transpose(1, 2).flatten(2).square().sum()

        x, w = torch.randn(2, 6, 16), torch.randn(16, 32, requires_grad=True)
        want = torch.autograd.grad(layer(x, w), w)[0]
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(torch.autograd.grad(compiled(x, w), w)[0], want)
        dropping = torch.compile(lambda q: mha.torch.attention(q, q, q, dropout=0.5), backend="aot_eager", fullgraph=True)
        q = torch.randn(1, 2, 6, 8)
        torch.manual_seed(5)
        got = dropping(q)
        torch.manual_seed(5)
        torch.testing.assert_close(got, mha.torch.attention(q, q, q, dropout=0.5))

    def test_export(self):
        class Layer(torch.nn.Module):
            def forward(self, q):
                return mha.torch.attention(q, q, q, causal=True)

        q = torch.randn(2, 2, 6, 8)
        program = torch.export.export(Layer(), (q,))
        self.assertIn("torch.ops.mha.attention", program.graph_module.code)
        torch.testing.assert_close(program.module()(q), Layer()(q))

    def test_functions(self):
        """User functions of scores and masks must have the results and gradients of the same functions in PyTorch, in float64."""
        torch.manual_seed(4)
        q, k, v = (torch.randn(2, 4, n, 16, dtype=torch.float64, requires_grad=True) for n in (37, 150, 150))
        bias = torch.randn(37, 150, dtype=torch.float64, requires_grad=True)
        gates = torch.rand(4, dtype=torch.float64, requires_grad=True)
        cases = [
            (mha.Functions(score=lambda s, b, h, i, j: 3 * np.tanh(s / 3) - 0.05 * (h + 1) * abs(i - j),
                           score_back=lambda s, ds, b, h, i, j: ds * (1 - np.tanh(s / 3) ** 2)),
             lambda s, h, i, j: 3 * torch.tanh(s / 3) - 0.05 * (h + 1) * (i - j).abs()),
            (mha.Functions(score=lambda s, b, h, i, j: s + np.cos(0.1 * j * (b + 1)), score_added=True, keep=lambda b, h, i, j: (i - j) % 3 < 2),
             lambda s, h, i, j: torch.where((i - j) % 3 < 2, s + torch.cos(0.1 * j * torch.arange(1.0, 3).view(2, 1, 1, 1)), -torch.inf)),
            (mha.Functions(keep=lambda b, h, i, j: j <= i + 40), lambda s, h, i, j: torch.where(j <= i + 40, s, -torch.inf))]
        i, j, h = (torch.arange(n, dtype=torch.float64).view(n, *rest) for n, rest in ((37, (1,)), (150, ()), (4, (1, 1))))
        for functions, change in cases:
            scores = change(q @ k.transpose(2, 3) / 4, h, i, j) + bias
            weight = torch.randn(2, 4, 37, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
            want = gates.view(4, 1, 1) * (scores.softmax(-1) @ v), scores.logsumexp(-1)
            got = mha.torch.attention(q, k, v, bias=bias, gates=gates, functions=functions, align="top_left", return_lse=True)
            leaves = q, k, v, bias, gates
            grads = [torch.autograd.grad((out * weight).sum() + lse.sin().sum(), leaves) for out, lse in (want, got)]
            for a, b in zip((*want, *grads[0]), (*got, *grads[1])):
                self.assertLess(distance(a, b), 1e-11)
        with self.assertRaisesRegex(RuntimeError, "second derivatives of attention are not supported"):
            out = mha.torch.attention(q, k, v, functions=functions, align="top_left")
            torch.autograd.grad(out.sum(), q, create_graph=True)
        with self.assertRaisesRegex(ValueError, "functions must be of type mha.Functions"):
            mha.torch.attention(q, k, v, functions=len)

    def test_sub_threads(self):
        """Second derivatives must raise an error, since gradients are computed outside autograd's graph."""
        q = torch.randn(1, 1, 4, 8, requires_grad=True)
        (g,) = torch.autograd.grad(mha.torch.attention(q, q, q).sum(), q, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "second derivatives of attention are not supported"):
            g.sum().backward()


if __name__ == "__main__":
    unittest.main()
