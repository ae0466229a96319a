"""A plugin of pytest that writes the outcome of each test (outcomes.py). Where the variable ONLY
names a file with names of tests, one a line, only these run."""

import os

import outcomes

so_far = {}


def pytest_collection_modifyitems(items):
    if only := os.environ.get("ONLY"):
        with open(only) as file:
            names = set(file.read().splitlines())
        items[:] = [item for item in items if item.nodeid in names]


def pytest_runtest_logreport(report):
    # A test's set-up and its end have reports of their own: the first that is not well counts.
    before = so_far.setdefault(report.nodeid, ("passed", ""))
    if before[0] == "passed" and report.outcome != "passed":
        so_far[report.nodeid] = (report.outcome, reason(report))
    if report.when == "teardown":
        outcomes.write(report.nodeid, *so_far.pop(report.nodeid))


def reason(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message if crash else report.longreprtext.strip().split("\n")[-1]
