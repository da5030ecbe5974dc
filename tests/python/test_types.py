"""The package must pass mypy --strict and ruff with the settings of python/pyproject.toml. A tool that is not installed is skipped."""
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CACHE = f"--cache-dir={os.devnull}"
PACKAGE = Path(__file__).resolve().parents[2] / "python"

USE = """
import numpy as np
import mha

x = np.ones((1, 2, 4, 8), np.float32)
mha.attention(x, x, x, causal=True, window=(3, 0))
shape: tuple[int, ...] = mha.importance_measure(mha.Model(), ["a"], by="gate").values.shape
layer = mha.WeightSplit(6, 6, 2)
out: np.ndarray = layer.forward(np.ones((1, 3, 6)))
again, trace = layer.forward(out, trace=True, weights=True)
steps: dict[str, np.ndarray] = trace.steps()
report: mha.TrainReport = mha.Trainer(mha.Model(), mha.TrainOptions(rate=0.1)).step([[1, 2]])
best: mha.PrunePoint | None = mha.prune_search(mha.Model(), ["a"], learn=["a"]).best
"""
WRONG = "import mha\nmha.attention(1, 1, 1, no_such_option=1)\nmha.Model().tokenize(3)\n"


def run(module, *arguments):
    return subprocess.run([sys.executable, "-m", module, *arguments], cwd=PACKAGE, capture_output=True, text=True, check=False)


def mypy():
    done = run("mypy", CACHE)
    if done.returncode:
        return done.stdout
    with tempfile.TemporaryDirectory() as folder:
        for name, text, fails in ("use.py", USE, False), ("wrong.py", WRONG, True):
            Path(folder, name).write_text(text)
            done = run("mypy", CACHE, "--strict", str(Path(folder, name)))
            if bool(done.returncode) != fails or fails and done.stdout.count("error:") != 2:
                return f"{text}\n{done.stdout}"
    return None


def ruff():
    done = run("ruff", "check", "--no-cache", ".")
    return done.stdout if done.returncode else None


def main():
    failed = absent = 0
    for name, check in ("mypy", mypy), ("ruff", ruff):
        if importlib.util.find_spec(name) is None:
            print(f"skipped: {name} is not installed")
            absent += 1
        elif said := check():
            print(said)
            failed += 1
    return 1 if failed else 77 if absent == 2 else 0


if __name__ == "__main__":
    sys.exit(main())
