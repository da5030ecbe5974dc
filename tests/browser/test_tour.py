"""The page of all tours in a real browser: no error, no request but the file, nothing wider than a phone, light and dark, and the
colours and numbers of the tensors."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from chromium import browser, requests  # first: it skips the test where there is none
from selenium.webdriver.common.by import By


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

    def emulate(self, width, scheme):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def test_quiet(self):
        self.driver.refresh()
        self.assertEqual(self.driver.get_log("browser"), [])
        self.assertEqual([u for u in requests(self.driver) if not u.startswith(("file:", "data:"))], [])

    def test_nothing_is_wider_than_the_screen(self):
        for width in (360, 800, 1500):
            self.emulate(width, "light")
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
            titles = [e.text for e in section.find_elements(By.TAG_NAME, "h3")]
            self.assertEqual(titles, [f"{n}. {step['title']}" for n, step in enumerate(tour["steps"], 1)])
            names = [e.text for e in section.find_elements(By.CSS_SELECTOR, "figcaption b")]
            self.assertEqual(names, [t["name"] for step in tour["steps"] for t in step["tensors"]])

    def test_squares_have_the_values(self):
        step = next(t for t in self.tours if t["name"] == "self-attention")["steps"][6]
        weights = step["tensors"][0]["values"]
        squares = self.driver.find_elements(By.CSS_SELECTOR, "#self-attention-7 rect")
        said = [float(s.find_element(By.TAG_NAME, "title").get_attribute("textContent").split(": ")[1]) for s in squares]
        self.assertEqual(len(said), 25)
        for got, want in zip(said, weights, strict=True):
            self.assertAlmostEqual(got, want, delta=1e-3 * want)
        self.assertEqual(squares[6].get_attribute("fill"), "#fde725")  # almost 1: yellow
        self.assertEqual(squares[5].get_attribute("fill"), "#450356")  # almost 0: violet


if __name__ == "__main__":
    unittest.main()
