# SPDX-License-Identifier: Apache-2.0
"""The training example, started as users start it.
Usage: train_test.py PATH_OF_RONDO PATH_OF_TRAIN [unittest arguments]"""

import csv
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from program import RONDO, clean_environment, drawn_of, main

TRAIN = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "train"
QUICK = ["--images", "64", "--test-images", "50", "--batch", "16", "--epochs", "10", "--learning-rate", "0.2", "--warm-up", "1"]
STEPS = 40
# The column that depends on the clock.
TIMED = "samples_per_second"


class Train(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, launcher, *arguments, status=0):
        result = subprocess.run([*launcher, TRAIN, *QUICK, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                                stdin=subprocess.DEVNULL, env=clean_environment())
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def train(self, *arguments, ranks=4, status=0):
        return self.start([RONDO, "run", "-n", str(ranks), "--"], *arguments, status=status)

    def curve(self, name, *arguments, ranks=4):
        self.train("--csv", self.folder / name, *arguments, ranks=ranks)
        return self.rows(name)

    def rows(self, name):
        with open(self.folder / name, newline="") as file:
            return [{key: value for key, value in row.items() if key != TIMED} for row in csv.DictReader(file)]

    def check_learns(self, rows):
        self.assertEqual([int(row["step"]) for row in rows], list(range(1, STEPS + 1)))
        losses = [float(row["loss"]) for row in rows]
        self.assertLess(sum(losses[-5:]), sum(losses[:5]) - 0.25)

    def test_curve(self):
        result = self.train("--csv", self.folder / "curve.csv")
        rows = self.rows("curve.csv")
        self.check_learns(rows)
        for row in rows:
            self.assertEqual(int(row["epoch"]), (int(row["step"]) + 3) // 4)
            end = int(row["step"]) % 4 == 0
            self.assertEqual(row["test_loss"] != "", end)
            self.assertEqual(row["test_accuracy"] != "", end)
        self.assertEqual(result.stdout.count("4 ranks, 64 training and 50 test pictures"), 1, "rank 0 alone speaks")
        self.assertEqual(result.stdout.count("epoch 10: training loss"), 1)
        self.assertRegex(result.stdout, r"(?m)^steps took [0-9.]+ s, [0-9.]+ % of it in finish\(\), waiting for gradients$")
        self.assertEqual(result.stderr, "", "no line that is written over where there is no terminal")

    def test_ways(self):
        ways = (["--wire", "bf16"], ["--dtype", "f64"], ["--batch-norm", "local"], ["--batch-norm", "none"],
                ["--clip", "1"], ["--bucket-bytes", "100000"])
        for flags in drawn_of(ways, 2):
            with self.subTest(flags):
                self.check_learns(self.curve("curve.csv", *flags))

    def test_alone(self):
        result = self.start([], "--csv", self.folder / "curve.csv")
        self.assertIn("1 rank, 64 training", result.stdout)
        alone = self.rows("curve.csv")
        self.check_learns(alone)
        # Four ranks see the same batches, but their sums are rounded differently.
        for row, other in zip(alone, self.curve("four.csv")):
            self.assertAlmostEqual(float(row["loss"]), float(other["loss"]), delta=1e-3)

    def test_ranks_that_run_out(self):
        """Last batches of 5 samples (2, 1, 1, 1) and of one, and fewer samples than ranks."""
        for images, steps in drawn_of(((37, 3), (33, 3), (3, 1))):
            with self.subTest(images=images):
                rows = self.curve("curve.csv", "--images", images, "--test-images", 3)
                self.assertEqual(len(rows), 10 * steps)
                alone = self.curve("alone.csv", "--images", images, "--test-images", 3, ranks=1)
                for row, other in zip(rows, alone):
                    self.assertAlmostEqual(float(row["loss"]), float(other["loss"]), delta=2e-3)

    def check_resumes(self, stops, *flags):
        whole = self.curve("whole.csv", "--checkpoint", self.folder / "whole", *flags)
        for stop in stops:
            with self.subTest(stop=stop, flags=flags):
                part = self.curve("part.csv", "--checkpoint", self.folder / "part", "--stop-after", stop, *flags)
                self.assertEqual(part, whole[:stop])
                result = self.train("--csv", self.folder / "part.csv", "--checkpoint", self.folder / "part",
                                    "--resume", self.folder / "part", *flags)
                self.assertIn(f"going on after step {stop} of", result.stdout)
                self.assertEqual(self.rows("part.csv"), whole)
                self.assertEqual((self.folder / "part").read_bytes(), (self.folder / "whole").read_bytes())

    def test_resume(self):
        ways = [], ["--dtype", "f64"], ["--batch-norm", "none", "--clip", "1"]
        cases = drawn_of(itertools.product(ways, (13, 20, 27)))
        for flags in ways:
            stops = [stop for chosen, stop in cases if chosen == flags]
            if stops:
                self.check_resumes(stops, "--reproducible", *flags)

    def test_resume_on_other_ranks(self):
        whole = self.curve("whole.csv")
        self.train("--csv", self.folder / "part.csv", "--checkpoint", self.folder / "part", "--stop-after", 14)
        self.train("--csv", self.folder / "part.csv", "--resume", self.folder / "part", ranks=2)
        part = self.rows("part.csv")
        self.assertEqual([row["step"] for row in part], [row["step"] for row in whole])
        for row, other in zip(part, whole):
            self.assertAlmostEqual(float(row["loss"]), float(other["loss"]), delta=1e-3)

    def test_checkpoints_on_the_way(self):
        self.curve("part.csv", "--checkpoint", self.folder / "part", "--checkpoint-every", 7, "--reproducible")
        whole = self.rows("part.csv")
        # A resumed curve keeps only the rows up to its checkpoint, here step 7.
        self.train("--checkpoint", self.folder / "early", "--stop-after", 7, "--reproducible")
        self.train("--csv", self.folder / "part.csv", "--resume", self.folder / "early", "--reproducible")
        self.assertEqual(self.rows("part.csv"), whole)

    def test_checkpoint_that_cannot_be(self):
        path = self.folder / "checkpoint"
        self.train("--checkpoint", path, "--stop-after", 5)
        good = path.read_bytes()
        bad = self.folder / "bad"
        damaged = bytearray(good)
        damaged[len(good) // 2] ^= 1
        for content, why in ((bytes(damaged), "damaged: its CRC does not fit"), (good[:-1], "damaged"), (b"", "no checkpoint"),
                             (b"PK\x03\x04 something else altogether", "no checkpoint"), (None, "No such file")):
            with self.subTest(why):
                bad.unlink(missing_ok=True)
                if content is not None:
                    bad.write_bytes(content)
                result = self.train("--resume", bad, status=1)
                self.assertEqual(result.stderr.count("train: "), 1, result.stderr)
                self.assertIn(f"train: checkpoint '{bad}': ", result.stderr)
                self.assertIn(why, result.stderr)
        for flags in ["--seed", "2"], ["--batch-norm", "local"], ["--dtype", "f64"]:
            with self.subTest(flags):
                result = self.train("--resume", path, *flags, status=1)
                self.assertIn(f"and this run has {flags[0]} {flags[1]}", result.stderr)

    def test_files_that_cannot_be_written(self):
        for flag in "--csv", "--checkpoint":
            for path, why in ("/nowhere/file", "No such file or directory"), (self.folder, "directory"), ("/dev/full", ""):
                with self.subTest(flag=flag, path=path):
                    result = self.train(flag, path, status=1)
                    self.assertEqual(result.stderr.count(f"'{path}"), 1, result.stderr)
                    self.assertIn(why, result.stderr)
                    self.assertNotIn("epoch", result.stdout, "known before the training")
        self.assertFalse(pathlib.Path("/dev/full").is_file(), "a device stays what it is")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_resume_with_another_batch(self):
        path = self.folder / "checkpoint"
        self.train("--checkpoint", path, "--epochs", 2, "--stop-after", 6)
        for batch, steps in (8, 4), (32, 1):
            with self.subTest(batch=batch):
                self.train("--resume", path, "--epochs", 2, "--batch", batch, "--csv", self.folder / "curve.csv")
                rows = self.rows("curve.csv")
                self.assertEqual([int(row["step"]) for row in rows], list(range(7, 7 + steps)))
                self.assertEqual({row["epoch"] for row in rows}, {"2"})
                self.assertNotEqual(rows[-1]["test_loss"], "", "the epoch is done")
                self.assertGreater(float(rows[-1]["learning_rate"]), 0)
                (self.folder / "curve.csv").unlink()
        result = self.train("--resume", path, "--epochs", 1)
        self.assertIn("nothing is left to do", result.stdout)

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([TRAIN, *QUICK, "--epochs", "1"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                    env=clean_environment())
        self.assertEqual((result.returncode, result.stderr), (1, "train: standard output cannot be written\n"))

    def test_usage(self):
        for flags, why in ((["--batch", "10"], "10 pictures cannot be dealt evenly to 4 ranks; 8 or 12 can"),
                           (["--batch", "2"], "4 can"), (["--batch", "0"], "--batch"), (["--epochs", "some"], "--epochs"),
                           (["--wire", "bf16", "--dtype", "f64"], "--wire"), (["--wire", "f8"], "--wire"), (["--nothing"], "--nothing"),
                           (["--batch-norm", "global"], "--batch-norm"), (["--checkpoint-every", "3"], "needs --checkpoint FILE"),
                           (["--learning-rate", "-1"], "--learning-rate"), (["--learning-rate", "nan"], "--learning-rate"),
                           (["--clip", "nan"], "--clip"), (["--seed", "-1"], "--seed"), (["--stop-after", "-1"], "--stop-after"),
                           (["--batch-norm", "global"], "global not in {local,none,sync}"), (["--dtype", "f16"], "f16 not in {f32,f64}")):
            with self.subTest(flags):
                result = self.train(*flags, status=2)
                self.assertIn(why, result.stderr)
                self.assertEqual(result.stderr.count("train --help describes the options"), 1, result.stderr)
                self.assertEqual(result.stdout, "")

    def test_help(self):
        result = self.train("--help")
        self.assertEqual(result.stdout.count("--learning-rate"), 1)
        alone = subprocess.run([TRAIN, "--help"], capture_output=True, text=True, timeout=60, env=clean_environment(RANK="0"))
        self.assertEqual((alone.returncode, alone.stderr), (0, ""), "whatever the environment says")

    def check_mpirun(self, name, *flags):
        if shutil.which(name) is None:
            self.skipTest(f"{name} is not installed")
        self.start([name, *flags, "-n", "4"], "--csv", self.folder / "curve.csv")
        self.check_learns(self.rows("curve.csv"))

    def test_openmpi(self):
        self.check_mpirun("mpirun.openmpi", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else []))

    def test_mpich(self):
        self.check_mpirun("mpirun.mpich")


if __name__ == "__main__":
    main()
