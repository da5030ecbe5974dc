"""Readers of other libraries beside ours, on mutated files: safetensors, tokenizers, and the config of transformers. Each file must
be accepted by both or refused by both. What one accepts and the other refuses is listed below, with the reason; a difference that
no line of the list explains fails.
MHA_SEED=N chooses other mutations (1);  MHA_CASES=N their number for each reader."""
import copy
import json
import os
import random
import re
import struct
import tempfile
import unittest
from ctypes import byref, c_void_p
from pathlib import Path

os.environ["RUST_BACKTRACE"] = "0"  # a trace of a panic takes longer than the file

import safetensors
import torch
import transformers
from tokenizers import Tokenizer

from mha._abi import Error
from mha._library import lib

DATA = Path(__file__).resolve().parents[1] / "golden/data"
SEED = int(os.environ.get("MHA_SEED") or 1)
CASES = int(os.environ.get("MHA_CASES") or 0)

VALUES = [None, True, False, 0, 1, -1, 2, 3, 8, 255, 65536, 2**31, 2**32, 2**63, 2**64, 0.5, 1.0, 8.0, 1e-5, 1e300, -0.0, "", "a", "F32",
          "I64", "gelu", "linear", [], {}, [0], [0, 8], [1, 2, 3], [[]], {"a": 1}, [None], "x" * 300, "\u00e9", "\U0001f600", "\0"]

# ---- what may differ: (sentence of the one that refuses, why the other accepts) ----

TWICE = "duplicate object key"  # which of two values counts differs from reader to reader, so a file with both hides one

SAFETENSORS_WE_REFUSE = [
    (TWICE, "safetensors keeps the last of two tensors of one name"),
    (r"tensor \".*\": .* elements of .* are .* bytes, but data_offsets", "the first of two entries of one name, which it drops"),
    (r"integer must be at most 2\^63 - 1", "a dimension of 2^63 and more fits its type, in a tensor without elements"),
]
SAFETENSORS_WE_ACCEPT = []

TOKENIZER_WE_REFUSE = [
    (TWICE, "serde keeps the last of two values of one key"),
    (r"id \d+ must belong to one token", "of two tokens with one id it decodes either, by chance"),
    (r"must be \d+, the id that follows from the model's vocabulary",
     "it gives the added token another id than the file says"),
    (r"model\.unk_token must be a token", "it fails later, on the first text with an unknown word"),
    (r"post_processor\.(pair|single) must be a template", "a template without its texts loses them"),
    (r"must be null: ", "unsupported options that change tokens are never ignored"),
    (r"integer must be at most 2\^63 - 1", "it reads such a number as a real, and takes it where nothing is read"),
    (r"padding\.pad_id must be the id of a token", "it pads with an id that no row of a model belongs to"),
    (r"\.type must be a string", "of a decoder or normalizer that it cannot read it tries all kinds, and takes one that fits"),
    (r"\.type: .* is not supported", "unsupported kinds are refused by name"),
    (r"must be true or false \(got nothing", "a setting that is absent has another default in each of its versions"),
    (r"must be an integer from 0 to \d+ \(got", "an id far beyond the vocabulary sizes every table of it"),
    (r"model\.vocab\[\d+\] must be a unique piece", "of two equal pieces it uses the last"),
    (r"must be a string without NUL \(got \"", "no token of a model holds NUL: a C string would end there"),
    (r"special_tokens\..* must be an object \(got nothing", "a template names a special token that it does not define"),
    (r"(normalizer|decoder|pre_tokenizer|post_processor) must be an object \(got", "it tries all kinds, as above"),
    (r"ids\[\d+\] must be an id in the vocabulary", "it puts an id around a text that no token has"),
]
TOKENIZER_WE_ACCEPT = [
    ("Unknown tokenizer version|, in {\"version\":[^:]*$", "\"version\" is not read"),
    ("untagged enum PyDecoderWrapper", "fields of a decoder that change no text are not read"),
    ("untagged enum PostProcessorWrapper", "names in special_tokens are not read: ids count"),
    ("missing field `(trim_offsets|stride|use_regex|direction)`", "absent fields have their defaults, or no effect"),
    ("expected a boolean.*, in .*\"trim_offsets\":(?!true|false)", "trim_offsets of a pre-tokenizer has no effect and is not read"),
    ("invalid type: .*, expected a string.*, in .*\"pad_token\":(?!\")", "padding.pad_token is not read: its id counts"),
    ("null, expected string or map", "null stands for the default"),
    ("null, expected a sequence", "null is an empty list of added tokens"),
]

IGNORED = ("use_cache|pretraining_tp|initializer_range|pad_token_id|bos_token_id|reorder_and_upcast_attn|problem_type|"
           "summary_[a-z_]+|attention_dropout|attention_probs_dropout_prob|hidden_dropout_prob|classifier_dropout|"
           "resid_pdrop|embd_pdrop|attn_pdrop|scale_attn_weights|is_decoder")
CONFIG_WE_REFUSE = [
    (TWICE, "json.loads keeps the last of two values of one key"),
    (r"rope_theta must be a number from", "true and false are numbers to Python, and beyond float32 it computes infinities"),
    (r"must be an integer from 1 to .* \(got nothing", "a missing dimension becomes that of one published model"),
    (r"must be an integer from 1 to .* \(got 0", "a model without rows, width or positions is made there, and computes nothing"),
    (r"num_attention_heads must divide hidden_size", "it rounds the width of heads down"),
    (r"hidden_act \"(linear|[a-z0-9_]*)\" is not supported", "activations that are not supported are refused by name"),
    (r"initializer_range must be a number", "weights that are all 0 are initialized there"),
    (r"rope_(parameters|scaling)\.[a-z_]+(\[\d+\])? must be a number", "likewise for its factors, and 0 divides"),
]
CONFIG_WE_ACCEPT = [
    (f"field '({IGNORED})'", "a key of training or generation that no result of ours depends on is not read"),
    ("dropout probability has to be between", "likewise: nothing is dropped when a model is run"),
    (r"field '[a-z_]+':\s+TypeError: Field '[a-z_]+' expected float, got int", "1 is a number where 1.0 is"),
    (r"field '[a-z_]+':\s+TypeError: Field '[a-z_]+' (expected int, got float|with value \d+\.0 )", "8.0 is a dimension where 8 is"),
    (r"field '[a-z_]+':\s+TypeError: .*got NoneType", "null stands for the default"),
    ("Missing required keys in `rope_parameters`", "absent factors of a rotation have the values that its authors give"),
    ("The hidden size .* is not a multiple of the number of attention", "with a head_dim of its own the width of heads is known"),
]


# ---- mutations ----

class Members(list):
    """An object of JSON as its members, so that a key may be there twice."""


def parse(text):
    return json.loads(text, object_pairs_hook=lambda pairs: Members(list(p) for p in pairs))


def dump(value):
    if isinstance(value, Members):
        return "{" + ",".join(json.dumps(k) + ":" + dump(v) for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(dump(v) for v in value) + "]"
    if isinstance(value, dict):
        return json.dumps(value)
    return json.dumps(value)


def places(rng, value):
    """(container, index) of a tree; the index of a member is that of its pair. Of long lists, as vocabularies are, a few."""
    found = []
    several = range(len(value)) if len(value) < 40 else rng.sample(range(len(value)), 4)
    for i in several:
        found.append((value, i))
        if isinstance(child(value, i), list):
            found += places(rng, child(value, i))
    return found


def child(container, i):
    return container[i][1] if isinstance(container, Members) else container[i]


def put(container, i, value):
    if isinstance(container, Members):
        container[i][1] = value
    else:
        container[i] = value


def change(rng, tree):
    container, i = rng.choice(places(rng, tree))
    other, k = rng.choice(places(rng, tree))
    kind = rng.randrange(8)
    if kind == 0:
        del container[i]
    elif kind == 1:
        container.insert(rng.randrange(len(container) + 1), copy.deepcopy(container[i]))
    elif kind == 2 and isinstance(container, Members) and isinstance(other, Members):
        container[i][0] = other[k][0]
    elif kind == 3:
        put(container, i, copy.deepcopy(child(other, k)))
    elif kind == 4 and isinstance(child(container, i), int):
        put(container, i, child(container, i) + rng.choice((-8, -1, 1, 4, 8)))
    else:
        put(container, i, copy.deepcopy(rng.choice(VALUES)))


def mutated(rng, text):
    """A JSON text with one to three changes of its tree, or, one time in eight, of its bytes."""
    if rng.randrange(8):
        tree = parse(text)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            if tree:
                change(rng, tree)
        return dump(tree).encode("utf-8")
    data = bytearray(text.encode("utf-8"))
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(data))
        data[at:at + rng.randrange(2)] = bytes([rng.choice(b'{}[]",:0123456789-+.eE\\u \t\n\0\x80\xff')])[:rng.randrange(2) or 1]
    return bytes(data)


# ---- verdicts ----

def ours(function, free, *arguments):
    """None, or the sentence of the refusal."""
    handle, error = c_void_p(), Error()
    status = function(None, *arguments, byref(handle), byref(error))
    if status == 0:
        free(handle)
        return None
    return error.message.decode("utf-8", "replace")


def sentence(function, given):
    """None, or the sentence of the refusal."""
    try:
        function(given)
    except BaseException as refusal:  # a panic of Rust is no Exception
        return f"{type(refusal).__name__}: {refusal}"
    return None


def theirs(function, inputs):
    """Their verdicts, from child processes: some files end the process (a panic while a panic is handled)."""
    verdicts = []
    while len(verdicts) < len(inputs):
        out, into = os.pipe()
        if os.fork() == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # panics are printed before they become exceptions
            for given in inputs[len(verdicts):]:
                os.write(into, json.dumps(sentence(function, given)).encode() + b"\n")
            os._exit(0)
        os.close(into)
        with os.fdopen(out) as lines:
            verdicts += [json.loads(line) for line in lines]
        os.wait()
        if len(verdicts) < len(inputs):
            verdicts.append("the process ended")
    return verdicts


def placed(refusal, given):
    """The sentence of a refusal; where it names a column, with the object up to there."""
    column = re.search(r"at line 1 column (\d+)$", refusal)
    if not column:
        return refusal
    before = given[:int(column[1])]
    return f"{refusal}, in {before[before.rfind(b'{'):].decode(errors='replace')}"


class Readers(unittest.TestCase):
    def compare(self, name, inputs, mine, others, we_refuse, we_accept):
        """Verdicts are None or the sentence of a refusal, one for each input."""
        accepted, different, unexplained = mine.count(None), 0, []
        for given, own, other in zip(inputs, mine, others, strict=True):
            if (own is None) == (other is None):
                continue
            different += 1
            known = we_refuse if own else we_accept
            refusal = own or placed(other, given)
            if not any(re.search(pattern, refusal) for pattern, _ in known):
                unexplained.append(f"{'we refuse' if own else 'we accept'}: {refusal[:600]}\n    {given[:400]}")
        print(f"{name}: seed {SEED}, {len(inputs)} files, {accepted} accepted, {different} differ, {len(unexplained)} of them unlisted")
        self.assertGreater(min(accepted, len(inputs) - accepted), len(inputs) // 50, "mutations are neither all valid nor none")
        self.assertFalse(unexplained, "\n".join(["differences that are not listed:"] + unexplained[:8]))

    def test_safetensors(self):
        rng = random.Random(SEED)
        bases = [p.read_bytes() for p in sorted((DATA / "safetensors").glob("accept-*")) if p.stat().st_size < 4000]

        def make():
            base = rng.choice(bases)
            n = struct.unpack("<Q", base[:8])[0]
            header = mutated(rng, base[8:8 + n].decode("utf-8"))
            data = base[8 + n:] + bytes(rng.choice((0, 0, 0, 0, 1, 4)))
            return struct.pack("<Q", len(header) + rng.choice((0,) * 20 + (-1, 1, 8))) + header + data

        inputs = [make() for _ in range(CASES or 3000)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.safetensors"

            def mine(given):
                path.write_bytes(given)
                return ours(lib.mha_file_open, lib.mha_file_free, str(path).encode(), None)

            self.compare("safetensors", inputs, [mine(x) for x in inputs], theirs(safetensors.deserialize, inputs),
                         SAFETENSORS_WE_REFUSE, SAFETENSORS_WE_ACCEPT)

    def test_tokenizers(self):
        rng = random.Random(SEED)
        bases = [p.read_text() for p in sorted((DATA / "tokenizer").glob("*/tokenizer.json")) if p.stat().st_size < 12000]
        inputs = [mutated(rng, rng.choice(bases)) for _ in range(CASES or 1000)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tokenizer.json"

            def mine(given):
                path.write_bytes(given)
                return ours(lib.mha_tokenizer_open, lib.mha_tokenizer_free, folder.encode())

            self.compare("tokenizers", inputs, [mine(x) for x in inputs], theirs(Tokenizer.from_buffer, inputs),
                         TOKENIZER_WE_REFUSE, TOKENIZER_WE_ACCEPT)

    def test_configs(self):
        rng = random.Random(SEED)
        bases = [small(json.loads(p.read_text())) for p in sorted((DATA / "families").glob("*/config.json"))]
        inputs = [x for x in (mutated(rng, rng.choice(bases)) for _ in range(CASES or 250)) if not TOO_LARGE.search(x) and b"\0" not in x]

        with tempfile.TemporaryDirectory() as folder:

            def model(given):
                (Path(folder) / "config.json").write_bytes(given)
                made = transformers.AutoModel.from_config(transformers.AutoConfig.from_pretrained(folder))
                with torch.no_grad():
                    made(torch.tensor([[1, 2, 3]]))

            mine = [ours(lib.mha_model_create, lib.mha_model_free, x, None) for x in inputs]
            self.compare("config", inputs, mine, theirs(model, inputs), CONFIG_WE_REFUSE, CONFIG_WE_ACCEPT)


# Numbers that a model could be made of only with more memory than a machine has: transformers would try.
TOO_LARGE = re.compile(rb"(?<![\d.])\d{5,}(?![\d.e])")


def small(config):
    """The config without keys that no model depends on, with few words, so that the model is made in milliseconds."""
    for key in ("architectures", "transformers_version", "_name_or_path", "dtype", "torch_dtype"):
        config.pop(key, None)
    return json.dumps({k: 64 if k == "vocab_size" else v for k, v in config.items()})


if __name__ == "__main__":
    unittest.main()
