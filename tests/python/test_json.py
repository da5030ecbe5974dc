"""Compares the library's JSON reader with Python's: both must accept the same texts and return the same values.

The stricter rules of the library are added to Python's reader: no duplicate keys, no NaN, 64-bit integers, finite floats, no lone
surrogates, no NUL in a key, at most 64 levels, an object at the root.
"""

import json
import os
import random
import subprocess
import unittest

DEPTH = 64


def pairs(items):
    keys = [key for key, _ in items]
    if len(set(keys)) < len(keys) or any("\0" in key for key in keys):
        raise ValueError("keys")
    return dict(items)


def no_constant(name):
    raise ValueError(name)


def depth(value):
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(depth, children), default=0)


def check(value):
    """Raises an error if a value violates the stricter rules of the library."""
    if isinstance(value, dict):
        for key, item in value.items():
            check(key)
            check(item)
    elif isinstance(value, list):
        for item in value:
            check(item)
    elif isinstance(value, str):
        value.encode("utf-8")  # raises UnicodeEncodeError for a lone surrogate
    elif isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            raise ValueError("real")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("integer")


def reference(text):
    """Returns the value that Python's reader parses from the text, or None if the reader or a rule rejects the text."""
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=pairs, parse_constant=no_constant)
        check(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and depth(value) <= DEPTH else None


def same(a, b):
    """Returns whether a and b are equal in value and type, so that True differs from 1, and 1.0 from 1."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


class Documents:
    """Generates random JSON documents, some of them mutated."""

    WORDS = ["", "a", "key", "\u00e9", "\u65e5\u672c", "\U0001f600", 'q"\\/', "\n\t\x1f", "\0", "\x7f", "z" * 70]
    PIECES = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u0000", b"\\ud83d", b"\\ude00", b"null", b"true", b"-",
              b"0", b"1e5", b"1.5", b"1e400", b"9223372036854775808", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b"\0", b" ",
              b"NaN", b"Infinity", b"/**/", b"\xef\xbb\xbf", b'"a":1,', b"[" * 62, b"'"]  # fmt: skip

    def __init__(self, seed):
        self.random = random.Random(seed)

    def number(self):
        r = self.random
        return r.choice([0, -1, r.randrange(-(2**63), 2**63), r.random(), r.uniform(-1, 1) * 10.0 ** r.randrange(-320, 308),
                         float(r.randrange(10**6)), -0.0, 5e-324])  # fmt: skip

    def value(self, level):
        r = self.random
        kind = r.randrange(8 if level < 5 else 5)
        if kind < 2:
            return self.number()
        if kind == 2:
            return r.choice(self.WORDS)
        if kind < 5:
            return r.choice([None, True, False])
        if kind == 5:
            return [self.value(level + 1) for _ in range(r.randrange(5))]
        return {r.choice(self.WORDS).replace("\0", "") + str(n): self.value(level + 1) for n in range(r.randrange(5))}

    def text(self):
        r = self.random
        root = {"root": self.value(0), "more": self.value(0)}
        made = json.dumps(root, ensure_ascii=r.random() < 0.5, indent=r.choice([None, None, 1]))
        return made.encode("utf-8")

    def mutated(self, text):
        r = self.random
        out = bytearray(text)
        for _ in range(r.choice([1, 1, 1, 2, 5])):
            at = r.randrange(len(out) + 1)
            what = r.randrange(4)
            if what == 0:
                out[at:at] = r.choice(self.PIECES)
            elif what == 1:
                del out[at : at + r.choice([1, 1, 2, 9])]
            elif what == 2:
                out[at : at + 1] = bytes([r.randrange(256)])
            else:
                other = r.randrange(len(out) + 1)
                out[at:at] = out[other : other + r.randrange(20)]
        return bytes(out)


def answers(texts):
    data = b"".join(b"%d\n%s" % (len(text), text) for text in texts)
    run = subprocess.run([os.environ["JSON_LINES"]], input=data, stdout=subprocess.PIPE, check=True)
    return run.stdout.decode("utf-8").split("\n")[:-1]


class Json(unittest.TestCase):
    def compare(self, texts):
        taken = 0
        lines = answers(texts)
        self.assertEqual(len(lines), len(texts))
        for text, line in zip(texts, lines):
            want = reference(text)
            taken += want is not None
            if want is None:
                self.assertEqual(line, "refused", text)
            else:
                self.assertNotEqual(line, "refused", text)
                self.assertTrue(same(json.loads(line), want), text)
        return taken

    def test_documents(self):
        documents = Documents(1)
        texts = [documents.text() for _ in range(2000)]
        self.assertEqual(self.compare(texts), len(texts))

    def test_mutated(self):
        documents = Documents(2)
        texts = [documents.mutated(documents.text()) for _ in range(20000)]
        taken = self.compare(texts)
        self.assertGreater(taken, 1000)
        self.assertLess(taken, 15000)

    def test_corners(self):
        deep = [b'{"a":' * 64 + b"1" + b"}" * 64, b'{"a":' * 65 + b"1" + b"}" * 65, b'{"a":' + b"[" * 63 + b"]" * 63 + b"}"]
        self.assertEqual(self.compare(deep), 2)
        numbers = b"0 -0 00 01 -01 1. .1 1.0 1e 1e+ 1e+1 1E-1 1e999 -1e999 1e-999 +1 0x1 1_0 - -- Infinity -Infinity NaN".split()
        self.compare([b'{"a":%s}' % number for number in numbers])
        self.compare([b'{"a":"\\%s"}' % bytes([c]) for c in range(256)])
        self.compare([b'{"a":"%s"}' % bytes([c]) for c in range(256)])
        self.compare([b"%s{}" % bytes([c]) for c in range(256)] + [b"{}%s" % bytes([c]) for c in range(256)])


if __name__ == "__main__":
    unittest.main()
