"""Tests the report of an encoder-decoder in Chromium: three kinds of attention, maps whose rows and columns are different texts, the
same weights as in the JSON, and no errors or requests."""
import json
import os
import shutil
import struct
import subprocess
import unittest
from pathlib import Path

from page_case import NAMELESS, PageCase  # imported first: skips the test if Chromium is not installed
from selenium.webdriver.common.keys import Keys

T5 = Path(__file__).resolve().parents[1] / "golden/data/seq2seq/t5"
HOSTILE = "</script><img src=x onerror=alert(1)> & a"


class ReportPair(PageCase):
    def open(self, source, target, model=T5):
        page = Path(self.folder.name, "pair.html")
        command = [os.environ["MHA"], "report", "--force", "--json", "-m", str(model), "--source", source, "--target", target, "-o", str(page)]
        said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(page.as_uri())
        self.wait("return document.body.dataset.painted === 'yes'")
        return said

    def show(self, text):
        self.choose("#text-choice", str(text))
        self.wait("return document.body.dataset.painted === 'yes' && Number(document.getElementById('text-choice').value) === shownText")

    def test_three_kinds_of_attention(self):
        said = self.open("The house is large.", "A house")
        for text, kind in enumerate(("cross", "encoder", "decoder")):
            self.show(text)
            self.assertTrue(self.one("#sentence-text").text.startswith({"cross": "Cross", "encoder": "Encoder", "decoder": "Decoder"}[kind]))
            weights = said[kind]["attention"]
            shape = len(said[kind].get("queries", said[kind]["tokens"])), len(said[kind]["tokens"])
            for layer, maps in enumerate(weights):
                for head, rows in enumerate(maps):
                    self.assertEqual((len(rows), len(rows[0])), shape)
                    for row in rows:
                        self.assertAlmostEqual(sum(row), 1, delta=1e-5)
                    shown = self.run_js("const m = readyMap(heads.find((h) => h.name === arguments[0]), 0); "
                                        "return Array.from({ length: m.rows }, (_, i) => rowOf(m, i))", f"{layer}.{head}")
                    for got, want in zip(shown, rows, strict=True):
                        self.assertLess(max(abs(a - b) for a, b in zip(got, want, strict=True)), 1e-7)
            self.assertEqual(self.run_js("return models[0].metrics"), said[kind]["metrics"])
        self.assert_quiet()

    def test_the_decoder_is_that_of_the_other_commands(self):
        said = self.open("The house is large.", "A house")
        file = Path(self.folder.name, "maps.safetensors")
        subprocess.run([os.environ["MHA"], "logits", "-q", "-m", str(T5), "--attn", "-o", file, "The house is large.\tA house"], check=True,
                       capture_output=True)
        content = file.read_bytes()
        length = int.from_bytes(content[:8], "little")
        for layer, maps in enumerate(said["decoder"]["attention"]):
            begin, end = json.loads(content[8:8 + length])[f"attn.{layer}"]["data_offsets"]
            want = struct.unpack(f"<{(end - begin) // 4}f", content[8 + length + begin:8 + length + end])
            got = [weight for rows in maps for row in rows for weight in row]
            self.assertEqual([struct.unpack("<f", struct.pack("<f", x))[0] for x in got], list(want))

    def test_a_weight_of_cross_attention(self):
        said = self.open("The house is large and the garden is small.", "A house")
        self.run_js("document.querySelector('canvas.map').focus()")
        self.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN * 2 + Keys.ARROW_RIGHT * 5)
        tip = self.run_js("return { ...document.querySelector('.tip').dataset }")
        row, column = int(tip["row"]), int(tip["column"])
        self.assertGreater(column, row)
        self.assertAlmostEqual(float(tip["weight"]), said["cross"]["attention"][0][0][row][column], delta=1e-6)
        self.driver.switch_to.active_element.send_keys("+" + Keys.ARROW_DOWN * 40 + Keys.ARROW_RIGHT * 80)
        self.assertEqual(self.run_js("return [look.point.row + 1, look.point.column + 1]"), [len(said["cross"]["queries"]), len(said["cross"]["tokens"])])
        self.choose("#focus", "column")
        self.assertIn("is attended to most by", self.one("#strongest caption").text)
        self.assertEqual(self.run_js(NAMELESS), [])
        self.assert_quiet()

    def test_hostile_texts_are_text(self):
        long_path = shutil.copytree(T5, Path(self.folder.name, "a_path_that_is_wider_than_the_screen_of_a_phone" * 3))
        self.open(HOSTILE, HOSTILE, long_path)
        self.assertEqual(self.all("img"), [])
        self.assert_fits()
        self.emulate()
        self.assert_quiet()


if __name__ == "__main__":
    unittest.main()
