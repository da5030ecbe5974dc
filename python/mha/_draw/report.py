"""mha.report: the page of all heads that `mha report` writes, embedded in a notebook."""
from __future__ import annotations

import html
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._arrays.array import integer
from .._arrays.files import file_write
from .._binding import places
from .._binding.library import string
from .._models.model import Model


@dataclass
class Report:
    """A page of `mha report`: html, and the values that it shows, as with --json. A notebook shows the page itself."""

    html: str
    values: dict[str, Any]
    height: int = 900

    def _repr_html_(self) -> str:
        return (f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts allow-downloads" '
                f'style="width:100%;height:{self.height}px;border:0"></iframe>')

    def save(self, path: Any, overwrite: bool = False) -> None:
        """Writes the page to a file."""
        file_write(path, self.html.encode(), overwrite)


def report(model: Model, texts: Sequence[str], *, by: str | None = None, diversity: bool = False, compare: Model | None = None,
           seed: int = 0) -> Report:
    """Returns the page of all heads of a model on texts, written by the program: maps, metrics, labels; with `by` their importance,
    with diversity their similarity, and with compare the heads of a second model.

    The models must have been opened from folders.

        >>> import mha
        >>> page = mha.report(mha.Model(), ["the cat sat on the mat"])
        >>> page.values["labels"][1][0], page._repr_html_()[:7]
        ('induction', '<iframe')

    Raises ValueError with the message of the program if it fails.
    """
    seed = integer(seed, "seed", 0, 2**64 - 1)
    folders = [m.path for m in (model, compare) if m is not None]
    if None in folders:
        raise ValueError("the models of a report must have been opened from folders: save the model first")
    if isinstance(texts, str):
        raise ValueError("texts must be a list of str (got one str)")
    given = [os.fsdecode(string(t, f"texts[{n}]")) for n, t in enumerate(texts)]
    options = ["--by", by] if by is not None else []
    options += ["--diversity"] if diversity else []
    options += ["--compare", str(folders[1])] if compare is not None else []
    with tempfile.TemporaryDirectory() as place:
        page = Path(place, "report.html")
        done = subprocess.run([places.program(), "report", "-m", str(folders[0]), *options, "--seed", str(seed), "-q", "--no-progress",
                               "--json", "-o", str(page), "--", *given], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(done.stderr.strip() or f"mha report failed with status {done.returncode}")
        return Report(page.read_text(encoding="utf-8"), json.loads(done.stdout))
