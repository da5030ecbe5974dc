"""Runs examples/heads.ipynb with nbconvert, for the built-in model and, if it is on this machine, for MiniLM. Its numbers must be those of
the program, to the last digit; it must be committed without outputs. Skipped without nbconvert, ipykernel and matplotlib."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples/heads.ipynb"
MISSING = ", ".join(f"{name} is not installed" for name in ("nbconvert", "ipykernel", "matplotlib") if importlib.util.find_spec(name) is None)
RESULTS = """
import json, pathlib
import numpy as np

def table(x):
    return [[None if np.isnan(v) else float(f"{v:.9g}") for v in row] for row in np.asarray(x, float)]

pathlib.Path(PLACE, "results.json").write_text(json.dumps({
    "metrics": {key: table(x) for key, x in found.metrics.items()}, "labels": found.labels,
    "importance": {key: table(getattr(scores, key)) for key in ("values", "low", "high")}, "by": by,
    "keep": keep.tolist(), "heads": evaluation.heads, "parameters": evaluation.parameters, "bytes": evaluation.bytes,
    "kv_bytes_per_token": evaluation.kv_bytes_per_token,
    "quality": [float(f"{x:.9g}") for x in (comparison.mean_cosine, comparison.min_cosine)],
    "loss": [float(f"{x:.9g}") for x in comparison.loss if not np.isnan(x)],
    "same": evaluation.comparison.mean_cosine == comparison.mean_cosine,
    "map": table(drawn.map(0, 2).values), "page": page.values}))
"""


def program(*arguments, where):
    done = subprocess.run([os.environ["MHA"], *map(str, arguments)], cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


class Notebook(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.place = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))

    def test_committed_without_outputs(self):
        cells = [cell for cell in self.notebook["cells"] if cell["cell_type"] == "code"]
        self.assertGreater(len(cells), 8)
        self.assertEqual([(cell["outputs"], cell["execution_count"]) for cell in cells], [([], None)] * len(cells))

    def run_for(self, name):
        """Runs the notebook for a model; returns its results and the outputs of its cells."""
        import nbformat
        from nbconvert.preprocessors import ExecutePreprocessor
        notebook = nbformat.reads(json.dumps(self.notebook), as_version=4)
        notebook.cells[1].source = f"name = {name!r}\nPLACE = {str(self.place)!r}"
        notebook.cells.append(nbformat.v4.new_code_cell(RESULTS))
        os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
        os.environ["JUPYTER_RUNTIME_DIR"] = os.environ["IPYTHONDIR"] = str(self.place)
        ExecutePreprocessor(timeout=600, kernel_name="python3").preprocess(notebook, {"metadata": {"path": str(NOTEBOOK.parent)}})
        kinds = [set(output.get("data", {})) for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
        return json.loads((self.place / "results.json").read_text()), kinds

    def check(self, name):
        ours, kinds = self.run_for(name)
        self.assertGreaterEqual(sum("text/html" in k for k in kinds), 5)
        self.assertGreaterEqual(sum("image/png" in k for k in kinds), 3)
        lines = (ROOT / "share/mha/texts/stories.txt").read_text().splitlines()
        (self.place / "choose.txt").write_text("\n".join(lines[:20]) + "\n")
        (self.place / "heldout.txt").write_text("\n".join(lines[-10:]) + "\n")
        said = program("heads", "-m", name, "-f", "choose.txt", "--by", ours["by"], "--json", where=self.place)
        self.assertEqual(ours["metrics"], said["metrics"])
        self.assertEqual(ours["labels"], said["labels"])
        for key in "values", "low", "high":
            self.assertEqual(ours["importance"][key], said["importance"][key], key)
        said = program("prune", "-m", name, "--by", ours["by"], "--ratio", "0.3", "-f", "choose.txt", "--test", "heldout.txt", "-o", "smaller",
                       "--json", where=self.place)
        self.assertEqual([[h for h, kept in enumerate(row) if not kept] for row in ours["keep"]], said["removed"])
        for key in "heads", "parameters", "bytes", "kv_bytes_per_token":
            self.assertEqual(ours[key], said[key])
        self.assertEqual(ours["quality"], [said["quality"]["mean_cosine"], said["quality"]["min_cosine"]])
        self.assertEqual(ours["loss"], said["quality"].get("loss", []))
        self.assertTrue(ours["same"])
        said = program("report", "-m", name, "--json", "-o", "page.html", "--", "Clara has a kite. Clara has a kite.", where=self.place)
        self.assertEqual(ours["map"], said["attention"][0][2])
        self.assertEqual({k: x for k, x in ours["page"].items() if k != "output"}, {k: x for k, x in said.items() if k != "output"})

    @unittest.skipIf(MISSING, MISSING)
    def test_builtin(self):
        self.check("builtin")

    @unittest.skipIf(MISSING, MISSING)
    def test_minilm(self):
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        if not (cache / "mha/minilm/config.json").exists():
            self.skipTest("MiniLM is not on this machine: ./run fetch minilm")
        self.check("minilm")


def main():
    result = unittest.main(exit=False).result
    for _, reason in result.skipped:
        print(f"skipped: {reason}")
    return 1 if not result.wasSuccessful() else 77 if MISSING else 0


if __name__ == "__main__":
    sys.exit(main())
