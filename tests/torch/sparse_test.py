#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums of sparse tensors."""

import unittest

import torch
import torch.distributed as dist
from ranks import RankTest, on_ranks


def of_rank(rank, dtype=torch.float32, dense=()):
    """Rank 0 has no values, rank 1 one, and so on: some in places where others have some, too."""
    indices = torch.arange(rank)
    values = torch.ones(rank, *dense, dtype=dtype) * (rank + 1)
    indices = torch.stack([indices, indices % 2])
    return torch.sparse_coo_tensor(indices, values, (5, 2, *dense), check_invariants=True)


class Sparse(RankTest):
    @on_ranks(3)
    def test_sums(self):
        for dtype in (torch.float32, torch.float64, torch.int64):
            for dense in ((), (3,)):
                expected = sum(of_rank(rank, dtype, dense).to_dense() for rank in range(3))
                for way in ("blocking", "wait", "future"):
                    tensor = of_rank(self.rank, dtype, dense)
                    work = dist.all_reduce(tensor, async_op=way != "blocking")
                    if way == "wait":
                        work.wait()
                    elif way == "future":
                        work.get_future().wait()
                    self.assertTrue(torch.equal(tensor.to_dense(), expected))

    # Legal: an asynchronous start does not wait for others.
    @on_ranks(2)
    def test_a_start_does_not_block(self):
        tensor = of_rank(2)
        message = torch.full((3,), float(self.rank))
        if self.rank == 0:
            work = dist.all_reduce(tensor, async_op=True)
            self.assertFalse(work.is_completed())
            dist.send(message, 1)
        else:
            dist.recv(message, 0)
            self.assertEqual(message.tolist(), [0.0] * 3)
            work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        self.assertTrue(torch.equal(tensor.to_dense(), 2 * of_rank(2).to_dense()))

    # Later work of sparse sums needs no common order with what ranks start meanwhile.
    @on_ranks(3)
    def test_many_at_once_between_other_operations(self):
        works, sparse, dense = [], [], []
        for _ in range(20):
            sparse.append(of_rank(self.rank))
            dense.append(torch.ones(10))
            works.append(dist.all_reduce(sparse[-1], async_op=True))
            works.append(dist.all_reduce(dense[-1], async_op=True))
        if self.rank == 1:
            works.reverse()
        for work in works:
            work.wait()
        expected = sum(of_rank(rank).to_dense() for rank in range(3))
        for one in sparse:
            self.assertTrue(torch.equal(one.to_dense(), expected))
        for one in dense:
            self.assertEqual(one.tolist(), [3.0] * 10)

    @on_ranks(2)
    def test_other_shapes_and_reductions(self):
        with self.assertRaisesRegex(ValueError, "can only sum"):
            dist.all_reduce(of_rank(1), dist.ReduceOp.MAX)
        tensor = torch.zeros(4 + self.rank, 2).to_sparse()
        other = 1 - self.rank
        with self.assertRaisesRegex(ValueError, f"one shape and type: that of rank {other} "):
            dist.all_reduce(tensor)
        with self.assertRaisesRegex(ValueError, "only all_reduce takes sparse tensors"):
            dist.group.WORLD._get_backend(torch.device("cpu")).broadcast([tensor])
        dist.barrier()


if __name__ == "__main__":
    unittest.main()
