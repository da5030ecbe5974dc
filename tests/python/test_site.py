"""Builds the site: every link and anchor must be valid, every public function and name must be documented, and pages must load no files
from other hosts. Skipped if the tools cannot be installed."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import mha

ROOT = Path(__file__).resolve().parents[2]


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = Path(cls.enterClassContext(tempfile.TemporaryDirectory())) / "site"
        made = cls.build(cls.site)
        if made.returncode == 3:
            print(f"skipped: the tools for the site cannot be installed\n{made.stderr}")
            sys.exit(77)
        assert made.returncode == 0, made.stderr
        cls.pages = {str(p.relative_to(cls.site)): p.read_text(encoding="utf-8") for p in cls.site.rglob("*.html")}

    @staticmethod
    def build(folder):
        environment = os.environ | {"MHA_PYTHON": sys.executable}
        return subprocess.run([ROOT / "tools/docs.sh", folder], check=False, capture_output=True, text=True, env=environment)

    def anchors(self, page):
        return set(re.findall(r'id="([^"]+)"', self.pages[page]))

    def test_folder(self):
        """The build must reject a folder with other files, even those of another site; it must replace an earlier build of this site."""
        for name, text in (("thesis.txt", "years of work"), ("objects.inv", "# Sphinx inventory version 2\n# Project: other\n")):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, name).write_text(text, encoding="utf-8")
                made = self.build(folder)
                self.assertEqual(made.returncode, 2, made.stderr)
                self.assertIn(f"{folder} must be absent, empty, or a site built by an earlier run", made.stderr)
                self.assertEqual(Path(folder, name).read_text(encoding="utf-8"), text)
        old = self.site / "old.html"
        old.touch()
        made = self.build(self.site)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertFalse(old.exists())

    def test_documents(self):
        for page in (ROOT / "docs").rglob("*.md"):
            name = str(page.relative_to(ROOT / "docs").with_suffix(".html")).replace("README", "index")
            self.assertIn(name, self.pages)

    def test_functions(self):
        for header in (ROOT / "include/mha").glob("*.h"):
            declared = re.findall(r"MHA_API[^;(]*?\b(mha_\w+)\(", header.read_text(encoding="utf-8"))
            if declared and header.stem != "mha":
                missing = set(declared) - self.anchors(f"c/{header.stem}.html")
                self.assertEqual(missing, set(), header.name)

    def test_python(self):
        missing = {f"mha.{name}" for name in mha.__all__} - self.anchors("python/mha.html")
        self.assertEqual(missing, set())
        self.assertIn("mha.torch.scaled_dot_product_attention", self.anchors("python/mha.torch.html"))
        self.assertIn("mha.transformers.register", self.anchors("python/mha.transformers.html"))

    def test_walk_throughs(self):
        tours = [p for p in self.pages if p.startswith("tours/")]
        self.assertGreaterEqual(len(tours), 16)
        drawn = [p for p in tours if re.search(r'<img [^>]*src="[^"]+\.svg"', self.pages[p])]
        self.assertGreaterEqual(len(drawn), 9)  # the tours with a square map or a curve
        self.assertIn("0.3374, -0.1778", self.pages["tours/self-attention.html"])

    def test_no_other_hosts(self):
        loads = re.compile(r'<(?:script|img|iframe|source)[^>]+src="(https?:)?//|<link[^>]+href="(https?:)?//(?![^"]*"[^>]*rel="canonical")')
        for name, text in self.pages.items():
            self.assertIsNone(loads.search(text), name)
        for style in self.site.rglob("*.css"):
            self.assertNotRegex(style.read_text(encoding="utf-8"), r"url\(\s*[\"']?https?:|@import", style.name)


if __name__ == "__main__":
    unittest.main()
