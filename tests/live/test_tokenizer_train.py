"""Compares trained tokenizers with those of the tokenizers library: the same lines must give the same vocabulary and
merges, and the saved folders must give the same ids in tokenizers and transformers.

The library assigns ids to the ## characters of WordPiece in random order. The test therefore passes them as special tokens, in the order of
mha, so that both learn the tokens in the same order.

MHA_SEED=N repeats a run; MHA_CASES=N sets the number of random texts."""
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import AutoTokenizer
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

MHA = os.environ["MHA"]
SEED = int(os.environ.get("MHA_SEED") or random.SystemRandom().randrange(1 << 32))
CASES = int(os.environ.get("MHA_CASES") or 60)
SPECIAL = {"bpe": ["<|endoftext|>"], "wordpiece": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]}

WORDS = ("the of and harbour unbelievable İstanbul Straße naïve e\u0301 a\u030a\u0323 don't we're 'LL 3.14 [MASK] <|endoftext|> 日本 한국어 "
         "ΑΣ ǅ \u200b \u00ad ﬁ 👩‍🔬 \U0002f800 ### ## # \u0661\u0662 \u00bd ... ==== \u2581").split() + ["  ", "   ", "\t", "\r", "\x00", "\u00a0", "\u3000 ", "\u2028"]


# Lines of only these characters are blank, so `mha tokenize -f` skips them.
WHITE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200b)))


def random_lines(rng):
    """Returns random lines, with and without newlines: of few characters, so that many pairs have equal counts, or of various words."""
    letters = rng.choice(["ab", "aab", "abc", "abcdefgh", "aé", "日本a"])
    kinds = rng.choice([("few",), ("words",), ("few", "words"), ("few", "words", "any", "long")])
    lines = []
    for _ in range(rng.choice([1, 5, 40])):
        pieces = []
        for _ in range(rng.choice([0, 1, 8, 40])):
            kind = rng.choice(kinds)
            if kind == "few":
                pieces.append("".join(rng.choice(letters) for _ in range(rng.randrange(1, 9))))
            elif kind == "words":
                pieces.append(rng.choice(WORDS))
            elif kind == "long":
                pieces.append(rng.choice(letters) * rng.randrange(1, 300))
            else:
                pieces.append(chr(rng.choice([rng.randrange(0x20, 0x300), rng.randrange(0x370, 0xD800), rng.randrange(0xE000, 0x30000)])))
            pieces.append(rng.choice([" ", " ", " ", "", "  "]))
        lines.append("".join(pieces).replace("\n", " ") + "\n")
    if rng.randrange(2):
        lines[-1] = lines[-1][:-1]
    return lines


def learn_here(kind, size, frequency, lines, folder, *more):
    text = Path(folder, "text")
    text.write_bytes("".join(lines).encode())
    out = Path(folder, "out")
    done = subprocess.run([MHA, "tokenizer", "train", "--type", kind, "--vocab-size", str(size), "--min-frequency", str(frequency), "-o", out,
                           "--force", "-q", "-f", text, *more], capture_output=True, text=True)
    return out if done.returncode == 0 else done.stderr


def learn_there(kind, size, frequency, lines, lowercase, order, alphabet=None):
    """Trains a tokenizer with the library and returns its model. `order` lists the tokens with the first ids."""
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=frequency, special_tokens=order, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=size, min_frequency=frequency, special_tokens=order, show_progress=False,
                                            **({"limit_alphabet": alphabet} if alphabet else {}))
    tokenizer.train_from_iterator(lines, trainer)
    return json.loads(tokenizer.to_str())["model"]


def first_tokens(kind, vocab):
    """Returns the tokens that precede the merged tokens, in the order of their ids."""
    tokens = sorted(vocab, key=vocab.get)
    count = len(SPECIAL[kind])
    if kind == "wordpiece":
        while count < len(tokens) and len(tokens[count].removeprefix("##") or "#") == 1:
            count += 1
    return tokens[:count]


class Training(unittest.TestCase):
    def equal(self, kind, size, frequency, lines, lowercase=False):
        lowercase = lowercase and kind == "wordpiece"
        with tempfile.TemporaryDirectory() as folder:
            out = learn_here(kind, size, frequency, lines, folder, *(["--lowercase"] if lowercase else []))
            if isinstance(out, str):
                self.refused(out, size, learn_there(kind, size, frequency, lines, lowercase, SPECIAL[kind])["vocab"], kind)
                return
            here = json.loads((out / "tokenizer.json").read_text())["model"]
            there = learn_there(kind, size, frequency, lines, lowercase, first_tokens(kind, here["vocab"]))
            self.assertEqual(here["vocab"], there["vocab"])
            self.assertEqual(here.get("merges"), there.get("merges"))
            self.loads(out, lines)

    def refused(self, sentence, size, vocab, kind):
        """Checks the reason for a rejection by mha: the vocabulary of the tokenizers library must exceed `size` or contain no learned token."""
        if "vocab_size must be at least" in sentence:
            self.assertGreater(len(vocab), size)
        else:
            self.assertIn("text must contain words", sentence)
            self.assertEqual(len(vocab), len(SPECIAL[kind]) + (256 if kind == "bpe" else 0))

    def loads(self, folder, lines):
        """mha, tokenizers and transformers must encode the lines to the same ids with the saved folder."""
        lines = [line for line in (line.strip("\r\n") for line in lines[:20]) if "\x00" not in line and line.strip(WHITE + "\ufeff")]
        lines[:1] = [line.removeprefix("\ufeff") for line in lines[:1]]
        Path(folder, "..", "lines").write_bytes("".join(line + "\n" for line in lines).encode())
        if not lines:
            return
        done = subprocess.run([MHA, "tokenize", "--json", "-m", folder, "-f", Path(folder, "..", "lines")], capture_output=True, text=True, check=True)
        ids = [json.loads(line)["ids"] for line in done.stdout.splitlines()]
        library, wrapped = Tokenizer.from_file(str(folder / "tokenizer.json")), AutoTokenizer.from_pretrained(folder)
        for line, want in zip(lines, ids, strict=True):
            self.assertEqual(library.encode(line).ids, want, repr(line))
            self.assertEqual(wrapped(line)["input_ids"], want, repr(line))

    def test_random(self):
        for case in range(CASES):
            rng = random.Random(f"{SEED} {case}")
            lines = random_lines(rng)
            kind = rng.choice(["bpe", "wordpiece"])
            size = rng.choice([30, 262, 280, 400, 2000])
            frequency = rng.choice([1, 2, 3])
            with self.subTest(f"MHA_SEED={SEED} case {case}: {kind} {size} {frequency}"):
                self.equal(kind, size, frequency, lines, rng.choice([True, False]))

    def test_real(self):
        sources = sorted(glob.glob("src/**/*.c", recursive=True))[:60] + ["README.md", "CHANGELOG.md", "docs/heads.md"]
        lines = "".join(Path(s).read_text() for s in sources).splitlines(keepends=True)
        for kind in ("bpe", "wordpiece"):
            with self.subTest(kind):
                self.equal(kind, 3000, 2, lines, True)

    def test_alphabet(self):
        """Characters beyond the alphabet limit must be removed from words. All characters have different counts, so the alphabet is
        unambiguous."""
        lines = ["".join(c * n for n, c in enumerate("zyxwvutsrq", 1)) + " " + "zq yr xs" + "\n"] * 3
        with tempfile.TemporaryDirectory() as folder:
            here = json.loads((learn_here("wordpiece", 60, 1, lines, folder, "--alphabet", "6") / "tokenizer.json").read_text())["model"]["vocab"]
        there = learn_there("wordpiece", 60, 1, lines, False, first_tokens("wordpiece", here), 6)["vocab"]
        self.assertEqual(here, there)


if __name__ == "__main__":
    print(f"MHA_SEED={SEED}")
    unittest.main()
