# SPDX-License-Identifier: Apache-2.0
"""One rank of bench/torch/compare.py: measures a backend of torch.distributed. Rank 0 prints JSON.

    rank.py BACKEND CASE...

With BACKEND "alone" each rank is a group of its own under Rondo. What remains is torch and the
training, on a machine as busy as with ranks that communicate.
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SECONDS = 1.5  # of each case


def agreed_repeats(once):
    """As many as fit into SECONDS, the same on all ranks."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        once()
        times.append(time.perf_counter() - start)
    repeats = torch.tensor([max(5, min(20000, int(SECONDS / max(statistics.median(times), 1e-7))))])
    dist.broadcast(repeats, 0)
    return int(repeats)


def median_time(once):
    """Seconds: the median on this rank."""
    repeats = agreed_repeats(once)
    times = []
    dist.barrier()
    for _ in range(repeats):
        start = time.perf_counter()
        once()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def all_reduce(bytes_, async_op=False):
    tensor = torch.ones(bytes_ // 4)
    if async_op:
        return median_time(lambda: dist.all_reduce(tensor, async_op=True).wait())
    return median_time(lambda: dist.all_reduce(tensor))


def ddp(parameters, **options):
    """Seconds of a training step of a network with about so many parameters."""
    torch.manual_seed(1)
    width = int((parameters / 4) ** 0.5)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(8, width)

    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step()
    return median_time(step)


CASES = {
    "all_reduce 8 B": lambda: all_reduce(8),
    "all_reduce 8 B, async": lambda: all_reduce(8, async_op=True),
    "all_reduce 1 MiB": lambda: all_reduce(1 << 20),
    "all_reduce 64 MiB": lambda: all_reduce(64 << 20),
    "DDP 250 k": lambda: ddp(250_000),
    "DDP 25 M": lambda: ddp(25_000_000),
    "DDP 25 M, views": lambda: ddp(25_000_000, gradient_as_bucket_view=True),
}


def main():
    backend, names = sys.argv[1], sys.argv[2:] or list(CASES)
    torch.set_num_threads(1)
    if backend == "alone":
        dist.init_process_group("rondo", store=dist.HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group(backend)
    results = {name: CASES[name]() for name in names}
    if int(os.environ["RANK"]) == 0:
        print(json.dumps(results), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
