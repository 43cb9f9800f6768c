# SPDX-License-Identifier: Apache-2.0
"""Compares synchronized batch norm, batch norm of each rank alone, and no batch norm.

Trains the example with 2 samples on each of 4 ranks, prints a table and draws the curves.

    ninja -C build examples/train/train tools/rondo
    curves.py [--svg FILE] [--seeds N] [--epochs N] [--folder FOLDER]

A run whose CSV file is in the folder is not done again.
"""

import argparse
import csv
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODES = {"sync": "synchronized", "local": "each rank alone", "none": "no batch norm"}
COLORS = {"sync": "#1b6ca8", "local": "#c8501e", "none": "#777777"}
SMOOTH = 75  # steps that are averaged for one point
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 56, 150, 24, 44


def train(arguments, mode, seed):
    """Returns the rows of one run, and does the run if the folder has no file of it."""
    path = arguments.folder / f"{mode}-{seed}.csv"
    if not path.exists():
        unfinished = path.with_suffix(".part")
        command = [ROOT / "build/tools/rondo", "run", "-n", "4", ROOT / "build/examples/train/train", "--batch", "8", "--learning-rate",
                   "0.05", "--epochs", arguments.epochs, "--batch-norm", mode, "--seed", seed, "--csv", unfinished]
        print(" ".join(map(str, command[5:])), file=sys.stderr)
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        unfinished.rename(path)
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def mean(values):
    return sum(values) / len(values)


def points(runs):
    """Yields (step, least, mean, most) of the runs' training losses, each averaged over SMOOTH
    steps."""
    steps = len(runs[0])
    for begin in range(0, steps - SMOOTH + 1, SMOOTH):
        losses = [mean([float(row["loss"]) for row in run[begin:begin + SMOOTH]]) for run in runs]
        yield begin + SMOOTH / 2, min(losses), mean(losses), max(losses)


def table(runs, epochs):
    print("| epoch | " + " | ".join(MODES.values()) + " |\n|---|" + "---|" * len(MODES))
    for epoch in range(1, epochs + 1):
        cells = []
        for mode in MODES:
            ends = [row for run in runs[mode] for row in run if row["epoch"] == str(epoch) and row["test_loss"]]
            loss = mean([float(row["test_loss"]) for row in ends])
            right = [100 * float(row["test_accuracy"]) for row in ends]
            cells.append(f"{mean(right):.1f} % ({min(right):.1f} to {max(right):.1f}), loss {loss:.3f}")
        print(f"| {epoch} | " + " | ".join(cells) + " |")


def draw(runs, seeds):
    steps = len(runs["sync"][0])
    highest = 2.5
    x = lambda step: LEFT + (WIDTH - LEFT - RIGHT) * step / steps
    y = lambda loss: TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(loss, highest) / highest)
    line = lambda pairs: " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in pairs)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for loss in (0, 0.5, 1, 1.5, 2, 2.5):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(loss):.1f}" y2="{y(loss):.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:g}</text>')
    for step in range(0, steps + 1, steps // 5):
        out.append(f'<text x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step}</text>')
    out.append(f'<text x="{x(steps / 2):.1f}" y="{HEIGHT - 6}" text-anchor="middle">step of 4 x 2 samples</text>')
    out.append(f'<text x="{LEFT}" y="{TOP - 8}">training loss, mean of {SMOOTH} steps; shaded: {seeds} seeds</text>')
    for mode in reversed(MODES):
        all_points = list(points(runs[mode]))
        band = line([(p[0], p[1]) for p in all_points]) + " " + line([(p[0], p[3]) for p in reversed(all_points)])
        out.append(f'<polygon points="{band}" fill="{COLORS[mode]}" fill-opacity="0.18"/>')
        out.append(f'<polyline points="{line([(p[0], p[2]) for p in all_points])}" fill="none" stroke="{COLORS[mode]}" stroke-width="2"/>')
    for number, mode in enumerate(MODES):
        height = TOP + 20 + 22 * number
        out.append(f'<line x1="{WIDTH - RIGHT + 12}" x2="{WIDTH - RIGHT + 32}" y1="{height}" y2="{height}" stroke="{COLORS[mode]}" stroke-width="2"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 38}" y="{height + 4}">{MODES[mode]}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--svg", type=pathlib.Path, default=ROOT / "docs/batch-norm-curves.svg")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/curves")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    runs = {mode: [train(arguments, mode, seed) for seed in range(1, arguments.seeds + 1)] for mode in MODES}
    table(runs, arguments.epochs)
    arguments.svg.write_text(draw(runs, arguments.seeds))


if __name__ == "__main__":
    main()
