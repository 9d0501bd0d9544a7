#!/usr/bin/env python3
"""How far tuning caches agree that were filled by tunes of the same problems: agreement.py CACHE CACHE...

For each problem: how many of the caches hold its most frequent winner, and the worst regret of any cache's winner: time
lost at a length over the best time there, by the median over the caches of a candidate's times (as `attune tune` counts
it: over no less than 20 us or the best time at the longest length). One winner serves all lengths of a problem, so even
the best choice has a regret where no candidate is best at all of them: "avoidable" is what the winner has above the
candidate with the least. Of a cache of `--effort exhaustive` after --with the times count too, so that candidates are among
the judges' that a normal tune leaves out. One cache alone is a poor judge: a candidate that it did not take for a finalist
was timed by one CUDA graph, and one in a hundred of those is 0.25 us a launch slower than others."""

import argparse
import collections
import csv
import pathlib
import sqlite3
import statistics
import sys

NOTICED_US = 20  # tuner/select.h, kNoticedUs

WINNERS = """SELECT p.text, p.shape, p.kv_min, p.kv_max, c.text FROM winners w JOIN problems p ON p.id = w.problem_id
             JOIN candidates c ON c.id = w.candidate_id"""
TIMES = """SELECT p.shape, p.kv_min, c.text, m.median_us FROM measurements m JOIN problems p ON p.id = m.problem_id
           JOIN candidates c ON c.id = m.candidate_id"""


def read_cache(path):
    """({problem: (shape, kv_min, kv_max, winner)}, {(shape, kv_len): {candidate: us}})."""
    with sqlite3.connect(f"{pathlib.Path(path).resolve().as_uri()}?mode=ro", uri=True) as database:
        winners = {text: rest for text, *rest in database.execute(WINNERS)}
        times = collections.defaultdict(dict)
        for shape, kv_len, candidate, median_us in database.execute(TIMES):
            times[shape, kv_len][candidate] = median_us
    return winners, times


def typical_times(caches):
    """The median over the caches of each time."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for _, times in caches:
        for point, candidates in times.items():
            for candidate, median_us in candidates.items():
                found[point][candidate].append(median_us)
    return {point: {candidate: statistics.median(us) for candidate, us in candidates.items()}
            for point, candidates in found.items()}


def write_times(times, path):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("shape", "kv_len", "candidate", "median_us"))
        for (shape, kv_len), candidates in sorted(times.items()):
            for candidate, median_us in sorted(candidates.items()):
                writer.writerow((shape, kv_len, candidate, f"{median_us:.3f}"))


def worst_regret(times, shape, kv_min, kv_max, candidate):
    """None where the candidate lacks a time."""
    points = sorted(kv_len for known, kv_len in times if known == shape and kv_min <= kv_len <= kv_max)
    if not points or any(candidate not in times[shape, kv_len] for kv_len in points):
        return None
    longest_us = min(times[shape, points[-1]].values())
    worst = 0.0
    for kv_len in points:
        best_us = min(times[shape, kv_len].values())
        lost_us = times[shape, kv_len][candidate] - best_us
        worst = max(worst, lost_us / max(best_us, min(longest_us, NOTICED_US)))
    return worst


def least_regret(times, shape, kv_min, kv_max):
    """Of any one candidate; None where none has all times."""
    candidates = set().union(*(measured for (known, kv_len), measured in times.items()
                               if known == shape and kv_min <= kv_len <= kv_max))
    regrets = [worst_regret(times, shape, kv_min, kv_max, candidate) for candidate in candidates]
    return min((regret for regret in regrets if regret is not None), default=None)


def report(caches, times):
    """Prints a line for each problem and the totals."""
    agreeing = total = unknown = 0
    worst_avoidable = 0.0
    for problem in sorted(set().union(*(winners for winners, _ in caches))):
        chosen = [winners[problem] for winners, _ in caches if problem in winners]
        counts = collections.Counter(winner for *_, winner in chosen)
        regrets = [worst_regret(times, *one) for one in chosen]
        known = [regret for regret in regrets if regret is not None]
        unknown += len(regrets) - len(known)
        worst = max(known, default=0.0)
        avoidable = worst - (least_regret(times, *chosen[0][:3]) or 0.0) if known else 0.0
        worst_avoidable = max(worst_avoidable, avoidable)
        most = counts.most_common(1)[0]
        agreeing += most[1]
        total += len(chosen)
        print(f"{problem}  {most[1]} of {len(chosen)} {most[0]}  worst regret {worst:.1%}, avoidable {avoidable:.1%}")
    print(f"{agreeing} of {total} winners are the most frequent of their problem; worst avoidable regret {worst_avoidable:.1%}"
          f"{f'; {unknown} winners lack times' if unknown else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("caches", nargs="+", metavar="CACHE")
    parser.add_argument("--with", dest="also", metavar="CACHE", help="a cache whose times count, but not its winners")
    parser.add_argument("--csv", metavar="FILE", help="writes the times that judge")
    arguments = parser.parse_args()
    try:
        caches = [read_cache(path) for path in arguments.caches]
        judges = caches + ([read_cache(arguments.also)] if arguments.also else [])
    except sqlite3.Error as error:
        print(f"cannot read a tuning cache: {error}; name files made by attune tune --cache", file=sys.stderr)
        return 1
    if not any(winners for winners, _ in caches):
        print("no cache has a winner", file=sys.stderr)
        return 1
    times = typical_times(judges)
    if arguments.csv:
        write_times(times, arguments.csv)
    report(caches, times)
    return 0


if __name__ == "__main__":
    sys.exit(main())
