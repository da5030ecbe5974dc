"""Base class of the tests of the page of mha live: opens the page, and compares its predictions with those of the program."""
import json
import os
import shlex
import subprocess
from pathlib import Path

from page_case import PageCase  # imported first: skips the test if Chromium is not installed

TEXT = "One day Clara found a red key in the garden. She put the red"


def program(*words):
    """Returns the output of mha."""
    return subprocess.run([os.environ["MHA"], *words], check=True, capture_output=True, text=True).stdout


class LivePage(PageCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.page = Path(cls.folder.name, "live.html")
        subprocess.run([os.environ["MHA"], "live", "-q", "-o", cls.page, "--", TEXT], check=True)

    def open(self, fragment="", page=None):
        self.driver.get("about:blank")
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get((page or self.page).as_uri() + fragment)
        self.settle()

    def settle(self):
        """Waits until the results of the last update are shown."""
        self.wait("const d = document.body.dataset; return d.openedMs && (d.measured === d.updated || seenNow.tokens.length === 0)")

    def write(self, field, text):
        self.run_js("const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input'))", field, text)
        self.settle()

    def type(self, text):
        self.write("text", text)

    def switch(self, head):
        return self.one(f"#grid .layer:nth-child({head[0] + 1}) .cell:nth-child({head[1] + 2}) .switch")

    def logits(self, side):
        return self.run_js("return [...model.mha.logits(arguments[0])]", side)

    def command(self, box="command"):
        words = shlex.split(self.run_js("return document.getElementById(arguments[0]).textContent", box))
        self.assertEqual(words[0], "mha")
        return words[1:]

    def confirm(self):
        """Runs the command that the page shows: its predictions must be those of the page."""
        words = self.command()
        said = json.loads(program(words[0], "--json", "--top", "10", *words[1:]))
        logits = self.logits(self.run_js("return side()"))
        for item in said["top"]:
            self.assertAlmostEqual(logits[item["id"]], item["logit"], delta=1e-4)
        self.assertEqual(self.run_js("return seenNow.at"), said["at"])
        self.assertEqual(self.run_js("return seenNow.tokens.map((t) => t.id)"), said["ids"])
        shown = self.run_js("return [...document.querySelectorAll('#bars tbody tr')].map((row) => Number(row.dataset.id))")
        self.assertEqual(shown[0], said["top"][0]["id"])
        return words
