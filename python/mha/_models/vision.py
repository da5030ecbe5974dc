"""Models of images, and CLIP: image files, embeddings, similarity of images and texts."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._arrays.array import choose, floats
from .._binding.abi import Image
from .._binding.context import context
from .._binding.library import call, lib, path_bytes
from .._binding.long_call import call_long
from .forward import POOL, Forward


def read_image(path: Any) -> np.ndarray:
    """Returns the pixels of a PNG or JPEG file as 8-bit RGB, uint8 [height, width, 3].

    Palettes and grayscale are expanded; of 16-bit samples the high byte is kept; transparency is discarded; CMYK is converted without a
    color profile.

        >>> import base64, mha, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "red.png")
        >>> red = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"
        >>> with open(path, "wb") as file:
        ...     _ = file.write(base64.b64decode(red))
        >>> mha.read_image(path).tolist()
        [[[255, 0, 0]]]
    """
    image = Image()
    call_long("mha_image_read", context(), path_bytes(path), ctypes.byref(image))
    try:
        size = image.height * image.width * 3
        rgb = np.frombuffer(ctypes.string_at(image.rgb or 0, size), np.uint8).reshape(image.height, image.width, 3)
    finally:
        lib.mha_image_free(ctypes.byref(image))
    return rgb.copy()


class Vision(Forward):
    """pixels(), embed_images() and similarity() of mha.Model."""

    def pixels(self, images: Sequence[Any]) -> np.ndarray:
        """Returns the pixels of images, float32 [n, channels, height, width], resized, cropped and normalized as
        preprocessor_config.json of the folder says. images: paths of PNG or JPEG files, or arrays uint8 [height, width, 3] in RGB."""
        vision, info = self._tower(images)
        out = np.empty((len(images), info.image_channels, info.image_height, info.image_width), np.float32)
        for n, given in enumerate(images):
            rgb = np.ascontiguousarray(given if isinstance(given, np.ndarray) else read_image(given))
            if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3:
                raise ValueError(f"images[{n}] must be a path or a uint8 array [height, width, 3] (got {rgb.dtype} {list(rgb.shape)})")
            image = Image(height=rgb.shape[0], width=rgb.shape[1], rgb=rgb.ctypes.data)
            call("mha_image_prepare", vision, ctypes.byref(image), out[n].ctypes.data)
        return out

    def embed_images(self, images: Sequence[Any], pool: str = "mean", normalize: bool = True) -> np.ndarray:
        """Returns one vector per image, [n, d], comparable with embed() of texts in a CLIP model. images: as in pixels(). A ViT pools the last
        hidden states: their mean, or "cls", the class token."""
        choose("pool", pool, POOL)
        pixels = self.pixels(images)
        if self._info.embedding_width != self._info.hidden or not self._info.image_channels:
            vectors = self.forward(pixels=pixels, more=["embedding"]).embedding
            return np.asarray(vectors)
        states = self.forward(pixels=pixels).last_hidden
        pooled: np.ndarray = states[:, 0] if pool == "cls" else states.mean(axis=1, dtype=np.float64).astype(np.float32)
        return np.asarray(pooled / np.linalg.norm(pooled, axis=1, keepdims=True)) if normalize else pooled

    def similarity(self, images: Any, texts: Any) -> np.ndarray:
        """Returns the logits [images, texts] of a CLIP model: its scale times the cosine. images [n, d]: of embed_images(); texts [m, d]: of
        embed(). The softmax of a row has the probabilities that the texts describe the image."""
        width = self._info.embedding_width
        a, b = floats(images, "images", (None, width)), floats(texts, "texts", (None, width))
        out = np.empty((len(a), len(b)), np.float32)
        call("mha_clip_logits", self._open(), a.ctypes.data, len(a), b.ctypes.data, len(b), out.ctypes.data)
        return out
