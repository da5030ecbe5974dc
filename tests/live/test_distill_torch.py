"""Compares distillation with PyTorch: the loss and the gradient of every parameter, for decoders and encoders. The losses compare softened
logits (combined with cross entropy), last hidden states, and text embeddings; teacher and student differ in layers and heads."""
import ctypes
import tempfile
import unittest
from pathlib import Path

from hugging_face import disturbed, torch  # imported first: skips the test if PyTorch is not installed
import numpy as np
import torch.nn.functional as F
from transformers import BertConfig, BertForMaskedLM, BertModel, Gemma2Config, GPT2Config
from transformers import AutoModelForCausalLM

from mha._binding.abi import ModelDistill, ModelInput, ModelLossArgs, ModelOptions
from mha._arrays.array import view
from mha._binding.library import call, lib, struct

torch.set_num_threads(1)
B, L, VOCAB = 3, 11, 61
BERT = dict(hidden_size=24, intermediate_size=40, vocab_size=VOCAB, max_position_embeddings=32, initializer_range=0.2)
GEMMA = dict(hidden_size=24, intermediate_size=40, vocab_size=VOCAB, num_key_value_heads=2, head_dim=6, query_pre_attn_scalar=6,
             final_logit_softcapping=3.0, initializer_range=0.2)
# The configurations of the student and the teacher.
PAIRS = {
    "gpt2": [GPT2Config(n_embd=24, n_layer=n, n_head=h, n_positions=32, vocab_size=VOCAB, initializer_range=0.2)
             for n, h in ((2, 3), (3, 4))],
    "gemma2": [Gemma2Config(**GEMMA, num_hidden_layers=n, num_attention_heads=4) for n in (1, 2)],
    "bert-mlm": [BertConfig(**BERT, num_hidden_layers=n, num_attention_heads=h) for n, h in ((2, 3), (1, 4))],
    "bert": [BertConfig(**BERT, num_hidden_layers=n, num_attention_heads=h) for n, h in ((2, 2), (2, 6))],
}
CLASSES = {"bert-mlm": BertForMaskedLM, "bert": lambda config: BertModel(config, add_pooling_layer=False)}
TERMS = {"logits": dict(labels=0.4, logits=0.6, temperature=1.7), "divergence": dict(logits=1.0, temperature=3.0),
         "states": dict(hidden=0.8), "texts": dict(text=1.5), "first token": dict(text=1.0, pool=1)}


def make(kind, config, seed):
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    model = CLASSES[kind](config) if kind in CLASSES else AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    return disturbed(model).eval()


def opened(model, folder):
    model.save_pretrained(folder)
    handle = ctypes.c_void_p()
    call("mha_model_open", None, str(folder).encode(), ctypes.byref(struct(ModelOptions, no_tokenizer=1)), ctypes.byref(handle))
    return handle


def batch(causal):
    draw = np.random.default_rng(4)
    ids, mask = draw.integers(1, VOCAB, (B, L)), np.ones((B, L), np.int64)
    mask[1, 7:] = 0
    labels = np.where((mask == 1) & (draw.random((B, L)) < (0.9 if causal else 0.4)), draw.integers(0, VOCAB, (B, L)), -100)
    return torch.tensor(ids), torch.tensor(mask), torch.tensor(labels)


def vectors(states, mask, pool):
    v = states[:, 0] if pool else (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return F.normalize(v, dim=-1)


def run(model, ids, mask):
    """Runs a model; returns its logits (None if it has none) and hidden states."""
    out = model(ids, attention_mask=mask, output_hidden_states=True)
    return getattr(out, "logits", None), out.hidden_states[-1]


def torch_loss(student, teacher, ids, mask, labels, causal, d):
    logits, states = run(student, ids, mask)
    with torch.no_grad():
        of_teacher, other = run(teacher, ids, mask)
    loss, real = 0.0, mask.bool()
    if d.get("labels") or d.get("logits"):
        rows, wanted, own = (slice(None, -1), labels[:, 1:], real[:, :-1]) if causal else (slice(None), labels, real)
        counted = (wanted != -100) & own
        x, y, T = logits[:, rows][counted], of_teacher[:, rows][counted], d["temperature"]
        divergence = F.kl_div(F.log_softmax(x / T, -1), F.log_softmax(y / T, -1), log_target=True, reduction="batchmean")
        loss = d.get("labels", 0) * F.cross_entropy(x, wanted[counted]) + d["logits"] * T * T * divergence
    if d.get("hidden"):
        loss = loss + d["hidden"] * F.mse_loss(states[real], other[real])
    if d.get("text"):
        u, v = (vectors(x, mask.to(x.dtype), d.get("pool", 0)) for x in (states, other))
        loss = loss + d["text"] * (1 - (u * v).sum(-1)).mean()
    return loss


class AgainstTorch(unittest.TestCase):
    def compare(self, kind, d):
        causal = kind in ("gpt2", "gemma2")
        ids, mask, labels = batch(causal)
        student, teacher = (make(kind, config, n) for n, config in enumerate(PAIRS[kind]))
        with tempfile.TemporaryDirectory() as place:
            handles = [opened(m, Path(place) / name) for m, name in ((student, "student"), (teacher, "teacher"))]
            loss, grads, count = ctypes.c_double(), ctypes.c_void_p(), ctypes.c_int64()
            given = [np.ascontiguousarray(x.numpy(), dtype=t) for x, t in ((ids, np.int32), (mask, np.uint8), (labels, np.int32))]
            args = struct(ModelLossArgs, labels=given[2].ctypes.data, teacher=handles[1], distill=ModelDistill(**d))
            call("mha_model_grads_create", handles[0], None, ctypes.byref(grads))
            given_ids = struct(ModelInput, batch=B, length=L, ids=given[0].ctypes.data, mask=given[1].ctypes.data)
            call("mha_model_grads_loss", grads, ctypes.byref(given_ids), ctypes.byref(args), ctypes.byref(loss), None)
            want = torch_loss(student.double(), teacher.double(), ids, mask, labels, causal, d)
            want.backward()
            self.assertLess(abs(loss.value - want.item()), 2e-6 * (1 + abs(want.item())), f"{kind} {d}")
            wanted, worst = dict(student.named_parameters()), 0.0
            listed = lib.mha_model_grads_list(grads, ctypes.byref(count))
            top = max(p.grad.abs().max().item() for p in wanted.values() if p.grad is not None)
            for t in listed[:count.value]:
                name = t.name.decode()
                theirs = wanted.get(name, wanted.get(name.replace("decoder.bias", "bias"))).grad
                shape = [t.shape[i] for i in range(t.rank)]
                ours = view(t.data, np.float32, shape)
                off = np.abs(ours - (0 if theirs is None else theirs.numpy())).max()
                self.assertLess(off, 5e-6 * top, f"{kind} {d} {name}")
                worst = max(worst, off / top)
            print(f"{kind} {d}: loss {loss.value:.6f}, largest gradient error {worst:.1e}, relative to the largest gradient")
            lib.mha_model_grads_free(grads)
            for handle in handles:
                lib.mha_model_free(handle)

    def test_all(self):
        for kind in PAIRS:
            for name, d in TERMS.items():
                if kind != "bert" or not d.get("logits"):
                    self.compare(kind, d)


if __name__ == "__main__":
    unittest.main()
