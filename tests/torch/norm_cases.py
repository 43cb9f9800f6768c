# SPDX-License-Identifier: Apache-2.0
"""What tests of rondo.torch.SyncBatchNorm share: batches, and one process with the whole batch."""

import torch
import torch._dynamo  # noqa: F401  (as in ddp_test.py)
import torch.distributed as dist
from devices import DeviceTest
from torch import nn

from rondo.torch import SyncBatchNorm

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-2}
ROWS = [3, 0, 6, 1]  # of the ranks


def seeded(number):
    return torch.Generator().manual_seed(number)


def whole_batch(shape, dtype, seed=0):
    """The batch of all ranks and the gradient of its output."""
    generator = seeded(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * 2 + 3
    dy = torch.randn(shape, generator=generator, dtype=torch.float64)
    return x.to(dtype), dy.to(dtype)


def rows_of(test, tensor, rows=ROWS):
    first = sum(rows[: test.rank])
    return tensor[first : first + rows[test.rank]]


def randomize(module, seed=1):
    """Values that differ from those with which a layer begins."""
    generator = seeded(seed)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return module


def total(tensor):
    """The sum over the ranks."""
    tensor = tensor.detach().double()
    dist.all_reduce(tensor)
    return tensor


class NormTest(DeviceTest):
    case = None  # for messages

    def assertNear(self, actual, wanted, dtype, what):
        actual, wanted = actual.detach().cpu().double(), wanted.detach().double()
        what = (what, self.case)
        self.assertEqual(actual.shape, wanted.shape, what)
        if actual.numel():
            scale = max(1.0, wanted.abs().max().item())
            self.assertLessEqual((actual - wanted).abs().max().item(), TOLERANCE[dtype] * scale, what)

    def same_statistics(self, layer, reference, dtype):
        self.assertNear(layer.running_mean, reference.running_mean, dtype, "running_mean")
        self.assertNear(layer.running_var, reference.running_var, dtype, "running_var")
        self.assertEqual(layer.num_batches_tracked.item(), reference.num_batches_tracked.item())

    def compare(self, shape, dtype=torch.float64, *, weights=None, format=None, steps=2, shift=0,
                **options):  # fmt: skip
        """Steps of training on the rows of this rank against the same with all rows.

        shift: of the mean of the input in even steps.
        """
        weights = weights or dtype
        self.case = (shape, dtype, weights, format, shift, options)  # subTest hides failures of ranks
        layer = randomize(SyncBatchNorm(shape[1], dtype=weights, **options))
        reference = randomize(nn.BatchNorm3d(shape[1], dtype=torch.float64, **options))
        reference._check_input_dim = lambda input: None
        with torch.no_grad():
            for tensor, like in zip(reference.state_dict().values(), layer.state_dict().values()):
                tensor.copy_(like)
        layer.to(self.device)
        for step in range(steps):
            x, dy = whole_batch(shape, dtype, step)
            x = x + shift * (step % 2 == 0)
            own = rows_of(self, x)
            own = (own.clone(memory_format=format) if format else own.clone()).to(self.device).requires_grad_()
            x = x.double().requires_grad_()
            layer.zero_grad()
            reference.zero_grad()
            y, wanted = layer(own), reference(x)
            gradient = rows_of(self, dy).contiguous().to(self.device)
            y.backward(gradient)
            wanted.backward(dy.double())
            self.assertEqual(y.dtype, dtype)
            if format and own.numel():
                self.assertTrue(y.is_contiguous(memory_format=format))
                self.assertTrue(own.grad.is_contiguous(memory_format=format))
            self.assertNear(y, rows_of(self, wanted), dtype, "y")
            self.assertNear(own.grad, rows_of(self, x.grad), dtype, "dx")
            for name, parameter in layer.named_parameters():
                self.assertEqual(parameter.grad.dtype, weights)
                self.assertNear(total(parameter.grad), getattr(reference, name).grad, dtype, name)
        if layer.running_mean is not None:
            self.same_statistics(layer, reference, weights)
