#!/usr/bin/env python3
"""bench/record.sh with a stand-in for attune, bench/table.py, bench/agreement.py and the shapes of bench/prefill_peers.py."""

import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = ROOT / "bench" / "tables"

# Prints its arguments and writes the CSV that it is asked for, and a cache where there is one to copy; fails where a file says so.
STAND_IN = """#!/bin/sh
echo "attune $*"
while [ $# -gt 0 ]; do
  [ "$1" = --csv ] && echo made >"$2"
  [ "$1" = --cache ] && [ -n "$CACHE" ] && cp "$CACHE" "$2"
  shift
done
[ ! -e "$FAILS" ]
"""

CSV = """taken,gpu,driver,read_tb_s,tensor_tflops,method,problem,kv_len,candidate,match,time_us,spread_us,samples,\
floor_us,default_candidate,default_us,default_spread_us,lengths
t,NVIDIA H200,13.0,4.430,953.2,2,decode/b1/q1/kv1-1024/h32x4/d512/unified/bf16,1024,c,exact,6.472,0.002,5,1.199,d,7.695,0.024,
t,NVIDIA H200,13.0,4.430,953.2,2,verify/b8/q5/kv512-65536/h32x4/d512/contiguous/bf16,512..65536,c,nearest,250,5,5,200,d,260,1,512 65536
"""


def heads_of(file):
    """(q heads, KV heads, head_dim, layout) of the layers of a preset."""
    text = file.read_text(encoding="utf-8")
    keys = ("num_q_heads", "num_kv_heads", "head_dim", "kv_layout")
    return set(zip(*(re.findall(rf"{key}: (\S+)", text) for key in keys)))


def make_cache(path, winner, times):
    """A cache of one problem; times by candidate, at 1 and 1024 keys."""
    with sqlite3.connect(path) as database:
        database.executescript("""
            CREATE TABLE problems (id INTEGER PRIMARY KEY, text, shape, kv_min, kv_max);
            CREATE TABLE candidates (id INTEGER PRIMARY KEY, text);
            CREATE TABLE measurements (problem_id, candidate_id, median_us);
            CREATE TABLE winners (problem_id, candidate_id);
            INSERT INTO problems VALUES (1, 'p', 's', 1, 1024), (2, 'p1', 's', 1, 1), (3, 'p2', 's', 1024, 1024);""")
        for idx, (candidate, (short_us, long_us)) in enumerate(times.items(), 1):
            database.execute("INSERT INTO candidates VALUES (?, ?)", (idx, candidate))
            database.execute("INSERT INTO measurements VALUES (2, ?, ?)", (idx, short_us))
            database.execute("INSERT INTO measurements VALUES (3, ?, ?)", (idx, long_us))
            if candidate == winner:
                database.execute("INSERT INTO winners VALUES (1, ?)", (idx,))
    database.close()
    return path


class Record(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.attune = self.folder / "attune"
        self.attune.write_text(STAND_IN, encoding="utf-8")
        self.attune.chmod(0o755)

    def record(self, *arguments, **more):
        variables = dict(os.environ, ATTUNE=str(self.attune), FAILS=str(self.folder / "fails"))
        variables.update(CACHE="")
        variables.update(more)
        return subprocess.run([ROOT / "bench" / "record.sh", *arguments], env=variables, cwd=self.folder,
                              capture_output=True, text=True, timeout=60, check=False)

    def test_tunes_and_times_every_part_of_a_table(self):
        done = self.record("out", "31b", "batch")
        self.assertEqual(done.returncode, 0, done.stderr)
        commands = (self.folder / "out" / "commands.txt").read_text(encoding="utf-8").splitlines()
        self.assertEqual(len(commands), 2 * (2 + 3))
        self.assertEqual(commands[0], "attune tune --preset bench/tables/31b-global.yaml --cache tune.db")
        self.assertEqual(commands[1], "attune bench --preset bench/tables/31b-global.yaml --kv 1024,8192,32768,131072 "
                                      "--csv 31b-global.csv --cache tune.db")
        self.assertIn("--lengths 512,1024,2048,4096,8192,16384,32768,65536", commands[-1])
        for part in ("31b-global", "31b-sliding", "31b-batch", "12b-batch", "26b-a4b-batch"):
            self.assertTrue((self.folder / "out" / f"{part}.csv").exists(), part)
        self.assertIn("==> 2 of 5: 31b-sliding", done.stderr)

    def test_audits_the_register_rule_of_prefills_too(self):
        self.assertEqual(self.record("out", "register-rule", "register-rule-prefill").returncode, 0)
        commands = (self.folder / "out" / "commands.txt").read_text(encoding="utf-8").splitlines()
        self.assertIn("--kv 131072 --register-rule --csv register-rule.csv", commands[1])
        self.assertIn("--kv 2048 --register-rule --csv register-rule-prefill.csv", commands[3])
        self.assertEqual(heads_of(TABLES / "register-rule-prefill.yaml"), heads_of(ROOT / "presets" / "gemma4-31b.yaml"))

    def test_says_how_far_ten_tunes_agree(self):
        smi = self.folder / "nvidia-smi"
        smi.write_text("#!/bin/sh\necho NVIDIA H200\n", encoding="utf-8")
        smi.chmod(0o755)
        cache = make_cache(self.folder / "filled.db", "b", {"a": (4, 100), "b": (4, 103)})
        done = self.record("out", "agreement", CACHE=str(cache), PATH=f"{self.folder}:{os.environ['PATH']}")
        self.assertEqual(done.returncode, 0, done.stderr)
        commands = (self.folder / "out" / "commands.txt").read_text(encoding="utf-8").splitlines()
        self.assertEqual(len(commands), 12)
        self.assertIn("cache prune --gpu NVIDIA H200 --no-backup", commands[1])
        self.assertIn("--effort exhaustive", commands[-1])
        self.assertIn("10 of 10 winners are the most frequent",
                      (self.folder / "out" / "agreement.txt").read_text(encoding="utf-8"))

    def test_writes_no_folder_of_the_machine(self):
        self.assertEqual(self.record("--cache", "mine.db", "out", "small-batch", "preset").returncode, 0)
        for file in (self.folder / "out").glob("*.txt"):
            text = file.read_text(encoding="utf-8")
            self.assertNotIn(str(self.folder), text, file)
            if file.name != "gpu.txt":
                self.assertIn("--cache ", text)
        self.assertIn("--cache mine.db", (self.folder / "out" / "small-batch.txt").read_text(encoding="utf-8"))

    def test_goes_on_after_a_table_that_fails_and_names_it(self):
        (self.folder / "fails").touch()
        done = self.record("out", "graph", "small-batch")
        self.assertEqual(done.returncode, 1)
        self.assertIn("these failed: graph small-batch", done.stderr)

    def test_refuses_what_it_does_not_know(self):
        for arguments in ((), ("out",), ("out", "70b"), ("--bogus", "out", "31b"), ("--cache",)):
            self.assertEqual(self.record(*arguments).returncode, 2, arguments)
        self.assertFalse((self.folder / "out").exists())
        self.assertEqual(self.record("--help").returncode, 0)

    def test_tables_have_the_heads_of_the_presets(self):
        for model in ("31b", "12b", "26b-a4b"):
            preset = heads_of(ROOT / "presets" / f"gemma4-{model}.yaml")
            global_layers = {layer for layer in preset if layer[2] == "512"}
            self.assertEqual(len(preset), 3)
            self.assertEqual(heads_of(TABLES / f"{model}-global.yaml"), global_layers)
            self.assertEqual(heads_of(TABLES / f"{model}-batch.yaml"), global_layers)
            self.assertEqual(heads_of(TABLES / f"{model}-sliding.yaml"), preset - global_layers)


class Table(unittest.TestCase):
    def table_of(self, text):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "31b.csv"
            file.write_text(text, encoding="utf-8")
            return subprocess.run([sys.executable, ROOT / "bench" / "table.py", file], capture_output=True, text=True,
                                  encoding="utf-8", timeout=60, check=False)

    def test_has_a_table_for_each_shape(self):
        text = self.table_of(CSV).stdout
        self.assertIn("**batch 1, 32 q heads, 4 KV heads, d512, unified rows, bf16**", text)
        self.assertIn("| 1 | 1024 | 6.47 | 7.70 | 1.20 | 19 |\n", text)
        self.assertIn("half the interquartile range at most 0.3%.\n", text)
        self.assertIn("| 5 | 512..65536 | 250.0 (nearest) | 260.0 | 200.0 | 80 |\n", text)
        self.assertIn("Lengths 512, 65536.\n", text)

    def test_refuses_a_csv_without_times(self):
        done = self.table_of("taken,rule\nt,kept\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("missing=", done.stderr)


class PrefillPeers(unittest.TestCase):
    def peers(self, *arguments):
        return subprocess.run([sys.executable, ROOT / "bench" / "prefill_peers.py", *arguments], capture_output=True,
                              text=True, timeout=60, check=False)

    def test_has_the_shapes_of_the_tables(self):
        """Layouts are ours alone."""
        wanted = set()
        for name in ("prefill-global", "prefill-256", "prefill-sliding"):
            for layer in (TABLES / f"{name}.yaml").read_text(encoding="utf-8").split("- name:")[1:]:
                fields = dict(re.findall(r"(\w+): \[?([^\]\n]*)", layer))
                for keys in fields["kv_ranges"].split(", "):
                    window = f"/w{fields['window']}" if "window" in fields else ""
                    wanted.add(f"prefill/b1/q{fields['prefill']}/kv{keys}/h{fields['num_q_heads']}x{fields['num_kv_heads']}/"
                               f"d{fields['head_dim']}{window}")
        listed = self.peers("--list").stdout.splitlines()
        self.assertEqual({line.split()[0] for line in listed}, wanted)

    def test_counts_the_keys_that_are_seen(self):
        flops = dict(line.split()[:2] for line in self.peers("--list").stdout.splitlines())
        causal = 4 * 32 * 512 * 2048 * 2049 / 2
        self.assertAlmostEqual(float(flops["prefill/b1/q2048/kv2048/h32x4/d512"]), causal * 1e-12, delta=1e-3)
        window = 4 * 32 * 256 * (1024 * 1025 / 2 + (8192 - 1024) * 1024)
        self.assertAlmostEqual(float(flops["prefill/b1/q8192/kv8192/h32x16/d256/w1024"]), window * 1e-12, delta=1e-3)

    def test_refuses_what_it_does_not_know(self):
        for arguments in (("--peers", "nobody"), ("--only", "d1"), ("--rounds", "1")):
            self.assertEqual(self.peers(*arguments).returncode, 2, arguments)


class Agreement(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def cache(self, name, winner, times):
        return make_cache(self.folder / name, winner, times)

    def run_on(self, *arguments):
        return subprocess.run([sys.executable, ROOT / "bench" / "agreement.py", *arguments], capture_output=True, text=True,
                              encoding="utf-8", timeout=60, check=False)

    def test_counts_winners_and_the_regret_of_the_worst(self):
        times = {"a": (5, 100), "b": (4, 103)}
        caches = [self.cache(f"{i}.db", winner, times) for i, winner in enumerate("aab")]
        done = self.run_on(*caches)
        self.assertEqual(done.returncode, 0, done.stderr)
        # a loses 1 of 20 us at one key, b 3 of 100 us.
        self.assertIn("p  2 of 3 a  worst regret 5.0%, avoidable 2.0%", done.stdout)
        self.assertIn("2 of 3 winners are the most frequent of their problem; worst avoidable regret 2.0%", done.stdout)

    def test_counts_the_times_of_a_cache_whose_winners_do_not(self):
        quick = self.cache("quick.db", "b", {"b": (4, 103)})
        exhaustive = self.cache("exhaustive.db", "a", {"a": (4, 100), "b": (4, 103)})
        self.assertIn("worst regret 0.0%", self.run_on(quick).stdout)
        times = self.folder / "times.csv"
        self.assertIn("p  1 of 1 b  worst regret 3.0%", self.run_on("--with", exhaustive, "--csv", times, quick).stdout)
        lines = times.read_text(encoding="utf-8").splitlines()
        self.assertEqual(lines[0], "shape,kv_len,candidate,median_us")
        self.assertEqual(len(lines), 1 + 4)
        self.assertTrue(lines[-1].endswith("b,103.000"), lines[-1])

    def test_says_how_many_winners_lack_times(self):
        lacking = self.cache("lacking.db", "a", {"a": (4, 100)})
        with sqlite3.connect(lacking) as database:
            database.execute("DELETE FROM measurements")
        database.close()
        self.assertIn("1 winners lack times", self.run_on(lacking).stdout)

    def test_refuses_what_is_no_cache(self):
        self.assertEqual(self.run_on(self.folder / "none.db").returncode, 1)


if __name__ == "__main__":
    unittest.main()
