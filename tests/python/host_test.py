#!/usr/bin/env python3
"""The C ABI from Python on the host device: needs a C++ compiler and no GPU.

Run with ATTUNE_LIBRARY set to libattune.so.
"""

import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

import attune_ctypes  # noqa: E402
import serve  # noqa: E402

# As serve.STEPS: a decode and a verify step, small.
STEPS = (
    ("decode/b1/q1/kv1-512/h4x2/d64/contiguous/bf16", 1, 4, 2, 64, 0, 512, 300),
    ("verify/b1/q8/kv1-512/h4x2/d128/w128/ring/bf16", 8, 4, 2, 128, 128, 256, 400),
)


class HostServing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.warnings = []
        self.options = {"cache_path": os.path.join(folder.name, "tune.db"), "strict": True,
                        "log": self.warnings.append}

    def engine(self, **more):
        return attune_ctypes.Engine(attune_ctypes.Library(), **self.options, **more)

    def test_both_steps_are_right_and_a_sealed_engine_serves_them_again(self):
        engine = self.engine(device="host")
        for step in STEPS:
            self.assertTrue(serve.serve(engine, serve.Host(), step))
        self.assertEqual(len(self.warnings), len(STEPS))
        self.assertIn("--device host", self.warnings[0])
        engine.seal()
        self.assertTrue(serve.serve(engine, serve.Host(), STEPS[0]))

    def test_the_environment_names_the_device_where_the_caller_does_not(self):
        os.environ["ATTUNE_DEVICE"] = "host"
        self.addCleanup(os.environ.pop, "ATTUNE_DEVICE")
        self.engine()  # opens without a driver
        with self.assertRaises(attune_ctypes.AttuneError) as raised:
            self.engine(device="1000")
        self.assertEqual(raised.exception.status, attune_ctypes.NO_DEVICE)

    def test_a_wrong_device_is_an_invalid_argument_that_lists_the_forms(self):
        with self.assertRaises(attune_ctypes.AttuneError) as raised:
            self.engine(device="cpu")
        self.assertEqual(raised.exception.status, attune_ctypes.INVALID_ARGUMENT)
        self.assertIn("host+checks", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
