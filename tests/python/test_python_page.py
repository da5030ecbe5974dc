"""The Python lines of docs/python.md run as they stand (with small models where they name a folder)."""
import contextlib
import io
import os
import re
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

block = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(encoding="utf-8"), re.DOTALL).group(1)
lines = block
for name, folder in (("minilm", "tests/golden/data/models/bert-tiny"), ("gpt2", "tests/golden/data/models/gpt2-tiny")):
    lines, places = re.subn(f'"/path/to/{name}"', repr(str(ROOT / folder)), lines)
    assert places == 1, f"docs/python.md no longer opens /path/to/{name}"
printed, here = io.StringIO(), os.getcwd()
with contextlib.redirect_stdout(printed), tempfile.TemporaryDirectory() as place:
    os.chdir(place)  # what they write goes there
    try:
        exec(compile(lines, "docs/python.md", "exec"), names := {})
    finally:
        os.chdir(here)
assert names["out"].shape == names["q"].shape and names["vectors"].shape[0] == 3
assert printed.getvalue().startswith("[["), printed.getvalue()
assert names["logits"].shape[1] == len(names["prompt"]) and len(printed.getvalue()) > 100
