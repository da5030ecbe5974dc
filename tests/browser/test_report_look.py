"""Tests the appearance of the report in Chromium: light and dark theme, contrast, names for screen readers, print, and a
long text."""
import base64
import unittest

from report_page import ReportCase  # imported first: skips the test if Chromium is not installed
from page_case import CONTRAST, NAMELESS
from selenium.webdriver.common.keys import Keys

MEGABYTES = 12

# Script that returns, for each cell of a removed head, the width of its rotated label and the width of the cell.
REMOVED = """
const context = document.createElement('canvas').getContext('2d');
return [...document.querySelectorAll('.picture.removed')].map((e) => {
  const style = getComputedStyle(e, '::after'), turn = new DOMMatrix(style.transform), size = parseFloat(style.fontSize);
  context.font = `${style.fontSize} ${style.fontFamily}`;
  const width = context.measureText(JSON.parse(style.content)).width;
  return [Math.abs(turn.a) * width + Math.abs(turn.b) * size, e.clientWidth]; });"""

class Look(ReportCase):
    def tearDown(self):
        self.emulate()

    def see_all(self):
        for part in ("#text", "#scores", "#absent"):
            self.show(part)
        self.wait("return document.querySelectorAll('#score-tables td').length > 0")

    def test_light_and_dark(self):
        self.open()
        self.see_all()
        self.assert_light_and_dark()
        self.assert_quiet()

    def test_everything_that_can_be_used_has_a_name(self):
        self.open()
        self.see_all()
        self.assertEqual(self.run_js(NAMELESS), [])
        self.assertEqual(len(self.all("h1")), 1)
        self.assertEqual(self.run_js("return document.documentElement.lang"), "en")
        self.assertEqual(self.run_js("return cells.filter(c => c.tabIndex === 0).length"), 1)  # the grid must be one tab stop

    def test_the_panel_of_definitions(self):
        said = self.open()
        self.assertFalse(self.one("#help").is_displayed())
        self.one("body").send_keys("?")
        self.assertTrue(self.one("#help").is_displayed())
        terms, keys = self.texts("#help dt"), self.texts("#help dd code")
        for name in [*said["metrics"], "prev", "first", "mixed"]:
            self.assertIn(name, keys)
        for words in ("row and column", "sink", "previous token", "induction probe", "Jensen-Shannon divergence"):
            self.assertIn(words, terms)
        self.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        self.assertFalse(self.one("#help").is_displayed())

    def test_every_explanation_stands_alone(self):
        """Each entry of the definitions must be understandable without the entries above it."""
        self.open(json_too=False)
        lines = self.run_js("return ['metric_help', 'score_help', 'diversity_help'].flatMap(list => Object.entries(data[list]))")
        self.assertGreater(len(lines), 40)
        for name, line in lines:
            self.assertNotRegex(line, r"^(\w+: )?the same\b|likewise", name)

    def test_nothing_is_wider_than_the_screen(self):
        self.open()
        self.see_all()
        self.assert_fits()

    def test_two_models_on_a_small_screen(self):
        self.open("The cat sat.", "--compare", "builtin", json_too=False)
        self.emulate(width=1300)
        self.assertLessEqual(*self.run_js("const g = document.getElementById('grid'); return [g.scrollWidth, g.clientWidth]"))
        self.assertEqual(self.run_js("return [...document.querySelectorAll('.cell .label')].filter(e => e.scrollWidth > e.clientWidth)"
                                     ".map(e => e.textContent)"), [])
        removed = self.run_js(REMOVED)
        self.assertEqual(len(removed), len(self.all(".picture.removed")))
        self.assertEqual(len(removed), self.run_js("return heads.flatMap(h => h.at).filter(at => at < 0).length"))
        for drawn, side in removed:
            self.assertLess(drawn, side)
        self.assertEqual(self.run_js("return cells.filter(c => c.title.includes('removed')).length"), len(removed))

    def test_no_part_covers_another(self):
        self.open()
        self.see_all()
        for part in ("#text", "#scores"):
            self.show(part)
            boxes = self.run_js("return [...document.querySelectorAll('main section')].map(e => "
                                "{ const b = e.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })")
            for i, a in enumerate(boxes):
                for b in boxes[:i]:
                    self.assertTrue(a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3], (part, a, b))

    def test_paper(self):
        self.open()
        self.emulate("dark", "print")
        self.assertEqual(self.background(), "rgb(255, 255, 255)")
        self.assertFalse(self.one("#filters").is_displayed())
        self.assertTrue(self.one("#help").is_displayed())
        self.assertEqual(self.run_js(CONTRAST), [])
        self.emulate()
        self.assertTrue(base64.b64decode(self.driver.print_page()).startswith(b"%PDF-"))

    def test_a_long_text(self):
        page = self.open("many different words, and numbers such as 1029384756, make up a text; " * 40, json_too=False)
        tokens, heads = self.run_js("return [models[0].tokens.length, heads.length]")
        size, times = page.stat().st_size / 1e6, self.run_js(
            "return [performance.getEntriesByType('navigation')[0].domComplete / 1000, performance.getEntriesByName('painted')[0].startTime / 1000]")
        print(f"{tokens} tokens, {heads} heads: {size:.2f} MB, usable after {times[0]:.2f} s, all maps drawn after {times[1]:.2f} s")
        if self.model == "minilm":
            self.assertEqual((tokens, heads), (512, 72))
        self.assertLess(size, MEGABYTES)
        self.assertLess(self.run_js("return document.getElementById('grid').getBoundingClientRect().top"), 480)
        self.assertIn("truncated by", self.one("#summary").text)
        if tokens * tokens * heads * 4 > 2 << 20:
            self.assertIn("largest error 0.004", self.one("#map-legend figcaption").text)
        self.show("#text")
        self.wait("return document.querySelectorAll('#from-tokens li').length > 0")
        self.assert_quiet()


if __name__ == "__main__":
    unittest.main()
