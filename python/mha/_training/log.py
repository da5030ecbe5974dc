"""mha.TrainLog: the log of a training run, as JSON lines or CSV."""
from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from ctypes import c_size_t
from dataclasses import dataclass
from typing import Any

from .._arrays.array import integer, number
from .._binding import abi
from .._binding.context import context
from .._binding.exclusive import exclusive
from .._binding.library import Handle, call, create, lib, path_bytes, struct, utf8
from .._draw import figures


@dataclass
class TrainRecord:
    """The record of a step. NaN: not measured. samples: (prompt, text) that the model generated."""

    step: int
    tokens: int = 0
    seconds: float = 0.0
    loss: float = math.nan
    rate: float = math.nan
    norm: float = math.nan
    eval_loss: float = math.nan
    open_heads: float = math.nan
    samples: Sequence[tuple[str, str]] = ()


_NUMBERS = ("seconds", "loss", "rate", "norm", "eval_loss", "open_heads")


class TrainLog(Handle):
    """The records of a training run, in memory and in files.

        >>> import mha, os, tempfile
        >>> log, path = mha.TrainLog(), os.path.join(tempfile.mkdtemp(), "loss.jsonl")
        >>> log.write_to(path)
        >>> log.add(mha.TrainRecord(1, tokens=64, seconds=0.5, loss=2.25))
        >>> len(log), log[0].loss, open(path).read()
        (1, 2.25, '{"step":1,"loss":2.25,"tokens":64,"seconds":0.5}\\n')
    """

    def __init__(self) -> None:
        self._own(create("mha_train_log_create", context()), "mha_train_log_free")

    @classmethod
    def read(cls, path: Any, step: int = -1) -> TrainLog:
        """Reads JSON lines up to and including the record of a step; -1: all."""
        log = cls.__new__(cls)
        log._own(create("mha_train_log_read", context(), path_bytes(path), integer(step, "step")), "mha_train_log_free")
        return log

    def __len__(self) -> int:
        return int(lib.mha_train_log_count(self._open()))

    @exclusive
    def __getitem__(self, n: int) -> TrainRecord:
        found = lib.mha_train_log_record(self._open(), integer(n, "n") + (len(self) if n < 0 else 0))
        if not found:
            raise IndexError(f"the record must be from 0 to {len(self) - 1} (got {n})")
        r = found.contents
        samples = [(ctypes.string_at(s.prompt, s.prompt_bytes).decode("utf-8", "replace"),
                    ctypes.string_at(s.text, s.text_bytes).decode("utf-8", "replace")) for s in r.samples[:r.sample_count]]
        return TrainRecord(r.step, r.tokens, samples=samples, **{name: getattr(r, name) for name in _NUMBERS})

    def __iter__(self) -> Iterator[TrainRecord]:
        return (self[n] for n in range(len(self)))

    @property
    @exclusive
    def lines(self) -> bytes:
        """All records as JSON lines."""
        size = c_size_t()
        found = lib.mha_train_log_lines(self._open(), ctypes.byref(size))
        return ctypes.string_at(found, size.value)

    @exclusive
    def add(self, record: TrainRecord) -> None:
        """Appends a record, in memory and to the files."""
        kept = [(utf8(prompt, "prompt"), utf8(text)) for prompt, text in record.samples]
        samples = (abi.TrainSample * len(kept))(*(abi.TrainSample(p, t, len(p), len(t)) for p, t in kept))
        call("mha_train_log_add", self._open(), ctypes.byref(struct(
            abi.TrainRecord, step=integer(record.step, "step"), tokens=integer(record.tokens, "tokens"), samples=samples,
            sample_count=len(samples), **{name: number(getattr(record, name), name) for name in _NUMBERS})))

    @exclusive
    def write_to(self, path: Any, overwrite: bool = False) -> None:
        """Writes the records to a file, now and as they are added; as CSV if its name ends in .csv. A file that begins with this log is
        continued; any other is replaced only with overwrite."""
        call("mha_train_log_write_to", self._open(), path_bytes(path), bool(overwrite))

    def plot(self, ax: Any = None) -> Any:
        """Draws the loss of each step with matplotlib; returns the axes."""
        return figures.plot_line([r.step for r in self], [r.loss for r in self], "step", "loss (nats)", ax)
