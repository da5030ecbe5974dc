"""Calls of the library from Python: other threads run during a call, Ctrl-C ends a long call in order, and progress is reported."""
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import mha

TEXTS = ["the cat sat on the mat", "a dog ran home", "one two three two one", "the old dog sat on the old mat"]

CHILD = """
import sys, threading
import mha

model, texts = mha.Model(), {texts!r} * 500
data = mha.HeadData(model, texts)
mha.set_progress(lambda what, done, total: print(what, flush=True))
try:
    {call}
except KeyboardInterrupt:
    mha.set_progress(None)
    print("interrupted", model.embed(["the cat"]).shape, flush=True)
    sys.exit(0)
print("not interrupted")
"""

LONG_CALLS = {"importance": "mha.importance_measure(model, data, by='loo')", "measure heads": "mha.heads_measure(model, data)",
              "embed": "model.embed(texts * 20)", "generate": "model.generate([model.tokenize(t) for t in texts], 40, eos=[])"}


class Thread(unittest.TestCase):
    def test_a_second_thread_runs_during_a_call(self):
        """If a call held the interpreter lock, the thread could not tick in the middle of it."""
        q = np.random.default_rng(1).standard_normal((1, 16, 2048, 64), dtype=np.float32)
        model = mha.Model()
        for name, call in (("attention", lambda: mha.attention(q, q, q, threads=1)),
                           ("heads", lambda: mha.heads_measure(model, TEXTS * 100)),
                           ("forward", lambda: model.forward(np.ones((64, 128), int)))):
            ticks, entered, done = [], threading.Event(), threading.Event()

            def tick():
                while not done.is_set():
                    ticks.append(time.perf_counter())
                    entered.set()
                    time.sleep(0.0005)

            thread = threading.Thread(target=tick)
            thread.start()
            entered.wait()
            begin = time.perf_counter()
            call()
            taken = time.perf_counter() - begin
            done.set()
            thread.join()
            with self.subTest(call=name):
                self.assertGreater(taken, 0.02)
                self.assertGreater(sum(0.25 < (t - begin) / taken < 0.75 for t in ticks), 2)

    def test_two_threads_call_one_model(self):
        model, found = mha.Model(), {}

        def work(n):
            found[n] = [model.embed([TEXTS[n]]) for _ in range(5)]
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for n, vectors in found.items():
            for v in vectors:
                np.testing.assert_array_equal(v, model.embed([TEXTS[n]]))


class Interrupts(unittest.TestCase):
    def test_ctrl_c(self):
        for name, call in LONG_CALLS.items():
            with self.subTest(call=name):
                child = subprocess.Popen([sys.executable, "-c", CHILD.format(texts=TEXTS, call=call)], stdout=subprocess.PIPE, text=True)
                self.assertTrue(child.stdout.readline().strip())
                child.send_signal(signal.SIGINT)
                said = child.communicate(timeout=120)[0].splitlines()
                self.assertEqual((child.returncode, said[-1]), (0, "interrupted (1, 128)"))

    def test_the_handler_is_restored(self):
        before = signal.getsignal(signal.SIGINT)
        mha.Model().embed(["the cat"])
        self.assertIs(signal.getsignal(signal.SIGINT), before)

    def test_a_handler_of_the_user(self):
        seen, model = [], mha.Model()

        def raised(*_):
            seen.append("handler")
            raise TimeoutError
        before = signal.signal(signal.SIGINT, raised)
        try:
            with self.assertRaises(TimeoutError):
                model.generate(model.tokenize("the cat"), 30, eos=[],
                               on_token=lambda *_: seen.append("token") or (len(seen) == 2 and os.kill(os.getpid(), signal.SIGINT)))
        finally:
            signal.signal(signal.SIGINT, before)
        self.assertEqual((seen[-1], seen.count("handler")), ("handler", 1))
        self.assertLess(seen.count("token"), 6)


class Progress(unittest.TestCase):
    def tearDown(self):
        mha.set_progress(None)

    def test_a_function(self):
        seen = []
        mha.set_progress(lambda *given: seen.append(given))
        mha.heads_measure(mha.Model(), TEXTS)
        self.assertEqual({what for what, *_ in seen}, {"measure heads"})
        self.assertEqual(seen[-1][1], seen[-1][2])

    def test_an_end_and_an_exception(self):
        model = mha.Model()
        mha.set_progress(lambda *_: True)
        with self.assertRaises(KeyboardInterrupt):
            model.embed(TEXTS)

        def fails(*_):
            raise ZeroDivisionError
        mha.set_progress(fails)
        with self.assertRaises(ZeroDivisionError):
            model.embed(TEXTS)
        mha.set_progress(False)
        self.assertEqual(model.embed(TEXTS).shape, (4, 128))

    def test_tqdm(self):
        try:
            import tqdm  # noqa: F401
        except ImportError:
            self.skipTest("tqdm is not installed")
        code = f"import mha; mha.set_progress(True); mha.Model().embed({TEXTS!r}); mha.heads_measure(mha.Model(), {TEXTS!r})"
        said = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=True).stderr
        self.assertIn("embed: 100%", said)
        self.assertIn("measure heads: 100%", said)


if __name__ == "__main__":
    unittest.main()
