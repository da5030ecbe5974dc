"""Runs the Python code of docs/python.md, block by block with shared variables. Only the paths of models are replaced, with those of small
test models. Blocks that import a missing module are skipped."""
import contextlib
import io
import os
import re
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
for name, folder in (("minilm", "tests/golden/data/models/bert-tiny"), ("gpt2", "tests/golden/data/models/gpt2-tiny"),
                     ("gpt2-again", "tests/golden/data/models/gpt2-tiny")):
    page, places = re.subn(f'"/path/to/{name}"', repr(str(ROOT / folder)), page)
    assert places == 1, f"docs/python.md must open /path/to/{name}"
blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
assert len(blocks) >= 3, "docs/python.md must have examples"
names, ran, here = {}, 0, os.getcwd()
with tempfile.TemporaryDirectory() as place:
    os.chdir(place)  # the code blocks write their output files here
    try:
        for number, block in enumerate(blocks):
            printed = io.StringIO()
            try:
                with contextlib.redirect_stdout(printed):
                    exec(compile(block, f"docs/python.md, block {number}", "exec"), names)
            except ModuleNotFoundError as missing:
                print(f"skipped: block {number} of docs/python.md: {missing}")
                continue
            ran += 1
            if number == 0:
                assert names["out"].shape == names["q"].shape and names["vectors"].shape[0] == 3
                assert printed.getvalue().startswith("[["), printed.getvalue()
                assert names["logits"].shape[1] == len(names["prompt"]) and len(printed.getvalue()) > 100
    finally:
        os.chdir(here)
assert ran >= 2
