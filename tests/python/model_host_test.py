#!/usr/bin/env python3
"""Whole models through the C ABI from Python on the host device, with the tiny checkpoint.

Run with ATTUNE_LIBRARY set to libattune.so, and ATTUNE_TEST_CACHE to a cache file that keeps the kernels.
"""

import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))

import attune_ctypes  # noqa: E402
import attune_model_ctypes as models  # noqa: E402

TINY = ROOT / "tests" / "data" / "gemma4-tiny"
PROMPT = [2, 17, 250, 33, 8, 199, 64, 5, 101]


class Model(unittest.TestCase):
    def setUp(self):
        engine = attune_ctypes.Engine(attune_ctypes.Library(), device="host",
                                      cache_path=os.environ.get("ATTUNE_TEST_CACHE"))
        self.model = models.Model(engine, TINY, max_tokens=256, max_sequences=2, max_prefill=40,
                                  max_verify=4)

    def test_a_loop_of_ones_own_gives_the_tokens_of_a_generator(self):
        self.assertEqual(self.model.info.vocab_size, 320)
        self.assertIn("linear layers of prefill", self.model.explain())
        session = models.Session(self.model)
        self.model.set_tokens(PROMPT)
        session.prefill(len(PROMPT))
        session.commit(len(PROMPT))
        tokens = self.model.read_best()
        while len(tokens) < 5:
            self.model.set_tokens(tokens[-1:])
            session.verify(1)
            session.commit(1)
            logits = list(self.model.read_logits())
            self.assertEqual(self.model.read_best(), [logits.index(max(logits))])
            tokens += self.model.read_best()
        self.assertEqual(session.length(), len(PROMPT) + 4)
        session.rollback(2)
        self.assertEqual(session.length(), len(PROMPT) + 2)
        self.assertGreaterEqual(session.largest_step(), 4)

        seen = []
        generator = models.Generator(self.model, draft="ngram")
        run = generator.run(PROMPT, max_new_tokens=5, ignore_stop_tokens=True,
                            on_tokens=seen.extend)
        self.assertEqual(run.tokens, tokens)
        self.assertEqual(seen, tokens)
        self.assertEqual(run.end, "max_new_tokens")
        self.assertEqual(generator.run(PROMPT, stop_tokens=tokens[:1]).tokens, tokens[:1])

    def test_what_a_callback_raises_ends_the_run_and_is_raised(self):
        calls = []

        def fails(tokens):
            calls.append(tokens)
            raise KeyError("stop")

        generator = models.Generator(self.model)
        with self.assertRaises(KeyError):
            generator.run(PROMPT, on_tokens=fails, ignore_stop_tokens=True)
        self.assertEqual(len(calls), 1)

    def test_the_struct_layouts_are_the_librarys(self):
        # The refusal of a field shows the value that the library reads there.
        with self.assertRaises(attune_ctypes.AttuneError) as raised:
            models.Generator(self.model).run(PROMPT, temperature=-2.5)
        self.assertIn("temperature=-2.5", str(raised.exception))
        with self.assertRaises(attune_ctypes.AttuneError) as raised:
            models.Generator(self.model, draft="eagle3")
        self.assertIn("attune_model_options.eagle3", str(raised.exception))
        self.assertEqual(self.model.info.max_verify, 4)
        self.assertGreater(self.model.info.cache_bytes, 0)


class Example(unittest.TestCase):
    def test_generates_the_same_tokens_with_and_without_drafts(self):
        environment = dict(os.environ, ATTUNE_CACHE=os.environ.get("ATTUNE_TEST_CACHE", ""))
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / "generate.py", TINY, "--device", "host",
             "--max-new-tokens", "4"], env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the same tokens", done.stdout)


if __name__ == "__main__":
    unittest.main()
