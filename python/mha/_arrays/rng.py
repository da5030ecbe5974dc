"""mha.Rng: random numbers with the values of PyTorch's CPU generator, element by element."""
from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from ctypes import c_void_p
from typing import Any

import numpy as np

from .._binding import abi
from .._binding.library import call, lib
from .array import choose, floats, integer, number

_KERNELS = {"vector": abi.RNG_VECTOR, "scalar": abi.RNG_SCALAR}
_ROUTES = {"default": abi.RNG_ROUTE_DEFAULT, "mkl": abi.RNG_ROUTE_MKL}
_Shape = int | Sequence[int]


def _shape(shape: _Shape) -> tuple[int, ...]:
    return tuple(integer(n, "shape", 0) for n in ((shape,) if isinstance(shape, int) else shape))


class Rng:
    """A generator with the values of PyTorch after torch.manual_seed(seed). `shape` is the shape of the returned array, or its length.

    kernels: "vector" for the values of a CPU with AVX2, "scalar" for those of ATEN_CPU_CAPABILITY=default.

        >>> import mha
        >>> rng = mha.Rng(123)
        >>> [round(x, 4) for x in rng.rand(4).tolist()]       # torch.manual_seed(123); torch.rand(4)
        [0.2961, 0.5166, 0.2517, 0.6886]
        >>> saved = rng.copy()
        >>> rng.randint(0, 10, 5).tolist() == saved.randint(0, 10, 5).tolist()
        True

    Raises ValueError for arguments out of range, as PyTorch does.
    """

    def __init__(self, seed: int = 0, *, kernels: str = "vector") -> None:
        self._state, self._kernels = abi.Rng(), choose("kernels", kernels, _KERNELS)
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> None:
        """Restarts the generator. Only the low 32 bits of the seed count."""
        lib.mha_rng_manual_seed(ctypes.byref(self._state), integer(seed, "seed", 0, 2**64 - 1))
        self._state.kernels = self._kernels

    def copy(self) -> Rng:
        """Returns a generator in the same state."""
        other = Rng.__new__(Rng)
        other._state, other._kernels = abi.Rng.from_buffer_copy(self._state), self._kernels
        return other

    __copy__ = copy

    def next(self) -> int:
        """Returns the next 32 random bits."""
        return int(lib.mha_rng_next(ctypes.byref(self._state)))

    def pointer(self) -> Any:
        """Returns a pointer to the state, for calls of the library."""
        return ctypes.pointer(self._state)

    def _fill(self, function: str, shape: _Shape, kind: Any, *before: Any) -> np.ndarray:
        x = np.empty(_shape(shape), kind)
        call(function, ctypes.byref(self._state), *before, x.ctypes.data, x.size)
        return x

    # ---- numbers ----

    def rand(self, shape: _Shape, *, dtype: Any = np.float32) -> np.ndarray:
        """Returns torch.rand: uniform in [0, 1), float32 or float64."""
        wide = np.dtype(dtype) == np.float64
        return self._fill("mha_rng_rand_f64" if wide else "mha_rng_rand", shape, np.float64 if wide else np.float32)

    def uniform(self, low: float, high: float, shape: _Shape) -> np.ndarray:
        """Returns x.uniform_(low, high), float32."""
        return self._fill("mha_rng_uniform", shape, np.float32, number(low, "low"), number(high, "high"))

    def randn(self, shape: _Shape, *, dtype: Any = np.float32) -> np.ndarray:
        """Returns torch.randn: normal numbers, float32 or float64."""
        wide = np.dtype(dtype) == np.float64
        return self._fill("mha_rng_randn_f64" if wide else "mha_rng_randn", shape, np.float64 if wide else np.float32)

    def normal(self, mean: float, std: float, shape: _Shape) -> np.ndarray:
        """Returns x.normal_(mean, std), float32."""
        return self._fill("mha_rng_normal", shape, np.float32, number(mean, "mean"), number(std, "std"))

    def exponential(self, shape: _Shape) -> np.ndarray:
        """Returns x.exponential_(), float32."""
        return self._fill("mha_rng_exponential", shape, np.float32)

    def randint(self, low: int, high: int, shape: _Shape) -> np.ndarray:
        """Returns torch.randint: low <= x < high, int64."""
        return self._fill("mha_rng_randint", shape, np.int64, integer(low, "low"), integer(high, "high"))

    def randperm(self, n: int) -> np.ndarray:
        """Returns torch.randperm: 0 to n - 1 in random order, int64."""
        return self._fill("mha_rng_randperm", integer(n, "n", 0), np.int64)

    def multinomial(self, weights: Any, n: int, replacement: bool = False) -> np.ndarray:
        """Returns torch.multinomial: n indices into `weights`, int64."""
        w = floats(weights, "weights", (None,))
        return self._fill("mha_rng_multinomial", integer(n, "n", 0), np.int64, w.ctypes.data, len(w), bool(replacement),
                          np.empty_like(w).ctypes.data_as(c_void_p))

    def bernoulli(self, p: float, shape: _Shape, *, route: str = "default") -> np.ndarray:
        """Returns x.bernoulli_(p): bool, True with probability p."""
        return self._fill("mha_rng_bernoulli", shape, np.uint8, number(p, "p"), choose("route", route, _ROUTES)).view(np.bool_)

    def dropout_mask(self, p: float, shape: _Shape, *, route: str = "default") -> np.ndarray:
        """Returns the mask of dropout with probability p in training: bool, True where an element is kept.

        route: "default" for PyTorch since 2025, "mkl" for earlier versions with MKL on Intel CPUs.
        """
        return self._fill("mha_rng_dropout_mask", shape, np.uint8, number(p, "p"), choose("route", route, _ROUTES)).view(np.bool_)

    def dropout(self, x: Any, p: float, *, route: str = "default") -> np.ndarray:
        """Returns dropout(x, p) in training, float32."""
        given = floats(x, "x")
        return self._fill("mha_rng_dropout", given.shape, np.float32, number(p, "p"), choose("route", route, _ROUTES), given.ctypes.data)

    # ---- weights, initialized as by PyTorch's constructors ----

    def _weight(self, function: str, rows: int, columns: int, factor: float) -> np.ndarray:
        weight = np.empty((rows, columns), np.float32)
        call(function, ctypes.byref(self._state), columns, rows, factor, weight.ctypes.data)
        return weight

    def kaiming_uniform(self, out: int, in_: int, a: float = math.sqrt(5)) -> np.ndarray:
        """Returns the weight [out, in] of init.kaiming_uniform_(weight, a)."""
        return self._weight("mha_rng_kaiming_uniform", integer(out, "out", 0), integer(in_, "in_", 0), number(a, "a"))

    def xavier_uniform(self, out: int, in_: int, gain: float = 1.0) -> np.ndarray:
        """Returns the weight [out, in] of init.xavier_uniform_(weight, gain)."""
        return self._weight("mha_rng_xavier_uniform", integer(out, "out", 0), integer(in_, "in_", 0), number(gain, "gain"))

    def linear(self, in_: int, out: int, bias: bool = True) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns weight [out, in] and bias [out] of nn.Linear(in, out)."""
        out, in_ = integer(out, "out", 0), integer(in_, "in_", 0)
        weight, b = np.empty((out, in_), np.float32), np.empty(out, np.float32) if bias else None
        call("mha_rng_linear", ctypes.byref(self._state), in_, out, weight.ctypes.data, None if b is None else b.ctypes.data)
        return weight, b

    def embedding(self, rows: int, width: int, padding: int | None = None) -> np.ndarray:
        """Returns the weight [rows, width] of nn.Embedding; the row `padding` is 0."""
        weight = np.empty((integer(rows, "rows", 0), integer(width, "width", 0)), np.float32)
        call("mha_rng_embedding", ctypes.byref(self._state), *weight.shape, -1 if padding is None else integer(padding, "padding"),
             weight.ctypes.data)
        return weight

    def multihead(self, width: int, bias: bool = True) -> dict[str, np.ndarray]:
        """Returns in_proj_weight, in_proj_bias, out_proj.weight and out_proj.bias of nn.MultiheadAttention(width, heads)."""
        names = ("in_proj_weight", "out_proj.weight", "in_proj_bias", "out_proj.bias")
        width = integer(width, "width", 0)
        arrays = [np.empty(n, np.float32) for n in ((3 * width, width), (width, width), 3 * width, width)]
        a, b, c, d = (x.ctypes.data if bias or x.ndim == 2 else None for x in arrays)
        call("mha_rng_multihead", ctypes.byref(self._state), width, a, c, b, d)
        return {name: x for name, x in zip(names, arrays) if bias or x.ndim == 2}
