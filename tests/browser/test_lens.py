"""Tests the pages of mha attribute, mha lens, mha circuit and mha patch in Chromium: no errors, no requests except for their own file, cells that
match the JSON, keyboard, themes, and hostile text displayed as text."""
import json
import os
import re
import subprocess
import unittest
from pathlib import Path

from page_case import NAMELESS, PageCase  # imported first: skips the test if Chromium is not installed
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

HOSTILE = "</script><img src=x onerror=alert(1)> & <!--"
TEXT = " red cat key boat hat drum red cat key"


class Circuits(PageCase):
    def program(self, *arguments):
        return subprocess.run([os.environ["MHA"], *arguments], check=True, capture_output=True, text=True, cwd=self.folder.name).stdout

    def open(self, name, *arguments):
        file = Path(self.folder.name, name)
        if not file.exists():
            self.program(*arguments, "-o", name)
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(file.as_uri())
        self.wait("return document.body.dataset.ready === 'yes'")

    def tearDown(self):
        self.emulate()

    def test_attribution(self):
        self.open("attribute.html", "attribute", TEXT, "--answer", " boat", "--wrong", " ring")
        parts = json.loads(self.program("attribute", TEXT, "--answer", " boat", "--wrong", " ring", "--json"))["parts"]
        self.assertEqual([h.text for h in self.all("h2")], ["Parts by component", "Parts by head", "Parts by source token"])
        self.assertEqual(self.run_js("return data.maps[1].values"), parts["heads"])
        self.assertIn("builtin; mha ", self.one("#summary").text)
        self.assertIn("logit difference 7.97", self.one("#summary").text)
        cell = self.all("section")[1].find_elements(By.CSS_SELECTOR, "td")[8]
        self.assertEqual(cell.text, f"{parts['heads'][1][0]:.3f}")  # the largest part is below 2
        self.assert_quiet()

    def test_lens_cells_have_details(self):
        self.open("lens.html", "lens", TEXT, "--target", " boat")
        last = self.all("tbody tr:last-child td")[-1]
        self.assertEqual(last.text.strip(), "boat")
        self.run_js("arguments[0].focus()", last)
        self.assertIn("rank 0", self.one(".read").text)
        last.send_keys(Keys.ARROW_UP)
        self.assertIn("layer 0", self.one(".read").text)
        self.assert_quiet()

    def test_circuit(self):
        self.open("circuit.html", "circuit")
        found = json.loads(self.program("circuit", "--json"))
        self.assertEqual(self.run_js("return data.maps[0].values"), found["copying_centred"])
        shown = self.run_js("return data.maps[2].values[5][0]")
        self.assertAlmostEqual(shown, found["composition"]["compose_k"][5][8] - found["baseline"], 7)
        self.assert_quiet()

    def patch(self, *more):
        return ("patch", TEXT, "--corrupted", TEXT.replace("key boat", "ring boat"), "--answer", " boat", "--wrong", " hat", *more)

    def test_knockout(self):
        """A knockout has no corrupted run, and its values are in nats."""
        self.open("knockout.html", "knockout", TEXT, "--answer", " boat")
        self.assertRegex(self.one("#summary").text, r'^builtin: " boat" after token 8; logprob: clean −0\.\d+; 1 pair; ')
        self.assertEqual(self.texts("#prompts th"), ["clean"])
        self.assertEqual(self.one("#legend").text, "Values are in nats. Orange is an increase, blue a decrease. Click a head to see its attention.")
        self.all(".grid button")[5].click()
        self.assertEqual(self.texts("#detail caption"), ["clean"])
        self.assert_fits()
        self.assert_quiet()

    def test_grids_and_maps(self):
        """The maps of a clicked head are in sight, for both runs."""
        self.open("sites.html", *self.patch("--site", "all"))
        self.assertEqual(len(self.all(".grid")), 10)
        self.assertIn("Normalized values", self.one("#legend").text)
        button = self.all(".grid:nth-child(9) button")[5]
        self.assertRegex(button.get_attribute("title"), r"^layer 0, head 5: 0\.69")
        self.run_js("arguments[0].scrollIntoView({ block: 'start' }); arguments[0].click()", button)
        self.assertEqual(self.texts("#detail caption"), ["clean", "corrupted"])
        self.assertLessEqual(self.run_js("return document.getElementById('detail').getBoundingClientRect().bottom - innerHeight"), 1)
        self.assert_fits()
        self.emulate()
        self.assert_light_and_dark()
        self.assert_quiet()

    def test_path_diagram(self):
        self.open("paths.html", *self.patch("--edges", "--top", "6"))
        listed = [button.text for button in self.all(".graph li button")]
        self.assertEqual(len(listed), 6)
        self.assertEqual(len(self.all(".edge")), 6)
        printed = [line.strip() for line in self.program(*self.patch("--edges", "--top", "6")).splitlines() if " -> " in line]
        self.assertEqual([text.rpartition(" ")[0].replace("→", "->") for text in listed], [line.rpartition(" ")[0] for line in printed])
        for text, line in zip(listed, printed):
            self.assertAlmostEqual(float(text.rpartition(" ")[2]), float(line.rpartition(" ")[2]), delta=0.0051)
        self.run_js("document.querySelector('.graph li button').focus()")
        self.assertEqual(len(self.all(".edge.faded")), 5)
        self.run_js("const s = document.querySelector('.graph input'); s.value = 20; s.dispatchEvent(new Event('input'))")
        self.assertEqual(len(self.all(".edge")), 20)
        self.assertEqual(self.run_js(NAMELESS), [])
        self.assert_fits()
        self.emulate()
        self.assert_light_and_dark()
        self.assert_quiet()

    def test_texts_of_the_path_diagram(self):
        """Headings and counts, for one pair; without an effect, the page must say so."""
        self.open("paths-nats.html", *self.patch("--edges", "--direction", "both", "--raw-metric", "--metric", "logprob"))
        self.assertEqual(self.texts(".graph h2"), [f"The strongest direct paths, {d}: logprob in nats" for d in ("denoise", "noise")])
        self.assertIn("Point at a node or an edge of the list to see its paths.", self.one("#legend").text)
        found = json.loads(self.program(*self.patch("--edges", "--direction", "both", "--raw-metric", "--metric", "logprob", "--json")))["grids"]
        for n, grid in enumerate(found):
            self.assertRegex(self.texts(".graph output")[n], rf"^\d+ of {len(grid['edges'])}$")
        self.assertNotIn("±", self.one("#grids").text)
        self.assert_quiet()
        self.open("paths-none.html", "patch", TEXT, "--corrupted", TEXT, "--answer", " boat", "--wrong", " hat", "--edges")
        self.assertEqual(self.texts(".graph p"), ["No path has an effect."])
        self.assert_quiet()

    def test_intervals_of_the_path_diagram(self):
        """With several pairs, each edge has its mean and half of its interval, in the list and in the titles of the graph."""
        lines = [{"clean": TEXT, "corrupted": TEXT.replace("key boat", word + " boat"), "answer": " boat", "wrong": " hat"} for word in ("ring", "drum", "cat")]
        Path(self.folder.name, "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)))
        arguments = ("patch", "--pairs", "pairs.jsonl", "--edges", "--top", "8")
        self.open("paths-pairs.html", *arguments)
        self.assertEqual(self.texts(".graph h2"), ["The strongest direct paths, denoise: logit-diff, mean of 3"])
        self.assertIn("3 pairs", self.one("#summary").text)
        listed = self.texts(".graph li button")
        self.assertEqual(len(listed), 8)
        printed = [line.strip() for line in self.program(*arguments).splitlines() if " -> " in line]
        for text, line in zip(listed, printed, strict=True):
            name, value, half = re.fullmatch(r"(.+) (\S+) ±(\S+)", text.replace("→", "->").replace("−", "-")).groups()
            words = re.fullmatch(r"(.+) (\S+) \+-(\S+)", line).groups()
            self.assertEqual(name, words[0])
            self.assertAlmostEqual(float(value), float(words[1]), delta=0.0051)
            self.assertAlmostEqual(float(half), float(words[2]), delta=0.0051)
        self.assertEqual(sorted(self.texts(".edge title")), sorted(listed))
        self.assert_fits()
        self.assert_quiet()

    def test_grids_of_patching(self):
        self.open("grids.html", *self.patch())
        self.all(".grid button")[5].click()
        self.assertEqual(self.one("#detail-title").text, "Attention of head 0.5")
        self.assert_quiet()

    def test_one_cell_of_a_map_can_be_reached_with_tab(self):
        self.open("circuit.html", "circuit")
        self.assertEqual(self.run_js("return [...document.querySelectorAll('.map')].map((m) => m.querySelectorAll('[tabindex=\"0\"]').length)"),
                         [1, 1, 1, 1])
        self.run_js("document.querySelector('td').focus()")
        self.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
        self.assertIn("layer 1, head 1", self.run_js("return document.activeElement.getAttribute('aria-label')"))
        self.assertEqual(self.run_js(NAMELESS), [])

    def test_both_themes_are_readable(self):
        for name, arguments in (("attribute.html", ("attribute", TEXT, "--answer", " boat", "--wrong", " ring")), ("circuit.html", ("circuit",))):
            self.open(name, *arguments)
            self.emulate()
            self.assert_light_and_dark()
        self.assert_quiet()

    def test_every_width_fits(self):
        self.open("lens.html", "lens", TEXT, "--target", " boat")
        self.assert_fits()

    def test_hostile_text_is_text(self):
        self.open("hostile.html", "lens", HOSTILE + TEXT)
        self.assertEqual(self.all("img"), [])
        self.assertIn("<", "".join(self.run_js("return data.maps[0].columns")))
        self.assert_quiet()


if __name__ == "__main__":
    unittest.main()
