"""Files of tensors: safetensors, shards of checkpoints, and .npy; reading without pickle, and writing atomically."""
from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import c_char_p, c_int64, c_size_t, c_void_p
from typing import Any

import numpy as np

from .._binding import abi
from .._binding.abi import FileOptions, Metadata, TensorsWriterOptions
from .._binding.context import context
from .._binding.exclusive import exclusive
from .._binding.library import Handle, call, create, lib, path_bytes, string, struct, utf8
from .array import dtype_error, integer, view
from .tensors import CODES, NUMPY, given

_TO_FLOAT = (abi.BF16,)


class File(Handle):
    """An open file of tensors: safetensors, .npy, or a checkpoint folder with its shards (include/mha/io.h). The file is mapped and must
    not change while it is open, unless no_map is true.

        >>> import numpy as np, mha, os, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> mha.tensors_write(os.path.join(folder, "x.safetensors"), {"w": np.ones((2, 3), np.float32)})
        >>> with mha.File(os.path.join(folder, "x.safetensors")) as file:
        ...     file.names(), file.read("w").shape, file.metadata
        (['w'], (2, 3), {'format': 'pt'})

    Raises OSError if the file cannot be read, ValueError if it is malformed.
    """

    def __init__(self, path: Any, *, no_map: bool = False) -> None:
        folder = os.path.isdir(path) or os.fsdecode(path).endswith(".json")
        options = struct(FileOptions, no_map=bool(no_map))
        self._own(create("mha_checkpoint_open" if folder else "mha_file_open", context(), path_bytes(path), ctypes.byref(options)),
                  "mha_file_free")

    @property
    def path(self) -> str:
        """The path of the file, or of the index of shards."""
        return os.fsdecode(lib.mha_file_path(self._open()))

    @property
    def format(self) -> str:
        """ "safetensors" or "npy"."""
        name: bytes = lib.mha_file_format(self._open())
        return name.decode()

    def names(self) -> list[str]:
        """Returns the names of the tensors, in order; an .npy file has one, ""."""
        return [lib.mha_file_tensor(self._open(), n).contents.name.decode() for n in range(lib.mha_file_count(self._open()))]

    def read(self, name: str, dtype: Any = None) -> np.ndarray:
        """Returns a copy of a tensor. dtype: float32, float64 or int64, to which it is converted; None: its own type, bfloat16 as float32.

        Raises KeyError if the file has no such tensor.
        """
        found = lib.mha_file_find(self._open(), string(name, "name"))
        if not found:
            raise KeyError(name)
        t = found.contents
        code = CODES[np.dtype(dtype)] if dtype is not None else abi.F32 if t.dtype in _TO_FLOAT else t.dtype
        if code not in NUMPY:
            raise dtype_error(name, (t.dtype_name or b"?").decode(), CODES)
        out = np.empty(view(t.shape, np.int64, (t.rank,)) if t.rank else (), NUMPY[code])
        call("mha_tensor_read", found, code, out.ctypes.data)
        return out

    def aligned(self, name: str) -> bool:
        """Returns whether the data of a tensor can be used in place as its type."""
        return bool(lib.mha_tensor_aligned(lib.mha_file_find(self._open(), string(name, "name"))))

    @property
    def metadata(self) -> dict[str, str]:
        """The strings of "__metadata__"."""
        key, value, size, found = c_char_p(), c_void_p(), c_size_t(), {}
        for n in range(lib.mha_file_metadata_count(self._open())):
            lib.mha_file_metadata(self._open(), n, ctypes.byref(key), ctypes.byref(value), ctypes.byref(size))
            found[(key.value or b"").decode()] = ctypes.string_at(value.value or 0, size.value).decode("utf-8", "replace")
        return found


def tensors_read(path: Any) -> dict[str, np.ndarray]:
    """Returns all tensors of a file or checkpoint folder by name, in their own types; bfloat16 as float32.

        >>> import mha, os, tempfile
        >>> folder = os.path.join(tempfile.mkdtemp(), "copy")
        >>> mha.Model().save(folder)
        >>> mha.tensors_read(folder)["model.norm.weight"].shape
        (128,)
    """
    with File(path) as file:
        return {name: file.read(name) for name in file.names()}


def tensors_read_into(path: Any, tensors: Mapping[str, np.ndarray]) -> None:
    """Fills contiguous arrays from the file by name, converted to their types; names and shapes are checked first.

        >>> import numpy as np, mha, os, tempfile
        >>> path, wide = os.path.join(tempfile.mkdtemp(), "x.safetensors"), np.empty(2)
        >>> mha.tensors_write(path, {"w": np.float32([1, 2])})
        >>> mha.tensors_read_into(path, {"w": wide})
        >>> wide.tolist()
        [1.0, 2.0]
    """
    for name, x in tensors.items():
        if not isinstance(x, np.ndarray) or not x.flags.c_contiguous or not x.flags.writeable:
            raise ValueError(f"tensors[{name!r}] must be a contiguous, writable NumPy array")
    named = given(tensors, "tensors")
    with File(path) as file:
        call("mha_tensors_read", file._open(), named, len(named))


def tensors_write(path: Any, tensors: Mapping[str, Any], overwrite: bool = False) -> None:
    """Writes arrays as a safetensors file, atomically. uint16 is written as bfloat16.

        >>> import numpy as np, mha, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "x.safetensors")
        >>> mha.tensors_write(path, {"w": np.arange(3)})
        >>> mha.tensors_read(path)["w"].tolist()
        [0, 1, 2]
    """
    named = given(tensors, "tensors")
    call("mha_tensors_write", context(), path_bytes(path), named, len(named), bool(overwrite))


class TensorsWriter(Handle):
    """Writes a safetensors file in pieces. tensors: {name: (shape, dtype)}. The file appears when finish() is called, or at the end of
    `with` without an exception.

        >>> import numpy as np, mha, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "x.safetensors")
        >>> with mha.TensorsWriter(path, {"w": ((2, 2), np.float32)}) as writer:
        ...     for row in range(2):
        ...         writer.put("w", np.full(2, row, np.float32))
        >>> mha.tensors_read(path)["w"].tolist()
        [[0.0, 0.0], [1.0, 1.0]]
    """

    def __init__(self, path: Any, tensors: Mapping[str, tuple[Any, Any]], *, overwrite: bool = False,
                 metadata: Mapping[str, str] | None = None) -> None:
        self._kinds = {name: np.dtype(dtype) for name, (_, dtype) in tensors.items()}
        listed, shapes = (abi.Tensor * len(tensors))(), []
        for t, (name, (shape, dtype)) in zip(listed, tensors.items()):
            shapes.append((c_int64 * len(shape))(*(integer(n, f"tensors[{name!r}]") for n in shape)))
            if np.dtype(dtype) not in CODES:
                raise dtype_error(f"tensors[{name!r}]", dtype, CODES)
            t.name, t.dtype, t.rank = string(name, "name"), CODES[np.dtype(dtype)], len(shape)
            t.shape = ctypes.cast(shapes[-1], c_void_p)
        pairs = [(string(k, "metadata"), utf8(v, f"metadata[{k!r}]")) for k, v in (metadata or {}).items()]
        strings = (Metadata * len(pairs))(*(Metadata(k, v, len(v)) for k, v in pairs))
        options = struct(TensorsWriterOptions, overwrite=bool(overwrite), metadata=strings, metadata_count=len(strings))
        self._own(create("mha_tensors_writer_create", context(), path_bytes(path), listed, len(listed), ctypes.byref(options)),
                  "mha_tensors_writer_free")

    @exclusive
    def put(self, name: str, data: Any) -> None:
        """Appends elements to a tensor, in row-major order."""
        if name not in self._kinds:
            raise KeyError(name)
        x = np.ascontiguousarray(data)
        if x.dtype != self._kinds[name]:
            raise ValueError(f"data must be of dtype {self._kinds[name]} (got {x.dtype})")
        call("mha_tensors_writer_put", self._open(), list(self._kinds).index(name), x.ctypes.data, x.nbytes)

    @exclusive
    def finish(self) -> None:
        """Writes the file at its path; raises ValueError if a tensor is incomplete."""
        call("mha_tensors_writer_finish", self._open())
        self.close()

    def __exit__(self, *raised: object) -> None:
        if raised[0] is None and not self.closed:
            self.finish()
        self.close()


def npy_write(path: Any, array: Any, overwrite: bool = False) -> None:
    """Writes one array as .npy, atomically.

        >>> import numpy as np, mha, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "x.npy")
        >>> mha.npy_write(path, np.arange(3))
        >>> np.load(path).tolist()
        [0, 1, 2]
    """
    x = np.ascontiguousarray(array)
    if x.dtype not in CODES or x.dtype == np.uint16:
        raise dtype_error("array", x.dtype, [known for known in CODES if known != np.uint16])
    t = struct(abi.Tensor, dtype=CODES[x.dtype], rank=x.ndim, shape=np.array(x.shape, np.int64), elements=x.size, data=x, bytes=x.nbytes)
    call("mha_npy_write", path_bytes(path), ctypes.byref(t), bool(overwrite))


def file_write(path: Any, data: bytes, overwrite: bool = False) -> None:
    """Writes bytes as the whole content of a file, atomically: at any time the path is the old file, the new file, or absent.

        >>> import mha, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "x.txt")
        >>> mha.file_write(path, b"text")
        >>> open(path).read()
        'text'
    """
    call("mha_file_write", path_bytes(path), bytes(data), integer(len(data), "data"), bool(overwrite))


def file_write_check(path: Any, overwrite: bool = False) -> None:
    """Raises the error that mha.file_write would raise for the path, without changing anything. Call it before long work whose result is
    written at its end.

        >>> import mha, os, tempfile
        >>> mha.file_write_check(os.path.join(tempfile.mkdtemp(), "x.txt"))
        >>> mha.file_write_check("missing/x.txt")
        Traceback (most recent call last):
        OSError: missing/x.txt: cannot write: No such file or directory
    """
    call("mha_file_write_check", path_bytes(path), bool(overwrite))
