# SPDX-License-Identifier: Apache-2.0
"""The example in PyTorch gives the losses of one process, however its ranks meet."""

import contextlib
import io
import json
import os
import socket
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import torch._dynamo  # noqa: F401  (as in ddp_test.py)
from ranks import RankTest, on_ranks
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "torch"
sys.path.insert(0, str(EXAMPLE))
import compare  # noqa: E402
import train  # noqa: E402

QUICK = ["--images=256", "--test-images=101", "--batch=32", "--epochs=2"]
STEPS = 16
LAUNCHER = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def run(*arguments):
    """What rank 0 writes."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = os.path.join(folder, "run.json")
        train.main([*QUICK, f"--json={path}", *arguments])
        return json.loads(Path(path).read_text()) if os.path.exists(path) else None


def torchrun(size, *arguments):
    """As torchrun, which starts each rank anew; here they are forked, after torch was loaded."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=size,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id="example",
        start_method="fork",
        monitor_interval=0.05,
        max_restarts=0,
    )
    return elastic_launch(config, run)(*arguments)[0]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Example(RankTest):
    def alone(self, *arguments):
        """In a child, because the threads of a parent do not live on in forked ranks."""
        [result] = self.ranks(1, *arguments)
        self.assertEqual(len(result["losses"]), STEPS)
        self.assertLess(result["losses"][-1], result["losses"][0] / 1.2)
        return result

    def ranks(self, size, *arguments):
        """What the ranks return that meet at tcp://."""
        more = [f"--init-method=tcp://127.0.0.1:{free_port()}", f"--world-size={size}"] if size > 1 else []
        results = []

        def body(test):
            for name in LAUNCHER:
                os.environ.pop(name, None)
            own = [f"--rank={test.rank}"] if size > 1 else []
            return run(*more, *own, *arguments)

        on_ranks(size, join=False, check=lambda _, returned: results.extend(returned))(body)(self)
        return results

    def same(self, alone, result, tolerance):
        self.assertEqual(len(result["losses"]), STEPS)
        self.assertLessEqual(compare.furthest(alone["losses"], result["losses"]), tolerance)
        self.assertLessEqual(compare.furthest(alone["accuracy"], result["accuracy"]), 0.05)

    def test_torchrun_and_tcp_give_the_losses_of_one_process(self):
        alone = self.alone("--gradients=f32")
        by_torchrun = torchrun(2, "--gradients=f32")
        self.same(alone, by_torchrun, 1e-4)
        by_tcp = self.ranks(2, "--gradients=f32")
        self.assertEqual(by_tcp[0]["losses"], by_torchrun["losses"])
        self.assertIsNone(by_tcp[1])

    def test_gradients_in_bf16(self):
        alone = self.alone()
        self.same(alone, self.ranks(2)[0], 5e-3)

    def test_sampler_of_rondo(self):
        alone = self.alone("--gradients=f32", "--sampler=rondo")
        self.same(alone, self.ranks(2, "--gradients=f32", "--sampler=rondo")[0], 1e-4)

    def test_gloo_beside_rondo(self):
        layer = ["--gradients=f32", "--batch-norm=all-reduce"]
        gloo = self.ranks(2, "--backend=gloo", *layer)[0]
        self.assertEqual(self.ranks(2, "--backend=rondo", *layer)[0]["losses"], gloo["losses"])


class Compare(unittest.TestCase):
    def test_table_and_plot(self):
        """Without ranks: each run is a function of its name."""
        speeds = {"gloo": 10.0, "rondo": 15.0}

        def ran(name, ranks, arguments):
            return {"losses": [2.0, 1.5, 1.0 + (0.5 if name == broken else 0.0)] * 4, "steps_per_second": speeds.get(name, 20.0)}

        for broken, fails in (None, False), ("rondo", True):
            with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as patches:
                svg = os.path.join(folder, "plot.svg")
                out = patches.enter_context(contextlib.redirect_stdout(io.StringIO()))
                patches.enter_context(mock.patch.object(compare, "train", ran))
                patches.enter_context(mock.patch.object(sys, "argv", ["compare.py", f"--svg={svg}"]))
                if fails:
                    self.assertRaisesRegex(SystemExit, "differ from those of one process by 0.5", compare.main)
                else:
                    compare.main()
                    self.assertIn("| rondo | 15.0 (15.0 - 15.0) | 1.50 | 0 |", out.getvalue())
                self.assertTrue(Path(svg).read_text().endswith("</svg>\n"))


if __name__ == "__main__":
    unittest.main()
