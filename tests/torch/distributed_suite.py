#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs torch's own tests of process groups, from its wheel, on a backend.

    distributed_suite.py BACKEND [--record=FILE] [unittest arguments]
    distributed_suite.py --compare [unittest arguments]

torch offers many tests to the backends that it knows by name; here a test that it offers to gloo or
to MPI is offered to BACKEND. --record writes the outcome of each test as JSON. --compare runs gloo
and rondo one after the other, prints how many tests passed, and names those that only one passed.
WORLD_SIZE is the number of ranks (3). RONDO_TEST_SEED draws an eighth of the tests, unless they are
named or recorded, or RONDO_TEST_CASES is "all".
"""

import collections
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cases import all_cases, test_seed  # noqa: E402


def compare(arguments):
    """Returns the exit status: 1 if gloo passes a test that rondo does not."""
    outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        for backend in ("gloo", "rondo"):
            path = os.path.join(folder, backend)
            command = [sys.executable, "-B", __file__, backend, f"--record={path}", *arguments]
            subprocess.run(command, check=False)
            with open(path, encoding="utf-8") as file:
                outcomes[backend] = json.load(file)
    counts = {name: collections.Counter(of.values()) for name, of in outcomes.items()}
    print(f"{os.environ['WORLD_SIZE']} ranks", *counts, sep="\t")
    for kind in sorted(set().union(*counts.values()), key=lambda kind: (kind != "passed", kind)):
        print(kind, *(count[kind] for count in counts.values()), sep="\t")
    gloo, rondo = outcomes.values()
    lost = False
    for name in sorted(gloo | rondo):
        one, other = gloo.get(name, "not offered"), rondo.get(name, "not offered")
        if "passed" in (one, other) and one != other:
            print(f"{name}: gloo: {one}; rondo: {other}")
            lost = lost or (one == "passed" and other != "not offered")
    return int(lost)


if sys.argv[1:2] == ["--compare"]:
    os.environ.setdefault("WORLD_SIZE", "3")
    sys.exit(compare(sys.argv[2:]))

BACKEND = sys.argv.pop(1) if len(sys.argv) > 1 else "rondo"
FOLDER = tempfile.TemporaryDirectory()
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.update(
    BACKEND=BACKEND,
    TEMP_DIR=FOLDER.name,
    TORCH_FR_DUMP_TEMP_FILE=os.path.join(FOLDER.name, "trace_"),
    INIT_METHOD="file://" + os.path.join(FOLDER.name, "shared_init_file"),
)


class Offered(str):
    """The name of the backend, for which conditions that ask for gloo or MPI hold."""

    def __eq__(self, other):
        return other in (BACKEND, "gloo", "mpi")

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash("gloo")  # found in sets that have gloo


def load_tests_of_torch() -> types.ModuleType:
    name = "torch.testing._internal.distributed.distributed_test"
    spec = importlib.util.find_spec(name)
    with open(spec.origin, encoding="utf-8") as file:
        source = file.read()
    line = 'BACKEND = os.environ["BACKEND"]\n'
    if source.count(line) != 1:
        raise SystemExit(f"{spec.origin} does not say where its backend comes from")
    if BACKEND != "gloo":
        source = source.replace(line, "BACKEND = _offered\n")
    module = types.ModuleType(name)
    module.__file__ = spec.origin
    module._offered = Offered(BACKEND)
    sys.modules[name] = module
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    if BACKEND != "gloo":
        module.PROFILING_SUPPORTED_BACKENDS.append(BACKEND)
        module.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append(BACKEND)
    return module


import torch._dynamo  # noqa: E402, F401  (as in ddp_test.py)
import torch.testing._internal.common_distributed as common  # noqa: E402

for feature in ("gpu", "ddp", "subgroup", "plugin"):
    common.DistTestCases.backend_feature[feature].add(BACKEND)
tests = load_tests_of_torch()


class Suite(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._fork_processes()

    def _fork_processes(self):
        import torch.multiprocessing

        self._start_processes(torch.multiprocessing.get_context("fork").Process)


# It wants DDP to log the backend's name, and DDP logs "custom" for each one from outside of torch.
if BACKEND != "gloo":
    Suite.test_ddp_logging_data_cpu = None
del tests  # or unittest would find TestDistBackend, which has no tests of its own



class Recorder(unittest.TextTestResult):
    """Keeps the outcome of each test by its name."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.outcomes = {}

    def _keep(self, test, outcome):
        self.outcomes[test.id().rpartition(".")[2]] = outcome

    def addSuccess(self, test):
        super().addSuccess(test)
        self._keep(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._keep(test, f"skipped: {reason}")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._keep(test, "failed")

    def addError(self, test, error):
        super().addError(test, error)
        self._keep(test, "failed")


def load_tests(loader, tests, pattern):
    if all_cases() or record:
        return tests
    names = loader.getTestCaseNames(Suite)
    return unittest.TestSuite(map(Suite, names[test_seed() % 8 :: 8]))


record = None


def main():
    global record
    if len(sys.argv) > 1 and sys.argv[1].startswith("--record="):
        record = sys.argv.pop(1).partition("=")[2]
    runner = unittest.TextTestRunner(resultclass=Recorder)
    result = unittest.main(testRunner=runner, exit=False).result
    if record:
        with open(record, "w", encoding="utf-8") as file:
            json.dump(result.outcomes, file)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
