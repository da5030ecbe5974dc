"""Small random T5 and BART models of transformers in float64, with a gate and a fill on the output of every head, and the same models
opened by this library."""
import shutil
import tempfile
from pathlib import Path

import torch
import transformers

import mha

SIZES = {"decoder": 2, "encoder": 3}  # layers
HEADS, VOCAB = 4, 50
PAIRS = [([5, 9, 31, 7, 12, 40, 3], [21, 8, 14, 30, 1]), ([6, 11], [33, 1]), ([8, 8, 10, 44], [6, 7, 1, 19, 2, 13]),
         ([41, 3, 17, 29, 4], [9, 25, 1])]
KINDS = "decoder", "cross", "encoder"


def t5():
    """A random T5, in which scores, gains and tables are large enough that every head matters."""
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=VOCAB, d_model=24, d_kv=8, d_ff=48, num_layers=SIZES["encoder"], num_decoder_layers=SIZES["decoder"],
        num_heads=HEADS, relative_attention_num_buckets=8, relative_attention_max_distance=16, dropout_rate=0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1))
    blocks = {"encoder": model.encoder.block, "decoder": model.decoder.block}
    return model, {"encoder": [b.layer[0].SelfAttention.o for b in blocks["encoder"]],
                   "decoder": [b.layer[0].SelfAttention.o for b in blocks["decoder"]],
                   "cross": [b.layer[1].EncDecAttention.o for b in blocks["decoder"]]}


def bart():
    torch.manual_seed(1)
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(
        vocab_size=VOCAB, d_model=32, encoder_layers=SIZES["encoder"], decoder_layers=SIZES["decoder"], encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=32, dropout=0, init_std=0.2,
        decoder_start_token_id=2, pad_token_id=1, bos_token_id=0, eos_token_id=2, forced_eos_token_id=None))
    layers = {"encoder": model.model.encoder.layers, "decoder": model.model.decoder.layers}
    return model, {"encoder": [b.self_attn.out_proj for b in layers["encoder"]],
                   "decoder": [b.self_attn.out_proj for b in layers["decoder"]],
                   "cross": [b.encoder_attn.out_proj for b in layers["decoder"]]}


class Reference:
    """A model of transformers in float64 with a gate on every head, and the same model opened by this library."""

    def __init__(self, build, folder):
        self.model, self.projections = build()
        self.model.eval().save_pretrained(folder)
        self.ours = mha.Model(folder)
        self.data = mha.HeadData.of_pairs(self.ours, PAIRS, ids=True)
        self.model.double()
        self.gates = {kind: torch.ones(len(x), HEADS, dtype=torch.float64, requires_grad=True) for kind, x in self.projections.items()}
        self.fills = dict.fromkeys(KINDS)  # [layers, heads, width] added to the gated outputs
        self.seen = {kind: [[] for _ in x] for kind, x in self.projections.items()}
        self.start = self.model.config.decoder_start_token_id
        for kind, projections in self.projections.items():
            for layer, projection in enumerate(projections):
                projection.register_forward_pre_hook(self.hook(kind, layer))

    def hook(self, kind, layer):
        def gate(_, inputs):
            heads = inputs[0].unflatten(-1, (HEADS, -1))
            self.seen[kind][layer].append(heads.detach().flatten(0, 1))
            heads = heads * self.gates[kind][layer][:, None]
            if self.fills[kind] is not None:
                heads = heads + self.fills[kind][layer]
            return (heads.flatten(-2),)
        return gate

    def run(self, pair):
        """Returns the sum of the cross entropy of the target, and the last hidden states of the decoder."""
        target = [self.start, *pair[1]]  # the last token is only read for the hidden states
        out = self.model(input_ids=torch.tensor([pair[0]]), decoder_input_ids=torch.tensor([target]), output_hidden_states=True)
        loss = torch.nn.functional.cross_entropy(out.logits[0, :-1], torch.tensor(pair[1]), reduction="sum")
        return loss, out.decoder_hidden_states[-1][0]

    def scaled(self, pair):
        """Returns the part of one pair in the mean loss of all tokens."""
        return self.run(pair)[0] / sum(len(target) for _, target in PAIRS)

    def means(self):
        """Returns the mean output of each head over all tokens."""
        for layers in self.seen.values():
            for layer in layers:
                layer.clear()
        with torch.no_grad():
            for pair in PAIRS:
                self.run(pair)
        return {kind: torch.stack([torch.cat(x).mean(0) for x in layers]) for kind, layers in self.seen.items()}

    def each_head(self, means=None):
        """Yields kind, layer, head with the head switched off: its output is 0 or its mean."""
        for kind, gates in self.gates.items():
            for layer in range(len(gates)):
                for head in range(HEADS):
                    with torch.no_grad():
                        gates[layer, head] = 0
                        if means:
                            self.fills[kind] = torch.zeros_like(means[kind])
                            self.fills[kind][layer, head] = means[kind][layer, head]
                        yield kind, layer, head
                        gates[layer, head] = 1
                        self.fills[kind] = None


def open_references(case):
    """Sets case.references to {name: Reference} of both models, and case.folder to their folder, which is removed after the tests of
    the class `case`."""
    case.folder = Path(tempfile.mkdtemp())
    case.addClassCleanup(shutil.rmtree, case.folder)
    case.references = {build.__name__: Reference(build, case.folder / build.__name__) for build in (t5, bart)}
