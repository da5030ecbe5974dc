"""Measures the memory that the program uses to reject files of the maximum accepted size with an error at the end.

    refusals.py PROGRAM MODEL FOLDER

Each file is written in parts and removed after its case. This process must use little memory, because the peak memory of a child process
includes the memory of its parent.
"""
import itertools, os, shutil, struct, subprocess, sys

LIMIT = 256 << 20


def put(path, parts):
    """Writes the strings `parts` to a file; returns the number of bytes."""
    with open(path, "wb") as f:
        return sum(f.write(part.encode()) for part in parts)


def listed(begin, items, end):
    """Yields the text of a JSON list between `begin` and `end`, several thousand items at a time."""
    yield begin
    items, comma = iter(items), ""
    while batch := list(itertools.islice(items, 4096)):
        yield comma + ",".join(batch)
        comma = ","
    yield end


def repeated(item, size):
    """Returns an iterator that repeats `item` as often as a list of `size` bytes allows."""
    return itertools.repeat(item, (size - 64) // (len(item) + 1))


def header(path, parts):
    with open(path, "wb") as f:
        f.write(bytes(8))
        n = sum(f.write(part.encode()) for part in parts)
        f.seek(0)
        f.write(struct.pack("<Q", n))


def tensors(count):
    return ('"%06x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in itertools.chain(range(count - 1), [5]))


def headers(folder):
    """Yields safetensors headers of 95 MiB: with two tensors of the same name, and with values that are not tensors."""
    path = os.path.join(folder, "x.safetensors")
    header(path, listed("{", tensors(100000000 // 58 - 10), "}"))
    yield "header of tensors", ["info", path]
    header(path, listed('{"a":[', repeated("[]", 99000000), "]}"))
    yield "header of arrays", ["info", path]


def configs(folder):
    for item in "[]", "1", '{"a":1}', "1.2345678901234567e-7":
        put(os.path.join(folder, "config.json"), listed('{"a":[', repeated(item, 16 << 20), "]}"))
        yield "config of " + item, ["info", "-m", folder]


def indexes(folder):
    """Yields an index with the maximum number of tensors, in a missing file, and an index with one more tensor."""
    path = os.path.join(folder, "model.safetensors.index.json")
    for count in 1 << 20, (1 << 20) + 1:
        put(path, listed('{"weight_map":{', ('"%06x":"a"' % i for i in range(count)), "}}"))
        yield "index of %d tensors" % count, ["info", path]


def tokenizers(folder):
    """Yields tokenizers with an error in their last part, the decoder, and valid tokenizers whose tables require far more memory than the
    file."""
    path = os.path.join(folder, "tokenizer.json")
    end = '},"decoder":{"type":"Unknown"}}'
    run = ["tokenize", "-m", folder, "text"]

    def bpe(tokens, merges, stride=1, pad=""):
        vocab = ('"%s%06x":%d' % (pad, i, i * stride) for i in range(tokens))
        halves = (',"%03x":%d' % (i, tokens * stride + i) for i in range(4096))
        yield from listed('{"model":{"type":"BPE","vocab":{', vocab, "".join(halves))
        pairs = ('"%03x %03x"' % (i >> 12, i & 0xFFF) for i in range(merges))
        yield from listed('},"merges":[', pairs, "]")
        yield end

    for tokens, merges, stride, pad in ((1000000, 600000, 1, ""), (500000, 0, 4, "a" * 200)):
        put(path, bpe(tokens, merges, stride, pad))
        yield "tokenizer of %d tokens" % tokens, run
    for count, pad, last in ((300000, "", end), (40000, "b" * 500, '},"decoder":null}')):
        pieces = ('["%06x%s",-1.5]' % (i, pad) for i in range(count))
        put(path, listed('{"model":{"type":"Unigram","unk_id":0,"vocab":[', pieces, "]" + last))
        yield "tokenizer of %d pieces" % count, run
    flags = '"special":false,"normalized":true,"lstrip":false,"rstrip":false,"single_word":false}'
    added = ('{"id":%d,"content":"%s%06x",' % (i + 1, "c" * 900, i) + flags for i in range(20000))
    grow = '],"normalizer":{"type":"Replace","pattern":{"String":"c"},"content":"%s"},' % ("d" * 16)
    model = '"model":{"type":"BPE","vocab":{"a":0},"merges":[]' + end
    put(path, listed('{"added_tokens":[', added, grow + model))
    yield "tokenizer of added tokens", run


def options(folder):
    """Yields JSON files of options with values that require the most memory per byte, and one byte after the end."""
    path = os.path.join(folder, "x.json")
    train = ["train", "--shape", path, "--vocab", "9", "--tokens", "none", "-o", os.path.join(folder, "none")]
    keep = ["prune", "-m", os.path.join(folder, "model"), "--keep", path, "-o", os.path.join(folder, "none")]
    scores = keep[:3] + ["--scores", path, "--count", "1"] + keep[-2:]
    curve = ["report", "-m", keep[2], "--curve", path, "text", "-o", os.path.join(folder, "none.html")]
    state = os.path.join(folder, "run")
    shutil.copytree(keep[2], state)
    runs = {"--keep": keep, "--scores": scores, "--shape": train, "--config": train[:1] + ["--config", path, *train[3:]], "--curve": curve}
    for item, size in ("{}", 36000), ("{}", 16000), ("{}", 1500), ("[]", 1500), ('{"a":{}}', 2200), ("1", 2000), ('"%s"' % ("a" * 9999), 16000):
        put(path, listed('{"a":[', repeated(item, size << 10), "]}!"))
        for name, words in runs.items():
            yield "%s with %d KiB of %.8s" % (name, size, item), words
        os.replace(path, os.path.join(state, "training.json"))
        yield "training.json with %d KiB of %.8s" % (size, item), ["train", "--resume", "-o", state]


def texts(folder):
    """Yields files with more texts than the memory limit allows: short lines, long lines, and lines of the maximum length."""
    path = os.path.join(folder, "texts.txt")
    for line, count in ("a", 20 << 20), ("a" * 1000, 300 << 10), ("a" * ((16 << 20) - 1), 14):
        put(path, itertools.repeat(line + "\n", count))
        yield "%d texts of %d bytes" % (count, len(line)), ["embed", "-m", os.path.join(folder, "model"), "-f", path]


def logs(folder):
    """Yields logs of a training run with a line longer than any record, and with a line whose samples require the most memory per byte."""
    ids, run = os.path.join(folder, "ids.bin"), os.path.join(folder, "run")
    put(ids, itertools.repeat("\x01\x00", 64))
    shape = ["--shape", "gpt2:1x1x8", "--vocab", "9", "--length", "8", "--tokens", ids]
    subprocess.run([sys.argv[1], "train", "-q", *shape, "--steps", "1", "-o", run], check=True, stdout=subprocess.DEVNULL)
    path = os.path.join(run, "training.jsonl")
    begin = '{"step":0,"loss":1,"tokens":0,"seconds":0,"samples":['
    for name, parts in (("letters", itertools.repeat("a" * 65536, 8192)), ("arrays", listed(begin, repeated("[]", 7 << 20), "]}\n"))):
        put(path, parts)
        yield "training.jsonl with a line of " + name, ["train", "--resume", "--steps", "2", "-o", run]


def refuse(program, words):
    """Runs the program; returns its exit status, peak memory in bytes, duration in seconds, and message."""
    reader, writer = os.pipe()
    actions = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0), (os.POSIX_SPAWN_DUP2, writer, 2)]
    child = os.posix_spawn(program, [program, *words], os.environ, file_actions=actions)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode(errors="replace").strip()
    _, status, used = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), used.ru_maxrss << 10, used.ru_utime + used.ru_stime, said


def main(program, base, folder):
    failures = 0
    for cases in headers, configs, indexes, tokenizers, options, texts, logs:
        place = os.path.join(folder, cases.__name__)
        if cases is tokenizers:
            shutil.copytree(base, place)
        else:
            os.mkdir(place)
        if cases in (options, texts):
            shutil.copytree(base, os.path.join(place, "model"))
        for name, words in cases(place):
            status, most, seconds, said = refuse(program, words)
            good = status == 3 and said and most <= LIMIT
            print("%s %s: exit %d, %.1f MiB, %.2f s: %s" % ("" if good else "FAIL:", name, status, most / (1 << 20), seconds, said[-150:]))
            failures += not good
        shutil.rmtree(place)
    return failures > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
