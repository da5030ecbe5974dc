"""The machine: its instruction sets, and its measured peak performance."""
from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_double
from typing import Any

import numpy as np

from .context import context
from .library import lib
from .long_call import call_long

_MAX = 16


def isa_list() -> list[str]:
    """Returns the instruction sets that this CPU supports, oldest first.

        >>> import mha
        >>> mha.isa_list()[0]
        'scalar'
    """
    names = (c_char_p * _MAX)()
    return [(name or b"").decode() for name in names[:lib.mha_isa_list(names, _MAX)]]


def threads() -> int:
    """Returns the number of threads of calls, including the calling thread.

        >>> import mha
        >>> mha.threads() >= 1
        True
    """
    return int(lib.mha_ctx_threads(context()))


def machine_peak_fma() -> float:
    """Measures float32 operations per second of all threads, in about 0.1 s; a multiply-add is two operations.

        >>> import mha
        >>> mha.machine_peak_fma() > 1e6
        True
    """
    found = c_double()
    call_long("mha_machine_peak_fma", context(), ctypes.byref(found))
    return found.value


def machine_peak_read(memory: Any) -> float:
    """Measures the bytes per second that all threads read from a contiguous array of at least 4096 bytes.

        >>> import numpy as np, mha
        >>> mha.machine_peak_read(np.zeros(1 << 16, np.float32)) > 1e6
        True
    """
    x = np.asarray(memory)
    if not x.flags.c_contiguous:
        raise ValueError("memory must be a contiguous array")
    found = c_double()
    call_long("mha_machine_peak_read", context(), x.ctypes.data, x.nbytes, ctypes.byref(found))
    return found.value
