#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network data-parallel: the usual script for torchrun.

    torchrun --nproc-per-node=2 examples/torch/train.py                    # Rondo
    torchrun --nproc-per-node=2 examples/torch/train.py --backend gloo
    python examples/torch/train.py                                         # one process, whole batch

Without torchrun, on each rank:

    train.py --init-method tcp://10.0.0.1:29500 --rank 0 --world-size 2

One process gives the same losses as several, but for rounding.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from all_reduce_batch_norm import convert as convert_to_all_reduce
from pictures import CLASSES, pictures
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

WARM_UP = 10  # steps that are not timed: DDP makes its buckets anew after the first


def read_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="rondo", help="rondo or gloo")
    parser.add_argument("--init-method", default="env://", help="env:// (torchrun) or tcp://HOST:PORT")
    parser.add_argument("--rank", type=int, default=-1, help="with tcp://")
    parser.add_argument("--world-size", type=int, default=-1, help="with tcp://")
    parser.add_argument("--batch-norm", choices=["rondo", "all-reduce"],
                        help="layer that sees all ranks: rondo's (default with rondo), or the one of "
                        "all_reduce_batch_norm.py, which works with any backend")  # fmt: skip
    parser.add_argument("--sampler", choices=["torch", "rondo"], default="torch")
    parser.add_argument("--gradients", choices=["bf16", "f32"], default="bf16", help="on the wire")
    parser.add_argument("--batch", type=int, default=64, help="of all ranks together")
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--test-images", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="rank 0 writes losses and speed to this file")
    options = parser.parse_args(arguments)
    if options.batch_norm is None:
        options.batch_norm = "rondo" if options.backend == "rondo" else "all-reduce"
    return options


def join(options):
    """Joins the other ranks. One process alone needs no group."""
    if options.init_method != "env://":
        dist.init_process_group(
            options.backend,
            init_method=options.init_method,
            rank=options.rank,
            world_size=options.world_size,
        )
    elif "WORLD_SIZE" in os.environ:
        dist.init_process_group(options.backend)
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def network():
    layers = []
    for inputs, outputs, stride in (1, 16, 1), (16, 32, 2), (32, 64, 2):
        layers.append(nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False))
        layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


def data_parallel(model, options):
    """Returns the model in DDP, with batch norm over all ranks."""
    if options.batch_norm == "rondo":
        from rondo.torch import convert_sync_batchnorm

        model = convert_sync_batchnorm(model)
    else:
        model = convert_to_all_reduce(model)
    model = DistributedDataParallel(model)
    if options.gradients == "bf16":
        model.register_comm_hook(None, bf16_compress_hook)
    return model


def sampler_of(dataset, rank, size, options):
    kind = DistributedSampler
    if options.sampler == "rondo":
        from rondo.torch import ShardedSampler as kind
    return kind(dataset, size, rank, seed=options.seed, drop_last=True)


class Training:
    def __init__(self, rank, size, options):
        if options.batch % size != 0:
            raise SystemExit(f"--batch {options.batch} is not divisible by {size} ranks")
        torch.manual_seed(options.seed)
        self.rank, self.size, self.options = rank, size, options
        self.model = network() if size == 1 else data_parallel(network(), options)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        images = pictures(options.images, seed=options.seed)
        self.test = pictures(options.test_images, seed=options.seed + 1)
        self.sampler = sampler_of(images, rank, size, options)
        self.loader = DataLoader(images, options.batch // size, sampler=self.sampler, drop_last=True)
        self.times = []  # of steps, in seconds

    def step(self, images, labels):
        """Returns the loss of this rank's part of the batch."""
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(images), labels)
        loss.backward()
        if self.size == 1 and self.options.gradients == "bf16":
            for value in self.model.parameters():  # as the hook does
                value.grad = value.grad.bfloat16().float()
        self.optimizer.step()
        return loss.detach()

    def epoch(self, number):
        """Returns the loss of each step, over all ranks, on rank 0."""
        self.sampler.set_epoch(number)
        self.model.train()
        losses = []
        for step, (images, labels) in enumerate(self.loader):
            start = time.perf_counter()
            losses.append(self.step(images, labels))
            if number > 0 or step >= WARM_UP:
                self.times.append(time.perf_counter() - start)
        losses = torch.stack(losses) / self.size
        if self.size > 1:
            dist.reduce(losses, dst=0)
        return losses.tolist()

    def steps_per_second(self):
        """By the median step: other programs disturb the mean."""
        return 1 / statistics.median(self.times) if self.times else 0.0

    @torch.no_grad()
    def evaluate(self):
        """Returns mean loss, accuracy, and that of the worst class, over all test pictures: on rank 0."""
        self.model.eval()
        images, labels = self.test[self.rank :: self.size]
        outputs = self.model(images)
        totals = torch.tensor([F.cross_entropy(outputs, labels, reduction="sum"), len(labels)])
        # The number of pictures of each class, and how many of them were recognized.
        told = torch.stack([labels.bincount(minlength=CLASSES),
                            labels[outputs.argmax(1) == labels].bincount(minlength=CLASSES)])  # fmt: skip
        every = [told]
        if self.size > 1:
            dist.reduce(totals, dst=0)
            every = [torch.empty_like(told) for _ in range(self.size)]
            dist.all_gather(every, told)
        there, right = torch.stack(every).sum(0)
        return (totals[0] / totals[1]).item(), (right.sum() / there.sum()).item(), (right / there).min().item()


def main(arguments=None):
    options = read_options(arguments)
    torch.set_num_threads(1)  # of each rank
    rank, size = join(options)
    training = Training(rank, size, options)
    losses, accuracy = [], []
    for epoch in range(options.epochs):
        losses += training.epoch(epoch)
        loss, right, worst = training.evaluate()
        accuracy.append(right)
        if rank == 0:
            print(f"epoch {epoch}: training loss {losses[-1]:.4f}, test loss {loss:.4f}, accuracy "
                  f"{right:.1%} (worst class {worst:.1%}), "
                  f"{training.steps_per_second():.1f} steps/s", flush=True)  # fmt: skip
    if rank == 0 and options.json:
        with open(options.json, "w", encoding="ascii") as file:
            json.dump({"losses": losses, "accuracy": accuracy, "steps_per_second": training.steps_per_second()}, file)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
