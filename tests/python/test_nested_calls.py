"""Tests objects that are used in callbacks of their own calls, by several threads, as copies, and in cycles of references."""
import copy
import gc
import pickle
import signal
import tempfile
import threading
import unittest

import mha
import numpy as np
from mha._binding.library import Owned

MODEL = mha.Model()
IDS = MODEL.tokenize("the cat sat on the mat")
Q = np.ones((1, 2, 4, 8), np.float32)
OWN = r"^mha\.{} must not be used in a callback of its own call$"


class Nested(unittest.TestCase):
    def _refused(self, name, call, uses):
        """Each use in a callback of the call must raise an error, which the call must raise."""
        for use in uses:
            with self.subTest(name), self.assertRaisesRegex(RuntimeError, OWN.format(name)):
                call(use)

    def test_a_plan_in_its_own_functions(self):
        for threads in (1, 2):
            used = []
            keep = mha.Functions(keep=lambda b, h, i, j: used[-1]() is None or j <= i)
            x = np.ones((2, 4, 64, 8), np.float32)
            plan = mha.Plan(x, x, x, functions=keep, threads=threads)
            for use in (lambda: plan(x, x, x), plan.close):
                used.append(use)
                with self.assertRaisesRegex(RuntimeError, OWN.format("Plan")):
                    plan(x, x, x)
            used.append(lambda: None)
            self.assertEqual(plan(x, x, x).shape, x.shape)

    def test_another_plan_in_a_function(self):
        inner = mha.Plan(Q, Q, Q)
        functions = mha.Functions(keep=lambda b, h, i, j: inner(Q, Q, Q) is not None and j <= i)
        plan = mha.Plan(Q, Q, Q, functions=functions, threads=1)
        self.assertTrue(np.array_equal(plan(Q, Q, Q), mha.attention(Q, Q, Q, causal=True)))

    def test_a_plan_while_it_reads_an_operand(self):
        plan = mha.Plan(Q, Q, Q)

        class Reader(np.ndarray):  # its attributes are read while the plan holds its lock
            @property
            def strides(self):
                return plan(Q, Q, Q).strides
        with self.assertRaisesRegex(RuntimeError, OWN.format("Plan")):
            plan(Q.view(Reader), Q, Q)
        self.assertEqual(plan(Q, Q, Q).shape, Q.shape)

    def test_gradients(self):
        with mha.ModelGrads(MODEL) as grads:
            self._refused("ModelGrads", lambda use: grads.loss([IDS], on_context=lambda _: use()),
                          (grads.list, grads.zero, lambda: grads.loss([IDS])))
            self.assertEqual(grads.loss([IDS]).counted, len(IDS) - 1)

    def test_a_cache_during_a_pass(self):
        with mha.ModelCache(MODEL) as cache:
            for name in ("on_hidden", "on_attention", "on_rows"):
                self._refused("ModelCache", lambda use, name=name: MODEL.forward([IDS], cache=cache, **{name: lambda *_: use()}),
                              (cache.clear, lambda: MODEL.forward([IDS], cache=cache)))
            before = cache.length(0)
            MODEL.forward([IDS], cache=cache, on_hidden=lambda *_: cache.length(0) < 0)
            self.assertEqual(cache.length(0), before + len(IDS))

    def test_progress(self):
        with mha.prune(MODEL, np.ones((2, 8), bool) & (np.arange(8) > 0)) as edit:
            try:
                mha.set_progress(lambda *_: edit.note("{}"))
                with self.assertRaisesRegex(RuntimeError, OWN.format("Edit")):
                    edit.evaluate(["the cat sat on the mat"])
            finally:
                mha.set_progress(None)
            self.assertEqual(edit.evaluate().heads, (16, 14))


class Signals(unittest.TestCase):
    def test_a_handler_saves_the_trainer(self):
        """A signal that arrives during a step must be handled after the library's call, as without locks."""
        batch = mha.TrainBatch([IDS], labels=[IDS])
        saved = []
        with tempfile.TemporaryDirectory() as folder, mha.Trainer(MODEL, mha.TrainOptions(steps=100)) as trainer:
            def save(number, frame):
                trainer.save(f"{folder}/{len(saved)}")
                saved.append(trainer.step_count)
            for number in signal.SIGUSR1, signal.SIGINT:
                before = signal.signal(number, save)
                try:
                    timer = threading.Timer(0.05, signal.raise_signal, (number,))
                    timer.start()
                    count = len(saved)
                    while len(saved) == count and trainer.step_count < 100:
                        trainer.step(batch)
                    timer.join()
                finally:
                    signal.signal(number, before)
                self.assertEqual(len(saved), count + 1)
            again = mha.Trainer.resume(f"{folder}/1")
            self.assertEqual(again.step_count, saved[1])

    def test_a_handler_reads_gradients(self):
        found = []
        with mha.ModelGrads(MODEL) as grads:
            before = signal.signal(signal.SIGUSR1, lambda *_: found.append(len(grads.list())))
            try:
                timer = threading.Timer(0.02, signal.raise_signal, (signal.SIGUSR1,))
                timer.start()
                while not found:
                    grads.loss([IDS])
            finally:
                timer.join()
                signal.signal(signal.SIGUSR1, before)
            self.assertEqual(found, [len(grads.list())])


class Threads(unittest.TestCase):
    def test_calls_wait(self):
        """Tokens appended by several threads must all arrive, while other threads read the cache."""
        token, count = np.ones((1, 2, 1, 8), np.float32), 200
        with mha.Cache(1, 2, 8) as cache:
            def work():
                for _ in range(count):
                    cache.append(token, token)
                    self.assertGreater(np.abs(cache.attention(token)).sum(), 0)
                    cache.tensors()
            failed = self._run(work, 4)
            self.assertEqual((failed, cache.lengths), ([], [4 * count]))

    def test_gradients(self):
        with mha.ModelGrads(MODEL) as grads, mha.ModelGrads(MODEL) as alone:
            alone.loss([IDS])
            failed = self._run(lambda: [grads.loss([IDS]) for _ in range(4)], 4)
            self.assertEqual(failed, [])
            for name, x in alone.list().items():
                self.assertTrue(np.allclose(grads.list()[name], 16 * x, rtol=1e-4, atol=1e-5), name)

    def _run(self, work, count):
        failed = []

        def caught():
            try:
                work()
            except Exception as error:
                failed.append(error)
        threads = [threading.Thread(target=caught) for _ in range(count)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return failed


class Copies(unittest.TestCase):
    def test_objects_of_the_library(self):
        for x in MODEL, mha.ModelCache(MODEL), mha.Cache(1, 2, 8), mha.HeadData(MODEL, ["a cat"]), mha.TrainLog(), mha.Plan(Q, Q, Q):
            for copied in copy.copy, copy.deepcopy, pickle.dumps:
                with self.assertRaisesRegex(TypeError, f"^mha.{type(x).__name__} cannot be copied or pickled$"):
                    copied(x)

    def test_random_numbers(self):
        """A copy must not change the generator that it was made from."""
        rng, want = mha.Rng(1), mha.Rng(1).rand(4).tolist()
        for copied in copy.copy, copy.deepcopy, mha.Rng.copy, lambda x: pickle.loads(pickle.dumps(x)):
            self.assertEqual(copied(rng).rand(4).tolist(), want)
        self.assertEqual(rng.rand(4).tolist(), want)


class Values(unittest.TestCase):
    def test_values_that_cannot_be_read(self):
        for use, sentence in ((lambda: mha.Rope(8).turn(np.ones((1, 1, 1, 8), complex)), "x must hold real numbers"),
                              (lambda: mha.TrainDigest().add(None), "data must be bytes or an array of numbers"),
                              (lambda: mha.TrainDigest().add(np.array([{}])), "data must be bytes or an array of numbers"),
                              (lambda: mha.TensorsWriter("unused", {"a": ((1,), complex)}), "tensors.'a'..dtype must be one of")):
            with self.assertRaisesRegex(ValueError, sentence):
                use()


class Cycles(unittest.TestCase):
    def test_children_are_freed_first(self):
        """The garbage collector finalizes parents before children if they were created first."""
        freed = []

        def free(owned):
            freed.append(owned.value)
        parent = Owned(1, free)
        child = Owned(2, free, (parent, "text"))
        grandchild = Owned(3, free, (child, parent))
        cycle = [parent, child, grandchild]
        cycle.append(cycle)
        del parent, child, grandchild, cycle
        gc.collect()
        self.assertEqual(freed, [3, 2, 1])

    def test_a_model_and_its_cache(self):
        for _ in range(20):
            model = mha.Model()
            objects = [model, mha.ModelCache(model), mha.ModelGrads(model), model.stream(), mha.HeadData(model, ["the cat"])]
            for each in objects:
                each.others = objects
            del model, objects, each
            gc.collect()


if __name__ == "__main__":
    unittest.main()
