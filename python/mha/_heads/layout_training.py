"""Training the variants of head layouts on the same batches, to compare their losses, times and memory."""
from __future__ import annotations

import json
from collections.abc import Sequence
from ctypes import byref, c_double, pointer
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays.array import integer, number
from .._binding import abi
from .._binding.abi import HEAD_LAYOUT_VARIANTS
from .._binding.context import context
from .._binding.library import lib, struct
from .._binding.long_call import call_long
from .._models.tokenizer import TextMethods
from .._training.data import TrainData
from .._training.trainer import TrainOptions
from .head_data import keys
from .head_layouts import HeadLayoutOptions


def student_quantile(freedom: int) -> float:
    """Returns the 97.5 % quantile of Student's t distribution.

        >>> import mha
        >>> round(mha.student_quantile(4), 3)
        2.776
    """
    return float(lib.mha_student_quantile(integer(freedom, "freedom", 1)))


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean of independent values, and half the width of its 95 % confidence interval (NaN for fewer than 2 values).

        >>> import mha
        >>> mean, half = mha.mean_interval([1.0, 2.0, 3.0])
        >>> mean, round(half, 3)
        (2.0, 2.484)
    """
    data = np.ascontiguousarray(values, dtype=np.float64)
    mean, half = c_double(), c_double()
    lib.mha_mean_interval(data.ctypes.data, data.size, byref(mean), byref(half))
    return mean.value, half.value


def median(values: Sequence[float]) -> float:
    """Returns the median of values: for an even count, the mean of the two middle values; NaN without values.

        >>> import mha
        >>> mha.median([4.0, 1.0, 3.0, 2.0])
        2.5
    """
    data = np.array(values, dtype=np.float64).ravel()
    return float(lib.mha_median(data.ctypes.data, data.size))


@dataclass
class LayoutTraining:
    """Training runs that compare the variants of a layout; include/mha/layout_training.h defines the fields; 0: the default."""

    layout: HeadLayoutOptions
    train: TrainOptions
    data: TrainData
    held_out: TrainData | None = None
    held_out_fraction: float = 0.0
    held_out_sequences: int = 0
    feed_forward: int = 0
    encoder: bool = False
    tokenizer: TextMethods | None = None
    mask: int = 0
    mask_fraction: float = 0.0

    def struct(self) -> abi.LayoutTraining:
        """Returns the struct of the library."""
        return struct(abi.LayoutTraining, layout=pointer(self.layout.struct()), train=pointer(self.train.struct()), data=self.data._open(),
                      held_out=None if self.held_out is None else self.held_out._open(), encoder=bool(self.encoder),
                      held_out_fraction=number(self.held_out_fraction, "held_out_fraction"),
                      held_out_sequences=integer(self.held_out_sequences, "held_out_sequences"),
                      feed_forward=integer(self.feed_forward, "feed_forward"),
                      tokenizer=None if self.tokenizer is None else self.tokenizer._tokenizer,
                      mask=integer(self.mask, "mask", -2**31, 2**31 - 1), mask_fraction=number(self.mask_fraction, "mask_fraction"))


@dataclass
class LayoutModel:
    """The model of a variant: its feed-forward width, which gives all variants the same number of parameters, and its config. refused: why
    it cannot be trained, or None. kept_heads: of variant pruned, the number of heads in all layers that remain. kv_bytes: per token.
    train_bytes: predicted memory of a training step."""

    variant: str
    refused: str | None
    feed_forward: int
    parameters: int
    kept_heads: int
    kv_bytes: float
    train_bytes: float
    config: dict[str, Any]
    raw: Any = None


@dataclass
class LayoutTrial:
    """The result of a training run: losses in nats per label, the number of held-out sequences, times in seconds, and the maximum memory of
    the steps in bytes."""

    first_loss: float
    loss: float
    held_out: int
    step_best: float
    step_median: float
    peak_bytes: int
    token_time: float


def layout_models(options: LayoutTraining) -> list[LayoutModel]:
    """Returns the models of all variants, with equal numbers of parameters.

        >>> import mha
        >>> builtin = mha.Model()
        >>> data = mha.TrainData(8, builtin.vocabulary, tokenizer=builtin)
        >>> data.add_texts(["the cat sat on the mat and the dog ran home"] * 8)
        >>> data.finish()
        >>> layout = mha.HeadLayoutOptions(16, heads=4, layers=1, vocab=builtin.vocabulary, seq=8, batch=2)
        >>> models = mha.layout_models(mha.LayoutTraining(layout, mha.TrainOptions(steps=4), data))
        >>> models[4].variant, models[4].config["num_key_value_heads"], abs(models[4].parameters / models[0].parameters - 1) < 0.01
        ('mqa', 1, True)
    """
    rows = (abi.LayoutModel * HEAD_LAYOUT_VARIANTS)()
    call_long("mha_layout_models", context(), byref(options.struct()), rows)
    names = list(keys("mha_head_layout_variant_key", HEAD_LAYOUT_VARIANTS))
    return [LayoutModel(names[r.variant], None if r.refused is None else r.refused.decode(), r.feed_forward, r.parameters, r.kept_heads,
                        r.kv_bytes, r.train_bytes, json.loads(r.config) if r.config else {}, r) for r in rows]


def layout_train(options: LayoutTraining, model: LayoutModel, seed: int = 0) -> LayoutTrial:
    """Trains a model of layout_models, and measures it.

        >>> import mha
        >>> builtin = mha.Model()
        >>> data = mha.TrainData(8, builtin.vocabulary, tokenizer=builtin)
        >>> data.add_texts(["the cat sat on the mat and the dog ran home"] * 8)
        >>> data.finish()
        >>> layout = mha.HeadLayoutOptions(16, heads=4, layers=1, vocab=builtin.vocabulary, seq=8, batch=2)
        >>> options = mha.LayoutTraining(layout, mha.TrainOptions(rate=1e-2, steps=4), data)
        >>> models = mha.layout_models(options)
        >>> [m.variant for m in models if not m.refused]
        ['mha', 'pruned', 'gqa', 'mqa']
        >>> trial = mha.layout_train(options, models[3], seed=1)
        >>> trial.loss < trial.first_loss
        True
    """
    found = abi.LayoutTrial()
    call_long("mha_layout_train", context(), byref(options.struct()), byref(model.raw), integer(seed, "seed", 0, 2**64 - 1), byref(found))
    return LayoutTrial(*(getattr(found, name) for name, *_ in abi.LayoutTrial._fields_))
