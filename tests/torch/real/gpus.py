# SPDX-License-Identifier: Apache-2.0
"""What gpus.cc gives over the fake driver, on real GPUs. real_gpu.py puts it in its place.

A stream is held by a wait for a word of the host's memory, which stream 0 of the GPU may have, too.
Ranks are forked, so nothing here may touch CUDA before that.
"""

import ctypes
import unittest

import torch

REAL = True
_words = {}  # of streams that are or were held


def install():
    """Nothing: torch's own kernels, guard and allocator are used."""


def count():
    return torch.cuda.device_count()


def _ordinal(ordinal):
    return ordinal % count()


def _driver(name, *arguments):
    status = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    if status != 0:
        raise RuntimeError(f"{name}: CUresult {status}")


def _stream(ordinal, handle):
    return torch.cuda.ExternalStream(handle, device=_ordinal(ordinal)) if handle else torch.cuda.default_stream(_ordinal(ordinal))


def allocate(count, ordinal, like=None):
    dtype = torch.float32 if like is None else like.dtype
    return torch.empty(count, dtype=dtype, device=torch.device("cuda", _ordinal(ordinal)))


def empty_sparse():
    return torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0), (4,)).cuda()


def fail_work():
    raise unittest.SkipTest("work of a real GPU does not fail on demand")


def to_gpu(tensor, ordinal):
    """With its strides, and there when this returns: on a stream that no test holds."""
    device = torch.device("cuda", _ordinal(ordinal))
    with torch.cuda.stream(_side(device)):
        copy = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)
        copy.copy_(tensor)
        _side(device).synchronize()
    return copy


def to_cpu(tensor):
    """What is there now: it waits for no stream."""
    with torch.cuda.stream(_side(tensor.device)):
        return tensor.detach().cpu()


_sides = {}


def _side(device):
    if device.index not in _sides:
        _sides[device.index] = torch.cuda.Stream(device)
    return _sides[device.index]


_made = []


def make_stream(ordinal):
    _made.append(torch.cuda.Stream(_ordinal(ordinal)))
    return _made[-1].cuda_stream


def exchange_stream(ordinal, stream):
    torch.cuda.set_device(_ordinal(ordinal))
    before = torch.cuda.current_stream().cuda_stream
    torch.cuda.set_stream(_stream(ordinal, stream))
    return before


def come_after(ordinal, other):
    torch.cuda.current_stream(_ordinal(ordinal)).wait_stream(_stream(ordinal, other))


def synchronize(ordinal):
    torch.cuda.current_stream(_ordinal(ordinal)).synchronize()


def hold(stream):
    if stream == 0:
        raise unittest.SkipTest("0 is every stream over the fake driver, and one on a real GPU")
    torch.cuda.current_stream()
    word = torch.zeros(1, dtype=torch.int32).pin_memory()
    _words[stream] = word
    geq = 0
    _driver("cuStreamWaitValue32_v2", ctypes.c_void_p(stream), ctypes.c_uint64(word.data_ptr()), ctypes.c_uint32(1), ctypes.c_uint(geq))


def let_go(stream):
    if stream in _words:
        _words[stream].fill_(1)


def hold_pool():
    raise unittest.SkipTest("torch's streams share queues of the GPU, so all of them cannot be held")


def let_pool_go():
    pass
