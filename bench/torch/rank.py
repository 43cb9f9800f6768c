# SPDX-License-Identifier: Apache-2.0
"""One rank of bench/torch/compare.py: measures a backend of torch.distributed. Rank 0 prints JSON.

    rank.py BACKEND CASE...

With BACKEND "alone" each rank is a group of its own under Rondo. What remains is torch and the
training, on a machine as busy as with ranks that communicate.
"""

import json
import math
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining.schedules import _batch_p2p
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


def all_to_all(bytes_):
    """bytes_ for each rank, as a list of tensors."""
    give = [torch.ones(bytes_ // 4) for _ in range(dist.get_world_size())]
    take = [torch.empty_like(block) for block in give]
    return median_time(lambda: dist.all_to_all(take, give))


def all_to_all_v(bytes_):
    """Every second rank gets twice as much from each: bytes_ on average."""
    rank, size = dist.get_rank(), dist.get_world_size()
    unit = max(1, bytes_ * 2 // 4 // 3)
    sent = [unit * (1 + peer % 2) for peer in range(size)]
    received = [unit * (1 + rank % 2)] * size
    give, take = torch.ones(sum(sent)), torch.empty(sum(received))
    return median_time(lambda: dist.all_to_all_single(take, give, received, sent))


def ping_pong(bytes_):
    """Seconds of a round trip by send and recv between ranks 0 and 1."""
    if dist.get_world_size() == 1:
        return math.nan
    tensor = torch.ones(bytes_ // 4)
    calls = [lambda peer: dist.send(tensor, peer), lambda peer: dist.recv(tensor, peer)]

    def once():
        rank = dist.get_rank()
        for call in calls if rank == 0 else reversed(calls):
            if rank < 2:
                call(1 - rank)

    return median_time(once)


def pipeline(bytes_, stages=4, microbatches=8):
    """Seconds of a step's messages: those of torch.distributed.pipelining's Schedule1F1B. NaN
    if the ranks are not a multiple of `stages`."""
    if dist.get_world_size() % stages:
        return math.nan
    shape = (stages, dist.get_world_size() // stages)
    mesh = dist.init_device_mesh("cpu", shape, mesh_dim_names=("stage", "copy"))
    group, stage = mesh.get_group("stage"), mesh.get_local_rank("stage")
    activations, gradients = torch.ones(bytes_ // 4), torch.ones(bytes_ // 4)

    def op(call, tensor, other):
        exists = 0 <= other < stages
        return [dist.P2POp(call, tensor, group=group, group_peer=other)] if exists else []

    forward_in = lambda: op(dist.irecv, activations, stage - 1)
    forward_out = lambda: op(dist.isend, activations, stage + 1)
    backward_in = lambda: op(dist.irecv, gradients, stage + 1)
    backward_out = lambda: op(dist.isend, gradients, stage - 1)

    def wait(*ops):
        for work in _batch_p2p([one for part in ops for one in part]):
            work.wait()

    def once():
        warmup = min(microbatches, stages - stage)
        for number in range(warmup):
            wait(forward_in())
            if number < warmup - 1:
                wait(forward_out())
        for number in range(microbatches):
            last = number >= microbatches - warmup
            wait(forward_out() if number <= microbatches - warmup else [], backward_in())
            wait(backward_out(), [] if last else forward_in())

    return median_time(once)


def new_groups(number):
    """Seconds for so many groups of all ranks."""
    dist.barrier()
    start = time.perf_counter()
    groups = [dist.new_group() for _ in range(number)]
    took = time.perf_counter() - start
    dist.barrier()
    for group in groups:
        dist.destroy_process_group(group)
    return took


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
    "all_to_all 8 B": lambda: all_to_all(8),
    "all_to_all 64 KiB": lambda: all_to_all(64 << 10),
    "all_to_all_v 1 KiB": lambda: all_to_all_v(1 << 10),
    "all_to_all_v 64 KiB": lambda: all_to_all_v(64 << 10),
    "send, recv 8 B": lambda: ping_pong(8),
    "send, recv 1 KiB": lambda: ping_pong(1 << 10),
    "50 groups": lambda: new_groups(50),
    "DDP 250 k": lambda: ddp(250_000),
    "DDP 25 M": lambda: ddp(25_000_000),
    "DDP 25 M, views": lambda: ddp(25_000_000, gradient_as_bucket_view=True),
    "pipeline 16 KiB": lambda: pipeline(16 << 10),
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
