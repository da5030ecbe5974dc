"""The Python lines of README.md run as they stand (with the built-in model where they name a folder)."""
import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL).group(1)
lines, places = re.subn(r'"/path/to/minilm"', repr(str(ROOT / "share/mha/builtin")), block)
assert places == 1, "README.md no longer opens /path/to/minilm"
printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    exec(compile(lines, "README.md", "exec"), names := {})
assert names["out"].shape == names["q"].shape and names["vectors"].shape[0] == 3
assert printed.getvalue().startswith("[["), printed.getvalue()
