# SPDX-License-Identifier: Apache-2.0
"""A sampler that deals one order of a data set to any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

from rondo import _core

AT_ONCE = 4096  # indices that are taken from Rondo at a time


class Position(NamedTuple):
    """How far all ranks together have come."""

    epoch: int
    taken: int
    """Samples of the epoch that all ranks together have taken."""


torch.serialization.add_safe_globals([Position])  # torch.load() takes it from a checkpoint


class ShardedSampler(DistributedSampler[int]):
    """Deals the samples of a data set to ranks, in place of torch's DistributedSampler.

        sampler = ShardedSampler(dataset)
        loader = DataLoader(dataset, batch_size=32, sampler=sampler)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for batch in loader: ...

    It is a DistributedSampler, so frameworks that deal samples to ranks leave its loaders alone. It
    takes the same arguments, has the same attributes, and yields len(self) indices from 0 to
    len(dataset) - 1. An epoch has one order of all samples, which depends on seed and epoch alone: not
    on the number of ranks, the machine, or torch. Position p of it belongs to rank
    p % num_replicas. So the k-th batches of all ranks are together the k-th batch of one process.

    dataset: anything with a length, which is read once, here.
    num_replicas, rank: if None, those of the default process group.
    shuffle: False for the order of the data set.
    seed: from 0 to 2^64 - 1, the same on all ranks.
    If num_replicas does not divide len(dataset), ranks have
    - equally many samples by default. The first of the epoch come again as padding, at most one for
      each rank, at its end: see `padding`;
    - with drop_last, equally many: the last samples of the epoch are left out;
    - with uneven, some one fewer: each sample comes once on all ranks together. Use it to evaluate,
      and to train only where ranks may have different numbers of batches, as in DDP.join().

    Raises ValueError for a rank outside of num_replicas, drop_last together with uneven, a seed or
    epoch outside of 0 to 2^64 - 1, and if num_replicas or rank is None before init_process_group().
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        uneven: bool = False,
    ) -> None:
        if (num_replicas is None or rank is None) and not dist.is_initialized():
            raise ValueError(
                "ShardedSampler asks the default process group for num_replicas and rank: give "
                "both, or call init_process_group() before"
            )
        if drop_last and uneven:
            raise ValueError("ShardedSampler takes drop_last or uneven, not both")
        self.dataset = dataset  # type: ignore[assignment]  # torch asks for a Dataset
        self.num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
        self.rank = dist.get_rank() if rank is None else rank
        self.shuffle = shuffle
        self.seed = _natural("seed", seed)
        self.drop_last = drop_last
        self.uneven = uneven
        self._samples = len(dataset)
        self._go_to(Position(0, 0))

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration deals. Assigning to it is set_epoch()."""
        return self._start.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    @property
    def padding(self) -> int:
        """How many of the last indices of this rank are padding: 0 or 1."""
        if self.drop_last or self.uneven:
            return 0
        left = self._samples - self._start.taken
        return int(self.num_samples > 0 and (self.num_samples - 1) * self.num_replicas + self.rank >= left)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next iterations, from the beginning of the epoch.

        Call it before each epoch, with the same number on all ranks. Without it every epoch has the
        same order.
        """
        self._go_to(Position(_natural("epoch", epoch), 0))

    def position(self, taken: int) -> Position:
        """Where all ranks are when this one has used `taken` samples since set_epoch() or resume().

        The program counts them, because a DataLoader takes samples ahead. Save the position of rank
        0 with the checkpoint. It holds for all ranks if their batches have equal sizes.
        """
        if not 0 <= taken <= self.num_samples:
            raise ValueError(f"taken is {taken}: this rank has {self.num_samples} samples")
        if taken == self.num_samples:
            return Position(self.epoch, self._samples)
        return Position(self.epoch, self._start.taken + taken * self.num_replicas)

    def resume(self, position: Position | tuple[int, int]) -> None:
        """Deals the rest of the epoch from this position on, with any number of ranks.

        The data set, seed and shuffle must be the same as when the position was taken. len(self)
        becomes this rank's share of the rest: 0 at the end of an epoch; go on with set_epoch().
        Raises ValueError for a position beyond the data set.
        """
        epoch, taken = position
        self._go_to(Position(_natural("epoch", epoch), _natural("taken", taken)))

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        dealer = self._dealer(self._start)
        while indices := dealer.next(AT_ONCE):
            yield from indices

    def _go_to(self, start: Position) -> None:
        self.num_samples = self._dealer(start).size()  # raises before anything changes
        self._start = start
        left = self._samples - start.taken
        self.total_size = left if self.uneven else self.num_samples * self.num_replicas

    def _dealer(self, start: Position) -> _core.Sampler:
        """Makes Rondo's sampler. Each iteration makes its own, so that this object can be copied and
        pickled."""
        return _core.Sampler(
            self._samples,
            self.rank,
            self.num_replicas,
            self.shuffle,
            self.seed,
            self.drop_last,
            self.uneven,
            *start,
        )


def _natural(name: str, value: int) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise ValueError(f"{name} is {value!r}: give an integer from 0 to 2^64 - 1")
    return value
