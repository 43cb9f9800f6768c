# SPDX-License-Identifier: Apache-2.0
"""Tests whose ranks have tensors on GPUs: over the fake CUDA driver, with the module gpus.cc, or on
real ones, with real/gpus.py."""

import unittest

import torch
from ranks import RankTest

import gpus  # after torch, whose libraries it needs

BOTH = "cpu:rondo,cuda:rondo"


def ramp(rank, count=5000, dtype=torch.float32):
    return ((torch.arange(count) + rank) % 61).to(dtype)


class GpuTest(RankTest):
    @property
    def gpu(self):
        """The GPU of this rank."""
        return self.rank % gpus.count()

    def put(self, tensor):
        return gpus.to_gpu(tensor, self.gpu)

    def values(self, tensor):
        """What the current stream finds."""
        gpus.synchronize(tensor.device.index)
        return gpus.to_cpu(tensor)

    def assertValues(self, tensor, expected):
        self.assertTrue(torch.equal(self.values(tensor), expected))


def main():
    gpus.install()
    unittest.main()
