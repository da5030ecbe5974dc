#!/usr/bin/env python3
"""Writes tests/golden/data/tokenizer: tokenizer.json folders and the encodings of many texts by the tokenizers library.

    python tests/golden/make_tokenizer_golden.py GOLDEN_DIR MODELS_DIR MINILM_DIR [OUT_DIR]

GOLDEN_DIR contains models/index.json and minilm/*.safetensors, recorded earlier with other versions of the libraries.
Every recorded id is compared with the library's current result; the recorded normalized texts and pre-tokens are kept.
MINILM_DIR is the folder of all-MiniLM-L6-v2. OUT_DIR/unigram/tokenizer.json is an input: its pieces and its charsmap
were trained by SentencePiece 0.2.3 on the text of the tiny models, with 16 replacements. Offsets are bytes (the Python
library counts characters).
"""

import glob
import json
import os
import shutil
import sys

import tokenizers
from safetensors.numpy import load_file
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
OFFSET_TEXTS = [
    "Crème brûlée & café, naïve façade; e\u0301e\u0301 a\u030a\u0323b \u1e9b\u0323 \u212b İstanbul ǅ ﬁ ΑΣ",
    "日本語 and 中文字符 mixed한국어 ﹏ 豈更\U0002f800\U0002b740\U0002b920 ー。",
    "😀👩‍🔬 wins 🏆🏆 in 🇯🇵! ❤️ 1️⃣",
    "  \u200blead\u00adsoft\u0000nul \u0085x\u2028y\ufeff \u00a0 \u3000end \u0007 ",
    "[CLS]a[SEP] [MASK][MASK],[UNK]x [mask] [PAD ] [PAD]",
    "a\u0316\u0301\u0334\u0345b \u0301alone \u0344\u0323 \u1dfb\u0301\u302e\u0316\u08d4\u05b0 \U0001e000\u0316",
    "word" * 30 + " " + "x" * 100 + " " + "y" * 101 + " " + "é" * 100,
    "\U00011938\u1c89\ua7cb \U00010d50 \U00016ea0 \u0130\u0130",
    "don't can't -- (a) [b] {c} <d> $5 #1 @x ^ ` ~ | \\ \u2014 \u00bf \u00ab \u2e52 \u10fb",
]
BYTE_TEXTS = [
    "it's IT'S we'll WE'LL \u017f'\u017f 's'T'Re'VE'm'LL'd don't", "a  b   c \t d\n\n e \r\n  \n f\u3000\u3000g \u00a0h   ",
    "1 12 123 1234 12345 \u0661\u0662\u0663\u0664 \u00bd\u2167 x1y2 3.14", "!!!\n\n??? ...\r\n <|x|> \u201cq\u201d \u2014 _a_",
    "e\u0301a\u0323\u0302 \u212b \u0344 \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab \uc5b4\u11a7 \ufb01 \u2460 \u0958",
    "\u65e5\u672c\u8a9e\U0001f600\U0001f469\u200d\U0001f52c\u200b\u00ad\ufeff\ue000\U0010fffd", "<s>x</s> y <unk>z <|endoftext|>a <think> b",
    "\u2581a \u2581\u2581 b\u2581", " ", "  ", "\n", " a", "a ", "<0x41><0xE3> Ġ Ċ", "x" * 300, "ab" * 150 + " " + "!" * 200,
]
PIECE_TEXTS = [
    "the cat and the dog said nothing, again.", "\ufb01ne \u2460\uff21 e\u0301\u0301 \u334d\u2026 \uff76\uff9ex\uff9e \u00bd\u200b\u00ad.", "\u200b\u200ba",
    "banana aa ath Thath", "zebra \u00e6\u00f8 \u6f22\u5b57zz", " <m> a<m>  <unk>\u2581x", "\ufb01\u0301 \u212b\u0323 \u3000 \tx \n", "\u00c3\u00a6z\u6f22",
]
SPLIT_TEXTS = [
    "Hello, (world)!! ...ok -- a_b x\u0301y ,, \u201cq\u201d", "12 1234567 x1y2 12\u00bd3456 \u0661\u0662 \u0664, x\u00b2 \u043c 3.14",
    "\U00011de0\U00011de5 \U00016ff4 a\U00011de0b 1\U00011de91", "camelCase HTTPServer x's IT'S \u01c5\u02b0 e\u0301\u0301A  \n /a/\r\n//b",
    "  \u3000a\u00a0\u0085,\u2028 \t\n", "\u65e5\u672c\u8a9e, \u306e\ud55c\uad6d\uc5b4\u0915\u094d\u200d\u0937!\u3002 \u200b\u200ca\u200c \u203f_\u2040", "", " ", "!", "\U00011b00,\u1b4e$+<=>^`|~",
]
WORDS = ["a", "b", "c", "ab", "ba", "##a", "##b", "##c", "##ab", "e", "##e", "x", "##x", ",", "é", "zz", "##zz"]


def added(ident, content, **flags):
    fields = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": ident, "content": content, **fields, **flags}


def small(**parts):
    """Returns a small tokenizer with some parts replaced."""
    vocab = {t: n for n, t in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + WORDS)}
    base = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [added(0, "[PAD]")],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                       "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 5, "vocab": vocab},
    }
    return {**base, **parts}


def special(name, type_id):
    return {"SpecialToken": {"id": name, "type_id": type_id}}


def sequence(name, type_id):
    return {"Sequence": {"id": name, "type_id": type_id}}


N = 4 + len(WORDS)  # the first id after the vocabulary
ADDED = [
    added(0, "[PAD]"), added(N, "<l>", lstrip=True), added(N + 1, "<r>", rstrip=True),
    added(N + 2, "<lr>", lstrip=True, rstrip=True, special=False), added(N + 3, "one", single_word=True),
    added(N + 4, "Éa", normalized=True, special=False), added(N + 5, "abAB", normalized=True, special=False),
    added(N + 6, "abab a", normalized=True), added(N + 7, "<l><r>"), added(N + 8, " x"), added(N + 9, "日", special=False),
    added(N + 10, "[x] ,", rstrip=True, single_word=True),
]
TEMPLATE = {
    "type": "TemplateProcessing", "single": [special("two", 4), sequence("A", 3), special("[SEP]", 0)],
    "pair": [sequence("B", 5), special("two", 2), sequence("A", 1)],
    "special_tokens": {"two": {"id": "two", "ids": [2, 1], "tokens": ["[CLS]", "[UNK]"]},
                       "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}},
}
BERT = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}


def flags(**k):
    return {"normalizer": {**small()["normalizer"], **k}}


def truncation(n, strategy, direction):
    return {"max_length": n, "strategy": strategy, "stride": 0, "direction": direction}


def padding(strategy, multiple, direction):
    return {"strategy": strategy, "direction": direction, "pad_to_multiple_of": multiple, "pad_id": 0, "pad_type_id": 7,
            "pad_token": "[PAD]"}


SMALL = {
    "added": small(added_tokens=ADDED),
    "template": small(post_processor=TEMPLATE, truncation=truncation(5, "LongestFirst", "Left"),
                      padding=padding("BatchLongest", 4, "Left")),
    "bertprocessing": small(post_processor=BERT, truncation=truncation(6, "OnlySecond", "Right"),
                            padding=padding({"Fixed": 9}, 0, "Right")),
    "plain": small(normalizer=None, pre_tokenizer=None, decoder=None, truncation=truncation(3, "OnlyFirst", "Right"),
                   padding=padding({"Fixed": 5}, 4, "Right")),
    "accents": small(**flags(strip_accents=False)), "cased": small(**flags(lowercase=False, strip_accents=True)),
    "raw": small(**flags(clean_text=False, handle_chinese_chars=False, lowercase=False)),
}
def part(kind, **fields):
    return {"type": kind, **fields}


def parts(key, *items):
    return {"type": "Sequence", key: list(items)}


def byte_level(prefix=False, regex=True, trim=True):
    return part("ByteLevel", add_prefix_space=prefix, trim_offsets=trim, use_regex=regex)


def metaspace(scheme, split):
    return part("Metaspace", replacement="\u2581", prepend_scheme=scheme, split=split)


def split(pattern, behavior, invert=False):
    return part("Split", pattern={"String": pattern}, behavior=behavior, invert=invert)


def replace(old, new):
    return part("Replace", pattern={"String": old}, content=new)


def cut_bpe(path, merges, **parts_):
    """Returns the BPE tokenizer of a folder with only its first merges, and with other parts and model settings."""
    with open(os.path.join(path, "tokenizer.json"), encoding="utf-8") as f:
        tok = json.load(f)
    model = tok["model"]
    kept = [m if isinstance(m, list) else m.split(" ") for m in model["merges"][:merges]]
    made = {a + b for a, b in kept}
    dropped = {a + b for a, b in (m if isinstance(m, list) else m.split(" ") for m in model["merges"][merges:])} - made
    names = [t for t, _ in sorted(model["vocab"].items(), key=lambda kv: kv[1]) if t not in dropped]
    model.update(vocab={t: n for n, t in enumerate(names)}, merges=kept)
    model.update(parts_.pop("model", {}))
    tok["added_tokens"] = parts_.pop("added_tokens", tok["added_tokens"][:1])
    free = iter(range(len(names), len(names) + 99))
    for token in tok["added_tokens"]:
        known = model["vocab"].get(token["content"])
        token["id"] = next(free) if known is None else known
    return {**tok, "post_processor": None, **parts_}


def without(tok, *tokens):
    """Removes tokens from a vocabulary, so that some texts have unknown tokens."""
    vocab = tok["model"]["vocab"]
    tok["model"]["vocab"] = {t: n for n, t in enumerate(x for x in vocab if x not in tokens)}
    tok["model"]["merges"] = [m for m in tok["model"]["merges"] if not set(m) & set(tokens) and "".join(m) not in tokens]
    return tok


def bpe_variants(models, unigram):
    """Returns small tokenizers for options that the families do not use."""
    gpt2, llama = os.path.join(models, "gpt2-tiny"), os.path.join(models, "llama-yarn-tiny")
    roberta = part("RobertaProcessing", sep=["!", 0], cls=["#", 2], trim_offsets=True, add_prefix_space=True)
    spaces = [added(0, "<unk>"), added(600, " <m>", lstrip=True, rstrip=True), added(601, "\u2581x", normalized=True)]
    out = {
        "bpe-roberta": cut_bpe(gpt2, 80, pre_tokenizer=byte_level(prefix=True), post_processor=roberta),
        "bpe-trim": cut_bpe(gpt2, 80, normalizer=part("NFKC"), post_processor=byte_level(), pre_tokenizer=parts(
            "pretokenizers", part("Digits", individual_digits=True), byte_level())),
        "bpe-digits": cut_bpe(gpt2, 80, normalizer=part("NFD"), pre_tokenizer=parts(
            "pretokenizers", part("Digits", individual_digits=False), split("th", "Isolated"), byte_level(regex=False))),
        "bpe-old": cut_bpe(gpt2, 80, pre_tokenizer=part("ByteLevel", add_prefix_space=False, trim_offsets=True),
                           decoder=part("ByteLevel", add_prefix_space=True, trim_offsets=True)),
        "bpe-unknown": cut_bpe(llama, 60, normalizer=part("NFKD"), model={"byte_fallback": False, "fuse_unk": False}),
        "bpe-fused": without(cut_bpe(llama, 60, pre_tokenizer=metaspace("always", True), normalizer=None,
                                     decoder=parts("decoders", part("ByteFallback"), metaspace("always", True))),
                             "<0xE6>", "<0xC3>", "z"),
        "bpe-silent": without(cut_bpe(llama, 60, pre_tokenizer=metaspace("never", True), normalizer=None,
                                      decoder=metaspace("never", True), model={"unk_token": None, "byte_fallback": False}), "e"),
        "bpe-first": cut_bpe(llama, 60, pre_tokenizer=metaspace("first", True), normalizer=None, added_tokens=spaces,
                             decoder=parts("decoders", replace("\u2581", " "), part("Strip", content=" ", start=1, stop=0))),
        "bpe-ignore": cut_bpe(llama, 60, pre_tokenizer=part("WhitespaceSplit"), model={"ignore_merges": True},
                              normalizer=parts("normalizers", replace("e", "\u00e9\u00e9"), part("Prepend", prepend="<>"),
                                               part("Strip", strip_left=True, strip_right=True), replace("ab", ""))),
    }
    for name, invert in (("Removed", False), ("MergedWithPrevious", True), ("MergedWithNext", False), ("Contiguous", False),
                         ("MergedWithPrevious", False), ("Isolated", True)):
        key = f"bpe-split-{name.lower()}" + ("-inverted" if invert else "")
        out[key] = cut_bpe(gpt2, 40, pre_tokenizer=parts("pretokenizers", split("a", name, invert), byte_level(regex=False)))
    pieces = [*unigram["model"]["vocab"], ["<extra_id_0>", -1.5], *([f"<0x{b:02X}>", -20.0] for b in range(256))]
    out["unigram-bytes"] = {
        **unigram, "normalizer": part("NFC"), "pre_tokenizer": metaspace("first", False),
        "decoder": parts("decoders", part("ByteFallback"), part("Fuse"), metaspace("first", False)),
        "model": {"type": "Unigram", "unk_id": 2, "vocab": pieces, "byte_fallback": True}}
    out["unigram-accents"] = {**unigram, "normalizer": parts("normalizers", replace("``", '"'), part("NFKD"), part("StripAccents"),
                                                             part("Lowercase"))}
    out["unigram-roberta"] = {**unigram, "normalizer": None, "pre_tokenizer": None,
                              "post_processor": part("RobertaProcessing", sep=["</s>", 1], cls=["<pad>", 0], trim_offsets=True,
                                                     add_prefix_space=True)}
    return out


def regex_split(pattern):
    return part("Split", pattern={"Regex": pattern}, behavior="Isolated", invert=False)


def split_variants(models):
    """Returns tokenizers for further pre-tokenizers: small ones, in which each word is one unknown token, and those of published models."""
    gpt2 = os.path.join(models, "gpt2-tiny")
    unknown = part("BPE", vocab={"<unk>": 0}, merges=[], unk_token="<unk>", fuse_unk=True)
    pre = {f"punctuation-{name.lower()}": part("Punctuation", behavior=name) for name in (
        "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")}
    pre |= {"delimiter": part("CharDelimiterSplit", delimiter="a"), "fixed-length": part("FixedLength", length=3), "delimiter-length": parts(
        "pretokenizers", part("CharDelimiterSplit", delimiter="\u65e5"), part("FixedLength"), part("CharDelimiterSplit", delimiter=" "))}
    pre |= {"punctuation": part("Punctuation"), "whitespace": part("Whitespace"), "digits": part("Digits", individual_digits=True)}
    out = {f"words-{name}": small(added_tokens=[], normalizer=None, decoder=None, model=unknown, pre_tokenizer=p) for name, p in pre.items()}
    cased, uncased = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    nemo = (rf"[^\r\n\p{{L}}\p{{N}}]?{cased}*{uncased}+|[^\r\n\p{{L}}\p{{N}}]?{cased}+{uncased}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+")
    coder = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
    published = {
        "falcon": [part("Punctuation", behavior="Contiguous"), byte_level(), part("Digits", individual_digits=False),
                   regex_split("[0-9][0-9][0-9]")],
        "nemo": [regex_split(nemo), byte_level(regex=False)],
        "deepseek-coder": [*map(regex_split, coder), part("Digits", individual_digits=True), byte_level(regex=False)],
    }
    return out | {f"bpe-{name}": cut_bpe(gpt2, 40, pre_tokenizer=parts("pretokenizers", *steps)) for name, steps in published.items()}


SMALL_TEXTS = [
    "", "a", "ab ba,c", "abab abcabc ababab aaaaaa", "éa Éa E\u0301A éab", " <l> <r> <lr>  a  <l><r> b<lr>c", "one onea one, _one oneé",
    "abABa abab a abab  a [x] , a", "a xb <r> xa", "日本a日", "\u0301\u0301 a\u0301", "[PAD]a[PAD] [pad]", "a\u0000\u00a0b\u2003c\u00adc", "İa ΑΣ",
    "<r>  <l>  <lr>", "zzz zzzz é ée", "a\u3000one\u0085<r>\u0085b",
]
SMALL_PAIRS = [("a b a", "b"), ("a", "b a b a b"), ("", ""), ("a b c a b c", "c b a c b a c"), ("", "a"), ("a,b", "")]


def byte_offsets(text, offsets):
    at = [0]
    for ch in text:
        at.append(at[-1] + len(ch.encode("utf-8")))
    return [[at[a], at[b]] for a, b in offsets]


def encoded(e, text, pair):
    """Returns one encoding. Offsets of the second text refer to that text; offsets of special and padding tokens are 0."""
    seq = [-1 if special or s is None else s for s, special in zip(e.sequence_ids, e.special_tokens_mask)]
    both = [byte_offsets(x, [o if s == i else (0, 0) for o, s in zip(e.offsets, seq)])
            for i, x in enumerate((text, pair or ""))]
    return {"ids": e.ids, "type_ids": e.type_ids, "sequence": seq,
            "offsets": [both[max(s, 0)][k] for k, s in enumerate(seq)]}


def case(tok, text, pair=None, add_specials=True, limit=0, stored=False, **more):
    tok = Tokenizer.from_str(tok.to_str())
    if not stored:
        tok.no_padding()
        tok.no_truncation()
    if limit:
        tok.enable_truncation(limit)
    out = {"text": text}
    out.update({"pair": pair} if pair is not None else {})
    out.update({k: v for k, v in (("no_special", not add_specials), ("max_tokens", limit), ("stored_limits", stored)) if v})
    try:
        e = tok.encode(text, pair, add_special_tokens=add_specials)
    except BaseException as problem:  # the text has no space; a panic is not an Exception
        return {**out, "fails": str(problem)}
    out.update(encoded(e, text, pair))
    if not limit and not stored:
        out["decoded"] = tok.decode(e.ids, skip_special_tokens=False)
        out["decoded_skip_special"] = tok.decode(e.ids, skip_special_tokens=True)
    return {**out, **more}


def recorded(golden, models, name, tok):
    """Returns the cases of golden/models/index.json."""
    with open(os.path.join(golden, "models", "index.json"), encoding="utf-8") as f:
        entry = next(m for m in json.load(f)["models"] if m["name"] == name)["tokenizer"]
    out = []
    for r in entry["strings"]:
        stages = {k: r[k] for k in ("normalized", "pretokens") if r[k] is not None}
        c = case(tok, r["text"], **stages)
        plain = case(tok, r["text"], add_specials=False)
        assert c["ids"] == r["ids"] and plain["ids"] == r["ids_plain"] and plain["decoded"] == r["decoded"], r["text"]
        assert plain["offsets"] == byte_offsets(r["text"], r["offsets_plain"])
        assert c["decoded_skip_special"] == r["decoded_skip_special"]
        out += [c, plain]
    for r in entry["pairs"]:
        c = case(tok, r["a"], r["b"])
        assert c["ids"] == r["ids"] and c["type_ids"] == r["type_ids"]
        out.append(c)
    return out


def minilm(golden, tok):
    """Returns the cases of golden/minilm: its texts and its pair, truncated to 512 tokens."""
    out = []
    with open(os.path.join(golden, "minilm", "index.json"), encoding="utf-8") as f:
        entries = [c for c in json.load(f)["cases"] if "text" in c]
    for r in entries:
        text, pair = r["text"] if isinstance(r["text"], list) else (r["text"], None)
        c = case(tok, text, pair, limit=512)
        t = load_file(os.path.join(golden, "minilm", r["file"]))
        assert c["ids"] == t["input_ids"].tolist() and c["type_ids"] == t["token_type_ids"].tolist(), r["name"]
        out.append(c)
    return out


def main():
    golden, models, minilm_dir = sys.argv[1:4]
    out_dir = sys.argv[4] if len(sys.argv) > 4 else os.path.join(HERE, "data", "tokenizer")
    groups = []

    def group(name, source, cases):
        folder = os.path.join(out_dir, name)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "tokenizer.json")
        if source is None:
            pass
        elif isinstance(source, dict):
            with open(path, "w", encoding="utf-8") as f:
                json.dump(source, f, ensure_ascii=False, separators=(",", ":"))
                f.write("\n")
        else:
            shutil.copyfile(os.path.join(source, "tokenizer.json"), path)
        groups.append({"folder": name, "cases": cases(Tokenizer.from_file(path))})

    group("minilm", minilm_dir, lambda t: minilm(golden, t) + [case(t, x) for x in OFFSET_TEXTS] + [
        case(t, "one two three", stored=True), case(t, "word " * 200, "pair " * 90, stored=True), case(t, "", stored=True)])
    for name in ("bert-tiny", "bert-mlm-tiny"):
        group(name, os.path.join(models, name), lambda t, n=name: recorded(golden, models, n, t) + [case(t, x) for x in OFFSET_TEXTS])
        group(name + "-v4", os.path.join(models, name, "v4"), lambda t, n=name: recorded(golden, models, n, t))
    for name in ("gpt2-tiny", "llama-tiny", "llama-linear-tiny", "llama-yarn-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny", "gemma2-tiny"):
        group(name, os.path.join(models, name), lambda t, n=name: recorded(golden, models, n, t) + [
            case(t, x) for x in OFFSET_TEXTS + BYTE_TEXTS])
        group(name + "-v4", os.path.join(models, name, "v4"), lambda t, n=name: recorded(golden, models, n, t)[:12])
    for name, source in SMALL.items():
        group("small-" + name, source, lambda t: [case(t, x) for x in SMALL_TEXTS] + [
            case(t, a, b, add_specials=s, limit=n) for a, b in SMALL_PAIRS for n in (0, 6, 7) for s in (True, False)] + [
            case(t, a, b, stored=True) for a, b in SMALL_PAIRS + [(x, None) for x in SMALL_TEXTS[:5]]])
    group("unigram", None, lambda t: [case(t, x) for x in OFFSET_TEXTS + BYTE_TEXTS + PIECE_TEXTS])
    with open(os.path.join(out_dir, "unigram", "tokenizer.json"), encoding="utf-8") as f:
        variants = bpe_variants(models, json.load(f))
    for name, source in variants.items():
        group(name, source, lambda t: [case(t, x) for x in OFFSET_TEXTS[::2] + BYTE_TEXTS + PIECE_TEXTS] + [
            case(t, "a b", " c  d", add_specials=s, limit=n) for n in (0, 5) for s in (True, False)])
    for name, source in split_variants(models).items():
        group(name, source, lambda t: [case(t, x) for x in SPLIT_TEXTS])
    with open(os.path.join(out_dir, "cases.json"), "w", encoding="utf-8") as f:
        json.dump({"tokenizers": tokenizers.__version__, "groups": groups}, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    print(sum(len(g["cases"]) for g in groups), "cases in", len(groups), "folders,",
          sum(os.path.getsize(p) for p in glob.glob(out_dir + "/**/*.json", recursive=True)), "bytes")


if __name__ == "__main__":
    main()
