# SPDX-License-Identifier: Apache-2.0
"""Runs the same tests on the processor and, where the module `gpus` is found, on GPUs. The module
is gpus.cc over the fake CUDA driver, and real/gpus.py on real GPUs.

    @each_device
    class Sums(DeviceTest):
        @on_ranks(3)
        def test_sum(self):
            x = self.put(torch.ones(5))
            dist.all_reduce(x)
            self.assertValues(x, torch.full((5,), 3.0))

    if __name__ == "__main__":
        main()
"""

import contextlib
import sys
import unittest

import torch
from ranks import RankTest

try:
    import gpus  # after torch, whose libraries it needs
except ImportError:
    gpus = None

REAL_GPUS = hasattr(gpus, "REAL")
BOTH = "cpu:rondo,cuda:rondo"


def ramp(rank, count=5000, dtype=torch.float32):
    return ((torch.arange(count) + rank) % 61).to(dtype)


class DeviceTest(RankTest):
    on_gpu = False

    @property
    def gpu(self):
        """The GPU of this rank."""
        return self.rank % gpus.count()

    @property
    def device(self):
        if not self.on_gpu:
            return torch.device("cpu")
        if REAL_GPUS:
            torch.cuda.set_device(self.gpu)
        return torch.device("cuda", self.gpu)

    def put(self, tensor):
        """The tensor on the device of the test, with its strides."""
        return gpus.to_gpu(tensor, self.gpu) if self.on_gpu else tensor

    def values(self, tensor):
        """The values that the current stream finds, in host memory."""
        if not tensor.is_cuda:
            return tensor
        gpus.synchronize(tensor.device.index)
        return gpus.to_cpu(tensor)

    def assertValues(self, tensor, expected):
        self.assertTrue(torch.equal(self.values(tensor), expected))


class GpuTest(DeviceTest):
    on_gpu = True

    @contextlib.contextmanager
    def on_stream(self, stream):
        before = gpus.exchange_stream(self.gpu, stream)
        try:
            yield
        finally:
            gpus.exchange_stream(self.gpu, before)


def each_device(tests):
    """Decorates a class of tests on the processor: adds a class that runs them on GPUs."""
    if gpus is not None:
        module = sys.modules[tests.__module__]
        name = tests.__name__ + "OnGpus"
        setattr(module, name, type(name, (tests,), {"on_gpu": True, "__module__": tests.__module__}))
    return tests


def each_device_of_torch(tests):
    """each_device for tests that run torch's own kernels, which the fake does not have."""
    return each_device(tests) if REAL_GPUS else tests


def main():
    if gpus is not None:
        gpus.install()
    unittest.main()
