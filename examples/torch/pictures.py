# SPDX-License-Identifier: Apache-2.0
"""Generated pictures: stripes at one of eight angles, with noise. Nothing is downloaded."""

import math

import torch
from torch.utils.data import TensorDataset

CLASSES = 8
SIDE = 16


def pictures(count, seed):
    """A data set of (picture [1, SIDE, SIDE], class). The same on all ranks and machines."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    angles = labels * (math.pi / CLASSES) + 0.1 * torch.randn(count, generator=draws)
    waves = 0.6 + 0.6 * torch.rand(count, generator=draws)  # radians for each pixel
    phases = 2 * math.pi * torch.rand(count, generator=draws)
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    along = angles.cos()[:, None, None] * columns + angles.sin()[:, None, None] * rows
    stripes = (along * waves[:, None, None] + phases[:, None, None]).sin()
    noise = torch.randn(count, SIDE, SIDE, generator=draws)
    return TensorDataset((stripes + 0.8 * noise)[:, None], labels)
