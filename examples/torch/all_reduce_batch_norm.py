# SPDX-License-Identifier: Apache-2.0
"""Batch norm over all ranks for CPU tensors and any backend, as a user of gloo would write it.

torch.nn.SyncBatchNorm refuses CPU tensors, and rondo.torch.SyncBatchNorm needs a group of Rondo. This
layer has neither limit: it makes one all_reduce in forward and one in backward, as torch's own does
on GPUs. Batches must be equally large on all ranks.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

PLACES = (0, 2, 3)  # all but the channels


class AllReduceBatchNorm2d(nn.BatchNorm2d):
    """Normalizes over the batches of all ranks of the default group."""

    def forward(self, input):
        if not self.training or not dist.is_initialized() or dist.get_world_size() == 1:
            return super().forward(input)
        output, mean, var = _BatchNorm.apply(input, self.weight, self.bias, self.eps)
        count = input.numel() // input.size(1) * dist.get_world_size()
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * (count / (count - 1)), self.momentum)
        return output


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, bias, eps):
        # Sums over ranks in float64, because a difference of squares follows.
        var, mean = (part.double() for part in torch.var_mean(input, PLACES, correction=0))
        sums = torch.cat([mean, var + mean.square()])
        dist.all_reduce(sums)
        mean, squares = (sums / dist.get_world_size()).chunk(2)
        mean, var = mean.to(input.dtype), (squares - mean.square()).to(input.dtype)
        ctx.save_for_backward(input, weight, mean, (var + eps).rsqrt())
        ctx.mark_non_differentiable(mean, var)
        return F.batch_norm(input, mean, var, weight, bias, False, 0.0, eps), mean, var

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient, *_):
        input, weight, mean, scale = ctx.saved_tensors
        normal = (input - _wide(mean)) * _wide(scale)
        own = torch.cat([gradient.sum(PLACES), (gradient * normal).sum(PLACES)])
        sums = own.clone()
        dist.all_reduce(sums)
        count = input.numel() // input.size(1) * dist.get_world_size()
        bias, factor = (sums / count).chunk(2)
        wanted = (gradient - _wide(bias) - normal * _wide(factor)) * _wide(scale * weight)
        return wanted, own.chunk(2)[1], own.chunk(2)[0], None  # DDP averages those of weight and bias


def _wide(channels):
    return channels[None, :, None, None]


def convert(module):
    """Replaces the nn.BatchNorm2d layers of a module, before DDP is made."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            layer = AllReduceBatchNorm2d(child.num_features, child.eps, child.momentum)
            layer.load_state_dict(child.state_dict())
            setattr(module, name, layer)
        else:
            convert(child)
    return module
