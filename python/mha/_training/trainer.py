"""mha.Trainer: trains a model: loss, gradients, AdamW, schedule, learned gates of heads, distillation, and checkpoints that resume."""
from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_double, c_int64, c_size_t, c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._arrays.array import DTYPES, choose, integer, number
from .._arrays.tensors import put, taken
from .._binding import abi
from .._binding.context import context
from .._binding.exclusive import exclusive
from .._binding.library import Handle, Owned, call, create, lib, path_bytes, strings, struct
from .._binding.long_call import call_long
from .._models.grads import Distill
from .._models.model import SAVED, Model
from .._models.model_input import Input, like_ids

_DECAYS = {"matrices": abi.DECAY_MATRICES, "dense": abi.DECAY_DENSE, "all": abi.DECAY_ALL}
_PENALTIES = {"l0": abi.GATES_L0, "l1": abi.GATES_L1}
_TYPES = {name: DTYPES[name] for name in ("f32", "bf16")}
_REDUCE = {"tree": abi.REDUCE_TREE, "fast": abi.REDUCE_FAST}


@dataclass
class TrainGates:
    """Learned head pruning: gates of the heads with an "l0" or "l1" penalty; include/mha/train.h defines the fields; 0: the default."""

    penalty: str = "l0"
    strength: float = 0.0
    rate: float = 0.0
    initial: float = 0.0
    start: int = 0
    ramp: int = 0
    end: int = 0
    heads: int = 0
    only: bool = False
    first: bool = False

    def struct(self) -> abi.TrainGates:
        """Returns the struct of the library."""
        return struct(abi.TrainGates, penalty=choose("penalty", self.penalty, _PENALTIES), only=bool(self.only), first=bool(self.first),
                      **{name: number(getattr(self, name), name) for name in ("strength", "rate", "initial")},
                      **{name: integer(getattr(self, name), name) for name in ("start", "ramp", "end", "heads")})


@dataclass
class TrainOptions:
    """The options of a training run; include/mha/train.h defines the fields; 0: the default. decays: tensors with weight decay:
    "matrices", "dense" or "all". frozen: names of tensors, * matches anything at the beginning or end. dropout: (embedding, attention,
    residual). teacher: a model whose outputs are learned, with the terms `distill`. dtype: "f32" or "bf16" products. moments: "f32" or
    "bf16", the type of the stored moments."""

    rate: float = 0.0
    beta1: float = 0.0
    beta2: float = 0.0
    eps: float = 0.0
    decay: float = 0.0
    decays: str = "matrices"
    warmup: int = 0
    steps: int = 0
    floor: float = 0.0
    clip: float = 0.0
    recompute: bool = False
    frozen: Sequence[str] = ()
    dropout: tuple[float, float, float] = (0.0, 0.0, 0.0)
    seed: int = 0
    gates: TrainGates | None = None
    teacher: Model | None = None
    distill: Distill | None = None
    dtype: str = "f32"
    moments: str = "f32"
    workers: int = 0
    reduce: str = "tree"

    def struct(self) -> abi.TrainOptions:
        """Returns the struct of the library."""
        numbers = {name: number(getattr(self, name), name) for name in ("rate", "beta1", "beta2", "eps", "decay", "floor", "clip")}
        counts = {name: integer(getattr(self, name), name) for name in ("warmup", "steps", "workers")}
        return struct(abi.TrainOptions, **numbers, **counts, decays=choose("decays", self.decays, _DECAYS), recompute=bool(self.recompute),
                      frozen=strings(self.frozen, "frozen"), frozen_count=len(self.frozen),
                      dropout=abi.TrainDropout(*(number(x, "dropout") for x in self.dropout)),
                      seed=integer(self.seed, "seed", 0, 2**64 - 1), reduce=choose("reduce", self.reduce, _REDUCE),
                      gates=abi.TrainGates() if self.gates is None else self.gates.struct(),
                      teacher=None if self.teacher is None else self.teacher._open(),
                      distill=abi.ModelDistill() if self.distill is None else self.distill.struct(),
                      dtype=choose("dtype", self.dtype, _TYPES), moments=choose("moments", self.moments, _TYPES))


def train_rate(options: TrainOptions, step: int) -> float:
    """Returns the learning rate of a step; the first step is 1.

        >>> import mha
        >>> options = mha.TrainOptions(rate=0.5, warmup=2, steps=4)
        >>> [mha.train_rate(options, n) for n in (1, 2, 4)]
        [0.25, 0.5, 0.0]
    """
    return float(lib.mha_train_rate(ctypes.byref(options.struct()), integer(step, "step")))


@dataclass
class TrainBatch:
    """The input of a step: ids [B, L], and labels [B, L], mask [B, L] ... as in mha.ModelGrads.loss."""

    ids: Any
    labels: Any = None
    mask: Any = None
    type_ids: Any = None
    positions: Any = None
    starts: Any = None


@dataclass
class TrainReport:
    """The report of a step: the loss (nats) with the weights before the step, the number of labels, the norm of the gradient, the learning
    rate, the expected number of open heads, and the penalty of the gates."""

    step: int
    labels: int
    loss: float
    norm: float
    rate: float
    open: float
    penalty: float


@dataclass
class TrainerGates:
    """The gates of a trainer, float32 [layers, heads]; 0 is closed. open: the gates that are not 0; expected: open heads with sampling."""

    gates: np.ndarray
    open: int
    expected: float


@dataclass
class _Batches:
    """Batches as the library reads them."""

    made: Any
    alive: list[Any] = field(default_factory=list)


class Trainer(Handle):
    """Trains a copy of the weights of a model. Calls from several threads run one after another.

        >>> import mha
        >>> model = mha.Model.create({"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50})
        >>> with mha.Trainer(model, mha.TrainOptions(rate=0.01)) as trainer:
        ...     losses = [trainer.step([[1, 2, 3, 1, 2, 3]]).loss for _ in range(20)]
        ...     trained = trainer.model.forward([[1, 2, 3]]).logits
        >>> losses[-1] < losses[0] / 2
        True

    A batch is ids [B, L] or an mha.TrainBatch; a list of TrainBatch counts as one large batch. Raises ValueError for options out of
    range, a model without the required logits, and losses or gradients that are not finite; after an error, no weight has changed.
    """

    def __init__(self, model: Model, options: TrainOptions | None = None) -> None:
        given = options or TrainOptions()
        self._hold(create("mha_trainer_create", model._open(), ctypes.byref(given.struct())), given)

    def _hold(self, handle: c_void_p, options: TrainOptions) -> None:
        self._own(handle, "mha_trainer_free", None if options.teacher is None else options.teacher._open())
        self.options = options

    @classmethod
    def _of(cls, handle: c_void_p, options: TrainOptions) -> Trainer:
        trainer = cls.__new__(cls)
        trainer._hold(handle, options)
        return trainer

    @classmethod
    def resume(cls, folder: Any, options: TrainOptions | None = None) -> Trainer:
        """Resumes from a folder of save(): with the same options and batches, later steps are bitwise those of an uninterrupted run."""
        given = options or TrainOptions()
        return cls._of(create("mha_trainer_resume", context(), path_bytes(folder, "folder"), ctypes.byref(given.struct())), given)

    # ---- the model ----

    @property
    def model(self) -> Model:
        """The model with the weights after the last step. It must not run during a step."""
        owner = self._open()
        return Model._of(c_void_p(lib.mha_trainer_model(owner)), owner, free=_kept)

    @property
    def step_count(self) -> int:
        """The number of steps taken, including those before a resume."""
        return int(lib.mha_trainer_step_count(self._open()))

    def _weights(self) -> tuple[Any, int]:
        count = c_int64()
        return lib.mha_trainer_weights(self._open(), ctypes.byref(count)), count.value

    @exclusive
    def weights(self) -> dict[str, np.ndarray]:
        """Returns copies of the weights, float32, by their names in the checkpoint."""
        return taken(*self._weights())

    @exclusive
    def load(self, weights: Mapping[str, Any]) -> None:
        """Replaces all weights with arrays of the same names and shapes."""
        put(*self._weights(), weights, "weights")
        call("mha_trainer_refresh", self._open())

    @exclusive
    def gates(self) -> TrainerGates:
        """Returns the gates after the last step, without sampling; ones without gates."""
        info, expected = self.model.info, c_double()
        gates = np.empty((info["layers"], info["heads"]), np.float32)
        count = lib.mha_trainer_gates(self._open(), gates.ctypes.data, ctypes.byref(expected))
        return TrainerGates(gates, int(count), expected.value)

    # ---- steps ----

    def _batches(self, batches: Any) -> _Batches:
        given = list(batches) if isinstance(batches, (list, tuple)) and batches and isinstance(batches[0], TrainBatch) else [batches]
        info, found = self.model._info, _Batches(None)
        made = []
        for batch in (b if isinstance(b, TrainBatch) else TrainBatch(b) for b in given):
            one = Input(info, batch.ids, mask=batch.mask, type_ids=batch.type_ids, positions=batch.positions, starts=batch.starts)
            made.append(struct(abi.TrainBatch, input=ctypes.pointer(one.struct), labels=like_ids("labels", batch.labels, one.rows)))
            found.alive += [one, made[-1]]
        found.made = (abi.TrainBatch * len(made))(*made)
        return found

    @exclusive
    def step(self, batches: Any) -> TrainReport:
        """Takes one step on a batch, or on a list of batches, which count as one."""
        given, report = self._batches(batches), abi.TrainReport()
        call_long("mha_trainer_step", self._open(), given.made, len(given.made), ctypes.byref(report))
        return TrainReport(*(getattr(report, name) for name, *_ in report._fields_))

    @exclusive
    def loss(self, batches: Any) -> tuple[float, int]:
        """Returns the loss of a step without training or sampling, and the number of labels."""
        given, loss, labels = self._batches(batches), c_double(), c_int64()
        call_long("mha_trainer_loss", self._open(), given.made, len(given.made), ctypes.byref(loss), ctypes.byref(labels))
        return loss.value, labels.value

    @exclusive
    def save(self, folder: Any, overwrite: bool = False, *, model_only: bool = False, dtype: str | None = None,
             files: Mapping[str, bytes] | None = None, aside: str | None = None) -> None:
        """Writes a checkpoint folder, completely or not at all. model_only: without the state of the optimizer, in the type `dtype`.
        files {"training.NAME": bytes}: further files of the folder. aside: the new name of the replaced checkpoint."""
        listed = file_list(files)
        options = struct(abi.TrainerSaveOptions, overwrite=bool(overwrite), model_only=bool(model_only), dtype=choose("dtype", dtype, SAVED),
                         files=listed, file_count=len(listed), aside=None if aside is None else path_bytes(aside, "aside"))
        call_long("mha_trainer_save", self._open(), path_bytes(folder, "folder"), ctypes.byref(options))


def _kept(_handle: Owned) -> None:
    """Frees nothing, since the trainer owns its model."""


def file_list(files: Mapping[str, bytes] | None) -> Any:
    """Returns additional files of a checkpoint as the library reads them."""
    kept = [(path_bytes(name, "name"), bytes(data)) for name, data in (files or {}).items()]
    made = (abi.TrainFile * len(kept))(*(abi.TrainFile(name, ctypes.cast(ctypes.c_char_p(data), c_void_p), c_size_t(len(data)))
                                          for name, data in kept))
    made.__dict__["alive"] = kept
    return made
