"""Computes the head measurements of `mha heads` in PyTorch, for bench/heads.py.

    python3 bench/heads_torch.py PART MODEL TEXTS [--threads N] [--limit N] [--batch N] [--values]

    stats      entropy, distance, offset, confidence, sinks, the pattern scores, vertical and toeplitz energy
    jacobian   1/2 mean |d embedding / d gate|^2, estimated from 4 random sign vectors with one backward pass each
    gradmag    mean |dL/dW| of each head's rows of Wq, Wk, Wv; L is the contrastive loss of texts i and count/2 + i, 16 pairs at a time
    loo        leave-one-out ablation: 1 - cosine to the embedding of the unchanged model, one forward pass per head
    loo-reuse  as loo, but each pass starts at the layer of the head
    diversity  cosine of maps, Jensen-Shannon divergence of all pairs of heads, CKA of outputs

MODEL is the folder of a BERT model (MiniLM); TEXTS has one sentence per line. The code uses transformers in the common way: eager
attention, maps from output_attentions, hooks for the gates, and sentences sorted by length in batches padded to the longest
sentence. Prints one JSON object: the wall-clock seconds and CPU seconds from tokenization to the last result (imports and opening
the model excluded), and the peak memory of the process in MiB.
"""
import argparse
import json
import math
import resource
import time
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers

PROBES, SCALE, PAIRS = 4, 5.0, 16
PUNCTUATION = (".", ",", ";", ":", "?", "!")


class Texts:
    """The tokens of every line, and batches of lines in order of length."""

    def __init__(self, model, path, limit, size):
        tokenizer = tokenizers.Tokenizer.from_file(f"{model}/tokenizer.json")
        tokenizer.no_padding()
        tokenizer.enable_truncation(512)
        lines = Path(path).read_text(encoding="utf-8").splitlines()[:limit]
        self.ids = [torch.tensor(e.ids) for e in tokenizer.encode_batch(lines)]
        self.special = torch.tensor([tokenizer.token_to_id(t) for t in ("[CLS]", "[SEP]")])
        self.separator = self.special[1]
        self.punctuation = torch.tensor([tokenizer.token_to_id(t) for t in PUNCTUATION])
        self.size = size

    def padded(self, members):
        ids = torch.nn.utils.rnn.pad_sequence([self.ids[m] for m in members], batch_first=True)
        lengths = torch.tensor([len(self.ids[m]) for m in members])
        return ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long()

    def batches(self):
        order = sorted(range(len(self.ids)), key=lambda m: len(self.ids[m]))
        for first in range(0, len(order), self.size):
            members = order[first:first + self.size]
            yield torch.tensor(members), *self.padded(members)


class Encoder:
    """BERT with a gate on the output of each head, per sentence or for all sentences."""

    def __init__(self, path):
        self.bert = transformers.BertModel.from_pretrained(path, attn_implementation="eager", add_pooling_layer=False).eval()
        config = self.bert.config
        self.layers, self.heads = config.num_hidden_layers, config.num_attention_heads
        self.size = config.hidden_size // self.heads
        self.gates, self.contexts = None, {}
        for n, layer in enumerate(self.bert.encoder.layer):
            layer.attention.output.dense.register_forward_pre_hook(lambda _, args, n=n: self._gate(n, args[0]))

    def _gate(self, layer, context):
        split = context.unflatten(-1, (self.heads, self.size))
        if self.gates is not None:
            split = split * self.gates[:, layer, None, :, None]
        self.contexts[layer] = split
        return (split.flatten(-2),)

    def projections(self, layer):
        attention = self.bert.encoder.layer[layer].attention
        return attention.self.query, attention.self.key, attention.self.value, attention.output.dense

    def embed(self, ids, mask):
        return pool(self.bert(ids, attention_mask=mask).last_hidden_state, mask)

    def maps(self, ids, mask):
        return self.bert(ids, attention_mask=mask, output_attentions=True).attentions


def pool(hidden, mask):
    return torch.nn.functional.normalize((hidden * mask[..., None]).sum(1), dim=-1)


# ---- statistics ----

def diagonals(maps):
    """Sums the elements with the same offset j - i: [B, H, n, n] to [B, H, 2 n - 1]."""
    n, pad = maps.shape[-1], torch.nn.functional.pad
    skewed = pad(pad(maps, (n - 1, 0)).flatten(-2), (0, n)).unflatten(-1, (n, 2 * n))  # shift row i left by i elements
    return skewed.sum(-2)[..., :-1]


class Sums:
    def __init__(self, shape):
        self.shape, self.top, self.bottom = shape, {}, {}

    def add(self, layer, name, top, bottom):
        self.top.setdefault(name, torch.zeros(self.shape, dtype=torch.float64))[layer] += top
        self.bottom.setdefault(name, torch.zeros(self.shape, dtype=torch.float64))[layer] += bottom

    def rows(self, layer, name, values, rows):
        """Adds the values [B, H, n] of the rows that the mask `rows` [B, n] selects."""
        self.add(layer, name, (values * rows[:, None]).sum((0, 2), dtype=torch.float64), rows.sum())

    def means(self):
        return {name: (top / self.bottom[name]).numpy() for name, top in self.top.items()}


def stats_of_layer(sums, layer, maps, real, content, separator, punctuation):
    n = maps.shape[-1]
    at, lengths = torch.arange(n), real.sum(1)
    offset = at[None, :] - at[:, None]
    entropy = torch.special.entr(maps).sum(-1) / math.log(2)
    share = entropy / torch.log2(lengths.float())[:, None, None]
    top, where = maps.max(-1)
    for name, values in (("entropy", entropy), ("confidence", top), ("distance", (maps * offset.abs()).sum(-1))):
        sums.rows(layer, name, values, real)
        sums.rows(layer, name + "_content", values, content)
    sums.rows(layer, "offset", (maps * offset).sum(-1), real)
    sums.rows(layer, "entropy_norm", share, real)
    sums.rows(layer, "broad", share, content)
    is_special = (real & ~content)[:, None, None, :]
    sums.rows(layer, "confidence_nospecial", maps.masked_fill(is_special, 0).amax(-1), content)

    after_first, before_last = content & (at >= 1), content & (at + 1 < lengths[:, None])
    pad = torch.nn.functional.pad
    targets = {"prev": (pad(maps.diagonal(-1, 2, 3), (1, 0)), at - 1, after_first),
               "next": (pad(maps.diagonal(1, 2, 3), (0, 1)), at + 1, before_last),
               "self": (maps.diagonal(0, 2, 3), at, content),
               "first": (maps[..., 0], torch.zeros_like(at), after_first)}
    for name, (mass, target, rows) in targets.items():
        sums.rows(layer, name, mass, rows)
        sums.rows(layer, name + "_argmax", (where == target).float(), rows)
    sums.rows(layer, "sep", torch.einsum("bhij,bj->bhi", maps, separator.float()), content)
    sums.rows(layer, "punct", torch.einsum("bhij,bj->bhi", maps, punctuation.float()), content)
    sums.rows(layer, "window2", (maps * (offset.abs() <= 2)).sum(-1), content)
    sums.rows(layer, "received_first", maps[..., 0], real)

    own = maps * content[:, None, :, None]
    energy = own.square().sum((0, 2, 3), dtype=torch.float64)
    column, rows = own.sum(2), content.sum(1).clamp_min(1)
    sums.add(layer, "vertical", (column.square() / rows[:, None, None]).sum((0, 2), dtype=torch.float64), energy)
    counts = diagonals((content[:, None, :, None] & real[:, None, None, :]).float()).clamp_min(1)
    sums.add(layer, "toeplitz", (diagonals(own).square() / counts).sum((0, 2), dtype=torch.float64), energy)


@torch.inference_mode()
def stats(encoder, texts):
    sums = Sums((encoder.layers, encoder.heads))
    for _, ids, mask in texts.batches():
        real = mask.bool()
        content = real & ~torch.isin(ids, texts.special)
        kinds = real & (ids == texts.separator), real & torch.isin(ids, texts.punctuation)
        for layer, maps in enumerate(encoder.maps(ids, mask)):
            stats_of_layer(sums, layer, maps, real, content, *kinds)
    return sums.means()


# ---- importance ----

def signs(probe, members, count, width):
    """Returns +1 or -1 by the low bit of splitmix64, applied to the flat index of [probe, text, dimension]."""
    x = (np.uint64(probe * count) + members.numpy().astype(np.uint64)[:, None]) * np.uint64(width)
    x = (x + np.arange(width, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return torch.from_numpy((x & np.uint64(1)).astype(np.float32) * 2 - 1)


def jacobian(encoder, texts):
    encoder.bert.requires_grad_(False)
    total = torch.zeros(encoder.layers, encoder.heads, dtype=torch.float64)
    for members, ids, mask in texts.batches():
        encoder.gates = torch.ones(len(members), encoder.layers, encoder.heads, requires_grad=True)
        embedding = encoder.embed(ids, mask)
        for probe in range(PROBES):
            along = (embedding * signs(probe, members, len(texts.ids), embedding.shape[1])).sum()
            total += torch.autograd.grad(along, encoder.gates, retain_graph=probe + 1 < PROBES)[0].square().sum(0)
    return {"jacobian_probe": (0.5 * total / PROBES / len(texts.ids)).numpy()}


def contrastive(embeddings):
    half = len(embeddings) // 2
    similar, target = SCALE * embeddings[:half] @ embeddings[half:].T, torch.arange(half)
    entropy = torch.nn.functional.cross_entropy
    return (entropy(similar, target) + entropy(similar.T, target)) / 2


def gradmag(encoder, texts):
    half, total, batches = len(texts.ids) // 2, 0, 0
    for first in range(0, half, PAIRS):
        pairs = range(first, min(first + PAIRS, half))
        encoder.bert.zero_grad()
        contrastive(encoder.embed(*texts.padded([*pairs, *(half + p for p in pairs)]))).backward()
        rows = [[w.weight.grad.abs().unflatten(0, (encoder.heads, encoder.size)).mean((1, 2))
                 for w in encoder.projections(layer)[:3]] for layer in range(encoder.layers)]
        total += torch.stack([torch.stack(row).sum(0) for row in rows]).double()
        batches += 1
    return {"gradmag": (total / batches).numpy()}


@torch.inference_mode()
def leave_one_out(encoder, texts, reuse=False):
    total, stack = torch.zeros(encoder.layers, encoder.heads, dtype=torch.float64), encoder.bert.encoder.layer
    for _, ids, mask in texts.batches():
        encoder.gates = None
        states = encoder.bert(ids, attention_mask=mask, output_hidden_states=True).hidden_states
        whole, masked_keys = pool(states[-1], mask), (1.0 - mask[:, None, None, :]) * torch.finfo(torch.float32).min
        for layer in range(encoder.layers):
            for head in range(encoder.heads):
                encoder.gates = torch.ones(1, encoder.layers, encoder.heads)
                encoder.gates[0, layer, head] = 0
                if reuse:
                    hidden = states[layer]
                    for block in stack[layer:]:
                        hidden = block(hidden, attention_mask=masked_keys)
                        hidden = hidden[0] if isinstance(hidden, tuple) else hidden
                    without = pool(hidden, mask)
                else:
                    without = encoder.embed(ids, mask)
                total[layer, head] += (1 - (without * whole).sum(-1)).sum(dtype=torch.float64)
    return {"loo": (total / len(texts.ids)).numpy()}


# ---- diversity ----

@torch.inference_mode()
def diversity(encoder, texts):
    layers, heads, size = encoder.layers, encoder.heads, encoder.size
    inner = torch.zeros(layers, heads, heads, dtype=torch.float64)
    js, rows = torch.zeros(layers * heads, layers * heads, dtype=torch.float64), 0
    gram = torch.zeros(layers, heads * size, heads * size, dtype=torch.float64)
    sums = torch.zeros(layers, heads * size, dtype=torch.float64)
    for ids in texts.ids:
        maps = torch.stack(encoder.maps(ids[None], torch.ones_like(ids[None])))[:, 0]
        inner += torch.einsum("lhij,lgij->lhg", maps, maps)
        flat = maps.flatten(0, 1)
        entropy = torch.special.entr(flat).sum((-1, -2))
        for n, one in enumerate(flat):
            js[n] += torch.special.entr((one + flat) / 2).sum((-1, -2)) - (entropy[n] + entropy) / 2
        rows += len(ids)
        for layer in range(layers):
            context = encoder.contexts[layer][0].flatten(-2).double()
            gram[layer] += context.T @ context
            sums[layer] += context.sum(0)
    norm = inner.diagonal(dim1=1, dim2=2).sqrt()
    cka = torch.empty(layers, heads, heads, dtype=torch.float64)
    for layer in range(layers):
        out = encoder.projections(layer)[3].weight.double().unflatten(1, (heads, size))
        centered = (gram[layer] - torch.outer(sums[layer], sums[layer]) / rows).unflatten(0, (heads, size)).unflatten(2, (heads, size))
        ways = torch.einsum("ehd,egf->hdgf", out, out)
        # |X_h^T X_g|^2 = tr(G_gh Wo_h^T Wo_h G_hg Wo_g^T Wo_g), where G is the Gram matrix of the contexts
        own = torch.stack([ways[h, :, h] for h in range(heads)])
        cross = torch.einsum("hdgf,hde,hegi,gif->hg", centered, own, centered, own)
        cka[layer] = cross / (cross.diagonal()[:, None] * cross.diagonal()).sqrt()
    return {"cosine": (inner / norm[:, :, None] / norm[:, None, :]).numpy(), "js": (js / rows / math.log(2)).clamp_min(0).numpy(),
            "output_cka": cka.numpy()}


# ---- command line ----

PARTS = {"stats": stats, "jacobian": jacobian, "gradmag": gradmag, "loo": leave_one_out,
         "loo-reuse": lambda encoder, texts: leave_one_out(encoder, texts, True), "diversity": diversity}  # fmt: skip


def largest_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("part", choices=PARTS)
    options.add_argument("model")
    options.add_argument("texts")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--limit", type=int, help="use only the first N lines")
    options.add_argument("--batch", type=int, default=32, help="sentences per batch")
    options.add_argument("--values", action="store_true", help="also print the values of every head")
    a = options.parse_args()
    torch.set_num_threads(a.threads)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    encoder = Encoder(a.model)
    before, begin, cpu = largest_memory(), time.monotonic(), time.process_time()
    texts = Texts(a.model, a.texts, a.limit, a.batch)
    values = PARTS[a.part](encoder, texts)
    result = {"part": a.part, "sentences": len(texts.ids), "tokens": sum(map(len, texts.ids)), "threads": a.threads,
              "seconds": time.monotonic() - begin, "cpu_seconds": time.process_time() - cpu, "opened_mib": before,
              "peak_mib": largest_memory(), "torch": torch.__version__, "transformers": transformers.__version__}
    if a.values:
        result["values"] = {name: value.tolist() for name, value in values.items()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
