"""Compares models of images with transformers: pixels with the image processors of the Pillow back end, logits, hidden states and maps of
ViT, and embeddings and similarities of CLIP, from image files of several shapes to results."""
import json
import shutil
import tempfile
import unittest
from pathlib import Path

from hugging_face import disturbed, torch  # imported first: skips the test if PyTorch is not installed
import numpy as np
from PIL import Image
from transformers import CLIPConfig, CLIPModel, ViTConfig, ViTForImageClassification

import mha

CLIP = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
VIT = {"image_processor_type": "ViTImageProcessor", "size": {"height": 24, "width": 32}}


def picture(height, width, seed):
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)).resize((width, height), Image.BICUBIC)


def by_pillow(config, image):
    """Resizes rows, then columns, and crops and normalizes as the processors of transformers."""
    filter_, size = (3, config["size"]) if "crop_size" in config else (2, config["size"])
    if "shortest_edge" in size:
        short, long = sorted(image.size)
        other = int(size["shortest_edge"] * long / short)
        width, height = (size["shortest_edge"], other) if image.width <= image.height else (other, size["shortest_edge"])
    else:
        width, height = size["width"], size["height"]
    x = np.asarray(image.resize((width, image.height), filter_).resize((width, height), filter_)).astype(np.float64)
    if "crop_size" in config:
        top, left = (height - 32) // 2, (width - 32) // 2
        x = x[top:top + 32, left:left + 32]
        mean, std = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
    else:
        mean = std = [0.5] * 3
    return ((x / 255 - mean) / std).transpose(2, 0, 1)


class AgainstTransformers(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def save(self, model, processor):
        disturbed(model).save_pretrained(self.folder)
        (self.folder / "preprocessor_config.json").write_text(json.dumps(processor))
        return mha.Model(self.folder)

    def test_vit(self):
        torch.manual_seed(1)
        config = ViTConfig(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64, image_size=[24, 32], patch_size=8,
                           id2label={n: str(n) for n in range(9)})
        config._attn_implementation = "eager"
        theirs = ViTForImageClassification(config).eval()
        ours = self.save(theirs, VIT)
        images = [picture(*shape, seed) for seed, shape in enumerate(((24, 32), (77, 31), (200, 301), (5, 9)))]
        for n, image in enumerate(images):
            image.save(self.folder / f"{n}.png")
        pixels = ours.pixels([self.folder / f"{n}.png" for n in range(4)])
        self.assertLess(np.abs(pixels - np.stack([by_pillow(VIT, x) for x in images])).max(), 1e-6)
        with torch.no_grad():
            want = theirs(pixel_values=torch.from_numpy(pixels), output_attentions=True, output_hidden_states=True)
        got = ours.forward(pixels=pixels, attentions=True, hidden=True)
        self.assertLess(np.abs(got.logits - want.logits.numpy()).max(), 1e-4)
        for a, b in zip(got.hidden_states + got.attentions, want.hidden_states + want.attentions, strict=True):
            self.assertLess(np.abs(a - b.numpy()).max(), 1e-4)

    def test_clip(self):
        torch.manual_seed(2)
        sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
        theirs = CLIPModel(CLIPConfig(text_config=dict(vocab_size=50, max_position_embeddings=16, eos_token_id=9, **sizes),
                                      vision_config=dict(image_size=32, patch_size=8, **sizes), projection_dim=20)).eval()
        ours = self.save(theirs, CLIP)
        images = [picture(*shape, seed) for seed, shape in enumerate(((32, 32), (99, 40), (61, 180)))]
        for n, image in enumerate(images):
            image.save(self.folder / f"{n}.jpg", quality=95)
        files = [self.folder / f"{n}.jpg" for n in range(3)]
        pixels = ours.pixels(files)
        self.assertLess(np.abs(pixels - np.stack([by_pillow(CLIP, Image.open(x)) for x in files])).max(), 1e-6)
        ids = np.array([[3, 4, 5, 9, 9], [8, 9, 9, 9, 9]])
        mask = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
        with torch.no_grad():
            want = theirs(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask), pixel_values=torch.from_numpy(pixels))
        texts, vectors = ours.forward(ids, mask, more=["embedding"]).embedding, ours.embed_images(files)
        self.assertLess(np.abs(vectors - want.image_embeds.numpy()).max(), 1e-5)
        self.assertLess(np.abs(texts - want.text_embeds.numpy()).max(), 1e-5)
        self.assertLess(np.abs(ours.similarity(vectors, texts) - want.logits_per_image.numpy()).max(), 1e-4)


if __name__ == "__main__":
    unittest.main()
