"""Tests bench/compare.py: rows, values, error messages and the figure. Libraries that are not installed must be reported as skipped."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

import mha

COMPARE = Path(__file__).resolve().parents[2] / "bench" / "compare.py"


def run(*arguments, code=0):
    command = [sys.executable, COMPARE, "--seconds", "0.01", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_rows_and_figure():
    with tempfile.TemporaryDirectory() as folder:
        figure = Path(folder) / "figure.svg"
        said = json.loads(run("--rows", "small", "--threads", "2", "--program", os.environ["MHA"], "--chart", figure, "--json"))
        assert xml.parse(figure).getroot().tag.endswith("svg")
    row, = said["rows"]
    ours = row["calls"]["mha"]
    assert (row["row"], row["dtype"], row["threads"], row["limit"]) == ("small", "f32", 2, "fma")
    assert ours["rounds"] >= 5 and 0 < ours["best ms"] <= ours["median ms"] and 0 < ours["share"] and row["C ms"] > 0
    peers = set(row["calls"]) - {"mha"}
    assert "ggml" in row["skipped"] and not peers & set(row["skipped"])
    assert (row["ratio"] is not None) == bool(peers)


def test_table_and_csv():
    assert "small           f32" in run("--rows", "small")
    heading, *lines = run("--rows", "small", "--csv").splitlines()
    assert len(lines) >= 1 and all(line.count(",") == heading.count(",") for line in lines)


def test_bf16():
    """Tests bf16, which requires PyTorch. A fraction of the f32 limit must be printed only if the CPU has no products of bf16 pairs."""
    if importlib.util.find_spec("torch") is None:
        run("--rows", "small", "--dtype", "bf16", code=1)
        return
    said = run("--rows", "prefill,small", "--dtype", "bf16")
    if mha.isa() == "amx" and "no other library" not in said:
        assert "(goal 1.8)" in said and "(goal 4 us)" in said, said
    assert ("% of fma" in said) == (mha.isa() not in ("amx", "avx512bf16")), said


def test_merge():
    """The merge of two runs must contain the shorter times and the larger limit."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "a.json", Path(folder) / "b.json"]
        said = [run("--rows", "small", "--json") for _ in files]
        for file, text in zip(files, said):
            file.write_text(text, encoding="utf-8")
        whole, = json.loads(run("--json", "--merge", *files))["rows"]
    runs = [json.loads(text)["rows"][0] for text in said]
    assert whole["calls"]["mha"]["best ms"] == min(r["calls"]["mha"]["best ms"] for r in runs)
    assert whole["limit rate"] == max(r["limit rate"] for r in runs)


def test_wrong_use():
    run("--rows", "smal", code=2)
    run("--dtype", "f64", code=2)


if __name__ == "__main__":
    test_rows_and_figure()
    test_table_and_csv()
    test_bf16()
    test_merge()
    test_wrong_use()
