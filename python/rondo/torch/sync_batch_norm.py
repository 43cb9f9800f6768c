# SPDX-License-Identifier: Apache-2.0
"""Batch norm whose statistics are those of the batches of all ranks, for CPU and CUDA tensors."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from rondo.torch import _c


class SyncBatchNorm(_BatchNorm):
    """Batch norm over the batches of all ranks of a process group of the backend "rondo".

    It takes the place of torch.nn.SyncBatchNorm, which refuses CPU tensors, and has its arguments,
    attributes and state dict. In eval mode, in a group of one rank and where torch.distributed is
    not initialized it does what BatchNorm does. On a GPU its passes are enqueued on the current
    stream.

    Ranks may have batches of different sizes, or none. All must make the same training calls in the
    same order. name: the layer's name in messages; the same on all ranks.

    Input: (N, C) or (N, C, ...), float64, float32, float16 or bfloat16. A channels_last input is
    not copied, and the output lies as it does.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: dist.ProcessGroup | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        name: str = "",
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype
        )
        if affine and not bias:
            self.register_parameter("bias", None)
        self._begin(process_group, name)

    def _begin(self, group: dist.ProcessGroup | None, name: str) -> None:
        """Adds what the layer has besides BatchNorm."""
        self.name = name
        self.process_group = group
        self._rondo = _Rondo()
        # torch.fx takes layers whose __module__ is in torch.nn into its graphs as they are.
        self.__module__ = "torch.nn.modules.batchnorm"

    @property
    def process_group(self) -> dist.ProcessGroup | None:
        """The group over which statistics are taken. None: the default group."""
        return self._group.group

    @process_group.setter
    def process_group(self, group: dist.ProcessGroup | None) -> None:
        self._group = _Group(group)

    def _who(self) -> str:
        """The layer in messages: "rank 1: layer stem"."""
        return f"rank {dist.get_rank()}: layer {self.name or type(self).__name__}"

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.size(1) == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def forward(self, input: Tensor) -> Tensor:
        return self._train(input) if self.training else super().forward(input)

    @torch._disable_dynamo  # type: ignore[attr-defined]  # torch.compile cannot look into Rondo
    def _train(self, input: Tensor) -> Tensor:
        group = self._others()
        if group is None:
            return super().forward(input)
        self._check_input(input)
        momentum, batches = self.momentum, 0
        mean = var = None
        if self.track_running_stats:
            mean, var = self.running_mean, self.running_var
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
                if momentum is None:
                    batches = max(int(self.num_batches_tracked) - 1, 0)
            elif momentum is None:
                momentum = 0.0
        norm = self._rondo.norm(group, self, input.device)
        settings = (mean, var, momentum, batches, self.eps)
        if torch.is_grad_enabled() and any(
            tensor is not None and tensor.requires_grad for tensor in (input, self.weight, self.bias)
        ):
            output: Tensor = _SyncBatchNorm.apply(input, self.weight, self.bias, norm, settings)
            return output
        return norm.forward(input, self.weight, self.bias, *settings, False)[0]

    def _others(self) -> dist.ProcessGroup | None:
        """The group, if there are others in it."""
        if not (dist.is_available() and dist.is_initialized()):
            return None
        group = self._group.get(self)
        return group if group.size() > 1 else None

    def _check_input(self, input: Tensor) -> None:
        self._check_input_dim(input)
        if input.device.type not in ("cpu", "cuda"):
            raise ValueError(
                f"{self._who()} of rondo.torch.SyncBatchNorm works on CPU and CUDA tensors and got "
                f"one on {input.device}"
            )
        if input.size(1) != self.num_features:
            raise ValueError(
                f"{self._who()}: the input has {input.size(1)} channels, the layer "
                f"{self.num_features}"
            )


class _SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        norm: _c.Norm,
        settings: tuple[Tensor | None, Tensor | None, float | None, int, float],
    ) -> Tensor:
        output, kept, ctx.norm_pass, token = norm.forward(input, weight, bias, *settings, True)
        ctx.types = [None if tensor is None else tensor.dtype for tensor in (weight, bias)]
        ctx.save_for_backward(kept, token)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        input, token = ctx.saved_tensors
        wants_input, *wants = ctx.needs_input_grad[:3]
        types = [dtype if wanted else None for dtype, wanted in zip(ctx.types, wants)]
        gradients = ctx.norm_pass.backward(token, input, gradient, *types, wants_input)
        return *gradients, None, None


class _Rondo:
    """What a module has in Rondo: made for one process group, and never copied with the module."""

    def __init__(self) -> None:
        self._made: dict[str, _c.Norm] = {}  # by type of device
        self._for: weakref.ref[dist.ProcessGroup] | None = None

    def norm(
        self, group: dist.ProcessGroup, layer: SyncBatchNorm, device: torch.device
    ) -> _c.Norm:
        if self._for is None or self._for() is not group:
            self._made = {}
            self._for = weakref.ref(group)  # a group that has gone must not be kept
        if device.type not in self._made:
            try:
                backend = group._get_backend(device)
            except RuntimeError as error:
                raise ValueError(
                    f"{layer._who()} has a process group without a backend for tensors on "
                    f"{device.type}, and needs rondo there"
                ) from error
            backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
            self._made[device.type] = _c.Norm(backend, layer.name or type(layer).__name__, layer._who())
        return self._made[device.type]

    def __deepcopy__(self, memo: dict[int, Any]) -> _Rondo:
        return _Rondo()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Rondo, ()


class _Group:
    """The process group of a module. Copies of the module share it; a file cannot hold it."""

    def __init__(self, group: dist.ProcessGroup | None, lost: str | None = None) -> None:
        self.group = group
        self._lost = lost

    def get(self, layer: SyncBatchNorm) -> dist.ProcessGroup:
        if self._lost is not None:
            raise RuntimeError(
                f"{layer._who()} was saved with the process group {self._lost}, which a file cannot "
                "hold: set its process_group, None for the default group"
            )
        group = dist.group.WORLD if self.group is None else self.group
        if not isinstance(group, dist.ProcessGroup):
            raise ValueError(
                f"{layer._who()} has a process group without this rank: give it one that the rank "
                "is in"
            )
        return group

    def __deepcopy__(self, memo: dict[int, Any]) -> _Group:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        lost = self._lost
        if self.group is not None:
            lost = getattr(self.group, "group_name", None) or "given to it"
        return _Group, (None, lost)
