"""Tests mha report --live in Chromium: the frame must run the model on the shown text, with the theme of the report and the
numbers of the program, and must request nothing."""
import json
import os
import subprocess
import unittest
from pathlib import Path

from page_case import PageCase  # imported first: skips the test if Chromium is not installed

TEXTS = ["One day Clara found a red key in the garden. She put the red", "</script><b>One</b> day & 'Clara'"]


class ReportLive(PageCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.page = Path(cls.folder.name, "report.html")
        subprocess.run([os.environ["MHA"], "report", "-q", "--live", "-o", cls.page, "--", *TEXTS], check=True)

    def open(self, fragment=""):
        self.driver.get("about:blank")
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(self.page.as_uri() + fragment)
        self.wait("return document.body.dataset.painted === 'yes'")
        self.enter()

    def enter(self):
        self.driver.switch_to.default_content()
        self.show("#live")
        self.wait("return document.querySelector('#live iframe')")
        self.driver.switch_to.frame(self.one("#live iframe"))
        self.settle()

    def settle(self):
        self.wait("const d = document.body.dataset; return d.openedMs && d.measured === d.updated")

    def confirm(self, *options):
        """The most likely tokens in the frame must be those of the program."""
        text = self.one("#text").get_attribute("value")
        said = json.loads(subprocess.run([os.environ["MHA"], "logits", "--json", *options, "--", text], check=True, capture_output=True, text=True).stdout)
        logits = self.run_js("return [...model.mha.logits(side())]")
        for item in said["top"]:
            self.assertAlmostEqual(logits[item["id"]], item["logit"], delta=1e-4)
        return text

    def test_the_frame_runs_the_model(self):
        self.open()
        self.assertEqual(self.confirm(), TEXTS[0])
        self.one("#grid .layer:nth-child(1) .cell:nth-child(9) .switch").click()
        self.settle()
        self.confirm("--gates", "0.7=0")
        self.wait("return parent.location.hash.includes('gates=0.7:0') && parent.location.hash === toFragment()")
        fragment = self.run_js("return parent.location.hash")
        self.open(fragment)
        self.confirm("--gates", "0.7=0")
        self.assert_quiet()

    def test_the_frame_follows_the_report(self):
        self.open()
        background = self.background()
        self.driver.switch_to.default_content()
        self.one("#theme").click()
        self.driver.switch_to.frame(self.one("#live iframe"))
        self.assertNotEqual(self.background(), background)
        self.driver.switch_to.default_content()
        self.one("#text-after").click()
        self.wait("return document.body.dataset.painted === 'yes' && shownText === 1")
        self.enter()
        self.wait("return state.text === arguments[0]", TEXTS[1])
        self.settle()
        self.assertEqual(self.confirm(), TEXTS[1])
        self.driver.switch_to.default_content()
        self.assert_fits()
        self.emulate()
        self.assert_quiet()

    def test_without_the_option(self):
        page = Path(self.folder.name, "plain.html")
        subprocess.run([os.environ["MHA"], "report", "-q", "-o", page, "--", TEXTS[0]], check=True)
        self.assertNotIn("wasm-unsafe-eval", page.read_text().split("<title>")[0])
        self.driver.get(page.as_uri())
        self.wait("return document.body.dataset.painted === 'yes'")
        self.assertFalse(self.one("#live").is_displayed())
        self.assertFalse(self.one("nav a[href='#live']").is_displayed())
        done = subprocess.run([os.environ["MHA"], "report", "--live", "--ids", "-o", page, "1,2"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--live must not be given with --ids", done.stderr)


if __name__ == "__main__":
    unittest.main()
