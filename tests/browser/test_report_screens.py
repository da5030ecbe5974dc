"""Tests the report on a phone, on a desktop and in print: every element must be inside the screen and large enough to read,
and a page that is printed while it loads must contain all of its maps."""
import base64
import json
import os
import subprocess
import unittest
from pathlib import Path

from report_page import SENTENCE, ReportCase  # imported first: skips the test if Chromium is not installed

PHONE = 390

# Script that returns all visible text smaller than 11 pixels, in HTML and SVG.
SMALL = """
return [...document.querySelectorAll('body *')].filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())
    && !e.closest('script, style, title, [hidden], details:not([open]) > :not(summary)') && e.checkVisibility() && e.getBoundingClientRect().width > 0)
  .map((e) => [e, parseFloat(getComputedStyle(e).fontSize) * (e.getScreenCTM && e.ownerSVGElement ? e.getScreenCTM().a : 1)])
  .filter(([, size]) => size < 10.95).map(([e, size]) => `${e.tagName} ${e.className} ${e.textContent.slice(0, 20)}: ${size.toFixed(1)}`)"""

# Script that returns the elements of a selector that extend beyond the screen.
OUTSIDE = """
return [...document.querySelectorAll(arguments[0])].map((e) => [e, e.getBoundingClientRect()])
  .filter(([e, b]) => e.checkVisibility() && (b.left < -0.5 || b.right > innerWidth + 0.5)).map(([e, b]) => `${e.tagName}.${e.className} ${b.left} ${b.right}`)"""

CURVE = '{"curve": [{"heads": 12, "loss": 1.5}, {"heads": 9, "loss": 1.625}, {"heads": 6, "loss": 2}]}'


class Screens(ReportCase):
    def tearDown(self):
        self.emulate()

    def open_all(self):
        """Opens a report that contains all measurements."""
        curve = Path(self.folder.name, "curve.json")
        curve.write_text(CURVE)
        self.open(SENTENCE, "--diversity", "--by", "confidence", "--curve", str(curve), json_too=False)

    def see_all(self):
        for part in ("#text", "#scores", "#diversity", "#clusters", "#curve"):
            if self.one(part).is_displayed():
                self.show(part)
        self.wait("return waiting.size === 0")

    def test_every_head_is_on_a_phone(self):
        self.emulate(width=PHONE)
        self.open(json_too=False)
        self.assertEqual(self.run_js(OUTSIDE, ".cell"), [])
        self.assertEqual(self.run_js("return cells.filter((c) => c.checkVisibility()).length"), self.run_js("return heads.length"))
        names = self.run_js("return [...document.querySelectorAll('.cell .name')].filter((e) => e.checkVisibility()).map((e) => e.textContent)")
        self.assertEqual(names, self.run_js("return heads.map((h) => h.name)"))
        self.assertEqual(self.run_js("return [...document.querySelectorAll('.cell .label')].filter((e) => e.scrollWidth > e.clientWidth).length"), 0)

    def test_two_models_on_a_phone(self):
        self.emulate(width=PHONE)
        self.open(SENTENCE, "--compare", "builtin", json_too=False)
        self.see_all()
        self.assertLessEqual(self.run_js("return document.documentElement.scrollWidth"), PHONE)
        self.assertEqual(self.run_js(OUTSIDE, "main section, .map, .cell, #metrics, #lines, select, button"), [])
        tops = self.run_js("return ['overview', 'head', 'numbers'].map((id) => document.getElementById(id).getBoundingClientRect().top)")
        self.assertEqual(tops, sorted(tops))
        widths = self.run_js("return ['overview', 'head', 'numbers'].map((id) => document.getElementById(id).getBoundingClientRect().width)")
        self.assertEqual(len(set(widths)), 1)

    def test_text_is_large_enough(self):
        self.open_all()
        for width in (PHONE, 1500):
            self.emulate(width=width)
            self.see_all()
            self.wait("return document.querySelector('#clusters svg').viewBox.baseVal.width <= Math.max(document.querySelector('#clusters .plot-box').clientWidth, 260)")
            self.assertEqual(self.run_js(SMALL), [], width)
            self.assertLessEqual(self.run_js("return document.documentElement.scrollWidth"), width)

    def test_what_is_wider_than_a_phone_can_be_scrolled(self):
        """A table with many columns must keep its first column visible, and shade its edge if columns are hidden."""
        self.open_all()
        self.emulate(width=PHONE)
        self.see_all()
        for table in ("#looks-table", ".heat"):
            box = self.run_js("const s = document.querySelector(arguments[0]).closest('.scroll'); s.scrollLeft = 200; "
                              "const b = s.getBoundingClientRect(), th = s.querySelector('tr:nth-child(2) th').getBoundingClientRect(); "
                              "return [b.left, b.right, th.left, getComputedStyle(s).backgroundImage.includes('linear-gradient')]", table)
            self.assertGreaterEqual(box[0], 0)
            self.assertLessEqual(box[1], PHONE)
            self.assertAlmostEqual(box[2], box[0], delta=1)
            self.assertTrue(box[3])

    def test_the_head_is_seen_with_its_legend(self):
        """The card of the selected head and its legend must not be clipped, and must fit on a screen 900 pixels high."""
        self.emulate(width=1500)
        self.open(json_too=False)
        card, legend, overflow = self.run_js(
            "const h = document.getElementById('head'), l = document.getElementById('map-legend').getBoundingClientRect(); "
            "return [h.getBoundingClientRect().bottom, l.bottom, [getComputedStyle(h).overflowY, h.scrollHeight - h.clientHeight]]")
        self.assertLessEqual(legend, card)
        self.assertEqual(overflow, ["visible", 0])
        self.run_js("document.getElementById('head').scrollIntoView({block: 'start', behavior: 'instant'})")
        self.assertLessEqual(self.run_js("return document.getElementById('map-legend').getBoundingClientRect().bottom"), 900)

    def test_right_halves_are_used(self):
        """Each section with two columns must show content in both columns before the pointer is moved."""
        self.open_all()
        self.emulate(width=1500)
        self.see_all()
        for part, left, right in (("#text", "#lines", "#looks-table td"), ("#scores", ".heat", ".ranking td"),
                                  ("#clusters", ".plot-box", ".clusters li"), ("#curve", ".plot-box", ".plain td")):
            boxes = self.run_js("return [arguments[0], arguments[1]].map((css) => { const b = document.querySelector(css).getBoundingClientRect(); "
                                "return [b.left, b.right, b.height]; })", f"{part} {left}", f"{part} {right}")
            self.assertGreaterEqual(boxes[1][0], boxes[0][1], part)
            self.assertGreater(boxes[1][2], 0, part)

    def test_words_stand_for_keys(self):
        """Every key of the JSON must have a readable name; keys must appear only in the panel of definitions."""
        self.open_all()
        self.see_all()
        kinds = {"metric": "metric_help", "label": "label_help", "score": "score_help", "diversity": "diversity_help"}
        for kind, table in kinds.items():
            for key in self.run_js("return Object.keys(data[arguments[0]])", table):
                self.assertIn(key, self.run_js("return Object.keys(NAMES[arguments[0]])", kind))
        shown = self.run_js("return document.querySelector('main').innerText")
        self.assertNotRegex(shown, r"\b\w+_\w+\b")
        self.assertNotRegex(shown, r"\bjs\b")

    def test_numbers_of_a_table_are_alike(self):
        self.open_all()
        self.see_all()
        for css in ("#metrics td:nth-child(2)", ".heat td[data-head]", ".ranking td:nth-child(3)", ".alike td:last-child", "#curve td:nth-child(2)"):
            decimals = {len(text.split(".")[1]) for text in self.texts(css) if text != "–"}
            self.assertEqual(len(decimals), 1, css)

    def test_printed_at_once(self):
        """A page that is printed before any map has been unpacked must still contain all maps, unchanged."""
        page, _ = self.write(SENTENCE, "--diversity")
        self.driver.get(page.as_uri())
        drawn = "return [...document.querySelectorAll('.cell canvas')].map((c) => c.toDataURL())"
        self.wait("return document.body.dataset.painted === 'yes'")
        usual = self.run_js(drawn)
        # replaces the browser's asynchronous decompression with a function that never completes
        self.driver.execute_cdp_cmd("Page.enable", {})
        script = self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {
            "source": "Response.prototype.arrayBuffer = () => new Promise(() => {});"})["identifier"]
        try:
            self.driver.get(page.as_uri())
            self.wait("return document.body.dataset.ready === 'yes'")
            self.assertEqual(self.run_js(drawn), [])
            self.run_js("dispatchEvent(new Event('beforeprint'))")
            self.assertEqual(self.run_js(drawn), usual)
            for css in (".map", "#line-canvas"):
                self.assertTrue(self.run_js("const c = document.querySelector(arguments[0]); "
                                            "return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((x) => x)", css), css)
            self.assertGreater(len(self.all("#looks-table td")), 0)
            self.assertEqual(self.run_js("return waiting.size"), 0)
        finally:
            self.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script})

    def test_dark_screens_print_dark_letters(self):
        self.emulate("dark")
        self.open(json_too=False)
        ink = "const c = document.querySelector('.map').getContext('2d'); return [c.fillStyle, document.documentElement.dataset.theme]"
        self.assertEqual(self.run_js(ink)[0], "#e8e9ee")
        self.run_js("dispatchEvent(new Event('beforeprint'))")
        self.assertEqual(self.run_js(ink), ["#1d1e24", "light"])
        self.run_js("dispatchEvent(new Event('afterprint'))")
        self.assertEqual(self.run_js(ink), ["#e8e9ee", None])

    def test_paper_keeps_together_what_belongs_together(self):
        self.open_all()
        self.emulate("light", "print", width=700)
        self.run_js("dispatchEvent(new Event('beforeprint'))")
        style = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
        for css in ("h2", "h3", "caption"):
            self.assertEqual(self.run_js(style, css, "breakAfter"), "avoid", css)
        for css in ("#overview", "#head", "#lines", "#scores", ".layer"):
            self.assertEqual(self.run_js(style, css, "breakInside"), "avoid", css)
        # the lines must end at their tokens, so the canvas must extend from one list of tokens to the other list
        ends = self.run_js("return ['#from-tokens', '#line-canvas', '#to-tokens'].map((css) => { const b = document.querySelector(css).getBoundingClientRect(); "
                           "return [b.left, b.right, b.height]; })")
        self.assertAlmostEqual(ends[0][1], ends[1][0], delta=2)
        self.assertAlmostEqual(ends[1][1], ends[2][0], delta=2)
        self.assertAlmostEqual(ends[0][2], ends[1][2], delta=1)
        shape = self.run_js("const c = document.querySelector('.map'), b = c.getBoundingClientRect(); return [b.width / b.height, c.width / c.height]")
        self.assertAlmostEqual(*shape, delta=0.02)  # the elements of the map must remain squares
        self.assertLessEqual(self.run_js("return document.documentElement.scrollWidth"), 700)
        pdf = base64.b64decode(self.driver.print_page())
        self.assertTrue(pdf.startswith(b"%PDF-"))


class Demo(ReportCase):
    def setUp(self):
        self.page = Path(self.folder.name, "demo.html")
        if not self.page.exists():
            Demo.said = subprocess.run([os.environ["MHA"], "demo", "-o", self.page], check=True, capture_output=True, text=True).stdout
        self.driver.get(self.page.as_uri())
        self.wait("return document.body.dataset.painted === 'yes'")

    def tearDown(self):
        self.emulate()

    def test_it_opens_on_the_best_induction_head(self):
        best = self.run_js("return heads.map((h) => [valueOf(h, 'induction_probe'), h.name, labelOf(h)]).filter((x) => x[2] === 'induction').sort((a, b) => b[0] - a[0])[0][1]")
        self.assertEqual(self.run_js("return heads[selected.head].name"), best)
        self.assertIn("induction", self.one("#head-title").text)

    def test_it_shows_what_the_terminal_shows(self):
        said = " ".join(self.said.split())
        prompts, texts = self.texts("#prompts dt"), self.texts("#prompts dd")
        self.assertEqual(len(prompts), 4)
        for prompt, text in zip(prompts, texts, strict=True):
            self.assertIn(" ".join(f"{prompt} ... {text}".split()), said)
        rows = self.run_js("return [...document.querySelectorAll('#ablation tr')].map((tr) => [...tr.children].slice(0, 2).map((td) => td.textContent))")
        self.assertEqual(len(rows), 4)
        for words, chance in rows:
            self.assertIn(f"{chance} {words.split(' 0.')[0].split(' 1.')[0]}", said)
        bars = self.run_js("return [...document.querySelectorAll('#ablation .fill')].map((e) => e.getBoundingClientRect().width)")
        self.assertGreater(bars[0], 20 * bars[1])
        self.one("#ablation tr:nth-child(2) .head-link").click()
        self.assertIn("induction", self.one("#head-title").text)

    def test_spaces_are_spaces(self):
        shown = self.run_js("return document.querySelector('main').innerText + document.querySelector('header').innerText")
        self.assertNotIn("Ġ", shown)
        self.assertIn("Repeat after me: wug dax blicket toma fep.", self.one("#sentence").text)
        self.show("#text")
        self.wait("return document.querySelectorAll('#from-tokens li').length > 0")
        self.assertEqual(self.run_js("return [1, 4].map((i) => document.querySelector(`#from-tokens li:nth-child(${i + 1})`).title)"), ["token 1: Ġafter", "token 4: Ġw"])
        self.assertEqual(self.run_js("return document.querySelector('#sentence span:nth-child(2)').title"), "token 1: Ġafter")
        canvas = self.one(".map")
        canvas.send_keys("\ue015\ue014")
        self.assertIn("after (1)", self.one(".tip").text)
        self.assertIn("Ġafter", self.one(".tip small").text)

    def test_it_fits_a_phone(self):
        self.emulate(width=PHONE)
        self.assertEqual(self.run_js(OUTSIDE, "main section, #ablation, .cell"), [])
        self.assertLessEqual(self.run_js("return document.documentElement.scrollWidth"), PHONE)


class Texts(ReportCase):
    """Tests a report of several texts, which shows one text at a time."""

    def open_lines(self, *lines):
        file, page = Path(self.folder.name, "lines"), Path(self.folder.name, f"texts-{len(lines)}.html")
        file.write_text("\n".join(lines) + "\n")
        said = subprocess.run([os.environ["MHA"], "report", "-m", self.model, "-f", file, "--json", "-o", page, "--force"], check=True,
                              capture_output=True, text=True).stdout
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(page.as_uri())
        self.wait("return document.body.dataset.painted === 'yes'")
        return json.loads(said)

    def test_a_chooser(self):
        lines = [SENTENCE, "</script><img src=x onerror=alert(1)> & done", "A third and shorter text."]
        said = self.open_lines(*lines)["texts"]
        self.assertTrue(self.one("#texts").is_displayed())
        self.assertEqual(self.texts("#text-choice option"), [f"{i + 1}. {t[:59] + '…' if len(t) > 60 else t}" for i, t in enumerate(lines)])
        self.all(".cell")[5].click()
        kept = self.run_js("return heads[selected.head].name")
        for i in (1, 2, 0):
            self.choose("#text-choice", str(i))
            self.wait("return document.body.dataset.painted === 'yes'")
            self.assertEqual(self.one("#sentence-text").text, lines[i])
            self.assertEqual(self.texts("#sentence span"), said[i]["tokens"])
            self.assertEqual(self.run_js("return heads[selected.head].name"), kept)
            self.assertEqual(self.texts(".cell .label"), [x for row in said[i]["labels"] for x in row])
            layer, head = map(int, kept.split("."))
            self.assertAlmostEqual(self.run_js("return views[0].map.at(2, 1)"), said[i]["attention"][layer][head][2][1], delta=0.005)
        self.assertEqual(self.all("img"), [])
        self.assert_quiet()

    def test_buttons_and_keys(self):
        self.open_lines("One text here.", "And the second one.")
        self.one("#text-after").click()
        self.assertEqual(self.one("#sentence-text").text, "And the second one.")
        self.one("#text-after").click()  # this click must have no effect, because there is no next text
        self.assertEqual(self.one("#sentence-text").text, "And the second one.")
        self.one("body").send_keys(",")
        self.assertEqual(self.one("#sentence-text").text, "One text here.")
        self.wait("return document.body.dataset.painted === 'yes'")
        self.show("#text")
        self.wait("return document.querySelectorAll('#from-tokens li').length > 0")
        self.one("body").send_keys(".")
        self.assertEqual(self.one("#text-choice").get_attribute("value"), "1")
        self.assert_quiet()

    def test_one_text_has_no_chooser(self):
        self.open_lines("Only one text.")
        self.assertFalse(self.one("#texts").is_displayed())


if __name__ == "__main__":
    unittest.main()
