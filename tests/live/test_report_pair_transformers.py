"""Compares `mha report --source --target` with transformers: the maps of cross-attention, encoder and decoder, and the loss of the target
without one head after another, whose columns of the output projection are set to 0."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from hugging_face import torch  # imported first: skips the test if PyTorch is not installed
import numpy as np
from transformers import AutoModelForSeq2SeqLM

import mha

DATA = Path(__file__).resolve().parents[1] / "golden/data/seq2seq"
SOURCE, TARGET = "The house is large.", "A house"


def projections(model, part):
    """The output projections of the self-attention of the layers."""
    if hasattr(model, "encoder"):  # T5
        return [block.layer[0].SelfAttention.o for block in getattr(model, part).block]
    return [layer.self_attn.out_proj for layer in getattr(model.model, part).layers]


class ReportPair(unittest.TestCase):
    def report(self, folder):
        with tempfile.TemporaryDirectory() as out:
            command = [os.environ["MHA"], "report", "-q", "--json", "-m", folder, "--source", SOURCE, "--target", TARGET, "--by", "loo_loss"]
            return json.loads(subprocess.run([*command, "-o", Path(out, "x.html")], check=True, capture_output=True, text=True).stdout)

    def loss(self, model, source, target):
        """The mean cross entropy of the tokens of the target, with its end token."""
        logits = model(input_ids=source, decoder_input_ids=target).logits[0].double()
        labels = torch.cat([target[0, 1:], torch.tensor([model.config.eos_token_id])])
        return float(torch.nn.functional.cross_entropy(logits, labels))

    def check_gates(self, model, part, said, source, target):
        base = self.loss(model, source, target)
        self.assertAlmostEqual(said["loss"], base, delta=1e-5)
        for layer, projection in enumerate(projections(model, part)):
            heads = len(said["values"][layer])
            for head, value in enumerate(said["values"][layer]):
                kept, width = projection.weight.clone(), projection.weight.shape[1] // heads
                projection.weight[:, head * width:(head + 1) * width] = 0
                self.assertAlmostEqual(value, self.loss(model, source, target) - base, delta=1e-5)
                projection.weight.copy_(kept)

    def test_maps_and_gates(self):
        for family in ("t5", "bart", "marian"):
            folder, tokenizer = DATA / family, mha.Tokenizer(str(DATA / family))
            said = self.report(folder)
            source, target = (torch.tensor([[tokenizer.token_id(name) for name in said["cross"][key]]]) for key in ("tokens", "queries"))
            model = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager").eval()
            with torch.no_grad():
                run = model(input_ids=source, decoder_input_ids=target, output_attentions=True)
                for kind, maps in (("cross", run.cross_attentions), ("encoder", run.encoder_attentions), ("decoder", run.decoder_attentions)):
                    np.testing.assert_allclose(np.array(said[kind]["attention"]), np.stack([m[0].numpy() for m in maps]), atol=5e-6, err_msg=f"{family} {kind}")
                for part in ("encoder", "decoder"):
                    self.check_gates(model, part, said[part]["importance"], source, target)


if __name__ == "__main__":
    unittest.main()
