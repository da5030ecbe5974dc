"""Tests the page of all tours in Chromium: no errors, no requests except for its own file, no element wider than a phone,
light and dark theme, one step at a time, and the colors and values of the tensors."""
import itertools
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from chromium import browser, requests  # imported first: skips the test if Chromium is not installed
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys


class Tour(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        page = Path(cls.folder.name, "tour.html")
        said = subprocess.run([os.environ["MHA"], "tour", "all", "--html", page, "--json"], check=True, capture_output=True,
                              text=True).stdout
        cls.tours = json.loads(said)["tours"]
        cls.driver = browser()
        cls.driver.get(page.as_uri())

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()
        cls.folder.cleanup()

    def emulate(self, width, scheme="light", media=""):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def run_js(self, script, *args):
        return self.driver.execute_script(script, *args)

    def seen(self):
        """Returns the ids of the visible steps."""
        return self.run_js("return [...document.querySelectorAll('article')].filter((e) => e.checkVisibility()).map((e) => e.id)")

    def press(self, keys):
        self.driver.find_element(By.TAG_NAME, "body").send_keys(keys)

    def go(self, step):
        self.run_js("location.hash = arguments[0]", f"#{step}")
        self.assertEqual(self.seen(), [step])

    def test_the_page_opens_at_its_top(self):
        self.emulate(390)  # the list of tours is above the steps at this width
        url = self.driver.current_url.split("#")[0]
        self.driver.get("about:blank")
        self.driver.get(url)
        self.assertEqual(self.seen(), ["self-attention-1"])
        self.assertEqual(self.run_js("return [window.scrollY, location.hash]"), [0, ""])

    def test_one_step_at_a_time(self):
        self.emulate(1200)
        self.go("self-attention-1")
        steps = [f"{tour['name']}-{n}" for tour in self.tours for n in range(1, len(tour["steps"]) + 1)]
        tallest = 0
        for step in steps:
            self.assertEqual(self.seen(), [step])
            self.assertEqual(self.run_js("return location.hash"), f"#{step}")
            tallest = max(tallest, self.run_js("return document.documentElement.scrollHeight"))
            self.press(Keys.ARROW_RIGHT)
        self.assertEqual(self.seen(), [steps[-1]])  # the last step must remain visible
        self.assertLess(tallest, 4000)  # a page with all steps would be 14 times as high
        self.press(Keys.ARROW_LEFT)
        self.assertEqual(self.seen(), [steps[-2]])

    def test_buttons_links_and_the_list_of_tours(self):
        self.emulate(1200)
        self.go("dropout-2")
        section = self.driver.find_element(By.ID, "dropout")
        self.assertEqual(section.find_element(By.CSS_SELECTOR, ".place").text, f"Step 2 of {len(self.tours[2]['steps'])}")
        section.find_element(By.CSS_SELECTOR, ".before").click()
        self.assertEqual(self.seen(), ["dropout-1"])
        section.find_element(By.CSS_SELECTOR, ".before").click()  # moves from the first step to the previous tour
        self.assertEqual(self.seen(), [f"causal-attention-{len(self.tours[1]['steps'])}"])
        self.driver.find_element(By.CSS_SELECTOR, '.tours a[href="#reshape"]').click()
        self.assertEqual(self.seen(), ["reshape-1"])
        self.assertEqual([e.text for e in self.driver.find_elements(By.CSS_SELECTOR, ".tours [aria-current]")], ["reshape"])
        self.driver.find_element(By.CSS_SELECTOR, '#reshape .steps a[href="#reshape-3"]').click()
        self.assertEqual(self.seen(), ["reshape-3"])
        self.driver.find_element(By.CSS_SELECTOR, "#reshape .all").click()
        self.assertEqual(self.seen(), [f"reshape-{n}" for n in range(1, 5)])
        self.driver.find_element(By.CSS_SELECTOR, "#reshape .all").click()
        self.assertEqual(self.seen(), ["reshape-3"])

    def test_paper_has_all_steps_of_the_tour(self):
        self.go("reshape-2")
        self.emulate(1200, media="print")
        self.assertEqual(self.seen(), [f"reshape-{n}" for n in range(1, 5)])
        self.emulate(1200)

    def test_maps_of_words_have_words_on_both_axes(self):
        self.emulate(1200)
        words = ["drum", "cat", "kite", "red", "drum", "cat"]
        for step in ("induction-2", "induction-3"):
            self.go(step)
            for axis in ("row", "column"):
                self.assertEqual([e.text for e in self.driver.find_elements(By.CSS_SELECTOR, f"#{step} svg text.{axis}")], words)
            boxes = self.run_js("const s = document.querySelector(`#${arguments[0]} svg`), b = s.getBoundingClientRect(); "
                                "return [...s.querySelectorAll('text')].map((e) => { const t = e.getBoundingClientRect(); "
                                "return [t.left - b.left, b.right - t.right, t.top - b.top, b.bottom - t.bottom]; })", step)
            self.assertGreaterEqual(min(x for box in boxes for x in box), -0.5)  # no text may be clipped
        self.assertEqual(self.run_js("return document.querySelector('#induction-3 rect:nth-of-type(33) title').textContent"), "cat, kite: 0.889")
        self.assertNotIn("%", self.driver.find_element(By.ID, "induction").get_attribute("textContent"))

    def test_quiet(self):
        self.driver.refresh()
        self.assertEqual(self.driver.get_log("browser"), [])
        self.assertEqual([u for u in requests(self.driver) if not u.startswith(("file:", "data:"))], [])

    def test_nothing_is_wider_than_the_screen(self):
        for step, width in itertools.product(("self-attention-3", "weight-split-4", "llama-attention-3", "induction-3", "variants-1"), (360, 390, 800, 1500)):
            self.emulate(width)
            self.go(step)
            self.assertLessEqual(self.driver.execute_script("return document.documentElement.scrollWidth"), width)

    def test_light_and_dark(self):
        colours = []
        for scheme in ("light", "dark"):
            self.emulate(1200, scheme)
            colours.append(self.driver.execute_script("return getComputedStyle(document.body).backgroundColor"))
        self.assertNotEqual(*colours)

    def test_every_step_is_there(self):
        for tour in self.tours:
            section = self.driver.find_element(By.ID, tour["name"])
            titles = [e.get_attribute("textContent") for e in section.find_elements(By.TAG_NAME, "h3")]
            links = [e.get_attribute("textContent") for e in section.find_elements(By.CSS_SELECTOR, ".steps a")]
            self.assertEqual(links, [step["title"] for step in tour["steps"]])
            self.assertEqual(titles, [f"{n}. {step['title']}" for n, step in enumerate(tour["steps"], 1)])
            names = [e.get_attribute("textContent") for e in section.find_elements(By.CSS_SELECTOR, "figcaption b")]
            self.assertEqual(names, [t["name"] for step in tour["steps"] for t in step["tensors"]])

    def test_squares_have_the_values(self):
        step = next(t for t in self.tours if t["name"] == "self-attention")["steps"][6]
        weights = step["tensors"][0]["values"]
        squares = self.driver.find_elements(By.CSS_SELECTOR, "#self-attention-7 rect")
        said = [float(s.find_element(By.TAG_NAME, "title").get_attribute("textContent").split(": ")[1]) for s in squares]
        self.assertEqual(len(said), 25)
        for got, want in zip(said, weights, strict=True):
            self.assertAlmostEqual(got, want, delta=1e-3 * want)
        self.assertEqual(squares[6].get_attribute("fill"), "#fde725")  # a weight near 1 must be yellow
        self.assertEqual(squares[5].get_attribute("fill"), "#450356")  # a weight near 0 must be violet


if __name__ == "__main__":
    unittest.main()
