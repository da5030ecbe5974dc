#!/usr/bin/env python3
"""Writes tests/golden/data/images: small PNG and JPEG files of each color type, and their pixels as read by Pillow (images.safetensors),
with results of resizing.

    python tests/golden/make_image_golden.py [OUT_DIR]
"""
import shutil
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import save_file


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png16(path, samples, color):
    """Writes 16-bit samples [height, width, channels]."""
    height, width, _ = samples.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, color, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def with_text(path, source):
    """Writes a copy of a PNG file whose compressed text has 4 MiB."""
    png = source.read_bytes()
    text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"a" * (4 << 20), 9))
    path.write_bytes(png[:33] + text + png[33:])


def resized(image, width, height, resample):
    """Resizes rows, then columns."""
    return np.asarray(image.resize((width, image.height), resample).resize((width, height), resample))


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "data/images"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    rng = np.random.default_rng(5)
    image = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)).resize((17, 13), Image.BICUBIC)
    save = {"rgb.png": (image, {}), "alpha.png": (image.convert("RGBA"), {}), "palette.png": (image.convert("P"), {}),
            "gray.png": (image.convert("L"), {}), "gray-alpha.png": (image.convert("LA"), {}), "bits.png": (image.convert("1"), {}),
            "color.jpg": (image, {"quality": 90}), "full.jpg": (image, {"subsampling": 0}), "gray.jpg": (image.convert("L"), {}),
            "progressive.jpg": (image, {"progressive": True}), "cmyk.jpg": (image.convert("CMYK"), {})}
    tensors = {}
    for name, (given, options) in save.items():
        given.save(out / name, **options)
        with Image.open(out / name) as opened:
            tensors[name] = np.asarray(opened.convert("RGB"))
    deep = rng.integers(0, 65536, (3, 4, 3), dtype=np.uint16)
    for name, samples, color in (("rgb-16.png", deep, 2), ("gray-16.png", deep[:, :, :1], 0)):
        png16(out / name, samples, color)
        tensors[name] = np.ascontiguousarray(np.broadcast_to((samples >> 8).astype(np.uint8), (3, 4, 3)))
    with_text(out / "text.png", out / "rgb.png")
    for resample in (1, 2, 3):
        for width, height in ((9, 6), (34, 6), (9, 40), (25, 31), (17, 5)):
            tensors[f"resized/{resample}/{width}x{height}"] = resized(image, width, height, resample)
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, out / "images.safetensors")


if __name__ == "__main__":
    main()
