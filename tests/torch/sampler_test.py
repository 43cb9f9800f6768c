# SPDX-License-Identifier: Apache-2.0
"""ShardedSampler in the place of torch's DistributedSampler."""

import copy
import io
import pickle
import unittest

import torch
import torch.distributed as dist
from ranks import RankTest, on_ranks
from torch.utils.data import DataLoader, DistributedSampler

from rondo.torch import ShardedSampler


def samplers(samples, size, **options):
    return [ShardedSampler(range(samples), size, rank, **options) for rank in range(size)]


def in_order(parts):
    """The indices of all ranks in the order of the epoch."""
    lists = [list(part) for part in parts]
    return [each[i] for i in range(max(map(len, lists))) for each in lists if i < len(each)]


class Sampler(unittest.TestCase):
    def test_an_epoch_has_one_order_for_any_number_of_ranks(self):
        for shuffle in (True, False):
            [alone] = samplers(1000, 1, seed=7, shuffle=shuffle)
            alone.set_epoch(3)
            order = list(alone)
            self.assertEqual(sorted(order), list(range(1000)))
            self.assertEqual(order == list(range(1000)), not shuffle)
            for size in (2, 3, 7):
                ranks = samplers(1000, size, seed=7, shuffle=shuffle, uneven=True)
                for sampler in ranks:
                    sampler.set_epoch(3)
                self.assertEqual(in_order(ranks), order)
        # That of the library, on every machine: see tests/training/sampler_test.cc.
        [alone] = samplers(10, 1, seed=1)
        self.assertEqual(list(alone), [6, 4, 7, 2, 9, 1, 5, 0, 8, 3])

    def test_lengths_are_those_of_distributed_sampler(self):
        for samples in (0, 1, 2, 5, 8, 9, 101):
            for size in (1, 2, 3, 8):
                for drop_last in (False, True):
                    for rank in range(size):
                        if samples:  # torch's fails without any
                            theirs = DistributedSampler(range(samples), size, rank, drop_last=drop_last)
                            ours = ShardedSampler(range(samples), size, rank, drop_last=drop_last)
                            self.assertEqual(len(ours), max(0, len(theirs)))
                            self.assertEqual(ours.num_samples, len(list(ours)))
                            self.assertEqual(ours.total_size, max(0, theirs.total_size))
                            self.assertLessEqual(vars(theirs).keys() - {"epoch"}, vars(ours).keys())

    def test_padding_and_what_is_left_out(self):
        for samples in (1, 2, 7, 8, 9, 64):
            for size in (1, 2, 3, 8):
                padded = samplers(samples, size)
                real = [list(each)[: len(each) - each.padding] for each in padded]
                self.assertEqual(sorted(sum(real, [])), list(range(samples)))
                self.assertEqual(len({len(each) for each in padded}), 1)
                dropped = sum((list(each) for each in samplers(samples, size, drop_last=True)), [])
                self.assertEqual(len(set(dropped)), samples // size * size)
                uneven = samplers(samples, size, uneven=True)
                self.assertEqual(sorted(sum(map(list, uneven), [])), list(range(samples)))
                self.assertEqual([each.padding for each in uneven], [0] * size)
                self.assertEqual({each.total_size for each in uneven}, {samples})

    def test_epochs_and_seeds(self):
        orders = set()
        for seed in range(3):
            [sampler] = samplers(50, 1, seed=seed)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                self.assertEqual(sampler.epoch, epoch)
                orders.add(tuple(sampler))
                self.assertEqual(tuple(sampler), tuple(sampler))
        self.assertEqual(len(orders), 9)

    def test_frameworks_know_it(self):
        """Frameworks deal samples to ranks once more unless the sampler is a DistributedSampler."""
        [sampler] = samplers(50, 1)
        self.assertIsInstance(sampler, DistributedSampler)
        sampler.resume((3, 20))
        sampler.epoch = 3  # as some do
        self.assertEqual((sampler.epoch, len(sampler), sampler.total_size), (3, 50, 50))

    def test_resume_with_another_number_of_ranks(self):
        [alone] = samplers(103, 1, seed=2)
        alone.set_epoch(5)
        order = list(alone)
        first = samplers(103, 4, seed=2)
        for sampler in first:
            sampler.set_epoch(5)
        position = first[0].position(10)
        self.assertEqual(position, (5, 40))
        checkpoint = io.BytesIO()
        torch.save({"sampler": position}, checkpoint)
        checkpoint.seek(0)
        self.assertEqual(torch.load(checkpoint), {"sampler": position})
        second = samplers(103, 3, seed=2, uneven=True)
        for sampler in second:
            sampler.resume(position)
        self.assertEqual(in_order(second), order[40:])
        self.assertEqual([len(each) for each in second], [21, 21, 21])
        self.assertEqual(second[0].position(4), (5, 52))  # from there
        self.assertEqual(second[0].position(21), (5, 103))
        second[0].resume(second[0].position(21))
        self.assertEqual((len(second[0]), list(second[0])), (0, []))
        second[0].set_epoch(6)
        self.assertEqual(len(second[0]), 35)

    def test_more_than_are_taken_at_once(self):
        [sampler] = samplers(10000, 1)
        self.assertEqual(sorted(sampler), list(range(10000)))
        two = iter(sampler), iter(sampler)
        self.assertTrue(all(a == b for a, b in zip(*two)))

    def test_copies(self):
        sampler = ShardedSampler(range(100), 3, 1, seed=4)
        sampler.resume((2, 30))
        for other in (copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
            self.assertEqual(list(other), list(sampler))
            self.assertEqual(len(other), len(sampler))

    def test_a_loader_with_workers(self):
        sampler = ShardedSampler(range(100), 3, 1)
        loader = DataLoader(
            torch.arange(100), batch_size=8, sampler=sampler, num_workers=2, multiprocessing_context="fork"
        )
        self.assertEqual(torch.cat(list(loader)).tolist(), list(sampler))

    def test_errors(self):
        for text, arguments in {
            "no rank 3 among 3 ranks": dict(num_replicas=3, rank=3),
            "no rank -1": dict(num_replicas=3, rank=-1),
            "not both": dict(num_replicas=3, rank=0, drop_last=True, uneven=True),
            "init_process_group": dict(rank=0),
            "seed is -1": dict(num_replicas=3, rank=0, seed=-1),
        }.items():
            with self.assertRaisesRegex(ValueError, text):
                ShardedSampler(range(9), **arguments)
        sampler = ShardedSampler(range(9), 3, 0)
        for text, wrong in {
            "epoch is -1": lambda: sampler.set_epoch(-1),
            "epoch is 1.5": lambda: sampler.set_epoch(1.5),
            "cannot resume after 10 samples": lambda: sampler.resume((0, 10)),
            "this rank has 3 samples": lambda: sampler.position(4),
        }.items():
            with self.assertRaisesRegex(ValueError, text):
                wrong()
        self.assertEqual(sampler.position(0), (0, 0))  # unharmed


class Ranks(RankTest):
    @on_ranks(3)
    def test_ranks_of_the_default_group(self):
        sampler = ShardedSampler(range(10), uneven=True)
        self.assertEqual((sampler.num_replicas, sampler.rank), (3, self.rank))
        every = [None] * 3
        dist.all_gather_object(every, list(sampler))
        self.assertEqual(sorted(sum(every, [])), list(range(10)))


if __name__ == "__main__":
    unittest.main()
