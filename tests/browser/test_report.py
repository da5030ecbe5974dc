"""The report in a real browser: no error, no request but the file, hover shows what the JSON has, hostile text stays text."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from chromium import browser, requests  # first: it skips the test where there is none
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

TEXTS = {
    "plain": "The ferry leaves the harbour at dawn and returns after dark.",
    "script": "</script><img src=x onerror=alert(1)> <script>alert(2)</script> & done",
    "quotes": "\" onmouseover=alert(3) ' \u2028 javascript:alert(4) [SEP] <!--",
}


def minilm():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "mha/minilm/model.safetensors").exists()


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = "minilm" if minilm() else "builtin"
        print(f"model {cls.model}")
        cls.driver = browser()

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()
        cls.folder.cleanup()

    def open(self, name):
        """Makes and opens the page of a text; what `mha report --json` says of it."""
        page = Path(self.folder.name, f"{name}.html")
        said = subprocess.run([os.environ["MHA"], "report", "-m", self.model, TEXTS[name], "-o", page, "--force", "--json"],
                              check=True, capture_output=True, text=True).stdout
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(page.as_uri())
        WebDriverWait(self.driver, 20).until(lambda d: d.execute_script("return document.body.dataset.ready") == "yes")
        return json.loads(said)

    def hover(self, row, column, n):
        """Moves the pointer to a weight of the large map; what the page then shows."""
        canvas = self.driver.find_element(By.ID, "map")
        size = self.driver.execute_script("const b = arguments[0].getBoundingClientRect(); return [b.width, b.height]", canvas)
        ActionChains(self.driver).move_to_element_with_offset(canvas, 0, 0).perform()
        for _ in range(2 * n):  # from wherever the pointer is, the arrow keys lead to the weight
            at = self.driver.execute_script("const t = document.getElementById('tip'); "
                                            "return t.hidden ? null : [+t.dataset.row, +t.dataset.column]")
            if at == [row, column]:
                break
            step = Keys.ARROW_RIGHT if at is None or at[1] < column else Keys.ARROW_LEFT if at[1] > column else \
                Keys.ARROW_DOWN if at[0] < row else Keys.ARROW_UP
            canvas.send_keys(step)
        tip = self.driver.find_element(By.ID, "tip")
        self.assertGreater(min(size), 100)
        return tip.text, float(tip.get_attribute("data-weight"))

    def test_quiet(self):
        self.open("plain")
        self.assertEqual(self.driver.get_log("browser"), [])
        self.assertEqual([u for u in requests(self.driver) if not u.startswith(("file:", "data:"))], [])

    def test_every_head_is_there(self):
        said = self.open("plain")
        cells = self.driver.find_elements(By.CSS_SELECTOR, ".cell")
        labels = [label for layer in said["labels"] for label in layer]
        self.assertEqual([c.find_element(By.TAG_NAME, "span").text for c in cells], labels)

    def test_hover_shows_what_the_json_has(self):
        said = self.open("plain")
        n, tokens = len(said["tokens"]), said["tokens"]
        heads = [(l, h) for l, layer in enumerate(said["attention"]) for h in range(len(layer))]
        for index in (0, len(heads) // 2, len(heads) - 1):
            layer, head = heads[index]
            self.driver.find_elements(By.CSS_SELECTOR, ".cell")[index].click()
            row, column = 1 + index % (n - 1), n - 1 - index % (n - 1)
            text, weight = self.hover(row, column, n)
            want = said["attention"][layer][head][row][column]
            self.assertAlmostEqual(weight, want, delta=1e-7)
            self.assertEqual(text, f"{tokens[row]} → {tokens[column]}: {want:.4f}")

    def test_pointer_on_the_map(self):
        self.open("plain")
        canvas = self.driver.find_element(By.ID, "map")
        ActionChains(self.driver).move_to_element_with_offset(canvas, 20, 40).perform()
        tip = self.driver.find_element(By.ID, "tip")
        self.assertTrue(tip.is_displayed())
        self.assertRegex(tip.text, r"→ .*: \d\.\d{4}$")

    def test_keys_move_among_heads(self):
        said = self.open("plain")
        first = self.driver.find_elements(By.CSS_SELECTOR, ".cell")[0]
        first.click()
        first.send_keys(Keys.ARROW_RIGHT)
        title = self.driver.find_element(By.ID, "head-title").text
        self.assertEqual(title, f"Layer 0, head 1: {said['labels'][0][1]}")

    def test_numbers_are_those_of_the_json(self):
        said = self.open("plain")
        self.driver.find_elements(By.CSS_SELECTOR, ".cell")[0].click()
        shown = [c.text for c in self.driver.find_elements(By.CSS_SELECTOR, "#metrics td")]
        for name, value in zip(shown[::2], shown[1::2], strict=True):
            want = said["metrics"][name][0][0]
            self.assertEqual(value, "–" if want is None else f"{want:.3f}" if abs(want) < 100 else f"{want:.1f}")

    def test_hostile_text_stays_text(self):
        for name in ("script", "quotes"):
            said = self.open(name)
            self.assertEqual(self.driver.find_elements(By.TAG_NAME, "img"), [])
            self.assertEqual(self.driver.get_log("browser"), [])
            self.assertEqual(len(self.driver.find_elements(By.TAG_NAME, "script")), 2)
            shown = self.driver.execute_script("return [...document.querySelectorAll('#sentence span')].map(e => e.textContent)")
            self.assertEqual(shown, said["tokens"])
            self.assertIn(TEXTS[name], self.driver.execute_script("return document.getElementById('text').textContent"))


    def test_a_long_text_leaves_the_maps_in_sight(self):
        TEXTS["long"] = "many words " * 3000
        self.open("long")
        self.assertLess(self.driver.execute_script("return document.getElementById('grid').getBoundingClientRect().top"), 400)
        self.assertIn("cut off", self.driver.find_element(By.ID, "summary").text)
        self.assertEqual(self.driver.get_log("browser"), [])


if __name__ == "__main__":
    unittest.main()
