"""The extent of expensive tests, as `tests/run` sets it: a sample that rotates with the commit, or everything.

`@pytest.mark.sampled(subject, one_in=N)` runs a test, or each of its cases, in one of N commits. If a whole module has
this mark, `using="fixture"` limits it to the tests with a fixture, and `@pytest.mark.every_push` exempts a test.
"""

import hashlib
import os

SUBJECTS = os.environ.get("DSCONVERT_TESTS", "").split(",")
SEED = int(os.environ.get("DSCONVERT_TEST_SEED") or 0)


def is_exhaustive(subject):
    """Whether all tests of a subject run (`tests/run SUBJECT` or `--all`)."""
    return subject in SUBJECTS or "all" in SUBJECTS


def in_sample(name, one_in):
    """Whether a case is in the sample of this commit. Of `one_in` successive seeds, exactly one selects it."""
    return (hashlib.sha256(name.encode()).digest()[0] + SEED) % one_in == 0


def report(line):
    """Adds a line to the report that `tests/run` prints at its end, unless the report has it."""
    if path := os.environ.get("DSCONVERT_TEST_REPORT"):
        with open(path, "a") as file:
            file.write(line + "\n")
