"""Tests knockout and patching on the page of mha live in Chromium: the numbers must be those of the commands that the page shows."""
import json
import unittest
from pathlib import Path

from live_page import LivePage, program  # imported first: skips the test if Chromium is not installed
from page_case import NAMELESS
from selenium.webdriver.common.keys import Keys

MODELS = Path(__file__).resolve().parents[1] / "golden/data/models"
CLEAN, CORRUPTED = " red cat key boat hat drum red cat key", " red cat key ring hat drum red cat key"
HOSTILE = " <img src=x onerror=alert(1)> & ' cat"


class LiveCircuits(LivePage):
    def point(self, row, column):
        self.run_js("tellWeight(arguments[0], arguments[1])", row, column)

    def shown_grid(self):
        return self.run_js("return [...document.querySelectorAll('#effects tbody tr')].map((r) => [...r.querySelectorAll('td')].map((c) => c.textContent))")

    def confirm_patching(self):
        """Runs the command of the patching section: the page must show its values, to the digits of its grid."""
        words = self.command("patch-command")
        said = json.loads(program(words[0], "--json", *words[1:]))
        values = said["normalised"] or said["raw"]
        rows = [row for layer in values for row in layer] if isinstance(values[0][0], list) else values
        digits = [[f"{x:+.2f}" if abs(x) < 9.995 else f"{x:+.1f}" for x in row] for row in rows]
        self.assertEqual(self.shown_grid(), [["0.00" if float(x) == 0 else x.replace("-", "−") for x in row] for row in digits])
        return words

    def test_knockout(self):
        self.open("#text=" + CLEAN.replace(" ", "%20") + "&head=1.0")
        self.point(8, 3)
        self.assertEqual(self.one("#remove-edge").text, "Remove 8 → 3")
        self.one("#remove-edge").click()
        self.settle()
        self.assertEqual(self.one("#remove-edge").text, "Restore 8 → 3")
        self.assertIn("1.0:8-3", self.confirm())
        self.assertEqual(self.run_js("return seenNow.maps[(state.head * 9 + 8) * 9 + 3]"), 0)
        self.choose("#edge-scope", "layer")
        self.one("#remove-edge").click()
        self.settle()
        self.switch((0, 1)).click()
        self.settle()
        words = self.confirm()
        self.assertIn("1.0:8-3,1:8-3", words)
        self.assertIn("0.1=0", words)
        self.wait("return location.hash.includes('edges=1.0:8-3,1:8-3') && location.hash === toFragment()")
        logits, fragment = self.logits(1), self.run_js("return location.hash")
        self.open(fragment)
        self.assertEqual(self.logits(1), logits)
        self.assertIn("2 edges removed", self.one("#changed").text)
        self.all("#edges button")[1].click()
        self.settle()
        self.assertEqual(self.texts("#edges li"), ["head 1.0:  key (8) →  boat (3) ×"])
        self.one("#all-on").click()
        self.settle()
        self.assertNotIn("--knockout", self.confirm())
        self.one("#undo").click()
        self.settle()
        self.assertIn("--knockout", self.confirm())
        self.assert_quiet()

    def test_knockout_by_keys(self):
        self.open("#text=" + CLEAN.replace(" ", "%20") + "&head=1.4")
        self.point(8, 2)
        self.one("#map").send_keys(Keys.ARROW_RIGHT)
        self.one("#map").send_keys(Keys.ENTER)
        self.settle()
        self.assertIn("1.4:8-3", self.confirm())
        self.driver.switch_to.active_element.send_keys("k")
        self.settle()
        self.assertNotIn("--knockout", self.confirm())
        self.point(2, 5)  # a later token, which the causal mask excludes
        self.assertFalse(self.one("#remove-edge").is_enabled())
        self.one("body").send_keys("o")
        self.settle()
        self.assertEqual(len(self.all("#grid .cell.off")), 15)
        self.confirm()
        for bad in ("2:8-3", "1.9:8-3", "1:8", "1:99-3", "all:8-", "<b>"):
            self.open("#text=" + CLEAN.replace(" ", "%20") + "&edges=" + bad)
            self.assertFalse(self.run_js("return isChanged()"), bad)

    def test_continuation_without_edges(self):
        """After the knockout of the induction heads, the copied word does not follow."""
        self.open("#text=" + CLEAN.replace(" ", "%20") + "&edges=1:8-3")
        self.one("#length").clear()
        self.one("#length").send_keys("2")
        self.one("#continue").click()
        self.wait("return document.body.dataset.written")
        self.assertTrue(self.one("#text-0").text.endswith("red cat key boat hat"), self.one("#text-0").text)
        words = self.command()
        said = json.loads(program(words[0], "--json", "--top", "1", *words[1:]))
        self.assertEqual(self.run_js("return document.querySelector('#text-1 .differs').textContent.trim().split(' ')[0]"), said["top"][0]["token"].strip("Ġ"))

    def test_patching(self):
        self.open("#text=" + CLEAN.replace(" ", "%20"))
        self.assertFalse(self.one("#patch-result").is_displayed())
        self.one("#patch-copy").click()
        self.settle()
        self.write("corrupted", CORRUPTED)
        self.assertEqual(self.confirm_patching()[-1], CLEAN)
        self.assertEqual(self.texts("#effects caption"), ["z by head, denoise: logit-diff"])
        self.assertEqual([self.one(f"#{name}").get_attribute("placeholder") for name in ("answer", "wrong")], [" boat", " ring"])
        for site, by in (("resid_pre", "position"), ("v", "head"), ("z", "head-position"), ("pattern", "head-position")):
            self.choose("#site", site)
            self.settle()
            if by != self.run_js("return state.patch.by"):
                self.choose("#by", by)
                self.settle()
            self.confirm_patching()
        self.choose("#direction", "noise")
        self.choose("#metric", "kl")
        self.write("wrong", " hat")
        self.assertIn("noise", self.confirm_patching())
        self.all("#tokens button")[6].click()
        self.settle()
        self.assertIn("--position", self.confirm_patching())
        fragment = self.run_js("return toFragment()")
        grid = self.shown_grid()
        self.open(fragment)
        self.assertEqual(self.shown_grid(), grid)
        self.assert_quiet()

    def test_patching_refuses(self):
        self.open("#text=" + CLEAN.replace(" ", "%20"))
        self.write("corrupted", CLEAN + " key")
        self.assertEqual(self.one("#patch-problem").text, "corrupted text must have as many tokens as the text, 9 (got 10)")
        self.write("corrupted", CORRUPTED)
        self.write("answer", " two words")
        self.assertIn("answer must be one token, with its leading space (got \" two words\"", self.one("#patch-problem").text)
        self.write("answer", " ring")
        self.write("wrong", " ring")
        self.assertEqual(self.one("#patch-problem").text, 'wrong must differ from the answer (got " ring")')
        self.write("answer", "")
        self.write("wrong", "")
        self.assertEqual(self.one("#patch-problem").text, "")
        self.type(HOSTILE)
        self.write("corrupted", HOSTILE.replace("cat", "key"))
        self.confirm_patching()
        self.assertEqual(self.run_js("return document.querySelectorAll('img').length"), 0)
        self.type(CLEAN + " x" * 60)
        self.write("corrupted", CORRUPTED + " x" * 60)
        self.choose("#by", "head-position")
        self.settle()
        self.assertRegex(self.one("#patch-run").text, r"Compute \d+ passes")
        self.one("#patch-run").click()
        self.assertEqual(len(self.shown_grid()), 16)
        self.assertEqual(self.run_js(NAMELESS), [])
        self.assert_quiet()

    def test_an_encoder(self):
        page = Path(self.folder.name, "bert.html")
        program("live", "-q", "-m", str(MODELS / "bert-mlm-tiny"), "-o", str(page), "--", "the small dog")
        self.open(page=page)
        self.run_js("model.name = arguments[0]", str(MODELS / "bert-mlm-tiny"))
        self.write("corrupted", "the small cat")
        if self.one("#patch-problem").text:
            self.assertIn("as many tokens", self.one("#patch-problem").text)
            self.write("corrupted", "the small dog")
        self.confirm_patching()
        self.point(1, 3)
        self.one("#remove-edge").click()
        self.settle()
        self.confirm()
        self.assert_quiet()

    def test_looks(self):
        self.open("#text=" + CLEAN.replace(" ", "%20") + "&edges=1.0:8-3&corrupted=" + CORRUPTED.replace(" ", "%20"))
        self.assertEqual(len(self.shown_grid()), 2)
        self.assert_light_and_dark()
        self.assertEqual(self.run_js(NAMELESS), [])
        self.emulate()
        self.assert_fits()
        self.emulate()


if __name__ == "__main__":
    unittest.main()
