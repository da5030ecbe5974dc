"""Tests every integer argument of the package with values beyond 64 bits, which ctypes would wrap without an error."""
import dataclasses
import inspect
import unittest

import mha
import numpy as np

BEYOND = (2**64, -2**63 - 1, 2**200, -2**200)
MODEL = mha.Model()
IDS = MODEL.tokenize("the cat sat on the mat")
TEXTS = ["the cat sat on the mat"]
Q = np.ones((1, 2, 4, 8), np.float32)
ROWS = np.ones((1, 4, 8), np.float32)
EYE = mha.Matrix(np.eye(8))
PROJECTIONS = {"q": EYE, "k": EYE, "v": EYE}
RNG = mha.Rng(1)


def _data():
    data = mha.TrainData(4, MODEL.vocabulary, tokenizer=MODEL)
    data.add_texts(TEXTS * 4)
    data.finish()
    return data


CACHE = mha.Cache(1, 2, 8)
CACHE.append(Q, Q)
MODEL_CACHE = mha.ModelCache(MODEL)
DATA, TRAIN_DATA = mha.HeadData(MODEL, TEXTS), _data()
TRAIN = mha.TrainOptions(rate=0.01, steps=1)
LAYOUT = mha.HeadLayoutOptions(16, heads=4, layers=1, vocab=MODEL.vocabulary, seq=4, batch=2)
LAYOUT_TRAINING = mha.LayoutTraining(LAYOUT, TRAIN, TRAIN_DATA)
VARIANT = mha.MoeHeads(d_model=8, num_heads=4, top_k=2)
VARIANT.init(RNG)
TRACE = VARIANT.forward(ROWS, trace=True)[1]
PAIR = mha.PromptPair(MODEL, IDS, IDS, IDS[0], IDS[1])
LAYER = mha.AttnLayer(2, EYE, **PROJECTIONS)
BLOCK = mha.Block(2, EYE, **PROJECTIONS, attn_norm=mha.Norm(np.ones(8), np.zeros(8)))
GATES = np.ones((2, 8))


def of(function, *arguments, **options):
    """Returns {argument: a call with the integer as this argument} for the names in `options`, whose values are valid."""
    def one(name):
        return lambda n: function(*arguments, **{**options, name: n})
    return {name: one(name) for name in options if isinstance(options[name], int) and not isinstance(options[name], bool)}


SIZES = {"batch": 1, "kv_heads": 2, "head_dim": 8, "v_head_dim": 8, "page_size": 16, "capacity": 0, "window": 0, "keep_first": 0}
ATTENTION = {**of(mha.attention, Q, Q, Q, threads=1, dropout=0.5, seed=0),
             "top_keys": lambda n: mha.attention(Q, Q, Q, return_stats=True, top_keys=n),
             "window": lambda n: mha.attention(Q, Q, Q, window=(n, 0)),
             "block_size": lambda n: mha.attention(Q, Q, Q, block_keep=np.ones((1, 1), bool), block_size=(n, 4)),
             "offsets": lambda n: mha.attention(Q, Q, Q, causal=True, offsets=[n]), "kv_lens": lambda n: mha.attention(Q, Q, Q, kv_lens=[n])}

# {name of the function: {argument: call with the integer}}
TABLE = {
    "AdaptiveHeads": of(mha.AdaptiveHeads, head_options=[1, 2], d_model=8, predictor_width=0),
    "AttnLayer": of(mha.AttnLayer, o=EYE, **PROJECTIONS, heads=2, kv_heads=0, v_heads=0, head_dim=0),
    "AttnLayer.forward": {"sequence": lambda n: LAYER.forward(ROWS, sequence=n)},
    "Block": of(mha.Block, o=EYE, **PROJECTIONS, heads=2),
    "Block.forward": {"sequence": lambda n: BLOCK.forward(ROWS, sequence=n)},
    "Cache": of(mha.Cache, **SIZES),
    "Cache.append": {**of(CACHE.append, Q, Q, sequence=0), "counts": lambda n: CACHE.append(Q, Q, counts=[n])},
    "Cache.attend": {**of(CACHE.attend, Q, Q, Q, sequence=0, threads=1), "counts": lambda n: CACHE.attend(Q, Q, Q, counts=[n]),
                     "window": lambda n: CACHE.attend(Q, Q, Q, window=(n, 0))},
    "Cache.attention": {**of(CACHE.attention, Q, sequence=0, threads=1), "q_lens": lambda n: CACHE.attention(Q, q_lens=[n]),
                        "window": lambda n: CACHE.attention(Q, window=(0, n))},
    "Cache.clear": of(CACHE.clear, sequence=0),
    "Cache.fork": of(CACHE.fork, from_=0, to=0, length=0),
    "Cache.length": of(CACHE.length, sequence=0),
    "Cache.truncate": of(CACHE.truncate, length=4, sequence=0),
    "CausalAttention": of(mha.CausalAttention, d_in=4, d_out=2, context_length=5),
    "Functions": of(mha.Functions, user=0),
    "GroupedQuery": of(mha.GroupedQuery, d_model=8, num_heads=4, num_kv_heads=1, kv_groups=0),
    "HeadChoice": {"keep": lambda n: mha.AttnLayer(2, EYE, **PROJECTIONS, choice=mha.HeadChoice("heads", mha.Matrix(np.eye(2, 8)), keep=n)),
                   "options": lambda n: mha.AttnLayer(2, EYE, **PROJECTIONS, choice=mha.HeadChoice(
                       "options", mha.Matrix(np.eye(1, 8)), options=(n,)))},
    "HeadData": of(mha.HeadData, MODEL, TEXTS, max_tokens=4, batch_tokens=0),
    "HeadData.ids": of(DATA.ids, text=0),
    "HeadData.mask": {"seed": lambda n: DATA.mask(MODEL, seed=n)},
    "HeadData.of_pairs": of(mha.HeadData.of_pairs, MODEL, [("a", "b")], max_tokens=4, batch_tokens=0),
    "HeadLayoutOptions": {name: (lambda n, name=name: mha.head_layout_resolve(dataclasses.replace(LAYOUT, **{name: n})))
                          for name in ("d_model", "heads", "layers", "vocab", "seq", "batch", "parameters", "experts", "top_k")},
    "HeadPruning": of(mha.HeadPruning, prune_ratio=0.5, d_model=8, num_heads=4),
    "Heads.map": {},  # keys of a dict
    "LayoutTraining": {name: (lambda n, name=name: mha.layout_models(dataclasses.replace(LAYOUT_TRAINING, **{name: n})))
                       for name in ("held_out_sequences", "feed_forward", "mask")},
    "LlamaAttention": of(mha.LlamaAttention, hidden_size=8, num_heads=2, num_kv_heads=0, context_length=0),
    "Model": of(mha.Model, threads=1),
    "Model.create": {"seed": lambda n: mha.Model.create({"model_type": "gpt2"}, seed=n)},
    "Model.encode": of(MODEL.encode, "the cat", max_tokens=0),
    "Model.forward": {**of(MODEL.forward, [IDS], sequence=0), "first_layer": lambda n: MODEL.forward(
        [IDS], states=np.zeros((1, len(IDS), 128)), first_layer=n), "top_keys": lambda n: MODEL.forward([IDS], stats=True, top_keys=n)},
    "Model.generate": of(MODEL.generate, IDS, n=1, top_k=0, seed=0, no_repeat_ngram=0, lookup=0, min_new=0, at_once=0),
    "Model.is_special": of(MODEL.is_special, id=0),
    "Model.token": of(MODEL.token, id=0),
    "Model.token_times": of(MODEL.token_times, np.zeros((80, 3000)), IDS, prompt=1, frames=0, median_width=0),
    "Model.tokenize": of(MODEL.tokenize, "the cat", max_tokens=0),
    "ModelCache": of(mha.ModelCache, MODEL, batch=1, tokens=0, page_size=0),
    "ModelCache.clear": of(MODEL_CACHE.clear, sequence=0),
    "ModelCache.fork": of(MODEL_CACHE.fork, from_=0, to=0, length=0),
    "ModelCache.length": of(MODEL_CACHE.length, sequence=0),
    "ModelCache.longest": of(MODEL_CACHE.longest, sequence=0),
    "ModelCache.truncate": of(MODEL_CACHE.truncate, length=0, sequence=0),
    "ModelGrads.dropout": {"seed": lambda n: mha.ModelGrads(MODEL).dropout(0.1, seed=n)},
    "MoeHeads": of(mha.MoeHeads, d_model=8, num_heads=4, num_experts=0, top_k=0),
    "Plan": {**of(mha.Plan, Q, Q, Q, threads=1), "top_keys": lambda n: mha.Plan(Q, Q, Q, return_stats=True, top_keys=n)},
    "PromptPair": of(mha.PromptPair, MODEL, IDS, IDS, answer=1, wrong=2, position=0),
    "PromptPair.knockout": {"edges": lambda n: PAIR.knockout([(0, n, 0, 0)])},
    "PromptPair.map": of(PAIR.map, layer=0, head=0),
    "PromptPair.patch_together": {"position": lambda n: PAIR.patch_together([("z", 0, 0, n)]),
                                  "layer": lambda n: PAIR.patch_together([("z", n, 0, 0)])},
    "QkvAttention": of(mha.QkvAttention, input_dim=6, num_heads=2, output_dim=8),
    "Rng": of(mha.Rng, seed=0),
    "Rng.embedding": of(RNG.embedding, rows=2, width=2, padding=0),
    "Rng.kaiming_uniform": of(RNG.kaiming_uniform, out=2, in_=2),
    "Rng.linear": of(RNG.linear, in_=2, out=2),
    "Rng.manual_seed": of(RNG.manual_seed, seed=0),
    "Rng.multihead": of(RNG.multihead, width=2),
    "Rng.multinomial": {"n": lambda n: RNG.multinomial([1.0, 1.0], n)},
    "Rng.randint": {"low": lambda n: RNG.randint(n, 2, 3), "high": lambda n: RNG.randint(0, n, 3)},
    "Rng.randperm": of(RNG.randperm, n=2),
    "Rng.xavier_uniform": of(RNG.xavier_uniform, out=2, in_=2),
    "Rope": {**of(mha.Rope, head_dim=8, rotary_dim=8), "max_positions": lambda n: mha.Rope(8, kind="linear", factor=2.0, max_positions=n),
             "original_positions": lambda n: mha.Rope(8, kind="yarn", factor=2.0, original_positions=n)},
    "Rope.angles": {"positions": lambda n: mha.Rope(8).angles(n)},
    "Rope.frequencies": of(mha.Rope(8).frequencies, length=1),
    "Rope.table": of(mha.Rope(8).table, positions=1),
    "SelfAttention": of(mha.SelfAttention, d_in=4, d_out=3),
    "StackedHeads": of(mha.StackedHeads, d_in=4, d_out=4, num_heads=2, context_length=0),
    "StandardMha": of(mha.StandardMha, d_model=8, num_heads=2),
    "TextStream.put": of(MODEL.stream().put, id=1),
    "TokenizerTrainer": of(mha.TokenizerTrainer, kind="bpe", vocab_size=300, min_frequency=0, alphabet=0),
    "Trace.chosen": of(TRACE.chosen, sample=0),
    "Trace.heads": of(TRACE.heads, sample=0),
    "TrainData": of(mha.TrainData, length=4, vocab=10, first=-1, end=-1),
    "TrainData.batch": of(TRAIN_DATA.batch, step=1, size=1, seed=0),
    "TrainData.sequence": of(TRAIN_DATA.sequence, n=0),
    "TrainDigest.add_number": of(mha.TrainDigest().add_number, number=1),
    "TrainGates": {name: (lambda n, name=name: mha.train_rate(dataclasses.replace(TRAIN, gates=mha.TrainGates(**{name: n})), 1))
                   for name in ("start", "ramp", "end", "heads")},
    "TrainLog.read": {"step": lambda n: mha.TrainLog().read(b"", n)},
    "TrainOptions": {name: (lambda n, name=name: mha.train_rate(dataclasses.replace(TRAIN, **{name: n}), 1))
                     for name in ("warmup", "steps", "seed", "workers")},
    "TrainStore.keep": {"count": lambda n: mha.TrainStore.keep(mha.TrainStore("unused"), n)},
    "WeightSplit": of(mha.WeightSplit, d_in=6, d_out=6, num_heads=2, context_length=0),
    "attention": ATTENTION,
    "attention_backward": {**of(mha.attention_backward, Q, Q, Q, Q, Q, np.zeros((1, 2, 4), np.float32), threads=1, seed=0, dropout=0.5),
                           "window": lambda n: mha.attention_backward(Q, Q, Q, Q, Q, np.zeros((1, 2, 4), np.float32), window=(n, 0)),
                           "block_size": lambda n: mha.attention_backward(Q, Q, Q, Q, Q, np.zeros((1, 2, 4), np.float32),
                                                                          block_keep=np.ones((1, 1), bool), block_size=(4, n))},
    "attention_plan": {**of(mha.attention_plan, Q, Q, Q, threads=1, dropout=0.5, seed=0),
                       "top_keys": lambda n: mha.attention_plan(Q, Q, Q, return_stats=True, top_keys=n),
                       "window": lambda n: mha.attention_plan(Q, Q, Q, window=(0, n)),
                       "block_size": lambda n: mha.attention_plan(Q, Q, Q, block_keep=np.ones((1, 1), bool), block_size=(n, 4))},
    "audio_features": of(mha.audio_features, np.zeros(400, np.float32), bins=80, frames=1),
    "cross_head_number": of(mha.cross_head_number, MODEL, layer=0, head=0),
    "cross_head_place": of(mha.cross_head_place, MODEL, layer=0, number_=0),
    "diversity_measure": of(mha.diversity_measure, MODEL, DATA, max_rows=8),
    "embedding_backward": of(mha.embedding_backward, [1, 1], [[1, 2], [3, 4]], count=3),
    "head_number": of(mha.head_number, MODEL, layer=0, head=0),
    "head_place": of(mha.head_place, MODEL, layer=0, number_=0),
    "head_rollout": of(mha.head_rollout, MODEL, DATA, text=0),
    "head_weights": of(mha.head_weights, MODEL, layer=0, head=0),
    "heads_measure": of(mha.heads_measure, MODEL, DATA, seed=0),
    "held_out_split": of(mha.held_out_split, count=4),
    "importance_measure": of(mha.importance_measure, MODEL, DATA, probes=1, batch_texts=0, seed=0),
    "importance_pairs": of(mha.importance_pairs, MODEL, DATA, batch_texts=0),
    "knockout_logits": {"edges": lambda n: mha.knockout_logits(MODEL, IDS, [(n, 0, 0, 0)])},
    "layout_train": {"seed": lambda n: mha.layout_train(LAYOUT_TRAINING, mha.layout_models(LAYOUT_TRAINING)[0], n)},
    "logit_attribution": of(mha.logit_attribution, MODEL, IDS, answer=1, wrong=2, position=0),
    "logit_lens": of(mha.logit_lens, MODEL, IDS, top=1),
    "prompt_noise": of(mha.prompt_noise, MODEL, positions=[0], length=2, seed=0),
    "prune_choose": of(mha.prune_choose, MODEL, GATES, count=1, floor=0),
    "prune_choose_joint": of(mha.prune_choose_joint, MODEL, DATA, count=1, floor=0, rounds=0),
    "prune_choose_joint_kinds": {},  # of encoder-decoders; the same rule as prune_choose_joint
    "prune_choose_kinds": {},
    "prune_most": of(mha.prune_most, MODEL, floor=0),
    "prune_search": of(mha.prune_search, MODEL, DATA, scores=GATES, floor=0),
    "regroup": of(mha.regroup, MODEL, method="mean", key_heads=4, value_heads=4),
    "report": of(mha.report, MODEL, TEXTS, seed=0),
    "sampling_apply": of(mha.sampling_apply, [1.0, 2.0], top_k=1, no_repeat_ngram=0),
    "set_threads": of(mha.set_threads, n=1),
    "student_quantile": of(mha.student_quantile, freedom=3),
    "train": {**of(mha.train, MODEL, TRAIN_DATA, TRAIN, batch=1, every=1),
              "mask": lambda n: mha.train(MODEL, TRAIN_DATA, TRAIN, mask=n)},
    "train_mask_tokens": of(mha.train_mask_tokens, MODEL, IDS, index=0, mask=1, vocab=10, seed=0),
    "train_rate": of(mha.train_rate, TRAIN, step=1),
    "train_sequence_order": of(mha.train_sequence_order, seed=0, epoch=0, index=0, count=4),
}
TABLE |= {f"Tokenizer.{name}": TABLE[f"Model.{name}"] for name in ("encode", "is_special", "token", "tokenize")}
RESULTS = {name for name in dir(mha) if dataclasses.is_dataclass(getattr(mha, name))}  # made by the package, except those in the table


def _public():
    """Returns {name: function} of the functions, constructors and methods of the package."""
    found = {}
    for name, x in inspect.getmembers(mha):
        if name.startswith("_") or not callable(x):
            continue
        if not inspect.isclass(x):
            found[name] = x
            continue
        if name not in RESULTS or name in TABLE:
            found[name] = x.__init__
        if name not in RESULTS:
            found |= {f"{name}.{method}": f for method, f in inspect.getmembers(x, inspect.isroutine) if not method.startswith("_")}
    return found


class Integers(unittest.TestCase):
    def test_the_table_is_complete(self):
        for name, function in _public().items():
            parameters = inspect.signature(function).parameters.values() if hasattr(function, "__code__") else ()
            named = {p.name for p in parameters if p.annotation in ("int", "int | None")}
            if named:
                with self.subTest(name):
                    self.assertIn(name, TABLE)
                    if TABLE[name]:
                        self.assertEqual(named - set(TABLE[name]), set())

    def test_beyond_64_bits(self):
        for function, arguments in TABLE.items():
            for name, use in arguments.items():
                for n in BEYOND:
                    with self.subTest(function=function, argument=name, n=n), \
                            self.assertRaisesRegex(ValueError, rf"(^|\.){name}.* must be from .*\(got {n}"):
                        use(n)


if __name__ == "__main__":
    unittest.main()
