"""Finds the shared library, and the models "builtin" and "minilm"."""
from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[1]


def _built() -> list[Path]:
    """Returns a list with the path of the library in the checkout's build folder; an installed package has none."""
    top = _PACKAGE.parents[1]
    checkout = _PACKAGE.parent.name == "python" and (top / "CMakePresets.json").exists()
    return [top / "build/release/libmha.so"] if checkout else []


def library() -> str:
    """Returns the shared library to load: MHA_LIB if set, otherwise the first one found in the package, the checkout or the system."""
    named = os.environ.get("MHA_LIB")
    if named:
        if not os.path.isfile(named):
            raise ImportError(f"MHA_LIB must be the path of the shared library libmha.so (got {named!r})")
        return os.path.abspath(named)
    for path in (_PACKAGE / "libmha.so", *_built()):
        if path.exists():
            return str(path)
    found = ctypes.util.find_library("mha")
    if found:
        return found
    raise ImportError("libmha.so was not found: build it with ./run in the checkout, install mha, or set MHA_LIB to its path")


def program() -> str:
    """Returns the program mha: in the package, next to the library that is loaded, or in the system."""
    loaded = Path(library())  # only a name, without a folder, if the system finds it
    for path in (_PACKAGE / "bin/mha", loaded.parent / "bin/mha"):
        if path.is_absolute() and path.is_file():
            return str(path)
    found = shutil.which("mha")
    if found is None:
        raise FileNotFoundError("mha program not found: it must be in the bin folder next to libmha.so, or in a folder listed in PATH")
    return found


class _Symbol(ctypes.Structure):
    """The struct Dl_info of dlfcn.h."""
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def _file_of(function: Any) -> Path:
    """Returns the file from which a function of a shared library was loaded."""
    symbol = _Symbol()
    ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(symbol))
    return Path(os.fsdecode(symbol.file)).resolve()


def _builtin(function: Any) -> Path:
    for folder in _file_of(function).parents:
        if (folder / "share/mha/builtin/config.json").exists():
            return folder / "share/mha/builtin"
    raise FileNotFoundError("the built-in model was not found: share/mha/builtin must be in the folder of libmha.so or a folder above it")


def _minilm() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(cache) / "mha/minilm"
    if not folder.is_dir():
        raise FileNotFoundError("MiniLM is not on this machine: run ./run fetch minilm in the checkout")
    return folder


_MODEL = "a model must be a folder with config.json, tokenizer.json and model.safetensors, or a GGUF file, or minilm, or builtin"


def _folder(name: Any) -> Any:
    """Returns the name if it is a folder with config.json, or a GGUF file. Empty names and names with a NUL character are returned too, and
    rejected by the caller."""
    path = os.fsencode(name)
    if not path or b"\0" in path or os.path.exists(os.path.join(path, b"config.json")):
        return name
    if os.path.isfile(path):
        with open(path, "rb") as file:
            if file.read(4) == b"GGUF":
                return name
    got = "a path that does not exist"
    if os.path.exists(path):
        got = "a folder without config.json" if os.path.isdir(path) else "a file: pass its folder"
    raise FileNotFoundError(f"{os.fsdecode(name)}: {_MODEL} (got {got}); checkpoint folders come from huggingface.co, for example: "
                            "hf download openai-community/gpt2 --local-dir gpt2")


def model(name: Any, function: Any) -> Any:
    """Returns the folder of a model: "minilm" and "builtin" as for the option -m of the program, other names unchanged.
    `function` is any function of the library; the built-in model is installed with the library."""
    if name == "builtin":
        return _builtin(function)
    return _minilm() if name == "minilm" else _folder(name)
