"""Installs the wheel in an empty virtual environment outside the checkout: the package must be importable, its program and the examples
of docs/python.md must run, and uninstalling must leave no file. Skipped if NumPy or the tools for wheels cannot be installed."""
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = ("MHA_LIB", "MHA", "PYTHONPATH", "LD_LIBRARY_PATH", "MHA_PYTHON")
CLEAN = {name: value for name, value in os.environ.items() if name not in HIDDEN}


def run(*command, env=CLEAN, **more):
    return subprocess.run([str(c) for c in command], env=env, text=True, capture_output=True, check=False, **more)


def project():
    return tomllib.loads((ROOT / "python/pyproject.toml").read_text(encoding="utf-8"))["project"]


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        made = run(ROOT / "tools/wheel.sh", cls.place / "dist", env=CLEAN | {"MHA_PYTHON": sys.executable})
        if made.returncode == 3:
            print(f"skipped: the tools for wheels cannot be installed\n{made.stderr}")
            sys.exit(77)
        assert made.returncode == 0, made.stderr
        cls.sdist, cls.wheel = map(Path, made.stdout.split())
        cls.python = cls.place / "venv/bin/python"
        made = run(sys.executable, "-m", "venv", cls.place / "venv")
        assert made.returncode == 0, made.stderr
        if run(cls.python, "-m", "pip", "install", "-q", "numpy").returncode:
            print("skipped: NumPy cannot be installed into a new virtual environment")
            sys.exit(77)
        cls.before = cls.files()
        made = run(cls.python, "-m", "pip", "install", "-q", cls.wheel)
        assert made.returncode == 0, made.stderr

    @classmethod
    def files(cls):
        return {p for p in (cls.place / "venv").rglob("*") if "__pycache__" not in p.parts}

    def check(self, *command):
        """Runs a command in the environment and fails the test unless it succeeds; returns its output."""
        done = run(*command, cwd=self.place)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_names(self):
        glibc = re.fullmatch(r"mha-(.+)-py3-none-manylinux_2_(\d+)_\w+\.whl", self.wheel.name)
        self.assertIsNotNone(glibc, self.wheel.name)
        self.assertEqual(glibc[1], project()["version"])
        self.assertLessEqual(int(glibc[2]), int(os.confstr("CS_GNU_LIBC_VERSION").split(".")[1]))
        self.assertEqual(self.sdist.name, f"mha-{glibc[1]}.tar.gz")

    def test_contents(self):
        names = zipfile.ZipFile(self.wheel).namelist()
        for wanted in ("mha/libmha.so", "mha/bin/mha", "mha/py.typed", "mha/share/mha/builtin/model.safetensors"):
            self.assertIn(wanted, names)
        for library in ("utf8proc", "pcre2-8", "jansson", "popt", "cairo"):
            self.assertTrue(any(n.startswith(f"mha.libs/lib{library}") for n in names), f"{library} must be in the wheel")
        program = self.place / f"venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/mha/bin/mha"
        needed = dict(re.findall(r"(?m)^\s*(\S+) => (.*?)(?: \(0x.*)?$", run("ldd", program).stdout))
        outside = {name for name, path in needed.items() if not Path(path).resolve().is_relative_to((self.place / "venv").resolve())}
        self.assertLessEqual({name.split(".")[0] for name in outside}, {"libc", "libm", "libdl", "libpthread", "librt"},
                             "a minimal system does not have other libraries")
        self.assertTrue(any(name.startswith("libcairo") for name in needed.keys() - outside), needed)

    def test_versions(self):
        text = self.check(self.python, "-c", "import importlib.metadata as m, mha; print(m.version('mha'), mha.version)")
        self.assertEqual(text.split(), [project()["version"]] * 2)

    def test_program(self):
        mha = self.place / "venv/bin/mha"
        self.assertIn("The built-in model", self.check(mha, "demo"))
        self.assertIn("induction", self.check(mha, "heads", "the cat sat on the mat"))

    def test_font(self):
        """Figures must have a font on systems without fonts."""
        package = self.place / f"venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/mha"
        settings = (package / "fonts/fonts.conf").read_text(encoding="utf-8")
        alone = self.place / "no_fonts.conf"
        for text, warnings in ("<fontconfig></fontconfig>", 1), (re.sub("<include.*", "", settings).replace(
                '<dir prefix="relative">.<', f"<dir>{package / 'fonts'}<"), 0):
            alone.write_text(text, encoding="utf-8")
            done = run(self.place / "venv/bin/mha", "draw", "the caf\N{LATIN SMALL LETTER E WITH ACUTE}", "--head", "0.0", "--force", "-o", "map.png",
                       env=CLEAN | {"FONTCONFIG_FILE": str(alone)}, cwd=self.place)
            self.assertEqual((done.returncode, done.stderr.count("no font is installed")), (0, warnings), done.stderr)
        done = run(self.place / "venv/bin/mha", "draw", "the caf\N{LATIN SMALL LETTER E WITH ACUTE}", "--head", "0.0", "--force", "-o", "map.png",
                   cwd=self.place, env={"PATH": os.environ["PATH"], "FC_DEBUG": "1024"})
        self.assertIn(str(package / "fonts/fonts.conf"), done.stdout + done.stderr)

    def test_examples(self):
        for name in "test_python_page.py", "test_backward.py":
            self.check(self.python, ROOT / "tests/python" / name)

    def test_whole_removal(self):
        """Uninstalling must leave no file of the package. This test runs last, because its name is the last one in alphabetical order."""
        self.check(self.python, "-m", "pip", "uninstall", "-q", "-y", "mha")
        self.assertEqual(sorted(self.files() - self.before), [])


class Checkout(unittest.TestCase):
    def test_configures(self):
        """`pip install ./python` must build the sources next to the folder `python`."""
        with tempfile.TemporaryDirectory() as build:
            done = run("cmake", "-S", ROOT / "python", "-B", build, "-G", "Ninja", "-DSKBUILD_SCRIPTS_DIR=/scripts")
            self.assertEqual(done.returncode, 0, done.stderr)
            targets = run("cmake", "--build", build, "--target", "help").stdout
            self.assertRegex(targets, r"(?m)^mha_shared: ")
            self.assertRegex(targets, r"(?m)^mha: ")


if __name__ == "__main__":
    unittest.main()
