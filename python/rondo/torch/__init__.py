# SPDX-License-Identifier: Apache-2.0
"""Rondo in PyTorch.

    torch.distributed.init_process_group("rondo")

needs no import of this module: torch finds the backend by its name.
"""

from __future__ import annotations

import atexit
import os
from typing import Any

import torch
import torch.distributed as dist

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


def _lend_memory_to_ddp() -> None:
    """Lets DDP take its buckets from the backend: torch does so only if this variable is 0.

    A large bucket is then reduced in one pass. The variable holds for every backend of the process,
    so it stays as it is where the user has set it, or where torch sees a GPU.
    """
    if torch.cuda.device_count() == 0:
        os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")


def _create(opts: Any, pg_options: object) -> _c.Backend:
    if pg_options is not None:
        raise TypeError(
            f"the backend rondo takes no pg_options and got {type(pg_options).__name__}: set "
            "RONDO_* variables instead (docs/environment.md)"
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
