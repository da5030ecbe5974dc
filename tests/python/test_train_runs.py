"""Training from Python: steps, resuming, gates, distillation, data, log and store; and the same run as
the program `mha train`."""
import json
import math
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np

import mha

GOLDEN = Path(__file__).resolve().parents[1] / "golden/data"
CONFIG = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 60, "n_positions": 32}
TEXT = ["the cat sat on the mat", "a dog ran home", "one two three two one", "the old dog sat on the old mat"] * 6


def batch_of(step, rows=4, length=12):
    return np.random.default_rng(step).integers(0, 60, (rows, length))


def same(a, b):
    return set(a) == set(b) and all(np.array_equal(x, b[name]) for name, x in a.items())


class Steps(unittest.TestCase):
    def setUp(self):
        self.model = mha.Model.create(CONFIG, seed=1)
        self.options = mha.TrainOptions(rate=0.01, warmup=3, steps=20, floor=0.001, decay=0.1, clip=1.0, dropout=(0.1, 0.1, 0.1), seed=5)

    def test_reports(self):
        trainer = mha.Trainer(self.model, self.options)
        before = trainer.loss(batch_of(1))
        self.assertAlmostEqual(before[0], self.model.loss_and_grads(batch_of(1))[0], places=6)
        reports = [trainer.step(batch_of(n)) for n in range(1, 4)]
        self.assertEqual([r.step for r in reports], [1, 2, 3])
        self.assertEqual([r.labels for r in reports], [44] * 3)
        self.assertEqual([r.rate for r in reports], [mha.train_rate(self.options, n) for n in range(1, 4)])
        self.assertEqual((trainer.step_count, before[1]), (3, 44))
        self.assertEqual(trainer.model.forward(batch_of(1)).logits.shape, (4, 12, 60))

    def test_one_step_of_adamw(self):
        options = mha.TrainOptions(rate=0.01, decay=0.1, decays="all")
        trainer = mha.Trainer(self.model, options)
        before, (_, grads) = trainer.weights(), self.model.loss_and_grads(batch_of(1))
        trainer.step(batch_of(1))
        for name, x in trainer.weights().items():
            g = grads[name].astype(np.float64)
            want = before[name] * (1 - 0.01 * 0.1) - 0.01 * g / (np.abs(g) + 1e-8)
            strong = np.abs(g) > 1e-5
            np.testing.assert_allclose(x[strong], want[strong], atol=2e-6, err_msg=name)

    def test_resume(self):
        whole = mha.Trainer(self.model, self.options)
        losses = [whole.step(batch_of(n)).loss for n in range(1, 9)]
        with tempfile.TemporaryDirectory() as folder:
            first = mha.Trainer(self.model, self.options)
            for n in range(1, 5):
                first.step(batch_of(n))
            first.save(Path(folder, "run"), files={"training.note": b"a note"})
            self.assertEqual(Path(folder, "run/training.note").read_bytes(), b"a note")
            second = mha.Trainer.resume(Path(folder, "run"), self.options)
            self.assertEqual(second.step_count, 4)
            self.assertEqual([second.step(batch_of(n)).loss for n in range(5, 9)], losses[4:])
            self.assertTrue(same(whole.weights(), second.weights()))
            second.save(Path(folder, "model"), model_only=True, dtype="bf16")
            self.assertEqual(mha.Model(Path(folder, "model")).config["dtype"], "bfloat16")
            with self.assertRaises(OSError):
                second.save(Path(folder, "run"))
            second.save(Path(folder, "run"), overwrite=True, aside="before")
            self.assertTrue(Path(folder, "before").is_dir())

    def test_moments(self):
        options = mha.TrainOptions(rate=0.01, moments="bf16")
        with tempfile.TemporaryDirectory() as folder:
            whole = mha.Trainer(self.model, options)
            whole.step(batch_of(1))
            whole.save(Path(folder, "run"))
            stored = Path(folder, "run/training.safetensors").read_bytes()
            header = json.loads(stored[8:8 + int.from_bytes(stored[:8], "little")])
            self.assertEqual({header[name]["dtype"] for name in header if name != "__metadata__"}, {"BF16"})
            second = mha.Trainer.resume(Path(folder, "run"), options)
            self.assertEqual(second.step(batch_of(2)).loss, whole.step(batch_of(2)).loss)
            self.assertTrue(same(whole.weights(), second.weights()))
            with self.assertRaisesRegex(ValueError, "must be f32, as set by moments \\(got bf16\\)"):
                mha.Trainer.resume(Path(folder, "run"), self.options)

    def test_accumulation_and_workers(self):
        rows, found = batch_of(1, 8), []
        for parts in [rows], [rows[:4], rows[4:]]:
            trainer = mha.Trainer(self.model, mha.TrainOptions(rate=0.01))
            found.append(trainer.step([mha.TrainBatch(p) for p in parts]).loss)
        self.assertAlmostEqual(*found, places=6)
        with self.assertRaisesRegex(ValueError, "workers"):
            mha.Trainer(self.model, mha.TrainOptions(workers=3))

    def test_frozen_and_loaded(self):
        trainer = mha.Trainer(self.model, mha.TrainOptions(rate=0.01, frozen=["transformer.wte.*"]))
        before = trainer.weights()
        trainer.step(batch_of(1))
        after = trainer.weights()
        self.assertTrue(np.array_equal(before["transformer.wte.weight"], after["transformer.wte.weight"]))
        self.assertFalse(np.array_equal(before["transformer.wpe.weight"], after["transformer.wpe.weight"]))
        trainer.load(before)
        np.testing.assert_array_equal(trainer.model.forward(batch_of(1)).logits, self.model.forward(batch_of(1)).logits)

    def test_gates(self):
        gates = mha.TrainGates(end=12, heads=5)
        trainer = mha.Trainer(self.model, mha.TrainOptions(rate=0.01, gates=gates))
        self.assertEqual((trainer.gates().open, trainer.gates().expected), (8, 8))
        reports = [trainer.step(batch_of(n)) for n in range(1, 14)]
        found = trainer.gates()
        self.assertEqual((found.open, found.gates.shape, int((found.gates == 0).sum())), (5, (2, 4), 3))
        self.assertLess(reports[-1].open, reports[0].open)

    def test_a_teacher(self):
        student = mha.Model.create(CONFIG | {"n_layer": 1}, seed=3)
        trainer = mha.Trainer(student, mha.TrainOptions(rate=0.02, teacher=self.model, distill=mha.Distill(logits=1.0)))
        losses = [trainer.step(batch_of(1)).loss for _ in range(20)]
        self.assertLess(losses[-1], losses[0] / 2)

    def test_an_encoder(self):
        config = json.loads((GOLDEN / "models/bert-mlm-tiny/config.json").read_text())
        model = mha.Model.create(config, seed=2, tokenizer=GOLDEN / "models/bert-mlm-tiny")
        ids = np.array([model.tokenize("the cat sat on the mat")])
        masked, labels = mha.train_mask_tokens(model, ids[0], 0, mask=model.token_id("[MASK]"), vocab=model.vocabulary, fraction=0.3, seed=4)
        self.assertEqual([i for i, y in zip(ids[0], labels) if y != -100], [y for y in labels if y != -100])
        again, _ = mha.train_mask_tokens(model, ids[0], 0, mask=model.token_id("[MASK]"), vocab=model.vocabulary, fraction=0.3, seed=4)
        np.testing.assert_array_equal(masked, again)
        trainer = mha.Trainer(model, mha.TrainOptions(rate=0.003))
        losses = [trainer.step(mha.TrainBatch(masked[None], labels[None])).loss for _ in range(15)]
        self.assertLess(losses[-1], losses[0])

    def test_refusals(self):
        for options, sentence in ((mha.TrainOptions(rate=-1), "rate"), (mha.TrainOptions(decays="odd"), "decays must be one of 'matrices'"),
                                  (mha.TrainOptions(moments="f16"), "moments must be one of 'f32', 'bf16'"),
                                  (mha.TrainOptions(frozen=["odd"]), "odd"), (mha.TrainOptions(gates=mha.TrainGates("l2")), "penalty"),
                                  (mha.TrainOptions(teacher=mha.Model()), "vocab")):
            with self.assertRaisesRegex(ValueError, sentence):
                mha.Trainer(self.model, options)
        with self.assertRaisesRegex(ValueError, "labels"):
            mha.Trainer(self.model).step(mha.TrainBatch([[1, 2]], [[1, 2, 3]]))
        with mha.Trainer(self.model) as trainer:
            pass
        with self.assertRaisesRegex(ValueError, "Trainer is closed"):
            trainer.step([[1, 2]])


class Data(unittest.TestCase):
    def test_sequences(self):
        model = mha.Model()
        data = mha.TrainData(8, model.vocabulary, tokenizer=model, end=1)
        data.add_text("the cat ", last=False)
        data.add_text("sat")
        data.add_texts(TEXT)
        with self.assertRaisesRegex(ValueError, "finish"):
            data.sequence(0)
        data.finish()
        info = data.info
        got = np.concatenate([data.sequence(n)[:7] for n in range(info.sequences)])
        first = [*model.tokenize("the cat ", special=False), *model.tokenize("sat", special=False), 1]
        ids = first + [i for t in TEXT for i in [*model.tokenize(t, special=False), 1]]
        self.assertEqual(got.tolist(), ids[:len(got)])
        self.assertEqual(info.tokens, len(ids))
        self.assertEqual(len(info.digest), 16)
        with self.assertRaises(IndexError):
            data.sequence(info.sequences)
        seen = [tuple(row) for step in range(1, info.sequences + 1) for row in data.batch(step, 1, seed=3)]
        self.assertEqual(sorted(seen), sorted(tuple(data.sequence(n)) for n in range(info.sequences)))

    def test_a_token_file_and_a_digest(self):
        with tempfile.TemporaryDirectory() as folder:
            ids = np.arange(50, dtype=np.uint16)
            np.save(Path(folder, "x.npy"), ids)
            data = mha.TrainData(10, 50)
            data.add_file(Path(folder, "x.npy"))
            data.finish()
            self.assertEqual((data.info.tokens, data.sequence(1).tolist()), (50, list(range(9, 19))))
            small = mha.TrainData(10, 40)
            with self.assertRaisesRegex(ValueError, "vocab"):
                small.add_file(Path(folder, "x.npy"))
        whole, parts = mha.TrainDigest(), mha.TrainDigest()
        whole.add(ids)
        parts.add(ids[:16])
        parts.add(ids[16:].tobytes())
        self.assertEqual(whole.text(), parts.text())
        parts.add_number(3)
        self.assertNotEqual(whole.text(), parts.text())


class Runs(unittest.TestCase):
    def setUp(self):
        self.place = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.model = mha.Model.create(CONFIG | {"vocab_size": mha.Model().vocabulary}, seed=1)
        self.data = mha.TrainData(12, mha.Model().vocabulary, tokenizer=mha.Model())
        self.data.add_texts(TEXT)
        self.data.finish()
        self.options = mha.TrainOptions(rate=0.01, steps=8, seed=2)

    def test_log(self):
        log = mha.TrainLog()
        log.write_to(self.place / "loss.csv")
        log.add(mha.TrainRecord(1, 10, 0.5, 2.0, 0.1, 1.0, samples=[("a", "bé")]))
        log.add(mha.TrainRecord(2, 20, 1.0, 1.5, 0.1, 1.0, eval_loss=3.0))
        self.assertEqual((self.place / "loss.csv").read_text().splitlines()[0].split(",")[:2], ["step", "loss"])
        (self.place / "log.jsonl").write_bytes(log.lines)
        again = mha.TrainLog.read(self.place / "log.jsonl")
        self.assertEqual([r.loss for r in again], [2.0, 1.5])
        self.assertEqual(([*again[0].samples], again[-1].eval_loss, math.isnan(again[0].eval_loss)), ([("a", "bé")], 3.0, True))
        self.assertEqual(len(mha.TrainLog.read(self.place / "log.jsonl", 1)), 1)
        with self.assertRaisesRegex(ValueError, "step"):
            log.add(mha.TrainRecord(2))
        with self.assertRaises(IndexError):
            again[2]

    def test_a_run_that_is_resumed(self):
        whole, log = mha.TrainLog(), mha.TrainLog()
        straight = mha.train(self.model, self.data, self.options, batch=3, log=whole)
        mha.train(self.model, self.data, self.options, batch=3, folder=self.place / "run", log=log, on_step=lambda r, _: r.step == 5)
        again = mha.TrainLog.read(self.place / "run/training.jsonl", 5)
        trainer = mha.train(self.model, self.data, self.options, batch=3, folder=self.place / "run", resume=True, log=again)
        self.assertTrue(same(straight.weights(), trainer.weights()))
        self.assertEqual([f"{r.loss:.9g}" for r in whole], [f"{r.loss:.9g}" for r in again])
        self.assertEqual(mha.Trainer.resume(self.place / "run", self.options).step_count, 8)
        with self.assertRaisesRegex(OSError, "run"):
            mha.train(self.model, self.data, self.options, batch=3, folder=self.place / "run")

    def test_an_interrupted_run_leaves_a_checkpoint(self):
        def interrupt(report, _trainer):
            if report.step == 3:
                raise KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            mha.train(self.model, self.data, self.options, batch=3, folder=self.place / "run", on_step=interrupt)
        with mha.TrainStore(self.place / "run", resume=True) as store:
            self.assertEqual((store.has_checkpoint, store.step), (True, 3))
            with self.assertRaisesRegex(OSError, "run"):
                mha.TrainStore(self.place / "run", resume=True)
            store.keep(1)
            trainer = store.resume(self.options)
            trainer.step(self.data.batch(4, 3, 2))
            store.save(trainer, {"training.note": b"x"})
        self.assertTrue((self.place / "run.step-3").is_dir())
        store.close()
        with self.assertRaisesRegex(ValueError, "TrainStore is closed"):
            store.keep(1)
        again = mha.TrainStore(self.place / "run", resume=True)
        del again  # its lock ends with the last reference
        mha.TrainStore(self.place / "run", resume=True).close()

    def compare(self, model, data, options, **more):
        """Trains with the program and here; the printed losses must be equal."""
        done = subprocess.run([os.environ["MHA"], "train", "--from", "new", "--tokens", "tokens.npy", "-o", "out", "--length", "12",
                               "--batch", "3", "--steps", "8", "--rate", "0.01", "--seed", "2", "--warmup", "0", "--floor", "0", "--decay", "0",
                               "--clip", "0", "--beta2", "0.999", "--log", "log.jsonl"],
                              cwd=self.place, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        data.add_file(self.place / "tokens.npy")
        data.finish()
        log = mha.TrainLog()
        mha.train(model, data, options, batch=3, log=log, **more)
        log.write_to(self.place / "ours.jsonl")
        ours, theirs = (mha.TrainLog.read(self.place / name) for name in ("ours.jsonl", "log.jsonl"))
        self.assertEqual([(r.step, r.loss, r.rate, r.norm, r.tokens) for r in ours],
                         [(r.step, r.loss, r.rate, r.norm, r.tokens) for r in theirs if r.step])

    def test_as_the_program(self):
        ids = np.concatenate([self.data.sequence(n)[:-1] for n in range(self.data.info.sequences)])
        np.save(self.place / "tokens.npy", ids.astype(np.uint16))
        self.model.save(self.place / "new")
        self.compare(self.model, mha.TrainData(12, mha.Model().vocabulary), self.options)

    def test_an_encoder_as_the_program(self):
        folder = GOLDEN / "models/bert-mlm-tiny"
        model = mha.Model.create(json.loads((folder / "config.json").read_text()), seed=2, tokenizer=folder)
        np.save(self.place / "tokens.npy", np.array([i for t in TEXT for i in model.tokenize(t, special=False)], np.uint16))
        model.save(self.place / "new")
        data = mha.TrainData(12, model.info["vocab"], tokenizer=model, causal=False, first=model.token_id("[CLS]"),
                             end=model.token_id("[SEP]"))
        self.compare(model, data, self.options, mask=model.token_id("[MASK]"))


if __name__ == "__main__":
    unittest.main()
