# SPDX-License-Identifier: Apache-2.0
"""A program with types that uses everything public in rondo and rondo.torch: mypy --strict reads it,
and nothing runs it."""

from __future__ import annotations

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import rondo
from rondo.torch import (
    ShardedSampler,
    SyncBatchNorm,
    convert_sync_batchnorm,
    register,
    replace_torch_sync_batchnorm,
    revert_sync_batchnorm,
)


class Act(nn.BatchNorm2d):
    act: nn.Module

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.act(super().forward(input))
        return output


class SyncAct(SyncBatchNorm):
    act: nn.Module

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.act(super().forward(input))
        return output


def norms(group: dist.ProcessGroup) -> torch.Tensor:
    register()
    replace_torch_sync_batchnorm()
    model: nn.Sequential = convert_sync_batchnorm(nn.Sequential(Act(3)), group, class_for={Act: SyncAct})
    revert_sync_batchnorm(model)
    replace_torch_sync_batchnorm(False)
    layer = SyncBatchNorm(3, 1e-3, None, process_group=group, dtype=torch.float64, bias=False, name="stem")
    layer.process_group = None
    return layer.forward(torch.ones(3, 3))


def samples(count: int) -> int:
    data = TensorDataset(torch.ones(count))
    sampler = ShardedSampler(data, 2, 0, shuffle=False, seed=3, drop_last=False, uneven=True)
    torchs: DistributedSampler[int] = sampler
    torchs.set_epoch(1)
    sampler.epoch = 2
    position = sampler.position(1)
    sampler.resume(position)
    sampler.resume((position.epoch, position.taken))
    for (rows,) in DataLoader(data, batch_size=2, sampler=sampler):
        count += len(rows)
    return count + sum(sampler) + len(sampler) + sampler.padding + sampler.num_samples + sampler.total_size


def collectives() -> list[float]:
    with rondo.connect(rank=0, size=1, reproducible=True) as group:
        x = numpy.full(8, group.rank, "f4")
        group.all_reduce(x, op="mean", deadline=3.0)
        group.all_reduce(x, op=rondo.ReduceOp.MAX, dtype=rondo.DType.F32)
        group.broadcast(memoryview(bytearray(8)), 0)
        work: rondo.Work | None = group.all_reduce(x, wait=False)
        if work is not None and not work.wait(1.0):
            raise rondo.DeadlineExceededError("late")
        statistics: rondo.Statistics = group.statistics()
        late: tuple[rondo.LateRank, ...] = statistics.late_ranks
        half = group.split(0)
        return [statistics.waited_ranks, float(len(late)), float(half is None)]
