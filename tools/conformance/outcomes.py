"""Outcomes of tests as files of lines of JSON: `test`, `outcome` (passed, failed or skipped), `why`
it is not passed, and for what is compared by more than that, `answer`. The file's path is in the
variable RECORD. A line is written when its outcome is known: what a run has told stays when the run
is ended."""

import json
import os


def write(test, outcome, why="", answer=None):
    line = {"test": test, "outcome": outcome, "why": " ".join(str(why).split())[:300]}
    if answer is not None:
        line["answer"] = answer
    with open(os.environ["RECORD"], "a") as file:
        file.write(json.dumps(line) + "\n")


def read(path):
    """By the names of the tests; empty where nothing was written."""
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        lines = [json.loads(line) for line in file]
    return {line["test"]: line for line in lines}
