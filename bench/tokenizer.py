"""Compares `mha tokenizer train` with the trainers of the tokenizers library on the same file.

    python3 bench/tokenizer.py --program build/bin/mha --texts FILE [--vocab-size 30000] [--rounds 3]

Each training run is a separate process with one thread; the two libraries alternate, and the minimum over the rounds is reported.
Seconds are CPU time, so other work on the machine has little effect: for mha those of the whole process, output files included; for
tokenizers those from reading the file to the end of training. Memory is the peak of the process. The results are compared first: for
BPE the vocabulary and merges, for WordPiece only the token count, because tokenizers numbers the ## characters at random.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PEER = """
import json, sys, time
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
kind, size, texts, out = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
if kind == "bpe":
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
else:
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=size, min_frequency=2, show_progress=False,
                                        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
begin = time.process_time()
t.train([texts], trainer)
seconds = time.process_time() - begin
t.save(out)
print(json.dumps({"seconds": seconds}))
"""


def run(command):
    """Returns the JSON that a process printed, its CPU time in seconds, and its peak memory in MiB."""
    environment = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryFile("w+") as out:
        with subprocess.Popen(command, stdout=out, env=environment) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{command[0]}: exit status {process.returncode}")
        out.seek(0)
        return json.load(out), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def ours(a, kind, out):
    more = ["--type", "wordpiece", "--lowercase"] if kind == "wordpiece" else []
    _, seconds, mib = run([a.program, "tokenizer", "train", "-q", "-t", "1", "--json", "--force", "--vocab-size", str(a.vocab_size),
                           "-o", str(out / kind), "-f", a.texts, *more])  # fmt: skip
    return seconds, mib, json.loads((out / kind / "tokenizer.json").read_text())["model"]


def theirs(a, kind, out):
    said, _, mib = run([sys.executable, "-c", PEER, kind, str(a.vocab_size), a.texts, str(out / "peer.json")])
    return said["seconds"], mib, json.loads((out / "peer.json").read_text())["model"]


def compare(kind, here, there):
    equal = len(here["vocab"]) == len(there["vocab"]) if kind == "wordpiece" else [here[k] == there[k] for k in ("vocab", "merges")] == [True, True]
    if not equal:
        raise SystemExit(f"{kind}: mha and tokenizers must learn the same tokens")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--vocab-size", type=int, default=30000)
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    print(f"{Path(a.texts).stat().st_size / 1e6:.1f} MB, {a.vocab_size} tokens, one thread")
    print(f"{'':10} {'mha [s]':>8} {'[MiB]':>6} {'tokenizers [s]':>14} {'[MiB]':>6} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("bpe", "wordpiece"):
            rounds = [(ours(a, kind, Path(folder)), theirs(a, kind, Path(folder))) for _ in range(a.rounds)]
            compare(kind, rounds[0][0][2], rounds[0][1][2])
            (us, us_mib), (peer, peer_mib) = ([min(r[side][i] for r in rounds) for i in (0, 1)] for side in (0, 1))
            print(f"{kind:10} {us:8.2f} {us_mib:6.0f} {peer:14.2f} {peer_mib:6.0f} {peer / us:6.1f}")


if __name__ == "__main__":
    main()
