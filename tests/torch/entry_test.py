# SPDX-License-Identifier: Apache-2.0
"""The package as torch finds it: by the name of the backend, for one version, with one librondo."""

import os
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist

SIZE = 2


def rank():
    """One rank, a process of its own."""
    dist.init_process_group("rondo", init_method=f"file://{sys.argv[3]}", rank=int(sys.argv[2]), world_size=SIZE)
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [SIZE] * 3 and dist.get_backend() == "rondo"
    import rondo

    with rondo.connect(rank=0, size=1) as alone:
        alone.all_reduce(x.numpy())
        alone.all_reduce(x.to(torch.bfloat16).view(torch.uint16).numpy(), dtype=torch.bfloat16)
    with open("/proc/self/maps") as maps:
        libraries = {line.split()[-1] for line in maps if "librondo" in line}
    assert len(libraries) == 1, libraries
    dist.destroy_process_group()


class Entry(unittest.TestCase):
    def test_name(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-B", __file__, "--rank"]
            ranks = [subprocess.Popen([*command, str(r), os.path.join(folder, "join")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for r in range(SIZE)]
            for process in ranks:
                output, _ = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 0, output)

    def test_version(self):
        """A package for another torch, or for none, is not available, says so, and loads nothing."""
        code = """
import sys
import torch.distributed as dist
from rondo import _built_for
_built_for.TORCH, said, asks = sys.argv[1], sys.argv[2], sys.argv[3] == "asks"
if asks:
    assert dist.is_backend_available("rondo") is False
try:
    dist.init_process_group("rondo", store=dist.HashStore(), rank=0, world_size=1)
except ImportError as error:
    assert said in str(error) and "pip install" in str(error), error
else:
    raise SystemExit("no error")
assert not dist.is_backend_available("cpu:rondo")
assert not any(name.startswith("rondo.torch") for name in sys.modules)
"""
        for version, said, asks in ("2.1", "built for torch 2.1", "asks"), ("none", "found no torch", "joins"):
            subprocess.run([sys.executable, "-B", "-c", code, version, said, asks], check=True, timeout=120)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank()
    else:
        unittest.main()
