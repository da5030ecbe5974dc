"""Tests bench/growth.py and bench/sweep/sweep.py: points, reasons for missing points, charts, lists and error messages."""
import csv
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"


def run(name, *arguments, code=0):
    done = subprocess.run([sys.executable, BENCH / name, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_points_and_charts():
    with tempfile.TemporaryDirectory() as folder:
        run("growth.py", "--axes", "batch", "--dtype", "f32", "--quick", "--memory", "32", "--csv", f"{folder}/points.csv",
            "--charts", folder)
        with open(f"{folder}/points.csv", encoding="utf-8") as text:
            points = [p for p in csv.DictReader(text) if p["library"] == "mha"]
        assert xml.parse(f"{folder}/growth-batch.svg").getroot().tag.endswith("svg")
    assert all(float(p["us per token"]) > 0 for p in points if not p["skipped"])
    assert [p["x"] for p in points if p["skipped"] == "requires more than 32 MiB"] == ["48", "64"]


def test_sweep():
    with tempfile.TemporaryDirectory() as folder:
        said = run("sweep/sweep.py", "--count", "120", "--rounds", "1", "--threads", "1", "--csv", f"{folder}/shapes.csv")
        with open(f"{folder}/shapes.csv", encoding="utf-8") as text:
            shapes = list(csv.DictReader(text))
    assert "cost model" in said and "of 120 shapes take more than 1.3 times the trend" in said and "shapes on several threads" in said
    assert len(shapes) == 120 and all(float(s["seconds"]) > 0 and int(s["tasks"]) > 0 for s in shapes)
    assert any(s["ratio"] for s in shapes)


def test_wrong_use():
    assert run("growth.py", "--axes", "depth", code=2) == ""


if __name__ == "__main__":
    test_points_and_charts()
    test_sweep()
    test_wrong_use()
