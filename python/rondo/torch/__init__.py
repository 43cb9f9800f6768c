# SPDX-License-Identifier: Apache-2.0
"""Rondo in PyTorch.

    torch.distributed.init_process_group("rondo")

needs no import of this module: torch finds the backend by its name.
"""

from __future__ import annotations

import atexit
import os
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _Backend

from rondo.torch import _c
from rondo.torch.convert import (
    convert_sync_batchnorm,
    replace_torch_sync_batchnorm,
    revert_sync_batchnorm,
)
from rondo.torch.sharded_sampler import ShardedSampler
from rondo.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "ShardedSampler",
    "SyncBatchNorm",
    "convert_sync_batchnorm",
    "register",
    "replace_torch_sync_batchnorm",
    "revert_sync_batchnorm",
]


_DEFAULT_TIMEOUT = _Backend.Options("rondo")._timeout


def _lend_memory_to_ddp() -> None:
    """Lets DDP take its buckets from the backend: torch does so only if this variable is 0.

    A large bucket is then reduced in one pass. The variable holds for every backend of the process,
    so it stays as it is where the user has set it, or where torch sees a GPU.
    """
    if "DDP_DISABLE_COMM_MEM" not in os.environ and torch.cuda.device_count() == 0:
        os.environ["DDP_DISABLE_COMM_MEM"] = "0"


def _create(opts: Any, pg_options: Any) -> _c.Backend:
    if pg_options is not None and type(pg_options) is not _Backend.Options:
        raise TypeError(
            f"the backend rondo takes Backend.Options as pg_options and got {type(pg_options).__name__}: "
            "set RONDO_* variables instead (docs/reference/environment.md)"
        )
    if pg_options is not None and pg_options._timeout not in (opts.timeout, _DEFAULT_TIMEOUT):
        warnings.warn(
            f"rondo: the timeout of pg_options, {pg_options._timeout}, does not count: give "
            f"timeout= instead, which is {opts.timeout}",
            stacklevel=2,
        )
    _lend_memory_to_ddp()
    return _c.create(
        opts.store,
        opts.group_rank,
        opts.group_size,
        opts.timeout,
        opts.group_id,
        opts.global_ranks_in_group,
    )


def register() -> None:
    """Registers the backend "rondo" for CPU and CUDA tensors. Again: does nothing."""
    if "rondo" not in dist.Backend.backend_list:
        dist.Backend.register_backend("rondo", _create, extended_api=True, devices=["cpu", "cuda"])


# A rank that ends without destroy_process_group() leaves in order, too.
atexit.register(_c.shutdown_all)
