# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from datetime import timedelta

import torch
from torch import Tensor
from torch._C import _distributed_c10d as c10d

class Backend(c10d.Backend):
    def perform_nocolor_split(self, device: torch.device) -> None: ...

class NormPass:
    def backward(
        self,
        token: Tensor,
        input: Tensor,
        gradient: Tensor,
        weight: torch.dtype | None,
        bias: torch.dtype | None,
        wants_input: bool,
        /,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]: ...

class Norm:
    def __init__(self, backend: object, name: str, who: str, /) -> None: ...
    def forward(
        self,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor | None,
        var: Tensor | None,
        momentum: float | None,
        batches: int,
        epsilon: float,
        keeps: bool,
        /,
    ) -> tuple[Tensor, Tensor, NormPass, Tensor | None]: ...

def create(
    store: c10d.Store,
    rank: int,
    size: int,
    timeout: timedelta,
    group: str,
    global_ranks: Sequence[int],
) -> Backend: ...
def shutdown_all() -> None: ...
