#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rondo.torch.SyncBatchNorm on several ranks against BatchNorm in one process with the whole batch."""

import copy

import torch
import torch.distributed as dist
from devices import each_device_of_torch, main
from norm_cases import TOLERANCE, NormTest, randomize, rows_of, total, whole_batch
from ranks import on_ranks
from torch import nn
from torch.utils.checkpoint import checkpoint

from rondo.torch import SyncBatchNorm, convert_sync_batchnorm


def restored(packed, shape):
    """From bytes: the input, or the one number that stands for a pass."""
    count = shape[0] * shape[1]
    if len(packed) > count * 8:
        return torch.frombuffer(bytearray(packed[: count * 8]), dtype=torch.float64).view(shape)
    return torch.frombuffer(bytearray(packed[:8]), dtype=torch.int64)


class alone:
    """Within it a layer computes as a BatchNorm does."""

    def __init__(self, layer):
        self._layer = layer

    def __enter__(self):
        self._layer._others = lambda: None

    def __exit__(self, *_):
        del self._layer._others


@each_device_of_torch
class Equal(NormTest):
    @on_ranks(4)
    def test_shapes(self):
        for shape in [(10, 5), (10, 5, 7), (10, 5, 4, 3), (10, 5, 2, 3, 2), (10, 1, 3, 2), (10, 3, 1, 1),
                      (10, 2, 2, 1, 2, 2)]:  # fmt: skip
            self.compare(shape)

    @on_ranks(4)
    def test_types(self):
        for dtype in TOLERANCE:
            self.compare((10, 5, 4, 3), dtype)

    @on_ranks(4)
    def test_half_input_with_wide_weights(self):
        for dtype in (torch.float16, torch.bfloat16):
            self.compare((10, 5, 4, 3), dtype, weights=torch.float32)
        self.compare((10, 5, 4, 3), torch.float32, weights=torch.float64)

    @on_ranks(4)
    def test_channels_last(self):
        for dtype in TOLERANCE:
            self.compare((10, 5, 4, 3), dtype, format=torch.channels_last)
        self.compare((10, 5, 2, 3, 2), format=torch.channels_last_3d)

    @on_ranks(4)
    def test_options(self):
        for options in [
            {"affine": False},
            {"bias": False},
            {"momentum": None, "steps": 4},
            {"momentum": 0.0},
            {"eps": 0.1},
            {"track_running_stats": False},
        ]:
            self.compare((10, 5, 3), **options)

    @on_ranks(4)
    def test_a_mean_far_from_zero(self):
        """The first forward needs a second collective, and so does one after a jump."""
        for dtype in (torch.float64, torch.float32):
            self.compare((10, 5, 4, 3), dtype, steps=3, shift=1e4)


class Passes(NormTest):
    @on_ranks(2)
    def test_no_gradient_of_the_input_is_no_collective(self):
        layer = randomize(SyncBatchNorm(3, dtype=torch.float64))
        x, dy = whole_batch((8, 3), torch.float64)
        own = rows_of(self, x, [5, 3])
        y = layer(own)
        if self.rank == 0:  # the other one makes no backward pass at all
            y.backward(rows_of(self, dy, [5, 3]))
            normal = (own - x.mean(0)) / (x.var(0, correction=0) + layer.eps).sqrt()
            self.assertNear(layer.bias.grad, dy[:5].sum(0), torch.float64, "bias")
            self.assertNear(layer.weight.grad, (dy[:5] * normal).sum(0), torch.float64, "weight")
        dist.barrier()

    @on_ranks(2)
    def test_frozen_parameters(self):
        layer = SyncBatchNorm(3)
        layer.weight.requires_grad_(False)
        x = torch.randn(4, 3, requires_grad=True)
        layer(x).sum().backward()
        self.assertIsNone(layer.weight.grad)
        self.assertEqual(layer.bias.grad.tolist(), [4, 4, 4])
        layer.requires_grad_(False)
        layer(x).square().sum().backward()
        self.assertEqual(layer.bias.grad.tolist(), [4, 4, 4])

    @on_ranks(2)
    def test_memory_of_every_kind(self):
        """Inputs and gradients that lie in no order, and statistics that are views."""
        layer = randomize(SyncBatchNorm(4, dtype=torch.float64))
        reference = copy.deepcopy(layer).requires_grad_(False)
        steps = [lambda t: t, lambda t: t.transpose(0, 2).contiguous().transpose(0, 2),
                 lambda t: t.repeat_interleave(2, 3)[..., ::2], lambda t: -t.neg(),
                 lambda t: torch.view_as_complex(torch.stack([t, -t], -1)).conj().imag]  # fmt: skip
        layer.running_mean = layer.running_mean.repeat_interleave(2)[::2]
        x, dy = whole_batch((2, 4, 3, 2), torch.float64)
        for step in steps:
            own, gradient = step(x).detach().requires_grad_(), step(dy)
            layer(own).backward(gradient)
            wanted = x.clone().requires_grad_()
            reference(wanted).backward(dy)
            self.assertNear(own.grad, wanted.grad, torch.float64, "dx")
        self.same_statistics(layer, reference, torch.float64)
        y = layer(x[:1].expand(2, 4, 3, 2).requires_grad_())
        y.sum().backward()  # of a gradient that is one number

    @on_ranks(3)
    def test_all_empty(self):
        layer = randomize(SyncBatchNorm(3))
        before = copy.deepcopy(layer.state_dict())
        for shape in [(0, 3, 2, 2), (2, 3, 0, 2)]:
            x = torch.empty(shape, requires_grad=True)
            y = layer(x)
            y.sum().backward()
            self.assertEqual((y.shape, x.grad.shape), (x.shape, x.shape))
        self.assertEqual(layer.weight.grad.tolist(), [0, 0, 0])
        for name, value in before.items():
            if name != "num_batches_tracked":
                self.assertTrue(torch.equal(layer.state_dict()[name], value), name)
        self.assertEqual(layer.num_batches_tracked, 2)

    @on_ranks(3)
    def test_one_value_in_all(self):
        layer = randomize(SyncBatchNorm(3))
        before = copy.deepcopy(layer.state_dict())
        x = torch.randn(1 if self.rank == 1 else 0, 3)
        with self.assertRaisesRegex(ValueError, "Expected more than 1 value per channel when training"):
            layer(x)
        self.assertTrue(torch.equal(layer.running_mean, before["running_mean"]))
        self.assertTrue(torch.equal(layer.running_var, before["running_var"]))
        layer(torch.randn(1, 3))  # three in all
        self.assertFalse(torch.equal(layer.running_mean, before["running_mean"]))


class Graphs(NormTest):
    @on_ranks(2)
    def test_used_twice(self):
        layer = randomize(SyncBatchNorm(3, dtype=torch.float64))
        reference = copy.deepcopy(layer)
        x, dy = whole_batch((8, 3), torch.float64)
        own = rows_of(self, x, [5, 3]).clone().requires_grad_()
        layer(torch.tanh(layer(own)) + own).backward(rows_of(self, dy, [5, 3]))
        x.requires_grad_()
        with alone(reference):
            reference(torch.tanh(reference(x)) + x).backward(dy)
        self.assertNear(own.grad, rows_of(self, x.grad, [5, 3]), torch.float64, "dx")
        self.assertNear(total(layer.weight.grad), reference.weight.grad, torch.float64, "weight")
        self.same_statistics(layer, reference, torch.float64)

    @on_ranks(2)
    def test_backward_again(self):
        layer = SyncBatchNorm(3, dtype=torch.float64)
        x = whole_batch((8, 3), torch.float64)[0].requires_grad_()
        y = layer(x).square().sum()
        first = torch.autograd.grad(y, x, retain_graph=True)[0]
        layer(x.detach() * 2)
        with torch.no_grad():
            layer.weight.mul_(3)  # the pass has its own
        self.assertTrue(torch.equal(first, torch.autograd.grad(y, x)[0]))
        with self.assertRaisesRegex(RuntimeError, "once_differentiable"):
            gradient = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)[0]
            gradient.sum().backward()

    @on_ranks(2)
    def test_input_changed_in_place(self):
        layer = SyncBatchNorm(3)
        x = torch.randn(4, 3, requires_grad=True) * 1
        y = layer(x)
        x.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()
        layer.eval()
        x = torch.randn(4, 3, requires_grad=True)
        y = layer(x).sum()
        layer.train()(x.detach())  # the statistics have a new version
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.backward()

    @on_ranks(2)
    def test_without_gradients(self):
        layer = SyncBatchNorm(3, dtype=torch.float64)
        x = whole_batch((8, 3), torch.float64)[0]
        wanted = nn.BatchNorm1d(3, dtype=torch.float64)
        for context in (torch.no_grad, torch.inference_mode):
            with context():
                y = layer(rows_of(self, x, [5, 3]))
                self.assertNear(y, rows_of(self, wanted(x), [5, 3]), torch.float64, "y")
        self.same_statistics(layer, wanted, torch.float64)
        layer(rows_of(self, x, [5, 3]).requires_grad_()).sum().backward()

    def _checkpoints(self, reentrant, saves=None):
        def model():
            torch.manual_seed(3)
            first = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 5),
                                  nn.BatchNorm1d(5), nn.Tanh())  # fmt: skip
            return first.double(), nn.Sequential(nn.Linear(5, 2), nn.BatchNorm1d(2)).double()

        x, dy = whole_batch((8, 4), torch.float64)[0], torch.ones(8, 2, dtype=torch.float64).tril()
        first, second = (convert_sync_batchnorm(part) for part in model())
        wanted_first, wanted_second = model()
        own, x = rows_of(self, x, [5, 3]).clone().requires_grad_(), x.requires_grad_()
        for _ in range(2):
            y = checkpoint(first, own, use_reentrant=reentrant)
            second(y).backward(rows_of(self, dy, [5, 3]))
            wanted_second(wanted_first(x)).backward(dy)
        self.assertNear(own.grad, rows_of(self, x.grad, [5, 3]), torch.float64, "dx")
        for part, wanted in [(first, wanted_first), (second, wanted_second)]:
            for (name, actual), like in zip(part.named_parameters(), wanted.parameters()):
                self.assertNear(total(actual.grad), like.grad, torch.float64, name)

    @on_ranks(2)
    def test_checkpoint_with_reentry(self):
        self._checkpoints(True)

    @on_ranks(2)
    def test_checkpoint_without_reentry(self):
        self._checkpoints(False)

    @on_ranks(2)
    def test_saved_tensors_elsewhere(self):
        layer = SyncBatchNorm(3, dtype=torch.float64)
        x = whole_batch((4, 3), torch.float64)[0].requires_grad_()
        wanted = torch.autograd.grad(layer(x).square().sum(), x)[0]
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().tobytes() + bytes(t.dim()),
                                                      lambda b: restored(b, x.shape)):  # fmt: skip
            y = layer(x).square().sum()
        self.assertNear(torch.autograd.grad(y, x)[0], wanted, torch.float64, "dx")

    @on_ranks(2)
    def test_eval_with_gradients(self):
        layer = randomize(SyncBatchNorm(3)).eval()
        reference = randomize(nn.BatchNorm1d(3)).eval()
        if self.rank == 0:  # no collective
            x, like = (torch.linspace(0, 1, 12).view(4, 3).requires_grad_() for _ in range(2))
            layer(x).square().sum().backward()
            reference(like).square().sum().backward()
            self.assertTrue(torch.equal(x.grad, like.grad))
            self.assertTrue(torch.equal(layer.weight.grad, reference.weight.grad))
            self.assertEqual(layer.num_batches_tracked, 0)
        dist.barrier()


if __name__ == "__main__":
    main()
