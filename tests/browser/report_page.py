"""Base class of the report tests: writes a report and opens it in Chromium."""
import json
import math
import os
import subprocess
from pathlib import Path

from page_case import PageCase  # imported first: skips the test if Chromium is not installed

TINY = Path(__file__).resolve().parents[1] / "golden/data/models/bert-tiny"  # used if MiniLM is not installed
SENTENCE = "The nurse told the doctor, and the doctor thanked the nurse for the good news."


def minilm():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "mha/minilm/model.safetensors").exists()


class ReportCase(PageCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = "minilm" if minilm() else str(TINY)
        print(f"model {cls.model}")
        cls.written = {}

    def write(self, text, *options):
        """Writes the report of a text. Returns the page and the output of the program (with --json if requested)."""
        key = (text, options)
        if key not in self.written:
            page = Path(self.folder.name, f"{len(self.written)}.html")
            model = [] if "-m" in options else ["-m", self.model]
            command = [os.environ["MHA"], "report", *model, "-o", page, *options, "--", text]
            self.written[key] = page, subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return self.written[key]

    def open(self, text=SENTENCE, *options, json_too=True):
        page, said = self.write(text, *options, *(["--json"] if json_too else []))
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(page.as_uri())
        self.wait("return document.body.dataset.painted === 'yes'")
        return json.loads(said) if json_too else page


def decimals_of(values):
    """Returns the number of decimals that the page uses for a list of values (see labels_and_numbers.js)."""
    most = max((abs(x) for x in values if x is not None), default=0)
    if most >= 100:
        return 1
    return 3 if most >= 0.01 or most == 0 else min(2 - math.floor(math.log10(most)), 9)


def fixed(x, decimals=3):
    """Formats a value as the page does."""
    if x is None:
        return "–"
    text = f"{x:.{decimals}f}"
    return text.replace("-", "−") if text.strip("-0.") else text.lstrip("-")
