"""Redis's own tests (of its source package, written in Tcl) against a server that they find at PORT,
each unit in a process of its own. Outcomes as outcomes.py says; where the variable ONLY names a file
with names of tests, all of their units run, because tests of a unit build on one another. Variables:
PORT; TESTS, the folder of the source; TOOLS and NAME, as programs.py says."""

import os
import re
import shutil
import subprocess
import sys

import outcomes

PORT = os.environ["PORT"]
UNIT_SECONDS = 300
# What came of a test, and of which; behind a failure its reason stands in lines of its own.
TOLD = re.compile(r"\[(ok|err|exception)\]: (.*)")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def prepare(folder):
    """A copy of the tests, which write beside themselves, with the programs that they call."""
    shutil.copytree(os.path.join(os.environ["TESTS"], "tests"), os.path.join(folder, "tests"))
    os.makedirs(os.path.join(folder, "tests", "tmp"), exist_ok=True)
    os.mkdir(os.path.join(folder, "src"))
    for program in ("cli", "benchmark", "server"):
        source = os.path.join(os.environ["TOOLS"], f"{os.environ['NAME']}-{program}")
        os.symlink(source, os.path.join(folder, "src", f"redis-{program}"))


def every_unit(folder):
    """Those that a server may be given which was started by others."""
    with open(os.path.join(folder, "tests", "test_helper.tcl")) as file:
        listed = re.search(r"set ::all_tests \{(.*?)\}", file.read(), re.S).group(1).split()
    programs = ("integration/redis-cli", "integration/redis-benchmark")
    return [unit for unit in listed if unit.startswith("unit/") or unit in programs]


def chosen_units(folder):
    units = every_unit(folder)
    if only := os.environ.get("ONLY"):
        with open(only) as file:
            named = {line.split(": ", 1)[0] for line in file}
        units = [unit for unit in units if unit in named]
    return units


def run(folder, unit):
    """What a unit wrote, and whether it came to its end."""
    # Both sides run at once, and each looks for a free port from its own on.
    own_port = 10000 + int(PORT) % 10000
    command = ["tclsh", "tests/test_helper.tcl", "--host", "127.0.0.1", "--port", PORT, "--durable",
               "--singledb", "--tags", "-slow", "--baseport", str(own_port), "--single", unit]
    # Its own child may outlive it: what it wrote is read from a file, not from a pipe.
    told = os.path.join(folder, "told")
    with open(told, "wb") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            process.wait(UNIT_SECONDS)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
            os.killpg(process.pid, 9)
            process.wait()
    with open(told, encoding="latin1") as file:
        return COLOURS.sub("", file.read()), ended


def tests(text):
    """Name, outcome and reason of each test; numbers that are random have no place in a name."""
    found = []
    for line in text.splitlines():
        if match := TOLD.match(line):
            kind, name = match.groups()
            name = re.sub(r" \(\d+ ms\)$| in tests/\S*$", "", name)
            name = re.sub(r"\d{5,}", "N", name)
            found.append([name, "passed" if kind == "ok" else "failed", []])
        elif line.startswith("["):
            found.append(None)
        elif found and found[-1] and found[-1][1] == "failed":
            found[-1][2].append(line)
    return [test for test in found if test]


def main():
    folder = os.environ["RECORD"] + ".tests"
    prepare(folder)
    for unit in chosen_units(folder):
        text, ended = run(folder, unit)
        print(text, flush=True)
        seen = {}
        for name, outcome, why in tests(text):
            seen[name] = seen.get(name, 0) + 1
            number = f" #{seen[name]}" if seen[name] > 1 else ""
            outcomes.write(f"{unit}: {name}{number}", outcome, " ".join(why))
        outcomes.write(f"{unit}: it comes to its end", "passed" if ended else "failed",
                       "" if ended else f"it did not within {UNIT_SECONDS} s")
        if not ended:
            # What it left behind would make the next one fail.
            for kind in ("function", "script"):
                subprocess.run([os.path.join(folder, "src", "redis-cli"), "-p", PORT, kind, "kill"],
                               stdout=subprocess.DEVNULL, timeout=60)


if __name__ == "__main__":
    sys.exit(main())
