"""Tests the report in Chromium: it must cause no errors, request only its own file, show the results of the JSON output,
and display hostile text as text."""
import shutil
import unittest
from pathlib import Path

from report_page import SENTENCE, ReportCase, decimals_of, fixed  # imported first: skips without Chromium
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

HOSTILE = {
    "script": "</script><img src=x onerror=alert(1)> <script>alert(2)</script> & done",
    "quotes": "\" onmouseover=alert(3) ' \u2028 javascript:alert(4) [SEP] <!--",
}


def flat(table):
    return [x for layer in table for x in layer]


class Report(ReportCase):
    def point(self, row, column):
        """Selects an element of the attention map with the arrow keys. Returns the text and the weight of its tooltip."""
        canvas = self.one(".map")
        canvas.send_keys(Keys.ESCAPE)
        canvas.send_keys(Keys.ARROW_DOWN * row + Keys.ARROW_RIGHT * column if row else Keys.ARROW_RIGHT * (column + 1))
        tip = self.one(".map-frame .tip")
        self.assertEqual([tip.get_attribute("data-row"), tip.get_attribute("data-column")], [str(row), str(column)])
        return tip.text, float(tip.get_attribute("data-weight"))

    def test_quiet(self):
        self.open()
        for part in ("#text", "#scores", "#absent"):
            self.show(part)
        self.wait("return document.querySelectorAll('#score-tables td').length > 0")
        self.assert_quiet()

    def test_every_head_is_there(self):
        said = self.open()
        self.assertEqual(self.texts(".cell .label"), flat(said["labels"]))
        self.assertEqual(len(self.all(".cell canvas")), len(flat(said["labels"])))

    def test_the_map_shows_what_the_json_has(self):
        said = self.open()
        n, tokens = len(said["tokens"]), said["tokens"]
        heads = [(l, h) for l, layer in enumerate(said["attention"]) for h in range(len(layer))]
        for index in (0, len(heads) // 2, len(heads) - 1):
            layer, head = heads[index]
            self.all(".cell")[index].click()
            self.wait("return document.querySelector('.map').getAttribute('aria-label').includes(arguments[0])",
                      f"layer {layer} head {head},")
            row, column = 1 + index % (n - 1), n - 1 - index % (n - 1)
            text, weight = self.point(row, column)
            want = said["attention"][layer][head][row][column]
            self.assertAlmostEqual(weight, want, delta=1e-7)
            self.assertEqual(text, f"{tokens[row]} ({row}) → {tokens[column]} ({column}): {want:.3f}")

    def test_ids_in_place_of_a_text(self):
        """The report of a model without a tokenizer must show token ids in place of tokens."""
        mute = Path(self.folder.name, "mute")
        mute.mkdir()
        gpt2 = Path(__file__).parents[1] / "golden/data/models/gpt2-tiny"
        for name in ("config.json", "model.safetensors"):
            shutil.copy(gpt2 / name, mute)
        said = self.open("36,402,88,36", "--ids", "-m", str(mute))
        self.assertEqual(said["tokens"], ["36", "402", "88", "36"])
        self.assertEqual(self.texts("#sentence span"), said["tokens"])
        text, weight = self.point(3, 0)
        layer, head = map(int, self.run_js("return heads[selected.head].name").split("."))
        self.assertEqual(text, f"36 (3) → 36 (0): {said['attention'][layer][head][3][0]:.3f}")
        self.assertAlmostEqual(weight, said["attention"][layer][head][3][0], delta=1e-7)
        self.assert_quiet()

    def test_the_pointer_on_the_map(self):
        said = self.open()
        canvas = self.one(".map")
        ActionChains(self.driver).move_to_element_with_offset(canvas, 20, 40).perform()
        tip = self.one(".map-frame .tip")
        self.assertTrue(tip.is_displayed())
        self.assertRegex(tip.text, r"→ .*: \d\.\d{3}$")
        row = int(tip.get_attribute("data-row"))
        self.assertEqual([t.strip() for t in self.texts("#strongest tr:first-child td")][:1],
                         [max(zip(self.selected_row(said, row), said["tokens"]))[1]])
        canvas.click()  # a click keeps this row selected while the pointer moves
        ActionChains(self.driver).move_by_offset(40, 40).perform()
        self.assertEqual(tip.get_attribute("data-row"), str(self.run_js("return look.point.row")))
        self.assertTrue(self.run_js("return look.held"))

    def selected_row(self, said, row):
        layer, head = map(int, self.run_js("return heads[selected.head].name").split("."))
        return said["attention"][layer][head][row]

    def test_the_focus_on_a_column(self):
        said = self.open()
        self.choose("#focus", "column")
        self.point(3, 2)
        layer, head = map(int, self.run_js("return heads[selected.head].name").split("."))
        column = [row[2] for row in said["attention"][layer][head]]
        self.assertEqual(self.texts("#strongest tbody td:last-child"), [f"{w:.3f}" for w in sorted(column, reverse=True)[:8]])

    def test_scales_and_the_sink(self):
        said = self.open()
        ticks = self.texts("#map-legend .ticks span")
        self.choose("#scale", "log")
        self.assertNotEqual(self.texts("#map-legend .ticks span"), ticks)
        means = [sum(row[0] for row in said["attention"][l][h]) / len(said["tokens"])
                 for l, layer in enumerate(said["attention"]) for h in range(len(layer))]
        index = means.index(max(means))
        if max(means) <= 0.3:
            index = 0
        self.all(".cell")[index].click()
        self.one("#sink").click()
        self.wait("return document.getElementById('sink-note').textContent.startsWith(arguments[0])",
                  "Hidden: the column of" if max(means) > 0.3 else "Layer 0 head 0 has no sink")

    def test_zoom(self):
        self.open()
        canvas = self.one(".map")
        self.point(3, 2)
        canvas.send_keys("+++")
        self.assertLess(self.run_js("return look.part"), 0.6)
        self.point(0, 1)  # the visible part must move to the selected element
        self.assertEqual(self.run_js("const at = views[0].layout(); return [at.i, at.j <= 1]"), [0, True])
        canvas.send_keys("0")
        self.assertEqual(self.run_js("return look.part"), 1)
        self.one("#zoom-in").click()
        self.assertLess(self.run_js("return look.part"), 1)

    def assert_head(self, layer, head, said):
        words = self.run_js("return nameOf('label', arguments[0])", said["labels"][layer][head])
        self.assertEqual(self.one("#head-title").text, f"Layer {layer}, head {head}: {words}")

    def test_keys_move_among_heads(self):
        said = self.open()
        self.all(".cell")[0].click()
        self.all(".cell")[0].send_keys(Keys.ARROW_RIGHT)
        self.assert_head(0, 1, said)
        self.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
        self.assert_head(1, 1, said)
        self.one("body").send_keys("[")
        self.assert_head(1, 0, said)

    def test_sorting(self):
        said = self.open()
        for name in ("entropy", "distance"):
            self.choose("#sort", name)
            values = {f"{l}.{h}": x for l, layer in enumerate(said["metrics"][name]) for h, x in enumerate(layer)}
            shown = [t.split()[0] for t in self.texts("#grid .cell .label")]
            self.assertEqual(shown, sorted(values, key=lambda h: -values[h]))
            self.assertEqual(self.texts("#grid .cell .number"), [fixed(values[h]) for h in shown])
        self.choose("#sort", "label")
        shown = [t.split()[1] for t in self.texts("#grid .cell .label")]
        self.assertEqual(shown, sorted(flat(said["labels"])))

    def test_filters(self):
        said = self.open()
        entropies, labels = flat(said["metrics"]["entropy"]), flat(said["labels"])
        middle = sorted(entropies)[len(entropies) // 2]
        self.one("#entropy-filter input").send_keys(f"{middle:.3f}")
        want = [x >= round(middle, 3) for x in entropies]
        self.assertEqual([not out for out in self.run_js("return cells.map(c => c.classList.contains('out'))")], want)
        self.assertEqual(self.one("#shown").text, f"{sum(want)} of {len(labels)} heads")
        self.one("#unfilter").click()
        chip = self.one("#labels button")
        chip.click()
        label = chip.get_attribute("data-label")
        self.assertEqual(self.one("#shown").text, f"{labels.count(label)} of {len(labels)} heads")
        self.assertEqual(self.run_js("return cells.map(c => c.classList.contains('out'))"), [x != label for x in labels])

    def test_numbers_are_those_of_the_json(self):
        said = self.open()
        self.all(".cell")[0].click()
        shown = self.texts("#metrics td")
        self.assertEqual(self.run_js("return [...document.querySelectorAll('#metrics tbody tr')].map(tr => tr.dataset.name)"), list(said["metrics"]))
        self.assertEqual(shown[1::2], [fixed(table[0][0]) for table in said["metrics"].values()])
        self.show("#scores")
        for name in ("entropy", "offset"):
            self.choose("#score", name)
            self.assertEqual(self.texts(".heat td[data-head]"), [fixed(x) for x in flat(said["metrics"][name])])
            self.assertEqual(self.texts("#score-legend .ticks span")[-1], fixed(max(flat(said["metrics"][name])), decimals_of(flat(said["metrics"][name]))))

    def test_the_text_says_where_each_head_looks(self):
        said = self.open()
        self.show("#text")
        self.wait("return document.querySelectorAll('#from-tokens li').length > 0")
        items = self.all("#from-tokens li")
        self.assertEqual(self.texts("#from-tokens li"), said["tokens"])
        ActionChains(self.driver).move_to_element(items[3]).perform()
        self.wait("return from.token === 3 && !from.held")
        items[3].click()  # holds the token: the page may scroll under the pointer
        self.wait("return from.token === 3 && from.held")
        self.wait("return document.querySelectorAll('#looks-table td[data-weight]').length === heads.length")
        best = [max(range(len(row[3])), key=row[3].__getitem__) for row in flat(said["attention"])]
        tokens = said["tokens"]
        self.assertEqual(self.texts("#looks-table td"), [t if len(t) <= 14 else f"{t[:13]}…" for t in (tokens[j] for j in best)])
        weights = self.run_js("return [...document.querySelectorAll('#looks-table td')].map(e => Number(e.dataset.weight))")
        for got, row in zip(weights, flat(said["attention"]), strict=True):
            self.assertAlmostEqual(got, max(row[3]), delta=1e-7)
        drawn = "const c = document.getElementById('line-canvas'); " \
                "return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(x => x)"
        self.assertTrue(self.run_js(drawn))
        self.one("#lines").send_keys(Keys.ARROW_DOWN)
        self.wait("return from.token === 4 && from.held")

    def test_what_was_not_measured_is_folded(self):
        """One line must list the measurements that were not run; their cards and the links to these cards must be hidden."""
        self.open()
        self.assertEqual(self.one("#absent summary").text, "Not measured: importance, diversity, clusters, pruning curve")
        for part in ("#diversity", "#clusters", "#curve"):
            self.assertFalse(self.one(part).is_displayed())
            self.assertFalse(self.one(f'nav a[href="{part}"]').is_displayed())
        self.assertFalse(self.one("#absent dd").is_displayed())
        self.one("#absent summary").click()
        self.assertEqual([e.text.split()[2] for e in self.all("#absent dd")], ["--by", "--diversity", "--diversity", "--search"])
        self.open(SENTENCE, "--by", "confidence", "--diversity")
        self.assertEqual(self.one("#absent summary").text, "Not measured: pruning curve")
        self.assertTrue(self.one("#diversity").is_displayed())

    def test_importance(self):
        said = self.open(SENTENCE, "--by", "confidence")
        values, low = said["importance"]["values"], said["importance"]["low"]
        named = {f"{l}.{h}": x for l, layer in enumerate(values) for h, x in enumerate(layer)}
        self.choose("#sort", "importance")
        self.assertEqual([t.split()[0] for t in self.texts("#grid .cell .label")], sorted(named, key=lambda h: -named[h]))
        middle = sorted(named.values())[len(named) // 2]
        self.all("#importance-filter input")[1].send_keys(f"{middle:.3f}")
        self.assertEqual(self.one("#shown").text, f"{sum(x <= round(middle, 3) for x in named.values())} of {len(named)} heads")
        self.show("#scores")
        self.wait("return document.querySelectorAll('.heat').length === 1")
        self.assertEqual(self.texts(".heat td[data-head]"), [fixed(x, decimals_of(flat(values))) for x in flat(values)])
        self.assertIn("Importance by largest weight", self.one("#score-meaning").text)
        best = sorted(named, key=lambda h: -named[h])[:10]
        self.assertEqual(self.texts(".ranking td:first-child"), best)
        self.assertEqual(len(low), len(values))
        self.assert_quiet()

    def test_diversity(self):
        said = self.open(SENTENCE, "--diversity")["diversity"]
        self.assertEqual(self.run_js("return Object.keys(models[0].diversity.measures)"), list(said["measures"]))
        names = self.run_js("return heads.map(h => h.name)")
        n, counts = len(names), [len(row) for row in said["unique"]]
        self.show("#diversity")
        self.wait("return document.querySelectorAll('.pair-map').length === 1")
        self.all(".cell")[1].click()
        for key in ("js", "output_cka"):
            self.choose(".measure", key)
            blocks = said["measures"][key]["blocks"]
            self.assertEqual(len(blocks), 1 if key == "js" else len(counts))
            size = n if key == "js" else counts[0]
            mine = {names[b]: blocks[0][size + b - 1 if b else 1] for b in range(size) if b != 1}
            best = sorted(mine, key=mine.get, reverse=key != "js")[:8]
            self.assertEqual(self.texts(".alike td:first-child"), best)
            self.assertEqual(self.texts(".alike td:last-child"), [fixed(mine[name], decimals_of(mine.values())) for name in best])
        canvas = self.one(".pair-map")
        ActionChains(self.driver).move_to_element(canvas).perform()
        self.assertRegex(self.one(".pairs .tip").text, r"^\d+\.\d+ and \d+\.\d+: ")
        self.show("#clusters")
        self.wait("return document.querySelectorAll('.dot').length === arguments[0]", n)
        dots = self.run_js("return [...document.querySelectorAll('.dot circle')].map(c => [+c.getAttribute('cx'), +c.getAttribute('cy')])")
        order = sorted(range(n), key=lambda i: said["xy"][i][0])
        self.assertEqual(sorted(x for x, _ in dots), [dots[i][0] for i in order])
        cut = self.run_js("return cutTree(models[0].diversity.merges, arguments[0], 3)", n)
        self.assertEqual(len(set(cut)), 3)
        self.assertEqual(sorted(self.texts(".clusters .head-link")), sorted(names))
        self.assert_quiet()

    def test_the_curve_of_a_pruning(self):
        curve = Path(self.folder.name, "curve.json")
        curve.write_text('{"curve": [{"heads": 12, "loss": 1.5}, {"heads": 9, "loss": 1.625, "within": true}, '
                         '{"heads": 6, "loss": 2, "within": false}]}')
        self.open(SENTENCE, "--curve", str(curve))
        self.show("#curve")
        self.wait("return document.querySelector('#curve td') !== null")
        self.assertEqual(self.texts("#curve td"), ["12", "1.500", "9", "1.625", "6", "2.000"])
        heights = self.run_js("return [...document.querySelectorAll('#curve circle')].map(c => Number(c.getAttribute('cy')))")
        self.assertEqual(len(self.all("#curve circle.outside")), 1)
        self.assertEqual(heights, sorted(heights))  # highest loss first: lower losses must be lower in the figure
        self.assert_quiet()

    def test_hostile_text_stays_text(self):
        for text in HOSTILE.values():
            said = self.open(text)
            for part in ("#text", "#scores"):
                self.show(part)
            self.wait("return document.querySelectorAll('#from-tokens li').length > 0")
            self.point(1, 1)
            self.assertEqual(self.all("img"), [])
            self.assertEqual(len(self.all("script")), 2)
            self.assertEqual(self.texts("#sentence span"), said["tokens"])
            self.assertIn(text, self.run_js("return document.getElementById('sentence-text').textContent"))
            self.assert_quiet()

    def test_two_models_beside_each_other(self):
        said = self.open(SENTENCE, "--compare", "builtin")
        other = said["compare"]
        self.assertEqual(len(self.all(".map-view")), 2)
        numbers = {(l, h) for table in (said["labels"], other["labels"]) for l, row in enumerate(table) for h in range(len(row))}
        self.assertEqual(len(self.all(".cell:not(.none)")), len(numbers))
        self.all(".cell")[0].click()
        shown = self.texts("#metrics tbody tr:first-child td")
        self.assertEqual(shown, ["entropy", fixed(said["metrics"]["entropy"][0][0]), fixed(other["metrics"]["entropy"][0][0])])
        self.show("#scores")
        self.wait("return document.querySelectorAll('.heat').length === 2")
        self.assert_quiet()


if __name__ == "__main__":
    unittest.main()
