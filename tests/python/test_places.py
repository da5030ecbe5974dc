"""The binding must find the shared library and the models "minilm" and "builtin", wherever the script and the package are."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(os.environ["MHA_LIB"]).resolve()
SCRIPT = "import mha; print(mha.version, mha.Model('builtin').forward([[1, 2, 3]]).logits.shape[1])\n"


class Places(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = Path(folder.name)

    def run_script(self, text=SCRIPT, where=None, **variables):
        """Runs a script in the folder `where`; returns its output and exit status."""
        script = (where or self.place) / "script.py"
        script.write_text(text)
        kept = {name: value for name, value in os.environ.items() if name not in ("MHA_LIB", "PYTHONPATH")}
        done = subprocess.run([sys.executable, script.name], cwd=script.parent, env=kept | variables, text=True,
                              capture_output=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def checkout(self, name="mha", library=True):
        """Creates a checkout with this name, which contains the package and, if `library` is true, the files of a build."""
        top = self.place / name
        (top / "build/release").mkdir(parents=True)
        shutil.copy(ROOT / "CMakePresets.json", top)
        shutil.copytree(ROOT / "python", top / "python", ignore=shutil.ignore_patterns("__pycache__"))
        if library:
            (top / "build/release/libmha.so").symlink_to(LIBRARY)
        return top

    def test_in_the_checkout(self):
        top = self.checkout()
        status, text = self.run_script(PYTHONPATH="mha/python")
        self.assertEqual(status, 0, text)
        (top / "build/release/libmha.so").unlink()
        status, text = self.run_script(PYTHONPATH="mha/python")
        self.assertNotEqual(status, 0)
        self.assertIn("libmha.so was not found: build it with ./run", text)
        status, text = self.run_script(PYTHONPATH="mha/python", MHA_LIB=str(LIBRARY))
        self.assertEqual(status, 0, text)

    def test_beside_the_checkout(self):
        """A folder named mha next to the script, here a checkout, must not hide the installed package."""
        self.checkout()
        shutil.copytree(ROOT / "python/mha", self.place / "site/mha")
        status, text = self.run_script(PYTHONPATH="site", MHA_LIB=str(LIBRARY))
        self.assertEqual(status, 0, text)

    def test_beside_the_package(self):
        top = self.checkout("other")
        status, text = self.run_script(where=top / "python")
        self.assertEqual(status, 0, text)

    def test_installed_package(self):
        """The parent folder of an installed package must not be treated as a checkout, whatever its name."""
        top = self.checkout("lib")
        shutil.move(top / "python", top / "site-packages")
        status, text = self.run_script(where=top / "site-packages")
        self.assertNotIn(str(top / "build"), text)
        self.assertIn("libmha.so was not found", text)
        self.assertNotEqual(status, 0)
        shutil.move(top / "site-packages", top / "python")
        (top / "CMakePresets.json").unlink()
        status, text = self.run_script(where=top / "python")
        self.assertNotEqual(status, 0, text)

    def test_relative_library(self):
        for named in (os.path.relpath(LIBRARY, self.place.resolve()), "libmha.so"):
            if "/" not in named:
                (self.place / named).symlink_to(LIBRARY)
            status, text = self.run_script(MHA_LIB=named, PYTHONPATH=str(ROOT / "python"))
            self.assertEqual(status, 0, text)
        status, text = self.run_script(MHA_LIB="no/libmha.so", PYTHONPATH=str(ROOT / "python"))
        self.assertNotEqual(status, 0)
        self.assertIn("ImportError: MHA_LIB must be the path of the shared library libmha.so (got 'no/libmha.so')", text)

    def test_named_models(self):
        script = "import mha; print(mha.Model('minilm').embed(['a cat']).shape)\n"
        common = {"PYTHONPATH": str(ROOT / "python"), "MHA_LIB": str(LIBRARY), "XDG_CACHE_HOME": str(self.place / "cache")}
        status, text = self.run_script(script, **common)
        self.assertNotEqual(status, 0)
        self.assertIn("FileNotFoundError: MiniLM is not on this machine: run ./run fetch minilm", text)
        (self.place / "cache/mha").mkdir(parents=True)
        (self.place / "cache/mha/minilm").symlink_to(ROOT / "tests/golden/data/models/bert-tiny")
        status, text = self.run_script(script, **common)
        self.assertEqual(status, 0, text)
        # a path object must always be a folder: Path('builtin') is not the built-in model
        status, text = self.run_script("import mha, pathlib\nmha.Model(pathlib.Path('builtin'))", **common)
        self.assertNotEqual(status, 0)
        self.assertIn("builtin: a model must be a folder", text)


if __name__ == "__main__":
    unittest.main()
