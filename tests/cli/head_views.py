"""Checks the JSON of `mha logits --mean --effects --steps 0.1`: head_views.py VIEWS WITH WITHOUT, where WITH and WITHOUT have all probabilities
with head 0.1 and with its mean in its place."""
import json
import math
import sys
from pathlib import Path

views, *others = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
p, q = [{item["id"]: item["probability"] for item in run["top"]} for run in others]
divergence = sum(x * math.log2(x / q[token]) for token, x in p.items())
effect = views["effects"][1]["effect"]
assert abs(effect - divergence) < 1e-4 * max(1, divergence), (effect, divergence)

steps, width = views["steps"], len(views["steps"]["q"])
keys = steps["keys"]
scores = [sum(a * b for a, b in zip(steps["q"], key["k"])) / math.sqrt(width) for key in keys]
assert all(abs(score - key["score"]) < 1e-4 for score, key in zip(scores, keys)), scores
total = sum(math.exp(score) for score in scores[:steps["at"] + 1])
weights = [math.exp(score) / total if j <= steps["at"] else 0 for j, score in enumerate(scores)]
assert all(abs(weight - key["weight"]) < 1e-5 for weight, key in zip(weights, keys)), weights
output = [sum(weight * key["v"][d] for weight, key in zip(weights, keys)) for d in range(width)]
assert all(abs(x - y) < 1e-5 for x, y in zip(output, steps["output"])), output
