#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The backend on real CUDA tensors, with torch's own kernels: several ranks share the GPUs, as NCCL
does not allow.

    real_gpu_test.py [NAME...]      as unittest: RealGpu.test_ddp

It needs a GPU, torch for CUDA, and the package `rondo` built for it. It also runs the tests of
gpu_test.py, gpu_training_test.py and gpu_waits_test.py there, as far as they do not control the
driver. A test may take RONDO_TEST_LIMIT seconds (default 60).
"""

import os
import sys
from pathlib import Path

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # the ranks are forked: their parent must not use CUDA
sys.path.insert(0, str(Path(__file__).resolve().parent / "real"))

import copy  # noqa: E402
import unittest  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import ranks  # noqa: E402
import rondo.torch  # noqa: E402

rondo.torch.register()  # older torch does not find it by its name
ranks.LIMIT = int(os.environ.get("RONDO_TEST_LIMIT", 60))

import gpu_test  # noqa: E402
import gpu_training_test  # noqa: E402
import gpu_waits_test  # noqa: E402
from gpu_ranks import BOTH, GpuTest  # noqa: E402
from norm_cases import NormTest  # noqa: E402
from ranks import on_ranks  # noqa: E402
from torch import nn  # noqa: E402

from rondo.torch import SyncBatchNorm, convert_sync_batchnorm  # noqa: E402


def small_network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)).double()


def whole_batch(step, count=12):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(count, 3, 8, 8, generator=generator, dtype=torch.float64), torch.randint(10, (count,), generator=generator)


def train(model, batches, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for x, target in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(device)), target.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class RealGpu(GpuTest, NormTest):
    def device(self):
        torch.cuda.set_device(self.gpu)
        return torch.device("cuda", self.gpu)

    @on_ranks(2, BOTH)
    def test_collectives_of_large_tensors(self):
        device = self.device()
        for dtype in torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.uint8:
            values = [((torch.arange(3_000_001) * 7 + rank) % 50).to(dtype) for rank in range(2)]
            x = values[self.rank].to(device)
            dist.all_reduce(x)
            self.assertTrue(torch.equal(x.cpu(), values[0] + values[1]))
            gathered = torch.empty(2, 3_000_001, dtype=dtype, device=device)
            dist.all_gather_into_tensor(gathered, values[self.rank].to(device))
            self.assertTrue(torch.equal(gathered.cpu(), torch.stack(values)))

    @on_ranks(2, BOTH)
    def test_kernels_before_and_after(self):
        """The call comes after kernels of the current stream, and kernels that follow come after it."""
        device = self.device()
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

    def trained_alone(self, steps):
        device = self.device()
        model = small_network().to(device)
        losses = train(model, [whole_batch(step) for step in range(steps)], device)
        return losses, [tensor.detach().cpu() for tensor in model.state_dict().values()]

    @on_ranks(2, BOTH)
    def test_ddp_with_sync_batch_norm(self):
        """Ten steps of DDP with our batch norm, against one process with the whole batch."""
        device, steps = self.device(), 10
        model = convert_sync_batchnorm(small_network()).to(device)
        model = nn.parallel.DistributedDataParallel(model, device_ids=[self.gpu])
        part = slice(0, 6) if self.rank == 0 else slice(6, 12)
        train(model, [(x[part], target[part]) for x, target in map(whole_batch, range(steps))], device)
        _, wanted = self.trained_alone(steps)
        for mine, other in zip(model.module.state_dict().values(), wanted):
            self.assertNear(mine.cpu().double(), other.double(), torch.float32, "state")

    @on_ranks(2, BOTH)
    def test_fsdp2(self):
        from torch.distributed.fsdp import fully_shard

        device, steps = self.device(), 5
        torch.manual_seed(3)
        plain = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
        sharded = copy.deepcopy(plain)
        for layer in sharded:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(sharded)
        batches = [(torch.randn(8, 64, generator=torch.Generator().manual_seed(step)),
                    torch.arange(8) % 10) for step in range(steps)]
        part = slice(0, 4) if self.rank == 0 else slice(4, 8)
        train(sharded, [(x[part], target[part]) for x, target in batches], device)
        train(plain, batches, device)
        for mine, other in zip(sharded.parameters(), plain.parameters()):
            self.assertNear(mine.full_tensor().cpu(), other.cpu(), torch.float32, "parameter")

    @on_ranks(2, BOTH)
    def test_batch_norm_layer(self):
        """Forward, backward and statistics, in both layouts, against f64 on the whole batch."""
        device = self.device()
        for dtype in torch.float32, torch.float16, torch.bfloat16:
            for layout in torch.contiguous_format, torch.channels_last:
                torch.manual_seed(5)
                layer, reference = SyncBatchNorm(16, name=f"{dtype} {layout}").to(device), nn.BatchNorm2d(16).double()
                x = (torch.randn(10, 16, 9, 7) * 2 + 3).to(dtype)
                dy = torch.randn(10, 16, 9, 7).to(dtype)
                whole = x.double().requires_grad_()
                reference(whole).backward(dy.double())
                wanted = reference(x.double())
                part = slice(0, 3) if self.rank == 0 else slice(3, 10)
                mine = x[part].to(device).contiguous(memory_format=layout).requires_grad_()
                layer(mine).backward(dy[part].to(device).contiguous(memory_format=layout))
                y = layer(mine.detach())
                self.assertNear(y.cpu(), wanted[part].detach(), dtype, "y")
                self.assertNear(mine.grad.cpu(), whole.grad[part], dtype, "dx")
                for name in "running_mean", "running_var":
                    self.assertNear(getattr(layer, name).cpu(), getattr(reference, name), torch.float32, name)

    @on_ranks(8, BOTH)
    def test_eight_ranks(self):
        device = self.device()
        for count in 1, 1000, 1_000_003:
            x = torch.full((count,), float(self.rank + 1), device=device)
            dist.all_reduce(x)
            self.assertEqual((x != 36).sum().item(), 0)

    @on_ranks(2, BOTH)
    def test_capture_is_refused(self):
        device = self.device()
        x = torch.ones(1000, device=device)
        dist.all_reduce(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with self.assertRaisesRegex(Exception, "captur"):
            with torch.cuda.graph(graph):
                dist.all_reduce(x)
        dist.barrier()


def load_tests(loader, tests, pattern):
    for module in gpu_test, gpu_training_test, gpu_waits_test:
        tests.addTests(loader.loadTestsFromModule(module))
    return tests


if __name__ == "__main__":
    unittest.main(verbosity=2)
