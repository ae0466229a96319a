"""Compares the outcomes of tests on a plain server with those of the same tests through shortstop.

    compare.py again PLAIN THROUGH      prints the tests that differ, one a line
    compare.py table RESULTS [--json]   prints the table; fails unless the list of differences is true

RESULTS has a folder SERVER/SUITE/PROTOCOL for each run, with plain.jsonl and through.jsonl, and
where tests differed again-N-plain.jsonl and again-N-through.jsonl, of three more runs of these alone.
A test that differs in none of the three, or whose outcome on the plain server changes, is unsteady:
it is named, and does not fail the run. `passed_on_redis_only` also holds tests that passed on both with
different answers, and those that came to no end through shortstop.
"""

import fnmatch
import json
import os
import sys

import outcomes

LIST = os.path.join(os.path.dirname(__file__), "differences")
PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "gateway.md")
NOTHING = {"outcome": "failed", "why": "it has no outcome: the run was ended before"}
COUNTS = ["passed_on_both", "failed_on_both", "skipped", "passed_on_redis_only",
          "passed_on_gateway_only", "unsteady"]
AGAIN = range(1, 4)


def verdict(plain, through):
    on_plain, on_through = plain["outcome"], through["outcome"]
    if on_plain == on_through == "passed":
        same = plain.get("answer") == through.get("answer")
        return "passed_on_both" if same else "passed_on_redis_only"
    if on_plain == "passed":
        return "passed_on_redis_only"
    if on_through == "passed":
        return "passed_on_gateway_only"
    return "skipped" if on_plain == on_through == "skipped" else "failed_on_both"


def differing(plain, through):
    steady = ("passed_on_both", "failed_on_both", "skipped")
    names = list(plain) + [name for name in through if name not in plain]
    return [name for name in names
            if verdict(plain.get(name, NOTHING), through.get(name, NOTHING)) not in steady]


def why(plain, through):
    if through["outcome"] != "passed":
        return through["why"]
    if plain["outcome"] != "passed":
        return plain["why"]
    return f"{through.get('answer')!r}; Redis: {plain.get('answer')!r}"


def compare(folder):
    """What one run of a suite came to: the counts, and the tests that differ, with the reason."""
    def read(prefix):
        return [outcomes.read(os.path.join(folder, f"{prefix}{side}.jsonl"))
                for side in ("plain", "through")]

    plain, through = read("")
    runs = [(plain, through), *(read(f"again-{number}-") for number in AGAIN)]
    differ = set(differing(plain, through))
    counts = dict.fromkeys(COUNTS, 0)
    tests = []
    for name in dict.fromkeys([*plain, *through]):
        pairs = [(on_plain.get(name, NOTHING), on_through.get(name, NOTHING))
                 for on_plain, on_through in (runs if name in differ else runs[:1])]
        found = verdict(*pairs[0])
        if name in differ:
            if unsteady(pairs, found):
                found = "unsteady"
            tests.append({"test": name, "found": found, "why": why(*pairs[0])})
        counts[found] += 1
    return counts, tests


def unsteady(pairs, found):
    if len({plain["outcome"] for plain, _ in pairs}) > 1:
        return True
    again = [verdict(*pair) for pair in pairs[1:]]
    return found not in again if found == "passed_on_redis_only" else set(again) != {found}


def read_list():
    """The rows of the list: suite, protocol, server and test, as patterns, and the reason."""
    rows = []
    with open(LIST) as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.startswith("#"):
                continue
            if line[0].isspace() and rows:
                rows[-1]["reason"] = (rows[-1]["reason"] + " " + line.strip()).strip()
                continue
            words = line.split(None, 3)
            if len(words) != 4:
                sys.exit(f"error: {LIST}:{number}: expected SUITE PROTOCOL SERVER TEST, and the "
                         "reason in indented lines below")
            rows.append({"patterns": words[:3], "test": words[3].strip(), "reason": "",
                         "ran": False, "differs": False})
    without = [row["test"] for row in rows if not row["reason"]]
    if without:
        sys.exit(f"error: {LIST}: no reason stands below {without[0]}")
    with open(PAGE) as file:
        promised = {line.split("|")[1].strip(" `") for line in file if line.startswith("| ")}
    for row in rows:
        if row["reason"].split(":")[0].strip("`") not in promised:
            sys.exit(f"error: {LIST}: the reason of {row['test']} begins with no row of a table of "
                     f"{os.path.relpath(PAGE)}: expected one, and a colon")
    return rows


def find_row(rows, run, test):
    for row in rows:
        if row["test"] == test and all(map(fnmatch.fnmatchcase, run, row["patterns"])):
            return row
    return None


def table(results):
    """All runs, and the rows of the list that are not true of them."""
    listed = read_list()
    runs = []
    for server in sorted(os.listdir(results)):
        for suite in sorted(os.listdir(os.path.join(results, server))):
            for protocol in sorted(os.listdir(os.path.join(results, server, suite))):
                folder = os.path.join(results, server, suite, protocol)
                counts, tests = compare(folder)
                run = (suite, protocol, server)
                for name in outcomes.read(os.path.join(folder, "plain.jsonl")):
                    if row := find_row(listed, run, name):
                        row["ran"] = True
                for test in tests:
                    if test["found"] == "passed_on_redis_only":
                        row = find_row(listed, run, test["test"])
                        test["reason"] = row["reason"] if row else None
                        if row:
                            row["differs"] = True
                runs.append({"suite": suite, "protocol": protocol, "server": server, **counts,
                             "tests": tests})
    return runs, [row["test"] for row in listed if row["ran"] and not row["differs"]]


def print_table(runs, outlived):
    header = ["suite", "protocol", "server"] + [name.replace("_", " ") for name in COUNTS]
    rows = [header] + [[run["suite"], run["protocol"], run["server"]]
                       + [str(run[name]) for name in COUNTS] for run in runs]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    for found in ("passed_on_redis_only", "unsteady", "passed_on_gateway_only"):
        named = {}
        for run in runs:
            for test in run["tests"]:
                if test["found"] == found:
                    place = f"{run['suite']} {run['protocol']} {run['server']}"
                    named.setdefault(test["test"], []).append((place, test))
        if named:
            print(f"\n{found}: {len(named)}")
        for name, places in named.items():
            print(f"  {name}\n    on {', '.join(place for place, _ in places)}")
            test = places[0][1]
            print(f"    {test.get('reason') or 'not in the list: ' * ('reason' in test) + test['why']}")
    for name in outlived:
        print(f"\nthe list of differences has {name}, which does not differ any more: remove it")


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "again":
        for name in differing(outcomes.read(sys.argv[2]), outcomes.read(sys.argv[3])):
            print(name)
        return
    if len(sys.argv) < 3 or sys.argv[1] != "table":
        sys.exit(__doc__)
    runs, outlived = table(sys.argv[2])
    unlisted = sum(1 for run in runs for test in run["tests"] if test.get("reason", "") is None)
    if "--json" in sys.argv:
        only = {test["test"] for run in runs for test in run["tests"]
                if test["found"] == "passed_on_redis_only"}
        print(json.dumps({"runs": runs, "passed_on_redis_only": len(only), "unlisted": unlisted,
                          "outlived": outlived}, indent=1))
    else:
        print_table(runs, outlived)
    if not runs or unlisted or outlived:
        sys.exit(1)


if __name__ == "__main__":
    main()
