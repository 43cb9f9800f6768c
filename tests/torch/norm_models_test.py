#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rondo.torch.SyncBatchNorm in models: training with DDP, the layer's life, and mistakes."""

import copy
import gc
import io
import os
import pickle
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from devices import each_device_of_torch, main
from norm_cases import NormTest, randomize, rows_of, whole_batch
from ranks import join, on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from rondo.torch import SyncBatchNorm, convert_sync_batchnorm


def network(seed=5):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(27, 2),
    ).double()  # fmt: skip


@each_device_of_torch
class Training(NormTest):
    def _train(self, rows, **options):
        model = convert_sync_batchnorm(network()).to(self.device)
        model = DDP(model, device_ids=[self.gpu] if self.on_gpu else None, **options)
        reference = network()
        optimizers = [torch.optim.SGD(m.parameters(), 0.05, 0.9) for m in (model, reference)]
        for step in range(6):
            x, _ = whole_batch((sum(rows), 2, 5, 5), torch.float64, step)
            for optimizer in optimizers:
                optimizer.zero_grad()
            # Sum over this rank's samples / samples of all ranks, where DDP averages.
            own = model(rows_of(self, x, rows).to(self.device)).square().sum() * self.size / sum(rows)
            own.backward()
            (reference(x).square().sum() / sum(rows)).backward()
            for optimizer in optimizers:
                optimizer.step()
        for (name, value), wanted in zip(
            model.module.state_dict().items(), reference.state_dict().values()
        ):
            self.assertNear(value, wanted, torch.float32 if self.on_gpu else torch.float64, name)

    @on_ranks(3)
    def test_ddp(self):
        self._train([4, 4, 4])

    @on_ranks(3)
    def test_ddp_with_uneven_batches(self):
        self._train([2, 5, 1], gradient_as_bucket_view=True)
        self._train([2, 5, 0], static_graph=True)


class Life(NormTest):
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
        dist.barrier()  # a rank whose peer has left meanwhile fails to make the group of gloo

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
        called = []
        dist.group.WORLD._get_backend(torch.device("cpu")).register_abort_hook(1, lambda: called.append(1))
        with self.assertRaisesRegex(
            dist.DistBackendError, "rank 1 at layer stem forward step 1 with type bf16"
        ):
            layer(torch.randn(4, 3, dtype=dtype))
        self.assertEqual(called, [1])

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
    main()
