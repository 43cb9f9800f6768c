#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The backend on one GPU that several ranks share, beside its peers there. It prints JSON lines.

    one_gpu.py [--seconds SECONDS] [PART...]     PARTS: norms, reductions, ddp, nccl

norms: SyncBatchNorm of one rank beside torch's BatchNorm2d. reductions: all_reduce of CUDA tensors
by rondo and by gloo, which copies them to the host. ddp: a training step by both. nccl: what NCCL
says to two ranks on one GPU. Times are medians in microseconds of rank 0.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

BACKENDS = {"rondo": "cpu:rondo,cuda:rondo", "gloo": "gloo", "nccl": "nccl"}


def say(**fields):
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(json.dumps(fields), flush=True)


def median_us(once, seconds=0.3, most=200):
    """Until the GPU has done it. Every rank makes the same calls."""
    for _ in range(12):  # windows and slots come after some calls
        once()
    torch.cuda.synchronize()
    start = time.perf_counter()
    once()
    torch.cuda.synchronize()
    repeats = torch.tensor([max(5, min(most, int(seconds / (time.perf_counter() - start))))])
    if dist.is_initialized():
        dist.broadcast(repeats, 0)
    times = []
    for _ in range(int(repeats)):
        start = time.perf_counter()
        once()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return round(1e6 * statistics.median(times), 2)


def norms():
    from rondo.torch import SyncBatchNorm

    for shape in (64, 256, 56, 56), (32, 64, 112, 112), (64, 2048, 7, 7):
        for dtype in torch.float32, torch.float16, torch.bfloat16:
            for layout, name in (torch.contiguous_format, "NCHW"), (torch.channels_last, "NHWC"):
                x = torch.randn(shape, device="cuda", dtype=dtype).contiguous(memory_format=layout)
                dy = torch.randn_like(x)
                source = torch.empty_like(x)
                copy = median_us(lambda: source.copy_(x), 0.05)
                result = {"part": "norms", "shape": shape, "type": str(dtype), "layout": name, "bytes": x.nbytes, "copy_us": copy}
                for library, layer in ("rondo", SyncBatchNorm(shape[1])), ("torch", nn.BatchNorm2d(shape[1])):
                    layer = layer.cuda()
                    mine = x.detach().requires_grad_()

                    def both():
                        mine.grad = None
                        layer(mine).backward(dy)

                    def forward():
                        with torch.no_grad():
                            layer(x)

                    result[f"{library}_forward_us"] = median_us(forward, 0.05)
                    result[f"{library}_both_us"] = median_us(both, 0.05)
                say(**result)


def reductions(backend):
    for bytes_ in 8, 16 << 10, 1 << 20, 16 << 20, 64 << 20:
        x = torch.zeros(bytes_ // 4, device="cuda")
        say(part="reductions", backend=backend, algorithm=os.environ.get("RONDO_ALGORITHM", ""), ranks=dist.get_world_size(), bytes=bytes_,
            p50_us=median_us(lambda: dist.all_reduce(x)))


def ddp(backend):
    torch.manual_seed(1)
    model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU()))).cuda()
    model = nn.parallel.DistributedDataParallel(model, device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(256, 1024, device="cuda")

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    say(part="ddp", backend=backend, algorithm=os.environ.get("RONDO_ALGORITHM", ""), ranks=dist.get_world_size(), parameters=6 * 1024 * 1025,
        p50_us=median_us(step, 0.5))


def be_rank(part, backend, rank, size, store):
    if backend == "rondo":
        import rondo.torch

        rondo.torch.register()  # older torch does not find it by its name
    torch.cuda.set_device(0)
    dist.init_process_group(BACKENDS[backend], init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=30))
    if part == "norms":
        norms()
    elif part == "nccl":
        dist.all_reduce(torch.ones(1, device="cuda"))
        torch.cuda.synchronize()
        say(part="nccl", works=True)
    else:
        {"reductions": reductions, "ddp": ddp}[part](backend)
    dist.destroy_process_group()


def ranks_of(part, backend, size, seconds, **variables):
    """Processes, because CUDA does not survive a fork."""
    if seconds < 5:
        return say(part=part, backend=backend, ranks=size, left_out=True)
    with tempfile.TemporaryDirectory() as folder:
        processes = [subprocess.Popen([sys.executable, __file__, "--rank", part, backend, str(rank), str(size), f"{folder}/store"],
                                      env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True) for rank in range(size)]
        errors = []
        until = time.monotonic() + min(seconds, 40)
        for process in processes:
            try:
                _, error = process.communicate(timeout=max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                for one in processes:
                    one.kill()
                _, error = process.communicate()
                error = f"it took too long\n{error}"
            if process.returncode != 0:
                errors.append(error[-600:])
        if errors:
            say(part=part, backend=backend, ranks=size, variables=variables, error=errors[0])


def main():
    if sys.argv[1:2] == ["--rank"]:
        part, backend, rank, size, store = sys.argv[2:]
        return be_rank(part, backend, int(rank), int(size), store)
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("parts", nargs="*", default=["norms", "reductions", "ddp", "nccl"])
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds

    def run(part, backend, size, **variables):
        if part in arguments.parts:
            ranks_of(part, backend, size, end - time.monotonic(), **variables)

    run("norms", "rondo", 1)
    for size in 2, 4:
        run("reductions", "rondo", size)
        run("reductions", "rondo", size, RONDO_ALGORITHM="direct")
        run("reductions", "gloo", size)
    for size in 2, 4:
        run("ddp", "rondo", size)
        run("ddp", "rondo", size, RONDO_ALGORITHM="direct")
        run("ddp", "gloo", size)
    run("nccl", "nccl", 2)


if __name__ == "__main__":
    main()
