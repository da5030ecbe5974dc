#!/usr/bin/env python3
"""Writes tests/golden/data/tokenizer/trained.json: texts, and the vocabularies and merges that the trainers of the
tokenizers library learn from them.

    python tests/golden/make_trained_golden.py [OUT]

The library numbers the characters inside words (##a) at random, which decides between equal counts. Characters and ##
characters are passed as special tokens, sorted by code point, so that the result is unique.
"""

import json
import os
import sys

import tokenizers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
SPECIAL = {"bpe": ["<|endoftext|>"], "wordpiece": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]}

PROSE = """The head that looks at the token before it, the head that looks at the first token, and the head that looks nowhere:
which of them matters? Take one away, and see what the others do. A head is not what it looks at, but what is lost without it.

Heads that repeat: what came after this token when it came before? Induction, it is called; it is learned late, and then at once.
    "Don't look at the map, we'll look at what it's for," they said, and they've said so again and again and again.
1 22 333 4444 55555 1 22 333 1 22; 3.14159, 2.71828, 3.14159.
"""
OTHER = ("Über Straßen, naïve façades; E\u0301tude e\u0301tude, İstanbul, ΑΣ ας, \u65e5\u672c\u8a9e \u65e5\u672c, \ud55c\uad6d\uc5b4 \ud55c\uad6d, "
         "\U0001f600\U0001f600 \U0001f469\u200d\U0001f52c\r\n\n\n   \t \u00a0\u3000x  y \n[MASK] <|endoftext|> ### ## # a_b __x__\u2028z\0w\n")
TEXTS = {
    "prose": PROSE * 2 + PROSE.lower(),
    "other": OTHER * 3 + PROSE,
    "ties": "".join(f"{a}{b}{c} " for a in "abc" for b in "abc" for c in "abc") + "\n" + "ab" * 40 + "\n" + "a" * 33 + "\n",
    "long": "abcab" * 500 + " " + "aab" * 700 + "\n",
}
CASES = [("bpe", "prose", 400, 2, 0), ("bpe", "other", 420, 1, 0), ("bpe", "ties", 300, 1, 0), ("bpe", "long", 330, 1, 0),
         ("wordpiece", "prose", 220, 2, 0), ("wordpiece", "prose", 220, 2, 1), ("wordpiece", "other", 260, 1, 0), ("wordpiece", "other", 260, 2, 1),
         ("wordpiece", "ties", 60, 1, 0), ("wordpiece", "long", 70, 1, 0)]


def make(kind, lowercase):
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=bool(lowercase))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def first_tokens(tokenizer, lines):
    words = [word for line in lines for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(line))]
    inner = {c for word in words for c in word[1:]}
    return SPECIAL["wordpiece"] + sorted({c for word in words for c in word}) + ["##" + c for c in sorted(inner)]


def learn(kind, text, size, frequency, lowercase):
    tokenizer = make(kind, lowercase)
    lines = text.splitlines(keepends=True) if "\u2028" not in text else [line + "\n" for line in text.split("\n")[:-1]]
    options = {"vocab_size": size, "min_frequency": frequency, "show_progress": False}
    if kind == "bpe":
        trainer = trainers.BpeTrainer(special_tokens=SPECIAL[kind], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)
    else:
        trainer = trainers.WordPieceTrainer(special_tokens=first_tokens(tokenizer, lines), **options)
    tokenizer.train_from_iterator(lines, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    assert [model["vocab"][t] for t in tokens] == list(range(len(tokens)))
    return {"tokens": tokens, "merges": "".join(f"{a} {b}\n" for a, b in model.get("merges", []))}


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "data", "tokenizer", "trained.json")
    cases = [{"type": kind, "text": text, "vocab_size": size, "min_frequency": frequency, "lowercase": lowercase,
              **learn(kind, TEXTS[text], size, frequency, lowercase)} for kind, text, size, frequency, lowercase in CASES]
    with open(out, "w", encoding="utf-8") as f:
        json.dump({"made_with": f"tokenizers {tokenizers.__version__}", "texts": TEXTS, "cases": cases}, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
