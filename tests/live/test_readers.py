"""Compares the file readers of mha with safetensors, tokenizers and the config classes of transformers on mutated files. Two readers must
both accept or both reject each file. Known differences are listed below with their reasons; any other difference fails the test.
MHA_SEED=N selects the mutations (default: 1); MHA_CASES=N sets the number of files per reader."""
import copy
import json
import os
import random
import re
import struct
import sys
import tempfile
import unittest
from ctypes import byref, c_void_p
from pathlib import Path

os.environ["RUST_BACKTRACE"] = "0"  # printing the stack trace of a panic takes longer than reading the file

try:
    import safetensors
    import torch
    import transformers
    from tokenizers import Tokenizer
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from mha._binding.abi import Error
from mha._binding.library import lib

DATA = Path(__file__).resolve().parents[1] / "golden/data"
SEED = int(os.environ.get("MHA_SEED") or 1)
CASES = int(os.environ.get("MHA_CASES") or 0)

VALUES = [None, True, False, 0, 1, -1, 2, 3, 8, 255, 65536, 2**31, 2**32, 2**63, 2**64, 0.5, 1.0, 8.0, 1e-5, 1e300, -0.0, "", "a", "F32",
          "I64", "gelu", "linear", [], {}, [0], [0, 8], [1, 2, 3], [[]], {"a": 1}, [None], "x" * 300, "\u00e9", "\U0001f600", "\0"]

# ---- allowed differences: (pattern of the error message, reason for the difference) ----

TWICE = "duplicate object key"  # the file is ambiguous: some readers use the first of two values, others the last

SAFETENSORS_WE_REFUSE = [
    (TWICE, "safetensors keeps the last of two tensors with the same name"),
    (r"tensor \".*\": data_offsets (must span .* bytes, the size of .* elements of .* \(got|\[.*\] must be in ascending order)",
     "safetensors ignores the first of two entries with the same name, which is the invalid one"),
    (r"header must begin with \{", "safetensors accepts a header that begins with a space, which its format forbids"),
    (r"integer must be at most 2\^63 - 1", "safetensors accepts dimensions of 2^63 and more in a tensor without elements"),
]
SAFETENSORS_WE_ACCEPT = []

TOKENIZER_WE_REFUSE = [
    (TWICE, "serde keeps the last of two values of a key"),
    (r"id \d+ must belong to one token", "tokenizers decodes one of two tokens with the same id, at random"),
    (r"must be \d+, the id that follows from the model's vocabulary",
     "tokenizers assigns the added token a different id than the file"),
    (r"model\.unk_token must be a token", "tokenizers fails later, on the first text with an unknown word"),
    (r"post_processor\.(pair|single) must be a template", "tokenizers accepts a template without the items for texts"),
    (r"must be null or (empty|0) ", "mha rejects unsupported options that change tokens"),
    (r"integer must be at most 2\^63 - 1", "tokenizers reads such a number as a float, and accepts it in unused fields"),
    (r"padding\.pad_id must be the id of a token", "tokenizers pads with an id beyond the embedding table"),
    (r"\.type must be a string", "if the type is invalid, tokenizers tries all decoders or normalizers and uses the first match"),
    (r"\.type must (be one of|not follow) ", "mha rejects unsupported types by name"),
    (r"must be true or false \(got nothing", "the default of the missing setting differs between versions of tokenizers"),
    (r"post_processor\.(add_prefix_space|trim_offsets) must be true or false ",
     "tokenizers reads a RobertaProcessing whose settings have another type as BertProcessing"),
    (r"must be an integer from 0 to \d+ \(got", "an id far beyond the vocabulary would require huge tables"),
    (r"model\.vocab\[\d+\] must be a unique piece", "tokenizers uses the last of two equal pieces"),
    (r"must be a (string|piece of at most 512 bytes) without NUL \(got \"", "a NUL would end the C string of a token; tokens of published models contain none"),
    (r"special_tokens\..* must be an object \(got nothing", "tokenizers accepts a template with an undefined special token"),
    (r"(normalizer|decoder|pre_tokenizer|post_processor)(\.[a-z_]+\[\d+\])? must be an object \(got", "tokenizers tries all types and uses the first match"),
    (r"(ids\[\d+\]|post_processor\.(cls|sep)) must be .*an id in the vocabulary", "tokenizers adds ids that have no token"),
    (r"added_tokens\[\d+\]\.content must be a string of 1 to 1024 bytes \(got \"\"\)", "tokenizers ignores an added token without content"),
    (r"added_tokens\[\d+\]\.content must be unique", "tokenizers uses one of two added tokens with the same content"),
    (r"pattern\.Regex must be the regular expression of a supported tokenizer", "mha rejects other regular expressions by name"),
    (r"model\.merges must be an array", "if the model has no type, tokenizers tries all types and uses the first match"),
    (r"pattern\.String must be a string of 1 to 256 bytes \(got \"\"\)", "tokenizers accepts a pattern that matches nothing"),
    (r"model\.end_of_word_suffix must be at most 32 bytes", "suffixes of published models have at most 4 bytes"),
]
TOKENIZER_WE_ACCEPT = [
    ("Unknown tokenizer version|, in \"version\":", "mha does not read \"version\""),
    ("untagged enum PyDecoderWrapper", "mha does not read fields of a decoder that do not affect text"),
    ("untagged enum PostProcessorWrapper", "mha reads the ids in special_tokens, not the names"),
    ("missing field `(trim_offsets|stride|use_regex|direction|pad_token)`", "missing fields have defaults or no effect"),
    ("expected a boolean.*, in .*\"trim_offsets\":(?!true|false)", "mha does not read trim_offsets of a pre-tokenizer, which has no effect"),
    ("invalid type: .*, expected a string.*, in .*\"pad_token\":(?!\")", "mha reads the id of the padding token, not padding.pad_token"),
    ("null, expected (string or map|usize)|null, expected a boolean.*, in .*\"use_regex\":null", "null means the default"),
    ("null, expected a sequence", "null means no added tokens"),
]

IGNORED = ("use_cache|pretraining_tp|initializer_range|pad_token_id|bos_token_id|reorder_and_upcast_attn|problem_type|"
           "summary_[a-z_]+|attention_dropout|attention_probs_dropout_prob|hidden_dropout_prob|classifier_dropout|"
           "resid_pdrop|embd_pdrop|attn_pdrop|scale_attn_weights|is_decoder")
CONFIG_WE_REFUSE = [
    (TWICE, "json.loads keeps the last of two values of a key"),
    (r"rope_theta must be a number from", "Python accepts true and false as numbers, and overflows to infinity beyond float32"),
    (r"must be an integer from 1 to .* \(got nothing", "transformers sets a missing dimension to the dimension of a published model"),
    (r"must be an integer from 1 to .* \(got 0", "transformers creates a model with a dimension of 0, which computes nothing"),
    (r"num_attention_heads must divide hidden_size", "transformers rounds head_dim down"),
    (r"hidden_act must be one of .* \(got \"[a-z0-9_]*\"\)", "mha rejects unsupported activations by name"),
    (r"initializer_range must be a number", "transformers initializes weights to 0"),
    (r"rope_(parameters|scaling)\.[a-z_]+(\[\d+\])? must be (a number|an integer)",
     "Python accepts true and false as numbers, and integers of any size, and transformers divides by factors of 0"),
    (r"rope_parameters\.low_freq_factor must be below", "transformers interpolates frequencies between bounds in the wrong order"),
    (r"head_dim must be even for rotation", "transformers rotates a head of one element by broadcasting it to two elements"),
    (r"rms_norm_eps must be a number", "transformers divides by 0 for a row of zeros"),
    (r"sliding_window must be an integer from 1", "transformers masks all keys"),
    (r"max_position_embeddings must be an integer from 1", "transformers does not read the maximum length of a model with rotation"),
    (r"eos_token_id must be a token id", "transformers ends no text for an id that no token has"),
]
CONFIG_WE_ACCEPT = [
    (f"field '({IGNORED})'", "mha does not read keys of training or generation that do not affect results"),
    ("dropout probability has to be between", "mha does not read dropout probabilities, which do not affect inference"),
    (r"field '[a-z_]+':\s+TypeError: .*Field '[a-z_]+' expected float, got int", "mha accepts 1 for 1.0"),
    (r"field '[a-z_]+':\s+TypeError: Field '[a-z_]+' (expected int, got float|with value \d+\.0 )", "mha accepts 8.0 for 8"),
    (r"field '[a-z_]+':\s+TypeError: .*got NoneType|KeyError: None$|operand type.*: 'NoneType' and 'Tensor'", "null means the default"),
    ("Missing required keys in `rope_parameters`", "missing factors of rotary position embeddings have published defaults"),
    ("The hidden size .* is not a multiple of the number of attention", "head_dim is given explicitly"),
]


# ---- mutations ----

class Members(list):
    """A JSON object as a list of [key, value] pairs, so that keys can occur twice."""


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
    """Returns a pair (container, index) for each node of a tree; long lists, such as vocabularies, are sampled."""
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
    """Returns a JSON text with one to three mutations of its tree or, with a probability of 1/8, of its bytes."""
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


# ---- results of the readers ----

def ours(function, free, *arguments):
    """Returns None if the file is accepted, or the error message."""
    handle, error = c_void_p(), Error()
    status = function(None, *arguments, byref(handle), byref(error))
    if status == 0:
        free(handle)
        return None
    return error.message.decode("utf-8", "replace")


def sentence(function, given):
    """Returns None if the file is accepted, or the error message."""
    try:
        function(given)
    except BaseException as refusal:  # a Rust panic is not an Exception
        return f"{type(refusal).__name__}: {refusal}"
    return None


def theirs(function, inputs):
    """Returns the results of the other reader. It runs in child processes, since some files abort the process."""
    verdicts = []
    while len(verdicts) < len(inputs):
        out, into = os.pipe()
        if os.fork() == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # panics are printed before they are converted to exceptions
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


MEMBERS = (b"version", b"truncation", b"padding", b"added_tokens", b"normalizer", b"pre_tokenizer", b"post_processor", b"decoder", b"model")


def placed(refusal, given):
    """Returns an error message. If it names a column, appends the member of the outermost object up to this column."""
    column = re.search(r"at line 1 column (\d+)$", refusal)
    if not column:
        return refusal
    before = given[:int(column[1])]
    begin = max(0, *(before.rfind(b'"%s":' % key) for key in MEMBERS))
    return f"{refusal}, in {before[begin:].decode(errors='replace')}"


class Readers(unittest.TestCase):
    def compare(self, name, inputs, mine, others, we_refuse, we_accept):
        """Compares the results of two readers: for each input, None or an error message."""
        accepted, different, unexplained = mine.count(None), 0, []
        for given, own, other in zip(inputs, mine, others, strict=True):
            if (own is None) == (other is None):
                continue
            different += 1
            known = we_refuse if own else we_accept
            refusal = own or placed(other, given)
            if not any(re.search(pattern, refusal) for pattern, _ in known):
                unexplained.append(f"{'mha rejects' if own else 'mha accepts'}: {refusal[:600]}\n    {given[:400]}")
        print(f"{name}: seed {SEED}, {len(inputs)} files, {accepted} accepted, {different} differences, {len(unexplained)} of which are not listed")
        self.assertGreater(min(accepted, len(inputs) - accepted), len(inputs) // 50, "at least 2 % of the files must be valid, and at least 2 % invalid")
        self.assertFalse(unexplained, "\n".join(["unlisted differences:"] + unexplained[:8]))

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
                made = transformers.AutoModel.from_config(transformers.AutoConfig.from_pretrained(folder)).eval()
                with torch.no_grad():
                    made(torch.tensor([[0, 0, 0]]))  # the only id of the smallest vocabulary

            mine = [ours(lib.mha_model_create, lib.mha_model_free, x, None) for x in inputs]
            self.compare("config", inputs, mine, theirs(model, inputs), CONFIG_WE_REFUSE, CONFIG_WE_ACCEPT)


# Integers of five or more digits, for which transformers would allocate too much memory.
TOO_LARGE = re.compile(rb"(?<![\d.])\d{5,}(?![\d.e])")


def small(config):
    """Removes keys that do not affect the model and reduces the vocabulary, so that creating the model takes milliseconds."""
    for key in ("architectures", "transformers_version", "_name_or_path", "dtype", "torch_dtype"):
        config.pop(key, None)
    return json.dumps({k: 64 if k == "vocab_size" else v for k, v in config.items()})


if __name__ == "__main__":
    unittest.main()
