#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The backend on real CUDA tensors, with torch's own kernels: several ranks share the GPUs, as NCCL
does not allow.

    real_gpu.py [NAME...]      as unittest: RealGpu.test_capture_is_refused

It needs a GPU, torch for CUDA, and the package `rondo` built for it. It also runs the
tests of other files on the GPU (devices.py), except those that control the fake driver. A test may
take RONDO_TEST_LIMIT seconds (default 60).
"""

import os
import sys
from pathlib import Path

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # the ranks are forked: their parent must not use CUDA
sys.path.insert(0, str(Path(__file__).resolve().parent / "real"))

import unittest  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import ranks  # noqa: E402
import rondo.torch  # noqa: E402

rondo.torch.register()  # older torch does not find it by its name
ranks.LIMIT = int(os.environ.get("RONDO_TEST_LIMIT", 60))

import gpu_test  # noqa: E402
import gpu_waits_test  # noqa: E402
import groups_test  # noqa: E402
import moves_test  # noqa: E402
import norm_models_test  # noqa: E402
import reductions_test  # noqa: E402
import sharded_test  # noqa: E402
import sync_batch_norm_test  # noqa: E402
import uneven_test  # noqa: E402
from devices import BOTH, GpuTest  # noqa: E402
from ranks import on_ranks  # noqa: E402

MODULES = (gpu_test, gpu_waits_test, norm_models_test, sync_batch_norm_test, sharded_test, reductions_test, moves_test, uneven_test,
           groups_test)


class RealGpu(GpuTest):
    @on_ranks(2, BOTH)
    def test_kernels_before_and_after(self):
        """The call comes after kernels of the current stream, and kernels that follow come after it."""
        device = self.device
        for i in range(20):
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                x = torch.full((1_000_000,), 1.0, device=device)
                for _ in range(10):
                    x = x * 2
                work = dist.all_reduce(x, async_op=i % 2 == 0)
                if work is not None:
                    work.wait()
                y = x + 1
                self.assertEqual((y != 2049).sum().item(), 0)

    @on_ranks(2, BOTH)
    def test_capture_is_refused(self):
        device = self.device
        x = torch.ones(1000, device=device)
        dist.all_reduce(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with self.assertRaisesRegex(Exception, "captur"):
            with torch.cuda.graph(graph):
                dist.all_reduce(x)
        dist.barrier()


def load_tests(loader, tests, pattern):
    for module in MODULES:
        for found in vars(module).values():
            if isinstance(found, type) and found.__module__ == module.__name__ and getattr(found, "on_gpu", False):
                tests.addTests(loader.loadTestsFromTestCase(found))
    return tests


if __name__ == "__main__":
    unittest.main(verbosity=2)
