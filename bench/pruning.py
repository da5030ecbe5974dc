"""Learned gates beside one-shot pruning: the loss on unseen text that a decoder has left with fewer heads.

    python3 bench/pruning.py --program build/bin/mha [--model builtin] [--heads 12,10,8,6,4] [--steps 300] [--batch 32]
                             [--mend STEPS] [--mend-batch 8] [--json FILE] [--chart FILE.svg] [--markdown]

All texts are made by tools/builtin_text.py, which the built-in model has learned from, with seeds of their own: 12,000 lines to
learn from, 200 that one-shot pruning scores heads on, 200 to judge by. At each number of heads, the weights being those of the
whole model:

    gates    `mha train --gates l0 --gates-only`
    a score  the heads of least importance go, by each of the scores of `mha heads --by`, all measured once, on the whole model
    joint    the choice of `mha prune --count`: no one-shot, it measures every remaining head again before each next one goes

With --mend also what `mha train` makes of heads and weights together, on the same texts in so many steps:

    gates        `--gates l0`: a quarter of the steps chooses heads, and the weights learn in the rest
    best score   the model that the best of the scores has left, and all steps for its weights

Loss: nats for each token of the lines to judge by, as `mha score` says.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import chart

HERE = os.path.dirname(os.path.abspath(__file__))
SCORES = ["loo_loss", "loo_mean_loss", "loo", "loo_mean", "gate", "gate_batch", "gate_layer_l2", "taylor_token", "taylor_elem", "gradmag",
          "jacobian_probe", "confidence", "ov_norm", "qk_norm"]
DRAWN = ["gates", "joint", "loo_loss", "gate"]


def values(text):
    """The JSON values of a text, one behind another."""
    at = 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = json.JSONDecoder().raw_decode(text, at)
        yield value


class Work:
    """The program in a folder with the texts."""

    def __init__(self, options, folder):
        self.o, self.folder = options, folder
        for name, seed, lines in [("learn", 1001, 12000), ("choose", 2002, 200), ("judge", 3003, 200)]:
            with open(self.at(name + ".txt"), "w", encoding="utf-8") as out:
                subprocess.run([sys.executable, options.texts, str(seed), str(lines)], stdout=out, check=True)

    def at(self, name):
        return os.path.join(self.folder, name)

    def call(self, *arguments):
        done = subprocess.run([self.o.program, *arguments, "-q", "--json", "--threads", str(self.o.threads)], stdout=subprocess.PIPE,
                              check=True, text=True)
        return list(values(done.stdout))

    def loss(self, model):
        return self.call("score", "-m", model, "-f", self.at("judge.txt"))[-1]["loss"]

    def ranks(self):
        """Of each score the heads as (layer, head), the least important first."""
        for score in SCORES:
            values = self.call("heads", "-m", self.o.model, "-f", self.at("choose.txt"), "--by", score)[0]["importance"]["values"]
            heads = [(value, -layer, -head) for layer, row in enumerate(values) for head, value in enumerate(row)]
            yield score, [(-layer, -head) for _, layer, head in sorted(heads)]

    def prune(self, out, *how):
        return self.call("prune", "-m", self.o.model, "-f", self.at("choose.txt"), "--test", self.at("judge.txt"), "-o", self.at(out),
                         "--force", *how)[0]

    def train(self, model, out, steps, batch, *more):
        return self.call("train", "--from", model, "-f", self.at("learn.txt"), "-o", self.at(out), "--force", "--rate", str(self.o.rate),
                         "--length", "96", "--steps", str(steps), "--batch", str(batch), "--seed", str(self.o.seed), "--save-every",
                         "1000000", *more)[0]


def lowest(ranked, count):
    """The first `count` heads, but the last one of each layer stays, as in `mha prune`."""
    left = {layer: sum(at[0] == layer for at in ranked) for layer, _ in ranked}
    gone = []
    for layer, head in ranked:
        if left[layer] > 1 and len(gone) < count:
            left[layer] -= 1
            gone.append(f"{layer}.{head}")
    return ",".join(sorted(gone))


def one_shot(work, ranks, whole, heads):
    """Of each way to choose, the folder it made and the loss that is left; choices that are alike are made once."""
    made, ways = {}, {}
    for score in ["joint", *ranks]:
        how = ["--count", str(whole - heads)] if score == "joint" else ["--heads", lowest(ranks[score], whole - heads)]
        if how[1] not in made:
            out = f"shot-{len(made)}"
            made[how[1]] = work.at(out), work.prune(out, *how)["quality"]["loss"][1]
        ways[score] = made[how[1]]
    return ways


def gated(work, out, heads, steps, batch, *more):
    """The loss of what gates leave of the model."""
    got = work.train(work.o.model, out, steps, batch, "--gates", "l0", "--heads", str(heads), *more)
    if got["heads"] != heads:
        raise SystemExit(f"{got['heads']} heads in place of {heads}")
    return work.loss(work.at(out))


def point(work, ranks, whole, heads):
    ways = one_shot(work, ranks, whole, heads)
    ways["gates"] = work.at("gated"), gated(work, "gated", heads, work.o.steps, work.o.batch, "--gates-only")
    result = {"heads": heads, "best": min(ranks, key=lambda name: ways[name][1]), "loss": {name: loss for name, (_, loss) in ways.items()}}
    if work.o.mend:
        work.train(ways[result["best"]][0], "mended", work.o.mend, work.o.mend_batch)
        result["mended"] = [gated(work, "both", heads, work.o.mend, work.o.mend_batch), work.loss(work.at("mended"))]
    return result


def measure(o):
    with tempfile.TemporaryDirectory() as folder:
        work = Work(o, folder)
        whole = sum(work.call("info", "-m", o.model)[0]["heads_per_layer"])
        ranks = dict(work.ranks())
        result = {"heads": whole, "loss": work.loss(o.model), "steps": o.steps, "batch": o.batch, "points": []}
        for heads in [int(n) for n in o.heads.split(",")]:
            result["points"].append(point(work, ranks, whole, heads))
            print(json.dumps(result["points"][-1]), file=sys.stderr)
        return result


def markdown(result):
    mended = "mended" in result["points"][0]
    names = [f"`{name}`" for name in DRAWN[2:]] + ["the best score"] + (["gates, mended", "best score, mended"] if mended else [])
    print(f"| heads of {result['heads']} | gates | joint | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 3))
    for p in result["points"]:
        shown = [p["loss"][name] for name in [*DRAWN, p["best"]]] + p.get("mended", [])
        cells = [f"{loss:.3f}" for loss in shown]
        cells[len(DRAWN)] += f" (`{p['best']}`)"
        print(f"| {p['heads']} | " + " | ".join(cells) + " |")
    print(f"\nAll heads: {result['loss']:.3f}.")


def draw(result, path):
    lines = {name: [(p["heads"], p["loss"][name]) for p in result["points"]] for name in DRAWN}
    chart.curves(path, "Loss on unseen text against the heads that are left", lines, {"all heads": result["loss"]}, "heads",
                 "nats for each token")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", default="mha")
    options.add_argument("--model", default="builtin")
    options.add_argument("--texts", default=os.path.join(HERE, "..", "tools", "builtin_text.py"))
    options.add_argument("--heads", default="12,10,8,6,4")
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--rate", type=float, default=1e-3)
    options.add_argument("--mend", type=int, default=0)
    options.add_argument("--mend-batch", type=int, default=8)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--read", help="results of an earlier --json, in place of measuring")
    options.add_argument("--json")
    options.add_argument("--chart")
    options.add_argument("--markdown", action="store_true")
    o = options.parse_args()
    if o.read:
        with open(o.read, encoding="utf-8") as kept:
            result = json.load(kept)
    else:
        result = measure(o)
    if o.json:
        with open(o.json, "w", encoding="utf-8") as out:
            json.dump(result, out, indent=1)
    if o.chart:
        draw(result, o.chart)
    if o.markdown:
        markdown(result)


if __name__ == "__main__":
    main()
