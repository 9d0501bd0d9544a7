#!/usr/bin/env python3
"""Markdown tables, as bench/results/README.md has them, of CSVs that `attune bench --csv` wrote: table.py CSV..."""

import csv
import itertools
import os
import sys

LAYOUTS = {"contiguous": "separate rows", "ring": "ring", "unified": "unified rows", "paged": "pages",
           "unified-paged": "pages of unified rows"}


def shape_of(problem):
    """What all rows of a table have in common: a problem's text without op, query tokens and lengths."""
    return [part for part in problem.split("/")[1:] if not part.startswith(("q", "kv"))]


def title_of(shape):
    """h32x4, d512, w1024, ring, bf16 in words."""
    words = []
    for part in shape:
        if part[0] == "b" and part[1:].isdigit():
            words.append(f"batch {part[1:]}")
        elif part[0] == "h":
            words.append("{} q heads, {} KV heads".format(*part[1:].split("x")))
        elif part[0] == "w" and part[1:].isdigit():
            words.append(f"window {part[1:]}")
        else:
            words.append(LAYOUTS.get(part, part))
    return ", ".join(words)


def time_text(us):
    return f"{us:.2f}" if us < 10 else f"{us:.1f}"


def spread_of(rows):
    """The largest half of an interquartile range, in percent of its time."""
    return 100 * max(
        float(row[spread]) / float(row[time])
        for row in rows
        for time, spread in (("time_us", "spread_us"), ("default_us", "default_spread_us")))


def table_of(rows):
    first = rows[0]
    yield f"**{title_of(shape_of(first['problem']))}**"
    yield ""
    yield (f"{first['gpu']}, method {first['method']}: reads {float(first['read_tb_s']):.2f} TB/s, tensor cores "
           f"{float(first['tensor_tflops']):.0f} TFLOP/s; times in µs, half the interquartile range at most "
           f"{spread_of(rows):.1f}%.")
    for lengths in sorted({row["lengths"] for row in rows if row.get("lengths")}):
        yield "Lengths " + lengths.replace(" ", ", ") + "."
    yield ""
    yield "| M | kv_len | ours | default | floor | % of floor |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        query_tokens = row["problem"].split("/")[2][1:]
        ours = time_text(float(row["time_us"]))
        if row["match"] != "exact":
            ours += f" ({row['match']})"
        cells = [query_tokens, row["kv_len"], ours, time_text(float(row["default_us"])),
                 time_text(float(row["floor_us"])), f"{100 * float(row['floor_us']) / float(row['time_us']):.0f}"]
        yield "| " + " | ".join(cells) + " |"
    yield ""


def tables_of(file):
    with open(file, newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    missing = {"problem", "kv_len", "time_us", "floor_us", "default_us"} - set(rows[0] if rows else ())
    if missing:
        sys.exit(f"table.py: these are no times: file={file} missing={','.join(sorted(missing))}; name a CSV of attune bench")
    yield f"### {os.path.splitext(os.path.basename(file))[0]}"
    yield ""
    for _, group in itertools.groupby(rows, key=lambda row: shape_of(row["problem"])):
        yield from table_of(list(group))


def main(files):
    if not files or files[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if files else 2
    for file in files:
        print("\n".join(tables_of(file)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
