"""Base class of all page tests: opens a page written by the program in Chromium."""
import time
import tempfile
import unittest

from chromium import browser, requests  # imported first: skips the test if Chromium is not installed
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

CONTRAST = """
const light = (c) => { const v = c.map((x) => (x / 255 <= .04045 ? x / 255 / 12.92 : ((x / 255 + .055) / 1.055) ** 2.4));
  return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const parse = (text) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c.slice(0, 3); } return [255, 255, 255]; };
const poor = [];
for (const e of document.querySelectorAll('h1, h2, h3, p, a, th, td, button, label, span, caption, figcaption, li, dt, dd, output')) {
  if (!e.textContent.trim() || !e.checkVisibility() || e.closest('.out, #sentence, #to-tokens') || e.children.length) continue;
  const a = light(parse(getComputedStyle(e).color).slice(0, 3)), b = light(behind(e));
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < 4.5) poor.push(`${e.tagName} ${e.className} ${e.textContent.slice(0, 20)}: ${ratio.toFixed(2)}`);
}
return poor;"""

NAMELESS = """
return [...document.querySelectorAll('button, select, input, canvas, a, [tabindex]')].filter((e) => e.checkVisibility() &&
  e.getAttribute('aria-hidden') !== 'true' && !e.getAttribute('aria-label') && !e.textContent.trim() && !(e.labels && e.labels.length)
  && !e.closest('[role=img], button, .picture')).map((e) => e.outerHTML.slice(0, 80))"""

NEAR_BUILT = """
return [...document.querySelectorAll('[data-built=no]')].map((e) => e.getBoundingClientRect())
  .every((box) => box.bottom < -300 || box.top > innerHeight + 300)"""


class PageCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.driver = browser()

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()
        cls.folder.cleanup()

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
        """Scrolls to an element of the page, and waits until every section near the visible area is built: the page builds a
        section only when it comes near, and building one moves the others."""
        self.run_js("document.querySelector(arguments[0]).scrollIntoView({block: 'center', behavior: 'instant'})", css)
        self.wait(NEAR_BUILT)

    def texts(self, css):
        return self.run_js("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", css)

    def assert_quiet(self):
        self.assertEqual(self.driver.get_log("browser"), [])
        self.assertEqual([u for u in requests(self.driver) if not u.startswith(("file:", "data:", "blob:"))], [])

    def emulate(self, scheme="light", media="", width=1500):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})

    def background(self):
        return self.run_js("return getComputedStyle(document.body).backgroundColor")

    def assert_light_and_dark(self):
        """The system setting, the button and the key t must set the theme, and every text must have sufficient contrast."""
        self.assertEqual(self.run_js(CONTRAST), [])
        light = self.background()
        self.emulate("dark")
        dark = self.background()
        self.assertNotEqual(light, dark)
        self.assertEqual(self.run_js(CONTRAST), [])
        self.one("#theme").click()
        self.assertEqual(self.background(), light)
        self.one("body").send_keys("t")
        self.assertEqual(self.background(), dark)

    def assert_fits(self):
        """No element may be wider than the screen after the page has adapted to the screen width."""
        for width in (360, 800, 1500):
            self.emulate(width=width)
            for _ in range(100):
                wide = self.run_js("return document.documentElement.scrollWidth")
                if wide <= width:
                    break
                time.sleep(0.05)
            self.assertLessEqual(wide, width)
