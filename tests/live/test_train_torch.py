"""Compares training with PyTorch: 200 steps of a small GPT-2 and a small LLaMA with the same weights, texts and options
(bench/train_torch.py). The losses must differ by at most 1e-4 in the first 50 steps and by at most 2 % in later steps, and the saved model
must have the same results in transformers.

With dropout, transformers applies the masks that mha/model_grads.h specifies. The losses agree only if mha applies the same masks at the
same sites, in the forward and the backward pass."""
import ctypes
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from hugging_face import torch  # imported first: skips the test if PyTorch is not installed
import numpy
import train_torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertConfig, GPT2Config, LlamaConfig

from mha._binding.abi import ModelInput, ModelOptions, TrainBatch, TrainOptions, TrainReport
from mha._binding.library import call, lib, struct

SMALL = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=97, max_position_embeddings=64)
CONFIGS = {"gpt2": GPT2Config(n_embd=48, n_layer=2, n_head=4, n_positions=64, vocab_size=97, initializer_range=0.1),
           "llama": LlamaConfig(**SMALL, initializer_range=0.1)}
# configurations with dropout, and their rates in the order of the three fields of mha_train_dropout
BERT = dict(SMALL, num_key_value_heads=4, initializer_range=0.1)
DROPPING = {"gpt2": (GPT2Config(n_embd=48, n_layer=2, n_head=4, n_positions=64, vocab_size=97, initializer_range=0.1, embd_pdrop=0.1,
                                attn_pdrop=0.2, resid_pdrop=0.3), (0.1, 0.2, 0.3)),
            "llama": (LlamaConfig(**SMALL, initializer_range=0.1, attention_dropout=0.2), (0, 0.2, 0)),
            "bert": (BertConfig(**BERT, hidden_dropout_prob=0.15, attention_probs_dropout_prob=0.25), (0.15, 0.25, 0.15))}

torch.set_num_threads(1)


class Trainer:
    def __init__(self, folder, o, **more):
        model, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        options = struct(TrainOptions, rate=o.rate, decay=o.decay, warmup=o.warmup, steps=o.steps, floor=o.floor, clip=o.clip, **more)
        call("mha_model_open", None, str(folder).encode(), ctypes.byref(struct(ModelOptions, no_tokenizer=1)), ctypes.byref(model))
        call("mha_trainer_create", model, ctypes.byref(options), ctypes.byref(self.handle))
        lib.mha_model_free(model)

    def step(self, ids, labels=None):
        ids = ids.to(torch.int32).contiguous()
        labels = labels if labels is None else labels.to(torch.int32).contiguous()
        given = struct(ModelInput, batch=ids.shape[0], length=ids.shape[1], ids=ids.data_ptr())
        report = TrainReport()
        call("mha_trainer_step", self.handle, ctypes.byref(TrainBatch(ctypes.pointer(given), labels is not None and labels.data_ptr() or None)), 1, ctypes.byref(report))
        return report.loss

    def save(self, folder):
        call("mha_trainer_save", self.handle, str(folder).encode(), None)

    def close(self):
        lib.mha_trainer_free(self.handle)


def number_of_splitmix(seed, n):
    """Returns element n = 1, 2, ... of the sequence of splitmix64 (Steele, Lea and Flood 2014)."""
    return next(train_torch.splitmix(seed + (n - 1) * 0x9E3779B97F4A7C15))


def philox(key, *counter):
    """Returns the first word of Philox4x32-10 (Salmon et al. 2011) for arrays of counters."""
    low, c = numpy.uint64(0xFFFFFFFF), [numpy.asarray(word, numpy.uint64) for word in counter]
    keys = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = numpy.uint64(0xD2511F53) * c[0], numpy.uint64(0xCD9E8D57) * c[2]
        c = [(b >> numpy.uint64(32)) ^ c[1] ^ numpy.uint64(keys[0]), b & low, (a >> numpy.uint64(32)) ^ c[3] ^ numpy.uint64(keys[1]), a & low]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


class Dropping:
    """Replaces torch.nn.functional.dropout. The calls of a forward pass correspond to the dropout sites of mha, in order; each call drops
    the elements that mha drops at its site."""

    def __init__(self, seed, shares, layers):
        self.seed, self.drawn = seed, 0
        sites = [(0, 0, shares[0])] + [(n, s, shares[1 if s == 1 else 2]) for n in range(layers) for s in (1, 2, 3)]
        self.sites = [site for site in sites if site[2] > 0]

    def begin(self, step):
        self.drawn = 0
        self.key = number_of_splitmix(number_of_splitmix(self.seed, step), 1)

    def __call__(self, x, p=0.5, training=True, inplace=False):
        if not training or p == 0:
            return x
        layer, site, share = self.sites[self.drawn]
        self.drawn += 1
        assert p == share and x.dim() == (4 if site == 1 else 3), (layer, site, p, x.shape)
        key = number_of_splitmix(self.key, 4 * layer + site + 1)
        b, *rest = numpy.ogrid[tuple(slice(n) for n in x.shape)]
        word = philox(key, b, *rest) if site == 1 else philox(key, b, 0, rest[1], rest[0])
        return x * torch.from_numpy(numpy.where(word < p * 2**32, 0, 1 / (1 - p)).astype(numpy.float32))


class AgainstTorch(unittest.TestCase):
    def follow(self, config):
        with tempfile.TemporaryDirectory() as place:
            folder, out = Path(place) / "start", Path(place) / "end"
            torch.manual_seed(11)
            AutoModelForCausalLM.from_config(config).save_pretrained(folder)
            o = train_torch.options([str(folder)])
            theirs, _, _ = train_torch.train(o)
            trainer = Trainer(folder, o)
            ours = [trainer.step(train_torch.batch(n, o.batch, o.length)) for n in range(1, o.steps + 1)]
            early = max(abs(a - b) for a, b in zip(ours[:50], theirs[:50]))
            late = max(abs(a - b) / b for a, b in zip(ours[50:], theirs[50:]))
            print(f"{config.model_type}: within {early:.1e} over 50 steps, then within {late:.2%}; {theirs[0]:.3f} to {theirs[-1]:.3f}")
            self.assertLess(early, 1e-4)
            self.assertLess(late, 0.02)
            self.assertLess(theirs[-1], 0.6 * theirs[0])
            trainer.save(out)
            model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
            ids = train_torch.batch(o.steps + 1, o.batch, o.length)
            with torch.no_grad():
                loss = model(ids, labels=ids).loss.item()
            self.assertLess(abs(trainer.step(ids) - loss), 1e-5)
            trainer.close()

    def drop(self, config, shares, steps=40):
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(12)
            masked = config.model_type == "bert"
            model = (AutoModelForMaskedLM if masked else AutoModelForCausalLM).from_config(config, attn_implementation="eager").train()
            model.save_pretrained(folder)
            o = train_torch.options([folder, "--steps", str(steps), "--warmup", "5"])
            trainer = Trainer(folder, o, dropout=shares, seed=1234567890123456789)
            optimizer, dropping = train_torch.optimizer_of(model, o), Dropping(1234567890123456789, shares, config.num_hidden_layers)
            most, losses = 0, []
            with unittest.mock.patch.object(torch.nn.functional, "dropout", dropping):
                for step in range(1, steps + 1):
                    ids = train_torch.batch(step, o.batch, o.length)
                    labels = torch.where(torch.arange(ids.numel()).view(ids.shape) % 3 == 0, ids, -100) if masked else ids
                    dropping.begin(step)
                    loss = model(ids, labels=labels).loss
                    self.assertEqual(dropping.drawn, len(dropping.sites))
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), o.clip)
                    for group in optimizer.param_groups:
                        group["lr"] = train_torch.rate_of(step, o)
                    optimizer.step()
                    optimizer.zero_grad()
                    losses.append(loss.item())
                    most = max(most, abs(trainer.step(ids, labels if masked else None) - losses[-1]))
            trainer.close()
            print(f"{config.model_type} with dropout: within {most:.1e} over {steps} steps; {losses[0]:.3f} to {losses[-1]:.3f}")
            self.assertLess(most, 1e-4)
            self.assertLess(losses[-1], losses[0])

    def test_dropout(self):
        for name, (config, shares) in DROPPING.items():
            with self.subTest(name):
                self.drop(config, shares)

    def test_gpt2(self):
        self.follow(CONFIGS["gpt2"])

    def test_llama(self):
        self.follow(CONFIGS["llama"])


if __name__ == "__main__":
    unittest.main()
