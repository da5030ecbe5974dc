#!/usr/bin/env python3
"""Writes tests/golden/data/audio.safetensors: log-mel features by WhisperFeatureExtractor of transformers, and the times of tokens by
WhisperForConditionalGeneration, for the checkpoint tests/golden/data/seq2seq/whisper.

    python tests/golden/make_audio_golden.py [OUT_FILE]

features/N/samples F32 [count], features/N/features F32 [bins, frames]: a sweep that is shorter than the frames, a loud one that is longer, noise
with 128 bins, and silence. times/N/ids I32 [count], times/N/options I32 [prompt, frames (0 = all), median width], times/N/heads I32 [heads, 2],
times/N/seconds F64 [count - prompt].
"""
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

class Outputs(dict):
    """A dict whose keys are attributes too, as the outputs of transformers."""
    __getattr__ = dict.__getitem__


DATA = Path(__file__).resolve().parent / "data"
RATE = 16000


def signals():
    """Yields (samples, bins, frames)."""
    t = np.arange(6000) / RATE
    rng = np.random.default_rng(3)
    yield 0.4 * np.sin(2 * np.pi * (200 * t + 3000 * t * t)) + 0.001 * rng.standard_normal(t.size), 80, 48
    t = np.arange(9000) / RATE
    yield np.clip(2 * np.sin(2 * np.pi * 440 * t), -1, 1), 80, 48
    yield 0.1 * rng.standard_normal(3000), 128, 24
    yield np.zeros(500), 80, 8


def features():
    tensors = {}
    for n, (samples, bins, frames) in enumerate(signals()):
        samples = samples.astype(np.float32)
        extractor = WhisperFeatureExtractor(feature_size=bins, chunk_length=1)
        extractor.n_samples, extractor.nb_max_frames = frames * 160, frames
        found = extractor(samples, sampling_rate=RATE, return_tensors="np").input_features[0]
        assert found.shape == (bins, frames), found.shape
        tensors[f"features/{n}/samples"] = samples
        tensors[f"features/{n}/features"] = found.astype(np.float32)
    return tensors


def times():
    folder = DATA / "seq2seq/whisper"
    model = WhisperForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").eval()
    audio = torch.from_numpy(load_file(DATA / "seq2seq/whisper.safetensors")["seq2seq/input_features"])[None]
    ids = [396, 397, 398, 399, 298, 388, 329, 302, 262, 304, 77, 70, 11, 279, 260, 287, 64]
    tensors = {}
    cases = [(1, 0, 7, [(0, 0), (0, 1), (1, 2)]), (4, 31, 7, [(1, 3)]), (4, 48, 3, [(0, 2), (1, 0), (1, 1)]), (16, 20, 7, [(1, 1)])]
    for n, (prompt, frames, median, heads) in enumerate(cases):
        model.config.median_filter_width = median
        with torch.no_grad():
            out = model(input_features=audio, decoder_input_ids=torch.tensor([ids]), output_attentions=True)
        outputs = Outputs(cross_attentions=[out.cross_attentions], sequences=torch.tensor([ids]))
        seconds = model._extract_token_timestamps(outputs, heads, num_frames=frames or None, num_input_ids=prompt)[0].numpy()
        tensors[f"times/{n}/ids"] = np.array(ids, np.int32)
        tensors[f"times/{n}/options"] = np.array([prompt, frames, median], np.int32)
        tensors[f"times/{n}/heads"] = np.array(heads, np.int32)
        tensors[f"times/{n}/seconds"] = seconds[prompt:len(ids)].astype(np.float64)
    return tensors


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "audio.safetensors"
    save_file({**features(), **times()}, target)
    print(target, target.stat().st_size)
