"""Compares the tokenizer with the tokenizers library for every folder of golden/data/tokenizer. For random texts and pairs, ids, type ids,
byte offsets and the decoded text must be equal. For random ids, the text decoded in one call and as a stream must be equal. MHA_SEED=N
repeats a run; MHA_CASES=N sets the number of texts per folder."""
import ctypes
import itertools
import os
import random
import sys
import unittest
from ctypes import POINTER, byref, c_int32, c_size_t, c_void_p
from pathlib import Path

try:
    from tokenizers import Tokenizer
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from mha._binding.abi import EncodeOptions, Encoding
from mha._arrays.array import view
from mha._binding.library import call, lib

FOLDERS = sorted(p for p in (Path(__file__).resolve().parents[1] / "golden/data/tokenizer").iterdir() if p.is_dir())
SEED = int(os.environ.get("MHA_SEED") or random.SystemRandom().randrange(1 << 32))
CASES = int(os.environ.get("MHA_CASES") or 400)

WORDS = ("the of and harbour unbelievable İstanbul Straße naïve e\u0301 a\u030a\u0323 don't 3.14 [MASK] [SEP] [PAD] [mask] <l> <r> "
         "<lr> <l><r> one Éa ab abab abcabc 日本 한국어 ΑΣ ǅ \u200b \u00ad ﬁ 👩‍🔬 \U0002f800 \u0344\u0323 \u08d4\u0316\u05b0 "
         "\u1e9b\u0323 'LL we're 's <|endoftext|> <|begin_of_text|> <think> <s> </s> <unk> <m> \u2581 \u2581\u2581 \u2581x Ġ Ċa <0x41> <0xE3> 12345 \u0661\u0662\u0663\u0664 \u00bd "
         "!!!\n ...\r\n \u2460\uff21 \u334d \uff76\uff9e \ud55c\u11a7").split() + ["  ", "   ", "\n\n", " \n ", "\t ", "\u2581\u2581\u2581 "]
CHARACTERS = ("aábcexyzAÉZ  \t\n\r.,!?'\"-_()[]<>#0159\u0000\u0085\u00a0\u2028\u3000\u0300\u0301\u0316\u0323\u0334\u0345\u302e"
              "\u1dfb\ufffd\ue000日本豈ー한ㅎ")
RANGES = [(0x20, 0x7F), (0x80, 0x250), (0x250, 0x590), (0x300, 0x370), (0x590, 0x900), (0x900, 0x1200), (0x1A00, 0x2100),
          (0x2000, 0x2C00), (0x2C00, 0x3100), (0x3000, 0xA000), (0xA000, 0xAC00), (0xAC00, 0xD7B0), (0xF900, 0x10000),
          (0x10000, 0x12000), (0x1D000, 0x1E000), (0x1E000, 0x1F000), (0x1F000, 0x20000), (0x20000, 0x30000), (0xE0000, 0x110000)]


def random_piece(rng):
    kind = rng.randrange(10)
    if kind < 3:
        return rng.choice(WORDS)
    if kind < 6:
        return rng.choice(CHARACTERS) * (rng.randrange(120) if rng.randrange(40) == 0 else 1)
    if kind < 8:
        return " "
    return chr(rng.randrange(*rng.choice(RANGES)))


def random_text(rng):
    return "".join(random_piece(rng) for _ in range(rng.choice((0, 1, 2, 5, 10, 30))))


def byte_offsets(text, offsets):
    at = list(itertools.accumulate((len(ch.encode("utf-8")) for ch in text), initial=0))
    return [(at[a], at[b]) for a, b in offsets]


class Ours:
    def __init__(self, folder):
        self.handle = c_void_p()
        call("mha_tokenizer_open", None, str(folder).encode(), byref(self.handle))

    def __del__(self):
        lib.mha_tokenizer_free(self.handle)

    def encode(self, text, pair, special, limit):
        options = EncodeOptions(size=ctypes.sizeof(EncodeOptions), no_special=not special, max_tokens=limit)
        text, pair = text.encode("utf-8"), None if pair is None else pair.encode("utf-8")
        out = POINTER(Encoding)()
        call("mha_tokenizer_encode", self.handle, text, len(text), pair, len(pair or b""), byref(options), byref(out))
        e = out.contents
        kinds = {"ids": "int32", "type_ids": "int32", "sequence": "int8", "begin": "int64", "end": "int64"}
        *got, begin, end = (view(getattr(e, name), kind, (e.count,)).tolist() for name, kind in kinds.items())
        got = (*got, list(zip(begin, end)))
        lib.mha_encoding_free(out)
        return got

    def decode(self, ids, skip_special=False):
        text, size = c_void_p(), c_size_t()
        call("mha_tokenizer_decode", self.handle, (c_int32 * len(ids))(*ids), len(ids), skip_special, byref(text), byref(size))
        got = ctypes.string_at(text, size.value).decode("utf-8")
        lib.mha_tokenizer_text_free(self.handle, text)
        return got

    def stream(self, ids, skip_special=False):
        """Returns the parts of a stream's text, including the part returned at its end. Raises UnicodeDecodeError if a part contains an
        incomplete character."""
        stream, text, size, parts = c_void_p(), c_void_p(), c_size_t(), []
        call("mha_text_stream_create", self.handle, skip_special, byref(stream))
        for ident in ids:
            call("mha_text_stream_put", stream, ident, byref(text), byref(size))
            parts.append(ctypes.string_at(text, size.value).decode("utf-8"))
        call("mha_text_stream_end", stream, byref(text), byref(size))
        parts.append(ctypes.string_at(text, size.value).decode("utf-8"))
        lib.mha_text_stream_free(stream)
        return parts


def theirs(tok, text, pair, special, limit):
    tok.no_truncation()
    if limit:
        tok.enable_truncation(limit)
    e = tok.encode(text, pair, add_special_tokens=special)
    sequence = [-1 if s is None else s for s in e.sequence_ids]
    places = [byte_offsets(x, [o if s == i else (0, 0) for o, s in zip(e.offsets, sequence)])
              for i, x in enumerate((text, pair or ""))]
    return e.ids, e.type_ids, sequence, [places[max(s, 0)][k] for k, s in enumerate(sequence)]


class AgainstTokenizers(unittest.TestCase):
    def test_random_texts(self):
        self.assertTrue(FOLDERS)
        for folder in FOLDERS:
            rng = random.Random(f"{SEED} {folder.name}")
            reference, ours = Tokenizer.from_file(str(folder / "tokenizer.json")), Ours(folder)
            reference.no_padding()
            for _ in range(CASES):
                text, pair = random_text(rng), random_text(rng) if rng.randrange(4) == 0 else None
                special, limit = rng.randrange(4) > 0, rng.choice((0, 0, 5, 9))
                with self.subTest(folder=folder.name, text=text, pair=pair, special=special, limit=limit):
                    want = theirs(reference, text, pair, special, limit)
                    self.assertEqual(ours.encode(text, pair, special, limit), want)
                    self.assertEqual(ours.decode(want[0]), reference.decode(want[0], skip_special_tokens=False))

    def test_random_ids(self):
        """The parts of a stream must equal the text decoded in one call, unless byte tokens form invalid UTF-8: the stream has then already
        returned the valid bytes."""
        for folder in FOLDERS:
            rng = random.Random(f"{SEED} {folder.name}")
            reference, ours = Tokenizer.from_file(str(folder / "tokenizer.json")), Ours(folder)
            reference.no_truncation()
            reference.no_padding()
            known = [i for i in range(lib.mha_tokenizer_size(ours.handle)) if reference.id_to_token(i) is not None]
            bytes_only = [i for i in known if reference.id_to_token(i).startswith("<0x")]
            for _ in range(CASES // 4):
                ids = rng.choices(known, k=rng.randrange(30))
                if rng.randrange(2):  # ids of a text, so that byte tokens mostly form valid UTF-8
                    ids = reference.encode(random_text(rng)).ids
                skip = bool(rng.randrange(2))
                with self.subTest(folder=folder.name, ids=ids, skip=skip):
                    want = reference.decode(ids, skip_special_tokens=skip)
                    self.assertEqual(ours.decode(ids, skip), want)
                    if "\ufffd" not in want or not bytes_only:
                        self.assertEqual("".join(ours.stream(ids, skip)), want)


if __name__ == "__main__":
    print(f"MHA_SEED={SEED} MHA_CASES={CASES}, {len(FOLDERS)} folders")
    unittest.main()
