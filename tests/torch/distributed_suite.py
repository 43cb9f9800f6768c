#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs torch's own tests of process groups, from its wheel, on a backend.

Usage: distributed_suite.py BACKEND [unittest arguments]. torch offers many tests to the backends
that it knows by name; here a test that it offers to gloo or to MPI is offered to BACKEND.
"""

import importlib.util
import os
import sys
import tempfile
import types
import unittest

BACKEND = sys.argv.pop(1) if len(sys.argv) > 1 else "rondo"
FOLDER = tempfile.TemporaryDirectory()
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.update(
    BACKEND=BACKEND,
    TEMP_DIR=FOLDER.name,
    INIT_METHOD="file://" + os.path.join(FOLDER.name, "shared_init_file"),
)


class Offered(str):
    """The name of the backend, for which conditions that ask for gloo or MPI hold."""

    def __eq__(self, other):
        return other in (BACKEND, "gloo", "mpi")

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(BACKEND)


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


import torch.testing._internal.common_distributed as common  # noqa: E402

for feature in ("gpu", "ddp", "subgroup"):
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

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
