"""Every published variant from Python: initialization, forward, steps and gradients must equal the recorded walk-throughs."""
import json
import unittest
from pathlib import Path

import numpy as np

import mha

SEEDS = Path(__file__).resolve().parents[1] / "golden/data/seeds"


def layer_of(name, c):
    """Returns the layer of a recorded case."""
    bias = {"qkv_bias": c.get("qkv_bias", False)}
    split = {"context_length": c.get("tokens", 0), "dropout": c.get("dropout", 0.0), **bias,
             "scale_rule": "d_out" if c.get("scale_rule") == "sqrt(d_out)" else "head_dim"}
    plain = c.get("weight_layout", "").startswith("in_out")
    if name in ("s003_raw_attention", "s003_simple_self_attention"):
        return mha.SelfAttention(c["d_in"], c["d_out"], plain_matrices=plain)
    if name.startswith(("s000_stack", "s003_wrapper", "s003_causal")):
        return mha.StackedHeads(c["d_in"], c.get("d_out", c["head_dim"] * c["heads"]), c["heads"], plain_matrices=plain, **split)
    if name.startswith(("s000_mha", "s003_mha")):
        return mha.WeightSplit(c["d_in"], c["d_out"], c["heads"], **split)
    if name.startswith("s001"):
        return mha.QkvAttention(c["input_dim"], c["heads"], c["output_dim"])
    if name.startswith("s002_mha"):
        return mha.StandardMha(c["d_model"], c["heads"])
    if name.startswith("s002_gqa"):
        return mha.GroupedQuery(c["d_model"], c["heads"], kv_groups=c["kv_groups"])
    if name.startswith("s002_moe"):
        return mha.MoeHeads(c["d_model"], c["heads"], num_experts=c["experts"], top_k=c["top_k"], expert_output=c["expert_output"])
    if name.startswith("s002_pruning"):
        return mha.HeadPruning(c["d_model"], c["heads"], c["prune_ratio"])
    if name.startswith("s002_adaptive"):
        return mha.AdaptiveHeads(c["d_model"], c["head_options"])
    if name.startswith("s002_llama"):
        return mha.LlamaAttention(c["d_model"], c["heads"], num_kv_heads=c["kv_heads"])
    if name.startswith("s004") and "rotary" in c:
        rope = mha.Rope(c["head_dim"], theta=c["rope_base"]) if c["rotary"] else None
        return mha.LlamaAttention(c["d_model"], c["heads"], rope=rope)
    return None


def inputs_of(tensors):
    """Returns the arguments of forward() of a recorded case, and the recorded name of each input."""
    named = {}
    for ours, theirs in ("query", ("query", "q", "x", "hidden_states")), ("key", ("key", "k")), ("value", ("value", "v")):
        for name in theirs:
            if f"input.{name}" in tensors:
                named[ours] = f"input.{name}"
    for ours, theirs in ("past_key", "input.past_key"), ("past_value", "input.past_value"):
        if theirs in tensors:
            named[ours] = theirs
    return named


class Recorded(unittest.TestCase):
    def run_case(self, case):
        name, t = case["name"], mha.tensors_read(SEEDS / case["file"])
        layer = layer_of(name, case["config"])
        if layer is None:
            return False
        parameters = {key.removeprefix("param."): x for key, x in t.items() if key.startswith("param.")}
        layer.load(parameters)
        self.assertEqual({k: v.tolist() for k, v in layer.parameters().items()}, {k: v.tolist() for k, v in parameters.items()})
        self.assertEqual(layer.parameter_count, sum(x.size for x in parameters.values()))
        named = inputs_of(t)
        given = {ours: t[theirs] if t[theirs].ndim > 2 else t[theirs][None] for ours, theirs in named.items()}
        masks = {mask: t[key] for mask, key in (("keep", "mask.keep"), ("additive", "mask.additive"), ("blocked", "mask.blocked"))
                 if key in t}
        self.assertLessEqual({key for key in t if key.startswith("mask.")}, {f"mask.{m}" for m in masks} | {"mask.dropout"}, name)
        options = dict(masks)
        if "mask.dropout" in t:
            options |= {"training": True, "dropout_keep": t["mask.dropout"]}
        if "const.position_ids" in t:
            options["positions"] = t["const.position_ids"].astype(np.int64)
        y, trace = layer.forward(**given, **options, weights=True, trace=True)
        close = {"atol": case["tolerance"]["atol"], "rtol": case["tolerance"]["rtol"]}
        np.testing.assert_allclose(y.reshape(t["expect.output"].shape), t["expect.output"], **close, err_msg=name)
        for step, want in ("weights", "attention"), ("context", "context"), ("mixed", "mixed"), ("logits", "router_logits"), \
                ("logits", "head_scores"), ("logits", "head_logits"), ("gates", "expert_weights"), ("q", "q_rotated"), ("k", "key_cache"), \
                ("v", "value_cache"):
            if f"expect.{want}" in t:
                got, want = trace.step(step), t[f"expect.{want}"]
                if name.startswith("s002_pruning") and step == "weights":  # the record has all heads, the trace only the selected ones
                    want = np.stack([w[trace.chosen(n)] for n, w in enumerate(want)])
                np.testing.assert_allclose(got.reshape(want.shape), want, **close, err_msg=f"{name} {step}")
        for key in "expert_indices", "selected_heads", "head_choice":
            if f"expect.{key}" in t:
                chosen = [trace.chosen(n) for n in range(len(y))]
                self.assertEqual(chosen, t[f"expect.{key}"].astype(int).reshape(len(y), -1).tolist(), name)
        found = layer.backward(trace, t["cotangent.output"].reshape(y.shape), tuple(given))
        wide = {"atol": 4 * close["atol"], "rtol": 4 * close["rtol"]}
        for ours, theirs in named.items():
            want = t.get(f"grad.{theirs}")
            if want is not None:
                np.testing.assert_allclose(getattr(found, ours).reshape(want.shape), want, **wide, err_msg=f"{name} {ours}")
        for key, x in layer.gradients().items():
            want = t.get(f"grad.param.{key}")
            if want is not None:
                np.testing.assert_allclose(x, want, **wide, err_msg=f"{name} {key}")
        return True

    def test_all(self):
        cases = json.loads((SEEDS / "index.json").read_text())["cases"]
        ran = []
        for case in cases:
            with self.subTest(case=case["name"]):
                if self.run_case(case):
                    ran.append(case["name"])
        self.assertGreaterEqual(len(ran), 34, ran)

    def test_as_initialized_by_pytorch(self):
        t = mha.tensors_read(SEEDS / "s003_mha.safetensors")
        rng, layer = mha.Rng(123), mha.WeightSplit(6, 6, 2)
        np.testing.assert_array_equal(rng.randn((2, 5, 6)), t["input.x"])
        layer.init(rng)
        for name, x in layer.parameters().items():
            np.testing.assert_array_equal(x, t[f"param.{name}"])


class Rules(unittest.TestCase):
    def setUp(self):
        self.layer, self.x = mha.WeightSplit(6, 6, 2, context_length=5, dropout=0.5, dtype="f64"), mha.Rng(2).randn((2, 5, 6), dtype=np.float64)
        self.layer.init(mha.Rng(1))

    def test_gradient_by_differences(self):
        def loss(x):
            return float((self.layer.forward(x, training=True, dropout_seed=7) ** 2).sum())
        y, trace = self.layer.forward(self.x, training=True, dropout_seed=7, trace=True)
        dx, step = self.layer.backward(trace, 2 * y).query, 1e-6
        for at in (0, 0, 0), (1, 4, 5):
            more, less = self.x.copy(), self.x.copy()
            more[at] += step
            less[at] -= step
            self.assertAlmostEqual(dx[at], (loss(more) - loss(less)) / (2 * step), places=6)

    def test_gradients_add_up(self):
        y, trace = self.layer.forward(self.x, trace=True)
        self.layer.backward(trace, y, ())
        once = self.layer.gradients()
        self.layer.backward(trace, y)
        for name, x in self.layer.gradients().items():
            np.testing.assert_allclose(x, 2 * once[name], rtol=1e-12, atol=1e-12)
        self.layer.zero_gradients()
        self.assertFalse(any(x.any() for x in self.layer.gradients().values()))

    def test_dropout_of_a_generator(self):
        drawn = mha.Rng(5).dropout_mask(0.5, (2, 2, 5, 5))
        np.testing.assert_array_equal(self.layer.forward(self.x, training=True, rng=mha.Rng(5)),
                                      self.layer.forward(self.x, training=True, dropout_keep=drawn))

    def test_an_option_that_needs_a_choice(self):
        layer = mha.HeadPruning(8, 4, 0.5, selection="straight_through")
        layer.init(mha.Rng(1))
        y, trace = layer.forward(mha.Rng(2).randn((3, 4, 8)), trace=True)
        self.assertEqual([len(trace.chosen(n)) for n in range(3)], [2, 2, 2])
        self.assertEqual([trace.heads(n) for n in range(3)], [2, 2, 2])
        layer.backward(trace, np.ones_like(y))
        self.assertTrue(layer.gradients()["head_importance.weight"].any())
        self.assertIsNone(self.layer.forward(self.x, trace=True)[1].chosen(0))

    def test_closed_and_kept(self):
        with self.layer as layer:
            trace = layer.forward(self.x, trace=True)[1]
        with self.assertRaisesRegex(ValueError, "WeightSplit is closed"):
            layer.forward(self.x)
        self.assertEqual(trace.step("q").shape, (2, 2, 5, 3))
        trace.close()
        with self.assertRaisesRegex(ValueError, "Trace is closed"):
            trace.step("q")

    def test_shapes_of_keys(self):
        layer, x = mha.LlamaAttention(64, 8, num_kv_heads=2), np.ones((1, 5, 64), np.float32)
        layer.init(mha.Rng(1))
        for shape in (1, 1, 3, 8), (1, 2, 3, 4), (1, 8, 3, 8):
            with self.assertRaisesRegex(ValueError, r"past_key must be of shape \(1, 2, any, 8\)"):
                layer.forward(x, past_key=np.ones(shape), past_value=np.ones(shape))
        past = np.ones((1, 2, 3, 8))
        self.assertEqual(layer.forward(x, past_key=past, past_value=past).shape, x.shape)
        standard, none = mha.StandardMha(8, 2), np.ones((2, 0, 8))
        standard.init(mha.Rng(1))
        with self.assertRaisesRegex(ValueError, r"key must have at least one token \(got shape \(2, 0, 8\)\)"):
            standard.forward(np.ones((2, 5, 8)), none, none)

    def test_refusals(self):
        parameters = self.layer.parameters()
        for use, sentence in (
                (lambda: self.layer.forward(self.x[..., :5]), r"query must be of shape \(any, any, 6\)"),
                (lambda: self.layer.forward(np.zeros((1, 6, 6))), "context_length"),
                (lambda: self.layer.forward(self.x, self.x), "key"),
                (lambda: self.layer.forward(self.x, positions=np.zeros((2, 5), int)), "positions"),
                (lambda: self.layer.forward(self.x, scores="odd"), "scores must be one of 'raw'"),
                (lambda: self.layer.load({}), "parameters must have exactly the names q_proj.weight"),
                (lambda: self.layer.load(parameters | {"o_proj.bias": np.zeros(5)}), r"must be of shape \(6,\)"),
                (lambda: mha.WeightSplit(6, 6, 4), "num_heads"), (lambda: mha.WeightSplit(6, 6, 2, dtype="f16"), "dtype must be one of"),
                (lambda: mha.SelfAttention(3, 2).forward(np.zeros((1, 2, 3))), "parameters"),
                (lambda: mha.MoeHeads(8, 4, expert_output="slots"), "expert_output must be one of 'project'")):
            with self.assertRaisesRegex(ValueError, sentence):
                use()
        with self.assertRaises(TypeError):
            self.layer.forward(self.x, odd=1)


if __name__ == "__main__":
    unittest.main()
