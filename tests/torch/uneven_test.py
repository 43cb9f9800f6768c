#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operations in which ranks have different numbers of elements, lists of tensors, and objects."""

import torch
import torch.distributed as dist
from devices import DeviceTest, each_device, main, ramp
from ranks import RankTest, on_ranks

CPU = torch.device("cpu")


class Uneven(RankTest):
    @on_ranks(3)
    def test_all_to_all_single(self):
        # Rank r sends (r + 1) * (p % 2) rows to rank p: nothing to ranks 0 and 2.
        for async_op in (False, True):
            sent = [(self.rank + 1) * (peer % 2) for peer in range(3)]
            got = [(peer + 1) * (self.rank % 2) for peer in range(3)]
            output = torch.full((sum(got), 2), -1)
            work = dist.all_to_all_single(
                output, torch.full((sum(sent), 2), self.rank), got, sent, async_op=async_op
            )
            if async_op:
                work.wait()
            self.assertEqual(output[:, 1].tolist(), [0, 1, 1, 2, 2, 2] if self.rank == 1 else [])

    # One rank's splits are all equal, so it gives none.
    @on_ranks(2)
    def test_even_on_one_rank_only(self):
        if self.rank == 0:
            output, got, sent = torch.zeros(3), [1, 2], [1, 1]
        else:
            output, got, sent = torch.zeros(2), None, [2, 1]
        dist.all_to_all_single(output, torch.arange(float(sum(sent))), got, sent)
        self.assertEqual(output.tolist(), [[0, 0, 1], [1, 2]][self.rank])

    @on_ranks(2)
    def test_splits_that_cannot_be(self):
        output, tensor = torch.zeros(4), torch.zeros(4)
        for splits, text in (([1, 1], "sum to 2"), ([5, -1], "is -1"), ([4], "needs 2")):
            with self.assertRaisesRegex((ValueError, RuntimeError), text):
                dist.group.WORLD._get_backend(CPU).all_to_all_single(output, tensor, splits, [])
        with self.assertRaisesRegex((ValueError, RuntimeError), "cannot share evenly|evenly"):
            dist.group.WORLD._get_backend(CPU).all_to_all_single(torch.zeros(3), tensor, [], [])
        dist.barrier()

    @on_ranks(3)
    def test_all_to_all_with_shapes_by_pair(self):
        inputs = [torch.full((self.rank + 1, peer), self.rank) for peer in range(3)]
        outputs = [torch.full((peer + 1, self.rank), -1) for peer in range(3)]
        dist.all_to_all(outputs, inputs)
        for peer in range(3):
            self.assertTrue(torch.equal(outputs[peer], torch.full((peer + 1, self.rank), peer)))

    @on_ranks(3)
    def test_all_gather_and_reduce_scatter(self):
        outputs = [torch.zeros(rank, 2) for rank in range(3)]
        dist.all_gather(outputs, torch.full((self.rank, 2), float(self.rank)))
        for rank in range(3):
            self.assertTrue(torch.equal(outputs[rank], torch.full((rank, 2), float(rank))))
        output = torch.zeros(self.rank)
        dist.reduce_scatter(output, [torch.arange(float(rank)) for rank in range(3)])
        self.assertTrue(torch.equal(output, 3 * torch.arange(float(self.rank))))


class Several(RankTest):
    @on_ranks(2)
    def test_coalesced(self):
        mine = [torch.full((n,), float(self.rank + 1)) for n in (1, 0, 5)]
        dist.all_reduce_coalesced(mine)
        self.assertEqual([t.tolist() for t in mine], [[3.0], [], [3.0] * 5])
        outputs = [[torch.zeros(1), torch.zeros(2, 2).t()] for _ in range(2)]
        dist.all_gather_coalesced(
            outputs, [torch.tensor([self.rank + 1.0]), torch.full((2, 2), self.rank + 5.0)]
        )
        self.assertEqual([o[0].item() for o in outputs], [1.0, 2.0])
        self.assertEqual([o[1].tolist() for o in outputs], [[[5.0] * 2] * 2, [[6.0] * 2] * 2])

    @on_ranks(2)
    def test_one_work_for_several_operations(self):
        backend = dist.group.WORLD._get_backend(CPU)
        tensors = [torch.ones(3), torch.ones(2)]
        backend._start_coalescing()
        for tensor in tensors:
            backend.allreduce([tensor])
        work = backend._end_coalescing()
        while not work.is_completed():
            pass
        work.wait()
        self.assertTrue(work.is_success())
        self.assertEqual([t.tolist() for t in tensors], [[2.0] * 3, [2.0] * 2])
        self.assertEqual([t.numel() for t in work.get_future().wait()], [3, 2])
        self.assertEqual([t.numel() for t in work.result()], [3, 2])
        # A part that cannot be started does not harm one that has been.
        whole = torch.zeros(9)
        bad = [[torch.zeros(2), whole[0:4]], [torch.zeros(2), whole[4:8]]]
        with self.assertRaises(RuntimeError):
            dist.all_gather_coalesced(bad, [torch.ones(2), whole[1:5]])

    @on_ranks(3)
    def test_objects(self):
        mine = {"rank": self.rank, "text": "x" * (100 * self.rank)}
        every = [None] * 3
        dist.all_gather_object(every, mine)
        self.assertEqual([one["rank"] for one in every], [0, 1, 2])
        gathered = [None] * 3 if self.rank == 1 else None
        dist.gather_object(mine, gathered, 1)
        if self.rank == 1:
            self.assertEqual([len(one["text"]) for one in gathered], [0, 100, 200])
        sent = [mine, self.rank]
        dist.broadcast_object_list(sent, 2)
        self.assertEqual(sent, [{"rank": 2, "text": "x" * 200}, 2])
        got = [None]
        dist.scatter_object_list(got, ["a", ["b"], 3] if self.rank == 0 else None, 0)
        self.assertEqual(got, [["a", ["b"], 3][self.rank]])
        if self.rank == 0:
            dist.send_object_list([1, "two"], 1)
        elif self.rank == 1:
            received = [None, None]
            dist.recv_object_list(received, 0)
            self.assertEqual(received, [1, "two"])


@each_device
class Manager(DeviceTest):
    @on_ranks(2)
    def test_coalescing_manager(self):
        """Both ways of torch's manager; tensors may be empty."""
        for device in None, self.device:
            for async_ops in False, True:
                def together(operation, *tensors):
                    with dist._coalescing_manager(device=device, async_ops=async_ops) as manager:
                        for parts in zip(*tensors):
                            operation(*parts)
                    if async_ops:
                        manager.wait()

                shards = [self.put(ramp(self.rank + i, count)) for i, count in enumerate((1000, 0, 7))]
                outputs = [self.put(torch.zeros(2 * shard.numel())) for shard in shards]
                sums = [self.put(torch.zeros(shard.numel())) for shard in shards]
                together(dist.all_gather_into_tensor, outputs, shards)
                together(dist.reduce_scatter_tensor, sums, outputs)
                together(dist.all_reduce, shards)
                for i, (output, part, shard) in enumerate(zip(outputs, sums, shards)):
                    every = [ramp(rank + i, shard.numel()) for rank in range(2)]
                    self.assertValues(output, torch.cat(every))
                    self.assertValues(part, 2 * every[self.rank])
                    self.assertValues(shard, sum(every))


if __name__ == "__main__":
    main()
