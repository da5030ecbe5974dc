"""mha.TrainStore: the folder of a training run, and mha.train, which runs one with checkpoints, a log and callbacks."""
from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from ctypes import byref
from typing import Any

import numpy as np

from .._arrays.array import integer
from .._binding import abi
from .._binding.abi import Error
from .._binding.context import context
from .._binding.library import Handle, call, create, failure, lib, path_bytes, struct
from .._binding.long_call import call_long
from .._models.model import Model
from .data import TrainData, train_mask_tokens
from .log import TrainLog, TrainRecord
from .trainer import TrainBatch, Trainer, TrainOptions, TrainReport, file_list


def _freed(_store: Any) -> None:
    """Frees nothing, since close() has freed the store."""


class TrainStore(Handle):
    """The folder of a training run: a lock, checkpoints that survive a killed process, and a number of older checkpoints.

    resume: continues from the checkpoint in the folder, if there is one. overwrite: the first checkpoint replaces the folder.

        >>> import mha, os, tempfile
        >>> model = mha.Model.create({"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50})
        >>> with mha.TrainStore(os.path.join(tempfile.mkdtemp(), "run")) as store:
        ...     trainer = mha.Trainer(model)
        ...     report = trainer.step([[1, 2, 3]])
        ...     store.save(trainer)
        ...     store.has_checkpoint
        False
    """

    def __init__(self, folder: Any, *, resume: bool = False, overwrite: bool = False) -> None:
        self.folder = folder
        options = struct(abi.TrainStoreOptions, resume=bool(resume), overwrite=bool(overwrite))
        close, ignored = lib.mha_train_store_close, byref(Error())  # held by the function, since `lib` may be None at interpreter exit
        handle = create("mha_train_store_open", context(), path_bytes(folder, "folder"), byref(options))
        self._own(handle, lambda store: close(store, ignored))

    def close(self) -> None:
        """Releases the lock. Raises OSError if its file cannot be removed. May be called more than once."""
        owned, self._owned = self._owned, None
        if owned is not None:
            owned.free = _freed
            call("mha_train_store_close", owned)

    @property
    def has_checkpoint(self) -> bool:
        """Whether the folder was opened with resume and has the state of a run."""
        return bool(lib.mha_train_store_has_checkpoint(self._open()))

    @property
    def step(self) -> int:
        """The number of steps of that checkpoint."""
        error = Error()
        found = int(lib.mha_train_store_step(self._open(), byref(error)))
        if found < 0:
            raise failure(error)
        return found

    def resume(self, options: TrainOptions | None = None) -> Trainer:
        """Resumes the run in the folder; the next save() continues it."""
        given = options or TrainOptions()
        return Trainer._of(create("mha_train_store_resume", self._open(), byref(given.struct())), given)

    def keep(self, count: int) -> None:
        """Keeps the last `count` replaced checkpoints as FOLDER.step-STEP."""
        call("mha_train_store_keep", self._open(), integer(count, "count"))

    def save(self, trainer: Trainer, files: Mapping[str, bytes] | None = None) -> None:
        """Replaces the checkpoint, completely or not at all. files {"training.NAME": bytes}: further files of the folder."""
        listed = file_list(files)
        trainer._exclusive.run(call_long, "mha_train_store_save", self._open(), trainer._open(), listed, len(listed))


def _batch(data: TrainData, step: int, size: int, seed: int, mask: int | None, fraction: float) -> TrainBatch:
    """Returns the batch of a step. The sequences of an encoder are masked by their number since the start of the run."""
    ids = data.batch(step, size, seed)
    if mask is None:
        return TrainBatch(ids)
    if data.tokenizer is None:
        raise ValueError("data must have a tokenizer, which knows the special tokens, if mask is given")
    first = (step - 1) * size
    rows = [train_mask_tokens(data.tokenizer, row, first + n, mask=mask, vocab=data.vocab, fraction=fraction, seed=seed)
            for n, row in enumerate(ids)]
    return TrainBatch(np.stack([row for row, _ in rows]), np.stack([labels for _, labels in rows]))


def train(model: Model, data: TrainData, options: TrainOptions, batch: int = 8, *, folder: Any = None, resume: bool = False,
          overwrite: bool = False, every: int = 0, log: TrainLog | None = None, mask: int | None = None, fraction: float = 0.15,
          on_step: Callable[[TrainReport, Trainer], Any] | None = None) -> Trainer:
    """Trains a model for options.steps steps of `batch` sequences, as `mha train` does, and returns the trainer.

    mask: for encoders, the id of [MASK]; a fraction of the tokens is predicted.
    folder: the checkpoint at the end, and after `every` steps; with resume, its run continues. log: gets a record of each step.
    on_step(report, trainer) is called after each step; a true return value ends training. Ctrl-C ends it after a checkpoint.

        >>> import mha
        >>> model = mha.Model.create({"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 1000})
        >>> data = mha.TrainData(8, 1000, tokenizer=mha.Model())
        >>> data.add_texts(["the cat sat on the mat"] * 20)
        >>> data.finish()
        >>> log = mha.TrainLog()
        >>> trainer = mha.train(model, data, mha.TrainOptions(rate=0.01, steps=12), batch=4, log=log)
        >>> trainer.step_count, log[11].loss < log[0].loss
        (12, True)
    """
    batch, every = integer(batch, "batch", 1), integer(every, "every", 0)
    if options.steps < 1:
        raise ValueError(f"options.steps must be at least 1 (got {options.steps})")
    store = None if folder is None else TrainStore(folder, resume=resume, overwrite=overwrite)
    trainer = store.resume(options) if store is not None and store.has_checkpoint else Trainer(model, options)
    begin, saved = time.monotonic(), trainer.step_count

    def save() -> None:
        nonlocal saved
        if store is not None and saved != trainer.step_count:
            store.save(trainer, {"training.jsonl": log.lines} if log is not None else None)
            saved = trainer.step_count

    try:
        while trainer.step_count < options.steps:
            given = _batch(data, trainer.step_count + 1, batch, options.seed, mask, fraction)
            report = trainer.step(given)
            if log is not None:
                log.add(TrainRecord(report.step, report.step * np.size(given.ids), time.monotonic() - begin, report.loss, report.rate, report.norm,
                                    open_heads=report.open if options.gates else float("nan")))
            if on_step is not None and on_step(report, trainer):
                break
            if every and report.step % every == 0:
                save()
    finally:
        save()
        if store is not None:
            store.close()
    return trainer
