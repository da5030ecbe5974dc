"""Tests tools/builtin/builtin_text.py: the held-out texts of test_builtin must equal its output for seed 2, without the texts that it also
generates for seed 1, on which the built-in model was trained."""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# seed and line count of the training texts (tools/builtin/train_builtin.sh) and of the held-out texts
LEARNED, HELD_OUT = (1, 90000), (2, 160)
STORIES = ("stories", 3, 400)  # share/mha/texts/stories.txt


def made(*arguments):
    command = [sys.executable, ROOT / "tools/builtin/builtin_text.py", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


learned = set(made(*LEARNED))
want = [line for line in made(*HELD_OUT) if line not in learned]
got = (ROOT / "tests/golden/data/builtin/held_out.txt").read_text(encoding="ascii").splitlines()
assert got == want, f"held_out.txt must equal the output of the generator: {[pair for pair in zip(got, want) if pair[0] != pair[1]][:1]}, {len(got)}, {len(want)}"
assert " ".join(str(n) for n in LEARNED) in (ROOT / "tools/builtin/train_builtin.sh").read_text(encoding="ascii")
shipped = (ROOT / "share/mha/texts/stories.txt").read_text(encoding="ascii").splitlines()
assert shipped == made(*STORIES), "share/mha/texts/stories.txt must equal the output of the generator"
