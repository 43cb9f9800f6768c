#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks."""

import unittest

import torch
import torch.distributed as dist
from ranks import RankTest, on_ranks


class Messages(RankTest):
    @on_ranks(2)
    def test_tags_decide(self):
        if self.rank == 0:
            works = [dist.isend(torch.tensor([float(tag)]), 1, tag=tag) for tag in range(4)]
            for work in works:
                work.wait()
        else:
            for tag in (2, 0, 3, 1):
                tensor = torch.zeros(1)
                dist.recv(tensor, 0, tag=tag)
                self.assertEqual(tensor.item(), tag)

    @on_ranks(3)
    def test_any_source_mixed_with_named(self):
        if self.rank == 0:
            named = torch.zeros(2)
            first = dist.irecv(named, 2, tag=1)
            sources = set()
            for _ in range(2):
                tensor = torch.zeros(2)
                source = dist.recv(tensor, tag=7)
                self.assertEqual(tensor.tolist(), [source] * 2)
                sources.add(source)
            self.assertEqual(sources, {1, 2})
            first.wait()
            self.assertEqual(named.tolist(), [5.0, 5.0])
        else:
            dist.send(torch.full((2,), float(self.rank)), 0, tag=7)
            if self.rank == 2:
                dist.send(torch.full((2,), 5.0), 0, tag=1)

    @on_ranks(2)
    def test_to_itself(self):
        tensor = torch.zeros(3)
        got = dist.irecv(tensor, self.rank)
        dist.isend(torch.full((3,), 4.0), self.rank).wait()
        got.wait()
        self.assertEqual(tensor.tolist(), [4.0] * 3)

    @on_ranks(3)
    def test_batches(self):
        after, before = (self.rank + 1) % 3, (self.rank - 1) % 3
        outputs = [torch.zeros(4), torch.zeros(2, 2).t()]
        inputs = [torch.full((4,), float(self.rank)), torch.full((2, 2), self.rank + 10.0).t()]
        operations = [dist.P2POp(dist.isend, tensor, after) for tensor in inputs]
        operations += [dist.P2POp(dist.irecv, tensor, before) for tensor in outputs]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        self.assertEqual(outputs[0].tolist(), [before] * 4)
        self.assertEqual(outputs[1].tolist(), [[before + 10.0] * 2] * 2)

    # A start does not wait for the other rank, whatever the size.
    @on_ranks(2)
    def test_large_messages_cross(self):
        tensor, other = torch.full((1 << 20,), float(self.rank)), torch.zeros(1 << 20)
        sent = dist.isend(tensor, 1 - self.rank)
        got = dist.irecv(other, 1 - self.rank)
        got.wait()
        sent.wait()
        self.assertTrue(torch.equal(other, torch.full((1 << 20,), 1.0 - self.rank)))

    @on_ranks(2)
    def test_arguments(self):
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        with self.assertRaisesRegex(ValueError, "no rank 2 in this group"):
            backend.send([torch.zeros(1)], 2, 0)
        with self.assertRaisesRegex(ValueError, "tag -1 is negative"):
            backend.recv([torch.zeros(1)], 0, -1)
        with self.assertRaisesRegex(ValueError, "needs one tensor and got 2"):
            backend.send([torch.zeros(1)] * 2, 0, 0)
        dist.barrier()


if __name__ == "__main__":
    unittest.main()
