#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Barriers, their timeouts, and monitored barriers."""

import time
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
from ranks import RankTest, on_ranks

SOON = timedelta(milliseconds=400)


class Barriers(RankTest):
    @on_ranks(3)
    def test_nobody_leaves_before_all_have_come(self):
        store = dist.distributed_c10d._get_default_store()
        for number in range(5):
            store.set(f"came/{number}/{self.rank}", "yes")
            dist.barrier()
            self.assertTrue(store.check([f"came/{number}/{rank}" for rank in range(3)]))

    # As gloo's, it waits for what this rank has started before.
    @on_ranks(2)
    def test_waits_for_earlier_operations(self):
        for _ in range(20):
            tensors = [torch.ones(64, 64).t() for _ in range(8)]
            for tensor in tensors:
                dist.all_reduce(tensor, async_op=True)
            dist.barrier()
            self.assertEqual({tensor[3, 4].item() for tensor in tensors}, {2.0})

    @on_ranks(2)
    def test_timeout(self):
        group = dist.new_group(timeout=SOON)
        if self.rank == 0:
            begin = time.monotonic()
            with self.assertRaisesRegex(RuntimeError, "timeout.*has passed|timeout") as caught:
                dist.barrier(group)
            self.assertGreaterEqual(time.monotonic() - begin, SOON.total_seconds())
            self.assertIn("rank 1", str(caught.exception))
        dist.monitored_barrier()

    @on_ranks(2)
    def test_set_timeout(self):
        group = dist.new_group()
        dist.barrier(group)
        dist.distributed_c10d._set_pg_timeout(SOON, group)
        if self.rank == 0:
            with self.assertRaisesRegex(RuntimeError, "timeout"):
                dist.all_reduce(torch.ones(1), group=group)
        dist.monitored_barrier()


    @on_ranks(2)
    def test_timeouts_without_end(self):
        """Timeouts that are too long for a clock, such as timedelta.max, do not expire at once."""
        for timeout in timedelta.max, timedelta(days=300 * 366), timedelta(days=400_000 * 365):
            group = dist.new_group(timeout=timeout)
            dist.distributed_c10d._set_pg_timeout(timeout, group)
            tensor = torch.ones(1)
            if self.rank == 1:
                time.sleep(0.01)  # the other rank waits
            dist.all_reduce(tensor, group=group)
            dist.all_reduce(tensor, group=group, async_op=True).wait(timeout)
            self.assertEqual(tensor.item(), 4.0)
            dist.barrier(group)
            dist.monitored_barrier(group, timeout)


class MonitoredBarriers(RankTest):
    @on_ranks(3)
    def test_all_come(self):
        for _ in range(3):
            dist.monitored_barrier()
        dist.monitored_barrier(wait_all_ranks=True)

    @on_ranks(3)
    def test_names_the_first_that_does_not_come(self):
        if self.rank == 0:
            with self.assertRaisesRegex(RuntimeError, "Rank 1 failed to pass monitoredBarrier"):
                dist.monitored_barrier(timeout=SOON)
        self.group_still_works()

    @on_ranks(3)
    def test_names_all_that_do_not_come(self):
        if self.rank == 0:
            with self.assertRaisesRegex(
                RuntimeError, "Ranks 1, 2 failed to pass monitoredBarrier"
            ):
                dist.monitored_barrier(timeout=SOON, wait_all_ranks=True)
        self.group_still_works()

    @on_ranks(3)
    def test_tells_those_that_come(self):
        if self.rank == 0:
            with self.assertRaisesRegex(RuntimeError, "Rank 1 failed to pass monitoredBarrier"):
                dist.monitored_barrier(timeout=SOON)
        elif self.rank == 2:
            with self.assertRaisesRegex(
                RuntimeError, "Rank 2 successfully reached monitoredBarrier, but received errors"
            ):
                dist.monitored_barrier(timeout=timedelta(seconds=30))
        self.group_still_works()

    @on_ranks(2)
    def test_timeout_of_zero(self):
        if self.rank == 0:
            with self.assertRaisesRegex(RuntimeError, "Rank 0 timed out in monitoredBarrier"):
                dist.monitored_barrier(timeout=timedelta(seconds=0))
        self.group_still_works()

    @on_ranks(3)
    def test_of_a_part_of_the_ranks(self):
        group = dist.new_group([0, 2])
        dist.monitored_barrier(group)  # on rank 1: nothing
        if self.rank == 0:
            with self.assertRaisesRegex(RuntimeError, "Rank 1 failed to pass monitoredBarrier"):
                dist.monitored_barrier(group, timeout=SOON)
        self.group_still_works()

    def group_still_works(self):
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.item(), self.size)


if __name__ == "__main__":
    unittest.main()
