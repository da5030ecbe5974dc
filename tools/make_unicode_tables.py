#!/usr/bin/env python3
"""Writes src/text/unicode_tables.c: the character properties in which the reference tokenizer differs from utf8proc.

    python tools/make_unicode_tables.py [--golden tests/golden/data/unicode] [--out src/text/unicode_tables.c]

Requires the Python package tokenizers (the reference) and the shared libraries utf8proc and pcre2-8. Classes and mappings are read
from the golden folder, where they were recorded for all code points; word characters, combining classes and decompositions are
queried from the reference. src/text uses utf8proc for canonical decompositions, combining classes and lower case only. The tables
make the result independent of its Unicode version:
  - classes are listed completely;
  - `ordered` lists the characters other than marks that the reference sorts by combining class (in the reference, marks newer
    than its tables have class 0);
  - `decomposed` lists the characters above U+FFFF that decompose (new ones below U+FFFF are not expected);
  - `lower` lists the lower case mappings that differ in utf8proc;
  - `letter`, `number`, `regex_mark`, `symbol`, `upper`, `small` and `regex_punctuation` list the letters, numbers, marks, punctuation or
    symbols, the letters or marks that are not lower case or not upper case, and the punctuation that PCRE2 does not contain yet;
  - `digit` lists the characters that Digits separates, a newer version of Unicode than that of \\p{N} in regular expressions;
  - `kept` lists the characters that only utf8proc decomposes by compatibility (they are newer than the reference's tables);
  - `extending` lists the characters that only the reference joins to the preceding grapheme cluster;
  - `combining` lists the characters that StripAccents drops, which include spacing and enclosing marks.
Before it writes the file, the script checks every code point and fails if utf8proc with these tables differs from the reference.
"""

import argparse
import ctypes
import ctypes.util
import json
import os
import struct

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
HANGUL = range(0xAC00, 0xD7A4)  # Hangul syllables are decomposed by a formula, so all libraries agree
NFD = normalizers.NFD()
PATTERNS = {"regex_mark": r"\p{M}", "symbol": r"[\p{P}\p{S}]", "upper": r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", "small": r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]",
            "regex_punctuation": r"\p{P}"}


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def members(pairs):
    return {c for a, b in pairs for c in range(a, b + 1)}


class Property(ctypes.Structure):
    _fields_ = [("category", ctypes.c_int16), ("combining_class", ctypes.c_int16)]


class Utf8proc:
    def __init__(self):
        self.lib = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
        self.lib.utf8proc_get_property.restype = ctypes.POINTER(Property)
        self.lib.utf8proc_version.restype = ctypes.c_char_p

    def combining_class(self, c):
        return self.lib.utf8proc_get_property(c).contents.combining_class

    def lower(self, c):
        return self.lib.utf8proc_tolower(c)

    def decompose(self, c, compatible=False):
        out, last = (ctypes.c_int32 * 20)(), ctypes.c_int(0)
        how = 1 << 4 | (1 << 2 if compatible else 0)  # UTF8PROC_DECOMPOSE, UTF8PROC_COMPAT
        n = self.lib.utf8proc_decompose_char(c, out, 20, how, ctypes.byref(last))
        return list(out[:n])

    def extends(self, c):
        return not self.lib.utf8proc_grapheme_break_stateful(ord("a"), c, ctypes.byref(ctypes.c_int32(0)))


class Pcre2:
    """Returns the characters that match a PCRE2 pattern."""

    def __init__(self):
        self.lib = ctypes.CDLL(ctypes.util.find_library("pcre2-8"))
        self.lib.pcre2_compile_8.restype = ctypes.c_void_p
        self.lib.pcre2_match_data_create_8.restype = ctypes.c_void_p

    def members(self, pattern):
        code = self.lib.pcre2_compile_8(pattern, ctypes.c_size_t(len(pattern)), ctypes.c_uint32(0x000A0000),  # UTF | UCP
                                        ctypes.byref(ctypes.c_int()), ctypes.byref(ctypes.c_size_t()), None)
        data = self.lib.pcre2_match_data_create_8(ctypes.c_uint32(1), None)

        def matches(c):
            text = chr(c).encode("utf-8")
            return self.lib.pcre2_match_8(ctypes.c_void_p(code), text, ctypes.c_size_t(len(text)), ctypes.c_size_t(0),
                                          ctypes.c_uint32(0), ctypes.c_void_p(data), None) > 0
        return {c for c in POINTS if matches(c)}


def kept(u):
    """Returns the characters except Hangul with a compatibility decomposition only in utf8proc, not in the reference."""
    nfkd = normalizers.NFKD()
    differ = {c for c in POINTS if c not in HANGUL and "".join(map(chr, u.decompose(c, True))) != nfkd.normalize_str(chr(c))}
    assert all(nfkd.normalize_str(chr(c)) == chr(c) for c in differ)
    return ranges(differ)


def extending(u):
    """Returns the characters that extend a cluster only in the reference. The reference's Precompiled normalizer replaces clusters of "a" with "b"."""
    units = [0] * 0x400
    units[0], units[0x161], units[0x361] = 0x100 << 10, 0x200 << 10 | 1 << 8 | ord("a"), 1 << 31
    ask = normalizers.Precompiled(struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + b"b\0")
    reference = {c for c in POINTS if ask.normalize_str("a" + chr(c)) == "b"}
    ours = {c for c in POINTS if u.extends(c)}
    assert reference >= ours
    return ranges(reference - ours)


def combining():
    strip = normalizers.StripAccents()
    return ranges(c for c in POINTS if strip.normalize_str("a" + chr(c)) == "a")


def matching(pattern):
    """Returns the characters that match a regular expression in the reference."""
    pieces = pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str("".join(map(chr, POINTS)))
    return set(POINTS) - {ord(c) for piece, _ in pieces for c in piece}


def newer(all_of_them, pattern):
    """Returns the ranges of a class that PCRE2 lacks; PCRE2 must not have characters that the class lacks."""
    known = Pcre2().members(pattern)
    assert known and known <= all_of_them
    return ranges(all_of_them - known)


def digits():
    split = pre_tokenizers.Digits(individual_digits=True)
    return ranges(c for c in POINTS if len(split.pre_tokenize_str("a" + chr(c))) == 2)


def word_characters():
    """Returns the characters that, next to a single_word token, make it part of a longer word."""
    tok = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tok.add_special_tokens([AddedToken("<T>", single_word=True, normalized=False)])
    text = "".join(f"<T>{chr(c)} " for c in POINTS if chr(c) not in "<T>")
    alone = {a for i, (a, _) in zip(*(lambda e: (e.ids, e.offsets))(tok.encode(text))) if i != 0}
    words = {ord(text[3 + 5 * n]) for n in range(len(text) // 5) if 5 * n not in alone}
    return words | {ord("T")}


def reorders(c, probe):
    """Returns whether the reference swaps c and probe after a letter."""
    return NFD.normalize_str("a" + chr(c) + chr(probe)) == "a" + chr(probe) + chr(c)


def has_class(c):
    return reorders(c, 0x334) or reorders(0x345, c)  # combining classes 1 (lowest) and 240 (highest)


def build(golden, u):
    with open(os.path.join(golden, "classes.json"), encoding="utf-8") as f:
        classes = json.load(f)
    with open(os.path.join(golden, "mappings.json"), encoding="utf-8") as f:
        maps = json.load(f)
    plain = {int(k, 16) for k, v in maps["bert_strip_accents"].items() if v == ""}
    marks = {c for c in plain if NFD.normalize_str(chr(c)) == chr(c)}
    split = {c for c in POINTS if c not in HANGUL and NFD.normalize_str(chr(c)) != chr(c)}
    lower = {int(k, 16): [ord(x) for x in v] for k, v in maps["bert_lowercase"].items()}
    tables = {
        "removed": classes["bert_removed"], "space": classes["bert_whitespace"], "chinese": classes["bert_cjk"],
        "punctuation": classes["bert_punctuation"], "word": ranges(word_characters()), "mark": ranges(marks),
        "ordered": ranges(c for c in POINTS if c not in marks and c not in split and u.combining_class(c) and has_class(c)),
        "decomposed": ranges(c for c in split if c > 0xFFFF), "letter": newer(members(classes["regex_L"]), rb"\p{L}"),
        "number": newer(members(classes["regex_N"]), rb"\p{N}"), "kept": kept(u), "extending": extending(u),
        "combining": combining(), "digit": digits(),
        **{name: newer(matching(pattern), pattern.encode()) for name, pattern in PATTERNS.items()},
    }
    pairs = sorted((c, lower.get(c, [c])) for c in POINTS if lower.get(c, [c]) != [u.lower(c)])
    return tables, pairs, maps


def check(tables, pairs, maps, u):
    """Checks every code point with utf8proc and the tables, as src/text/unicode.c uses them."""
    mark, ordered, decomposed = (members(tables[n]) for n in ("mark", "ordered", "decomposed"))
    special = dict(pairs)
    for c in POINTS:
        parts = u.decompose(c) if c <= 0xFFFF or c in decomposed else [c]
        assert "".join(map(chr, parts)) == NFD.normalize_str(chr(c)), hex(c)
        if (c in mark or c in ordered) and parts == [c]:
            assert (u.combining_class(c) != 0) == (has_class(c) or c in (0x334, 0x345)), hex(c)
        elif parts == [c]:
            assert not has_class(c), hex(c)
        if c in HANGUL:
            continue
        for name, drop, fold in (("bert_lowercase", False, True), ("bert_strip_accents", True, False),
                                 ("bert_lowercase_strip_accents", True, True)):
            left = [x for x in parts if x not in mark] if drop else [c]
            got = [y for x in left for y in (special.get(x, [u.lower(x)]) if fold else [x])]
            assert "".join(map(chr, got)) == maps[name].get(f"{c:X}", chr(c)), (name, hex(c))


def rows(items, per_line):
    for i in range(0, len(items), per_line):
        yield "    " + ", ".join(items[i:i + per_line]) + ","


WHAT = {
    "removed": "removed by clean_text", "space": "white space", "chinese": "separated by handle_chinese_chars",
    "punctuation": "separated by BertPreTokenizer", "word": "word characters (\\w), which single_word checks",
    "mark": "nonspacing marks that strip_accents drops",
    "ordered": "characters, other than marks, with a nonzero combining class", "decomposed": "characters above U+FFFF that decompose",
    "letter": "letters missing in PCRE2 10.42", "number": "numbers missing in PCRE2 10.42",
    "kept": "decomposed by utf8proc but not by the reference",
    "extending": "characters that extend a grapheme cluster in the reference, but not in utf8proc",
    "combining": "combining marks that StripAccents drops", "digit": "separated by Digits",
    "regex_mark": "marks (\\p{M}) missing in PCRE2 10.42", "symbol": "punctuation and symbols missing in PCRE2 10.42",
    "upper": "letters and marks that are not lower case, missing in PCRE2 10.42",
    "small": "letters and marks that are not upper or title case, missing in PCRE2 10.42",
    "regex_punctuation": "punctuation (\\p{P}) missing in PCRE2 10.42",
}


def write(path, tables, pairs, u):
    out = ["/* unicode_tables.c - character classes of the reference tokenizer. Generated by tools/make_unicode_tables.py from",
           f" * tokenizers {tokenizers.__version__} and utf8proc {u.lib.utf8proc_version().decode()}; do not edit. Ranges are inclusive and ascending. */",
           '#include "text/unicode.h"', "", "/* clang-format off */"]
    for name, table in tables.items():
        points = sum(b - a + 1 for a, b in table)
        out += ["", f"/* {WHAT[name]}: {points} characters */",
                f"static const mha__char_range {name}[] = {{"]
        out += list(rows([f"{{0x{a:04X}, 0x{b:04X}}}" for a, b in table], 5))
        out += ["};"]
    out += ["", "const mha__char_table mha__char_tables[MHA__CHAR_CLASSES] = {"]
    for name, table in tables.items():
        ascii_bits = sum(1 << c for c in members(table) if c < 128)
        low, high = ascii_bits & (1 << 64) - 1, ascii_bits >> 64
        out += [f"    [MHA__CHAR_{name.upper()}] = {{{name}, {len(table)}, {{0x{low:016X}, 0x{high:016X}}}}},"]
    out += ["};", "", "/* Lower case that differs from utf8proc; 0 ends a mapping to one character. */",
            "const mha__char_lower_pair mha__char_lower_pairs[] = {"]
    out += list(rows([f"{{0x{c:04X}, {{0x{t[0]:04X}, 0x{(t + [0])[1]:04X}}}}}" for c, t in pairs], 3))
    out += ["};", f"const int mha__char_lower_pair_count = {len(pairs)};", "/* clang-format on */"]
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--golden", default=os.path.join(root, "tests/golden/data/unicode"))
    ap.add_argument("--out", default=os.path.join(root, "src/text/unicode_tables.c"))
    a = ap.parse_args()
    u = Utf8proc()
    tables, pairs, maps = build(a.golden, u)
    check(tables, pairs, maps, u)
    write(a.out, tables, pairs, u)
    for name, table in tables.items():
        print(f"{name}: {len(table)} ranges")
    print(f"lower: {len(pairs)} mappings")


if __name__ == "__main__":
    main()
