"""A report that the program has just written, opened in Chromium: what the tests of the page share."""
import json
import os
import subprocess
from pathlib import Path

from page_case import PageCase  # first: it skips the test where there is no browser

TINY = Path(__file__).resolve().parents[1] / "golden/data/models/bert-tiny"  # where MiniLM is not there
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
        """The page of a text, and what the program says with --json where that was asked for."""
        key = (text, options)
        if key not in self.written:
            page = Path(self.folder.name, f"{len(self.written)}.html")
            command = [os.environ["MHA"], "report", "-m", self.model, "-o", page, *options, "--", text]
            self.written[key] = page, subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return self.written[key]

    def open(self, text=SENTENCE, *options, json_too=True):
        page, said = self.write(text, *options, *(["--json"] if json_too else []))
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(page.as_uri())
        self.wait("return document.body.dataset.painted === 'yes'")
        return json.loads(said) if json_too else page


def shown_number(x):
    """A number as page.js shows it."""
    if x is None:
        return "–"
    size = abs(x)
    if size >= 100:
        text = f"{x:.1f}"
    elif size >= 0.01 or size == 0:
        text = f"{x:.3f}"
    elif size >= 1e-4:
        exponent = int(f"{size:.2e}".split("e")[1])
        text = f"{x:.{2 - exponent}f}"
    else:
        mantissa, exponent = f"{x:.1e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    return text.replace("-", "−")
