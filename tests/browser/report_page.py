"""A report that the program has just written, opened in Chromium: what the tests of the page share."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from chromium import browser, requests  # first: it skips the test where there is none
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

SENTENCE = "The nurse told the doctor, and the doctor thanked the nurse for the good news."


def minilm():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "mha/minilm/model.safetensors").exists()


class ReportCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = "minilm" if minilm() else "builtin"
        print(f"model {cls.model}")
        cls.driver = browser()
        cls.written = {}

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()
        cls.folder.cleanup()

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

    def wait(self, script, *args):
        return WebDriverWait(self.driver, 30).until(lambda d: d.execute_script(script, *args))

    def run_js(self, script, *args):
        return self.driver.execute_script(script, *args)

    def all(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css):
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def choose(self, css, value):
        Select(self.one(css)).select_by_value(value)

    def show(self, css):
        """Scrolls to a part of the page, which is made when it comes near the screen."""
        self.run_js("document.querySelector(arguments[0]).scrollIntoView({block: 'center', behavior: 'instant'})", css)

    def texts(self, css):
        return self.run_js("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", css)

    def assert_quiet(self):
        self.assertEqual(self.driver.get_log("browser"), [])
        self.assertEqual([u for u in requests(self.driver) if not u.startswith(("file:", "data:", "blob:"))], [])


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
