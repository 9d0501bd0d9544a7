#!/usr/bin/env python3
"""The C ABI from Python: layouts, error paths, and serving where there is a GPU.

Run with ATTUNE_LIBRARY set to libattune.so. Without a GPU the serving tests skip, or fail when
ATTUNE_REQUIRE_GPU=1.
"""

import ctypes
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

import attune_ctypes  # noqa: E402
import serve  # noqa: E402


class ErrorPaths(unittest.TestCase):
    def setUp(self):
        self.library = attune_ctypes.Library()

    def test_version_is_three_numbers(self):
        self.assertRegex(self.library.version(), r"^\d+\.\d+\.\d+$")

    def test_every_status_has_a_name(self):
        names = {self.library.c.attune_status_name(status) for status in range(8)}
        self.assertEqual(len(names), 8)
        self.assertNotIn(b"unknown status", names)

    def test_null_handles_are_invalid_arguments(self):
        out = ctypes.c_void_p()
        size = ctypes.c_size_t()
        for name, arguments in (
                ("attune_engine_seal", (None,)),
                ("attune_engine_prepare", (None, b"decode", ctypes.byref(out))),
                ("attune_attention_workspace_bytes", (None, ctypes.byref(size))),
                ("attune_attention_launch", (None, None, None)),
                ("attune_attention_explain", (None, None, 0, None))):
            with self.assertRaises(attune_ctypes.AttuneError) as raised:
                self.library.call(name, *arguments)
            self.assertEqual(raised.exception.status, attune_ctypes.INVALID_ARGUMENT)
            self.assertIn("NULL", str(raised.exception))

    def test_a_device_that_is_not_there_is_no_device(self):
        with self.assertRaises(attune_ctypes.AttuneError) as raised:
            attune_ctypes.Engine(self.library, device_ordinal=1000)
        self.assertEqual(raised.exception.status, attune_ctypes.NO_DEVICE)
        self.assertTrue(str(raised.exception))

    def test_the_struct_layout_is_the_librarys(self):
        # The size is checked first, and it is the library's own only if every field agrees.
        options = attune_ctypes.Options(struct_size=ctypes.sizeof(attune_ctypes.Options),
                                        tune_budget_s=-2.5)
        handle = ctypes.c_void_p()
        with self.assertRaises(attune_ctypes.AttuneError) as raised:
            self.library.call("attune_engine_create", ctypes.byref(options), ctypes.byref(handle))
        self.assertIn("tune_budget_s=-2.5", str(raised.exception))
        # Version 0.1.0 ended before `device`.
        options.struct_size = attune_ctypes.Options.device.offset - 8
        with self.assertRaises(attune_ctypes.AttuneError) as raised:
            self.library.call("attune_engine_create", ctypes.byref(options), ctypes.byref(handle))
        self.assertIn("struct_size", str(raised.exception))

    def test_the_options_of_the_cache_reach_the_engine(self):
        warnings = []
        with tempfile.TemporaryDirectory() as folder:
            missing = [os.path.join(folder, name) for name in ("a.db", "b.db")]
            attune_ctypes.Engine(self.library, cache_path=os.path.join(folder, "tune.db"),
                                 device="host", cache_bases=missing, cache_max_size="1M",
                                 gpu_alias="NVIDIA H200", log=warnings.append)
        self.assertEqual(len(warnings), 2)
        for path, warning in zip(missing, warnings):
            self.assertIn(path, warning)
        with self.assertRaises(attune_ctypes.AttuneError) as raised:
            attune_ctypes.Engine(self.library, device="host", cache_max_size="much")
        self.assertIn("'much'", str(raised.exception))


class Serving(unittest.TestCase):
    def setUp(self):
        self.warnings = []
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        try:
            self.engine = attune_ctypes.Engine(
                attune_ctypes.Library(), cache_path=os.path.join(folder.name, "tune.db"),
                strict=True, log=self.warnings.append)
        except attune_ctypes.AttuneError as error:
            if error.status != attune_ctypes.NO_DEVICE:
                raise
            if os.environ.get("ATTUNE_REQUIRE_GPU") == "1":
                self.fail(str(error))
            self.skipTest(str(error))

    def test_both_steps_are_right_and_misses_are_warned_about(self):
        cuda = serve.Cuda()
        for step in serve.STEPS:
            self.assertTrue(serve.serve(self.engine, cuda, step))
        self.assertEqual(len(self.warnings), len(serve.STEPS))
        self.assertIn("attune tune --problem", self.warnings[0])

    def test_a_bad_launch_names_the_argument(self):
        attention = self.engine.prepare(serve.STEPS[0][0])
        with self.assertRaises(attune_ctypes.AttuneError) as raised:
            attention.launch(q=8)
        self.assertEqual(raised.exception.status, attune_ctypes.INVALID_ARGUMENT)
        self.assertIn("q=0x8", str(raised.exception))

    def test_a_sealed_engine_refuses_new_problems(self):
        self.engine.seal()
        with self.assertRaises(attune_ctypes.AttuneError) as raised:
            self.engine.prepare(serve.STEPS[0][0])
        self.assertEqual(raised.exception.status, attune_ctypes.NOT_PREPARED)


if __name__ == "__main__":
    unittest.main()
