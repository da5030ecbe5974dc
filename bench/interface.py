"""Compares attn_implementation="mha" with the other implementations of transformers, on an encoder and a decoder with random weights.

    python3 bench/interface.py [--models encoder,decoder] [--peers eager,maps,sdpa,flex_attention,mha,stats] [--tokens 2048]
                               [--layers 4] [--threads 1] [--rounds 5] [--json]

    maps       eager attention with output_attentions=True, and the mean entropy of each head
    stats      mha.transformers.heads: entropy, confidence, distance and sink of each head, without L x L maps
    others     a forward pass without maps

The encoder is a BERT and the decoder a LLaMA with 12 heads, 4 key/value heads in the decoder, and a hidden size of 768. Each peer runs
in a separate process that waits for its turn, so all peers run under the same load; the minimum over the rounds is reported. The first
pass, in which flex_attention is compiled, is not timed. Seconds are CPU time with one thread and wall-clock time with several. Memory is
the peak of the process in MiB, without its memory before the first pass.
"""
import argparse
import resource
import subprocess
import sys
import time

from table import print_rows

PEERS = ("eager", "maps", "sdpa", "flex_attention", "mha", "stats")


def create(kind, tokens, layers):
    import transformers
    shape = {"hidden_size": 768, "num_hidden_layers": layers, "num_attention_heads": 12, "max_position_embeddings": tokens,
             "vocab_size": 2000}
    if kind == "encoder":
        return transformers.BertModel(transformers.BertConfig(intermediate_size=3072, **shape)).eval()
    return transformers.LlamaModel(transformers.LlamaConfig(num_key_value_heads=4, intermediate_size=2048, **shape)).eval()


def run(model, peer, ids):
    import mha.transformers
    if peer == "stats":
        return mha.transformers.heads(model, lambda text, return_tensors: {"input_ids": ids}, ["text"]).metrics
    out = model(ids, output_attentions=peer == "maps")
    return [-(p * p.clamp_min(1e-30).log2()).sum(-1).mean((0, 2)) for p in out.attentions] if peer == "maps" else out.last_hidden_state


def serve(kind, peer, tokens, layers, threads):
    import mha.transformers
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    mha.set_threads(threads)
    mha.transformers.register()
    model = create(kind, tokens, layers)
    model.set_attn_implementation({"maps": "eager", "stats": "mha"}.get(peer, peer))
    ids = torch.randint(5, 2000, (1, tokens))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.no_grad():
        for _ in sys.stdin:
            wall, cpu = time.perf_counter(), time.process_time()
            run(model, peer, ids)
            print(time.perf_counter() - wall, time.process_time() - cpu,
                  (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, flush=True)


class Peer:
    def __init__(self, *arguments):
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", *map(str, arguments)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def turn(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(kind, o):
    peers = {name: Peer(kind, name, o.tokens, o.layers, o.threads) for name in o.peers.split(",")}
    for peer in peers.values():
        peer.turn()
    rounds = [{name: peer.turn() for name, peer in peers.items()} for _ in range(o.rounds)]
    for peer in peers.values():
        peer.close()
    return {"model": kind,
            "peers": {name: {"seconds": min(r[name][o.threads == 1] for r in rounds), "mib": rounds[-1][name][2]} for name in peers}}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--models", default="encoder,decoder")
    options.add_argument("--peers", default=",".join(PEERS))
    for name, default in (("tokens", 2048), ("layers", 4), ("threads", 1), ("rounds", 5)):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--json", action="store_true")
    options.add_argument("--serve", nargs=5, help=argparse.SUPPRESS)
    o = options.parse_args()
    if o.serve:
        return serve(*o.serve[:2], *map(int, o.serve[2:]))
    heading = f"{o.tokens} tokens, {o.layers} layers, {o.threads} threads: seconds (MiB)"
    print_rows((compare(kind, o) for kind in o.models.split(",")), heading, ["model", *o.peers.split(",")],
               lambda row: [row["model"], *(f"{x['seconds']:.2f} ({x['mib']:.0f})" for x in row["peers"].values())], o.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
