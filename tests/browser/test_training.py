"""Tests the page of a training run in Chromium: no errors, no requests except for its own file, curves that match the log,
and hostile text displayed as text."""
import json
import os
import subprocess
import unittest
from pathlib import Path

from page_case import NAMELESS, PageCase  # imported first: skips the test if Chromium is not installed
from selenium.webdriver.common.keys import Keys

HOSTILE = "</script><img src=x onerror=alert(1)> & \u2028 <!--"


class Training(PageCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.texts_file = Path(cls.folder.name, "text")
        cls.texts_file.write_text("".join(f"the number {n} comes before {n + 1}, as {HOSTILE} does\n" for n in range(60)))
        cls.train("tokenizer", "train", "-q", "--vocab-size", "300", "-o", "tok", "-f", "text")
        cls.shape = ["train", "-q", "-t", "1", "--shape", "gpt2:1x2x16", "--tokenizer", "tok", "-f", "text", "--length", "48", "--batch", "2"]

    @classmethod
    def train(cls, *arguments):
        subprocess.run([os.environ["MHA"], *arguments], check=True, capture_output=True, cwd=cls.folder.name)

    def open(self, name, *options):
        folder = Path(self.folder.name, name)
        if not folder.exists():
            self.train(*self.shape, "-o", name, *options)
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get((folder / "training.html").as_uri())
        self.wait("return document.body.dataset.ready === 'yes'")
        return [json.loads(line) for line in (folder / "training.jsonl").open()]  # str.splitlines would also split at U+2028

    def open_usual(self):
        return self.open("run", "--steps", "30", "--eval-share", "0.2", "--eval-every", "5", "--sample", HOSTILE, "--sample", "the",
                         "--sample-every", "10", "--sample-tokens", "6")

    def tearDown(self):
        self.emulate()

    def test_the_curves_are_the_log(self):
        log = self.open_usual()
        points = self.run_js("return data.points")
        self.assertEqual(points["step"], [line["step"] for line in log[1:]])
        for key in ("loss", "rate", "norm", "tokens"):
            self.assertEqual(points[key], [line[key] for line in log[1:]], key)
        self.assertEqual(self.run_js("return data.eval.loss"), [line["eval_loss"] for line in log if "eval_loss" in line])
        self.assertEqual(self.run_js("return data.eval.step"), [0, 5, 10, 15, 20, 25, 30])
        drawn = self.run_js("return document.querySelector('#loss-chart .line').getAttribute('points').split(' ').length")
        self.assertEqual(drawn, 30)
        self.assertEqual(len(self.all("#loss-chart .dot")), 7)
        self.assertEqual(len(self.all(".plot")), 4)
        self.assertIn("Step 30 of 30", self.one("#summary").text)
        self.assertEqual(self.texts("#evals tr:nth-child(2) td")[:2], ["30", f"{log[30]['eval_loss']:.4f}"])
        self.assert_quiet()

    def test_reading_a_curve(self):
        log = self.open_usual()
        svg = self.one("#loss-chart svg")
        svg.send_keys(Keys.ARROW_RIGHT * 7)
        self.assertEqual(self.one("#loss-chart .read").text, f"step 7: loss {log[7]['loss']:.3f}, held out {log[5]['eval_loss']:.3f} at step 5")
        self.choose("#smooth", "10")
        self.one("#log-scale").click()
        self.assertEqual(len(self.all("#loss-chart .line")), 3)
        self.one("#rate-chart svg").send_keys(Keys.ARROW_RIGHT)
        self.assertIn("step 1: rate", self.one("#rate-chart .read").text)
        self.assert_quiet()

    def test_the_lines_have_a_legend(self):
        """The legend must name each line next to a sample of its color; a chart with a single line must have no legend."""
        self.open_usual()
        samples = "return [...document.querySelectorAll('#loss-chart .key span')].map((e) => [e.textContent, getComputedStyle(e.querySelector('line')).stroke])"
        strokes = "return [...document.querySelectorAll('#loss-chart .plot polyline')].map((e) => getComputedStyle(e).stroke)"
        names, colors = zip(*self.run_js(samples))
        self.assertEqual(names, ("training loss", "held-out loss: text not used for training"))
        self.assertEqual(list(colors), self.run_js(strokes))
        self.assertNotEqual(*colors)
        self.choose("#smooth", "10")
        names, colors = zip(*self.run_js(samples))
        self.assertEqual(names[1], "training loss, mean over 10 steps")
        self.assertEqual(list(colors), self.run_js(strokes))
        self.assertEqual(len(self.all("#rate-chart .key")), 0)
        self.assert_quiet()

    def test_letters_of_the_charts_on_a_phone(self):
        self.open_usual()
        for width in (390, 1500, 390):
            self.emulate(width=width)
            self.wait("return document.querySelector('#loss-chart svg.plot').getBoundingClientRect().right <= innerWidth && "
                      "document.querySelector('#loss-chart svg.plot').viewBox.baseVal.width <= Math.max(260, document.getElementById('loss-chart').clientWidth)")
            sizes = self.run_js("return [...document.querySelectorAll('.plot text')].map((e) => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a)")
            self.assertGreater(len(sizes), 20)
            self.assertGreaterEqual(min(sizes), 11)
        self.assert_quiet()

    def test_samples_and_hostile_text(self):
        log = self.open_usual()
        self.assertEqual(self.run_js("return [...document.querySelector('#sample-step').options].map(o => o.value)"), ["0", "10", "20", "30"])
        for step in (30, 10):
            self.choose("#sample-step", str(step))
            said = log[step]["samples"]
            self.assertEqual(self.texts("#sample-list dt"), [s["prompt"] for s in said])
            self.assertEqual(self.texts("#sample-list dd"), [s["text"] for s in said])
        self.assertEqual(log[10]["samples"][0]["prompt"], HOSTILE)
        self.assertEqual(len(self.all("img")), 0)
        self.assert_quiet()

    def test_a_long_log_is_thinned(self):
        log = self.open("long", "--steps", "2500", "--save-every", "2500")
        points, every = self.run_js("return [data.points, data.every]")
        self.assertEqual(every, 3)
        self.assertEqual(len(points["step"]), 834)
        self.assertEqual(points["step"][-1], 2500)
        self.assertAlmostEqual(points["loss"][0], sum(line["loss"] for line in log[1:4]) / 3, delta=1e-7)
        self.one("#loss-chart svg").send_keys(Keys.ARROW_RIGHT * 2)
        self.assertIn("steps 4 to 6: loss", self.one("#loss-chart .read").text)
        self.assertIn("No samples were requested", self.one("#samples").text)
        self.assert_quiet()

    def test_heads_that_close(self):
        self.open_usual()
        self.assertFalse(self.one("#open-part").is_displayed())
        log = self.open("gates", "--steps", "20", "--gates", "l0", "--heads", "1")
        self.assertEqual(self.run_js("return data.points.open"), [line["open_heads"] for line in log[1:]])
        self.one("#open-chart svg").send_keys(Keys.ARROW_LEFT)
        self.assertIn("step 1: heads", self.one("#open-chart .read").text)
        self.assert_quiet()

    def test_a_teacher_and_losses_of_zero(self):
        self.open_usual()
        self.assertIn("Mean -log p per token", self.one("#loss-hint").text)
        self.shape, usual = ["train", "-q", "-t", "1", "--from", "run", "-f", "text", "--teacher", "run", "--logit-weight", "1", "--decay", "0",
                             "--batch", "2"], self.shape
        try:
            log = self.open("taught", "--steps", "6", "--eval-share", "0.2")
        finally:
            self.shape = usual
        self.assertEqual({line["loss"] for line in log[1:]}, {0.0})
        self.assertIn("labels and teacher", self.one("#loss-hint").text)
        self.assertEqual(self.texts("#evals th"), ["step", "held-out loss"])
        self.one("#log-scale").click()
        self.assertIn("requires values above 0", self.one("#loss-chart").text)
        self.run_js("points.loss[2] = 0.5; points.loss[4] = 0.25; drawLoss()")
        drawn = self.run_js("return document.querySelector('#loss-chart .line').getAttribute('points').split(' ').length")
        self.assertEqual((drawn, len(self.all("#loss-chart .dot"))), (2, 0))
        self.assert_quiet()

    def test_light_dark_and_small(self):
        self.open_usual()
        self.assert_light_and_dark()
        self.assertEqual(self.run_js(NAMELESS), [])
        self.assert_fits()
        self.assert_quiet()


if __name__ == "__main__":
    unittest.main()
