#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rondo.torch.SyncBatchNorm on several ranks against BatchNorm in one process with the whole batch."""

import copy
import gc
import io
import os
import pickle
import threading
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
from ranks import RankTest, join, on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

from rondo.torch import SyncBatchNorm, convert_sync_batchnorm

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


class NormTest(RankTest):
    case = None  # for messages

    def assertNear(self, actual, wanted, dtype, what):
        actual, wanted = actual.detach().double(), wanted.detach().double()
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
        for step in range(steps):
            x, dy = whole_batch(shape, dtype, step)
            x = x + shift * (step % 2 == 0)
            own = rows_of(self, x)
            own = (own.clone(memory_format=format) if format else own.clone()).requires_grad_()
            x = x.double().requires_grad_()
            layer.zero_grad()
            reference.zero_grad()
            y, wanted = layer(own), reference(x)
            gradient = rows_of(self, dy).contiguous()
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


def network(seed=5):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(27, 2),
    ).double()  # fmt: skip


class Training(NormTest):
    def _train(self, rows, **options):
        model = DDP(convert_sync_batchnorm(network()), **options)
        reference = network()
        optimizers = [torch.optim.SGD(m.parameters(), 0.05, 0.9) for m in (model, reference)]
        for step in range(6):
            x, _ = whole_batch((sum(rows), 2, 5, 5), torch.float64, step)
            for optimizer in optimizers:
                optimizer.zero_grad()
            # Sum over this rank's samples / samples of all ranks, where DDP averages.
            own = model(rows_of(self, x, rows)).square().sum() * self.size / sum(rows)
            own.backward()
            (reference(x).square().sum() / sum(rows)).backward()
            for optimizer in optimizers:
                optimizer.step()
        for (name, value), wanted in zip(
            model.module.state_dict().items(), reference.state_dict().values()
        ):
            self.assertNear(value, wanted, torch.float64, name)

    @on_ranks(3)
    def test_ddp(self):
        self._train([4, 4, 4])

    @on_ranks(3)
    def test_ddp_with_uneven_batches(self):
        self._train([2, 5, 1], gradient_as_bucket_view=True)
        self._train([2, 5, 0], static_graph=True)

    @on_ranks(2)
    def test_autocast(self):
        model = DDP(convert_sync_batchnorm(network().float()))
        for _ in range(3):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.randn(4, 2, 5, 5)).float().square().mean()
            loss.backward()
        self.assertEqual(model.module[1].weight.grad.dtype, torch.float32)

    @on_ranks(4)
    def test_groups(self):
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        model = convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(3)).double(), groups[self.rank // 2])
        x, _ = whole_batch((8, 3), torch.float64)
        y = model(x[2 * self.rank : 2 * self.rank + 2])
        first = self.rank // 2 * 4
        wanted = nn.BatchNorm1d(3, dtype=torch.float64)(x[first : first + 4])
        self.assertNear(y, wanted[self.rank % 2 * 2 :][:2], torch.float64, "y")


class Life(NormTest):
    def test_alone(self):
        """Where torch.distributed is not initialized it is a BatchNorm."""
        layer, wanted = randomize(SyncBatchNorm(3)), randomize(nn.BatchNorm1d(3))
        x = torch.arange(12.0).view(4, 3)
        self.assertTrue(torch.equal(layer(x), wanted(x)))
        self.assertTrue(torch.equal(layer.running_var, wanted.running_var))
        with self.assertRaisesRegex(ValueError, "more than 1 value per channel"):
            layer(x[:1])
        with self.assertRaisesRegex(ValueError, "at least 2D"):
            layer(x[0])

    @on_ranks(1)
    def test_group_of_one(self):
        layer, wanted = randomize(SyncBatchNorm(3)), randomize(nn.BatchNorm1d(3))
        x = torch.arange(12.0).view(4, 3)
        self.assertTrue(torch.equal(layer(x), wanted(x)))

    def test_convert(self):
        shared = nn.BatchNorm1d(4)
        model = nn.Sequential(nn.BatchNorm2d(3, eps=0.5, momentum=None), nn.Sequential(shared, nn.ReLU()),
                              shared, nn.BatchNorm1d(2, affine=False),
                              nn.BatchNorm1d(2, track_running_stats=False),
                              nn.BatchNorm1d(2, bias=False), nn.InstanceNorm1d(2))  # fmt: skip
        model[0].qconfig = "as it was"
        model[1].eval()
        kept = dict(model.named_parameters(remove_duplicate=False))
        kept.update(model.named_buffers(remove_duplicate=False))
        keys = list(model.state_dict())
        metadata = copy.deepcopy(model.state_dict()._metadata)
        self.assertIs(convert_sync_batchnorm(model), model)
        found = dict(model.named_parameters(remove_duplicate=False))
        found.update(model.named_buffers(remove_duplicate=False))
        self.assertEqual(kept.keys(), found.keys())
        for name, value in kept.items():
            self.assertIs(found[name], value)
        self.assertEqual(list(model.state_dict()), keys)
        self.assertEqual(model.state_dict()._metadata, metadata)
        self.assertEqual([type(child) for child in model[:4]],
                         [SyncBatchNorm, nn.Sequential, SyncBatchNorm, SyncBatchNorm])  # fmt: skip
        self.assertIs(model[1][0], model[2])
        self.assertEqual((model[0].eps, model[0].momentum, model[0].qconfig), (0.5, None, "as it was"))
        self.assertEqual((model[0].training, model[2].training), (True, False))
        self.assertEqual((model[0].name, model[1][0].name), ("0", "1.0"))
        self.assertFalse(model[3].affine or model[4].track_running_stats)
        self.assertIsNone(model[5].bias)
        self.assertNotIsInstance(model[0], nn.SyncBatchNorm)
        layer = nn.BatchNorm1d(2)
        converted = convert_sync_batchnorm(layer)
        self.assertIsInstance(converted, SyncBatchNorm)
        self.assertIs(converted.weight, layer.weight)
        again = convert_sync_batchnorm(nn.Sequential(converted))[0]
        self.assertEqual((type(again), again.name), (SyncBatchNorm, "0"))
        with self.assertRaisesRegex(ValueError, "layer 0 has no shape yet"):
            convert_sync_batchnorm(nn.Sequential(nn.LazyBatchNorm1d()))
        repr(converted)

    @on_ranks(2)
    def test_copies(self):
        group = dist.new_group([0, 1])
        layer = randomize(SyncBatchNorm(3, process_group=group, name="first"))
        x = torch.randn(4, 3)
        layer(x)
        copied = copy.deepcopy(layer)
        self.assertIs(copied.process_group, group)
        self.assertIsNot(copied.weight, layer.weight)
        copied(x.clone().requires_grad_()).sum().backward()
        self.assertIsNone(layer.weight.grad)
        file = io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        for other in (torch.load(file, weights_only=False), pickle.loads(pickle.dumps(layer))):
            self.assertTrue(torch.equal(other.weight, layer.weight))
            with self.assertRaisesRegex(RuntimeError, "layer first was saved with the process group"):
                other(x)
            other = pickle.loads(pickle.dumps(other)).eval()
            other(x)
            other.train()
            other.process_group = None
            other(x)
        layer.process_group = None
        pickle.loads(pickle.dumps(layer))(x)
        fresh = SyncBatchNorm(3)
        fresh.load_state_dict(nn.BatchNorm1d(3).state_dict())

    @on_ranks(2)
    def test_garbage_of_one_rank(self):
        """Names do not depend on when Python collects what is no longer needed."""
        kept = []
        for _ in range(4):
            model = convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(3)))
            y = model(torch.randn(4, 3, requires_grad=True))
            y.sum().backward()
            if self.rank == 0:
                kept += [model, y]
            del model, y
            gc.collect()

    @on_ranks(2)
    def test_options_that_change(self):
        layer = SyncBatchNorm(3, dtype=torch.float64)
        reference = nn.BatchNorm1d(3, dtype=torch.float64)
        x, _ = whole_batch((8, 3), torch.float64)
        for change in [{"momentum": 0.5}, {"eps": 0.25}, {"momentum": None}, {"weight": None, "bias": None}]:
            for one in (layer, reference):
                for name, value in change.items():
                    setattr(one, name, value)
            y = layer(rows_of(self, x, [5, 3]))
            self.assertNear(y, rows_of(self, reference(x), [5, 3]), torch.float64, "y")
        self.same_statistics(layer, reference, torch.float64)

    @on_ranks(2)
    def test_other_threads_run_during_a_pass(self):
        """They also drop layers."""
        layer, other = SyncBatchNorm(3), SyncBatchNorm(3)
        word = torch.zeros(1)
        y = other(torch.randn(4, 3, requires_grad=True))
        if self.rank == 0:
            thread = threading.Thread(target=layer, args=[torch.randn(4, 3)])
            thread.start()
            del other, y
            dist.send(word, 1)
            thread.join()
        else:
            dist.recv(word, 0)
            layer(torch.randn(4, 3))

    @on_ranks(2)
    def test_a_forked_child(self):
        layer = SyncBatchNorm(3)
        y = layer(torch.randn(4, 3, requires_grad=True))
        if (child := os.fork()) == 0:
            try:
                self.assertRaisesRegex(RuntimeError, "forked child", layer, torch.randn(4, 3))
                layer.eval()(torch.randn(4, 3))
                del layer, y
                gc.collect()
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        y.sum().backward()

    @on_ranks(2)
    def test_compiled(self):
        model = convert_sync_batchnorm(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU()))
        compiled = torch.compile(copy.deepcopy(model), backend="aot_eager")
        x = torch.randn(4, 3)
        for _ in range(2):
            for one in (model, compiled):
                one(x).square().sum().backward()
        for one, other in zip(model.parameters(), compiled.parameters()):
            self.assertNear(one.grad, other.grad, torch.float32, "gradient")
        self.assertTrue(torch.equal(model.eval()(x), compiled.eval()(x)))

    @on_ranks(2)
    def test_number_of_threads_changes(self):
        layer = SyncBatchNorm(64)
        for threads in (2, 1, 3):
            torch.set_num_threads(threads)
            layer(torch.randn(8, 64, 32, 32))

    @on_ranks(2, join=False)
    def test_debug_detail(self):
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        join(self)
        layer = DDP(convert_sync_batchnorm(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))))
        layer(torch.randn(4, 2)).square().sum().backward()

    @on_ranks(2, join=False)
    def test_outlives_the_group(self):
        layer = SyncBatchNorm(3)
        x = torch.randn(4, 3, requires_grad=True)
        for number in range(3):
            join(self, store=f"store-{number}")
            y = layer(x)
            y.sum().backward()
            y = layer(x)
            dist.destroy_process_group()
            with self.assertRaisesRegex(RuntimeError, "process group has been destroyed"):
                y.sum().backward()
            del y
            layer(x)  # alone
        self.assertEqual(layer.num_batches_tracked, 9)


class Mistakes(NormTest):
    @on_ranks(2)
    def test_another_backend(self):
        group = dist.new_group([0, 1], backend="gloo")
        layer = SyncBatchNorm(3, process_group=group, name="stem")
        with self.assertRaisesRegex(ValueError, "rank .: layer stem is in a process group of the backend gloo"):
            layer(torch.randn(4, 3))

    @on_ranks(2)
    def test_not_in_the_group(self):
        group = dist.new_group([0])
        layer = SyncBatchNorm(3, process_group=group, name="stem")
        if self.rank == 1:
            with self.assertRaisesRegex(ValueError, "rank 1: layer stem has a process group without this rank"):
                layer(torch.randn(4, 3))

    @on_ranks(2)
    def test_arguments(self):
        layer = SyncBatchNorm(3, name="stem")
        for error, text, x in [
            (ValueError, "at least 2D", torch.randn(3)),
            (ValueError, "should be non-zero", torch.randn(3, 0)),
            (ValueError, "layer stem: the input has 4 channels, the layer 3", torch.randn(2, 4)),
            (ValueError, "rank .: layer stem: the input is Long", torch.zeros(2, 3, dtype=torch.int64)),
            (ValueError, "stem.* on meta", torch.empty(2, 3, device="meta")),
        ]:
            with self.assertRaisesRegex(error, text):
                layer(x)

    @on_ranks(3)
    def test_different_layers(self):
        model = convert_sync_batchnorm(nn.ModuleDict({"a": nn.BatchNorm1d(3), "b": nn.BatchNorm1d(3)}))
        model["a"](torch.randn(4, 3))
        model["b"](torch.randn(4, 3))
        with self.assertRaisesRegex(
            dist.DistBackendError,
            "batch norm: ranks differ: rank 1 at layer b forward step 2; ranks 0, 2 at layer a forward step 2",
        ):
            model["b" if self.rank == 1 else "a"](torch.randn(4, 3))

    @on_ranks(2)
    def test_different_types(self):
        layer = SyncBatchNorm(3, name="stem")
        dtype = torch.bfloat16 if self.rank else torch.float32
        with self.assertRaisesRegex(
            dist.DistBackendError, "rank 1 at layer stem forward step 1 with type bf16"
        ):
            layer(torch.randn(4, 3, dtype=dtype))

    @on_ranks(2)
    def test_gradients_of_one_input_only(self):
        layer = SyncBatchNorm(3, name="stem")
        y = layer(torch.randn(4, 3, requires_grad=self.rank == 0))
        text = "rank 1 at layer stem forward step 2 \\(it ran a local backward of stem"
        with self.assertRaisesRegex(dist.DistBackendError, text):
            y.sum().backward()
            layer(torch.randn(4, 3))

    @on_ranks(2)
    def test_deadline(self):
        layer = SyncBatchNorm(3, name="stem")
        layer(torch.randn(4, 3))
        if self.rank == 0:
            dist.set_timeout(timedelta(seconds=0.5), dist.group.WORLD)
            with self.assertRaisesRegex(dist.DistBackendError, "stem.*the timeout has passed"):
                layer(torch.randn(4, 3))
        else:
            with self.assertRaises(dist.DistBackendError):  # as soon as rank 0 gives up
                dist.barrier()


if __name__ == "__main__":
    unittest.main()
