#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with gloo and with Rondo in turns, and in one process: compares losses and speeds.

    compare.py [--ranks N] [--rounds N] [--svg FILE] [arguments of train.py]

Prints a table, draws losses and speeds, and fails if the losses differ from those of one process by
more than rounding. The rows gloo and rondo differ only in the backend. Both have the batch norm of
all_reduce_batch_norm.py, because torch has none over ranks for CPU tensors. The last row has Rondo's.
Needs torch and the package rondo in the interpreter's environment.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TRAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train.py")
RUNS = {
    "gloo": ("--backend=gloo", "--batch-norm=all-reduce"),
    "rondo": ("--backend=rondo", "--batch-norm=all-reduce"),
    "rondo, SyncBatchNorm": ("--backend=rondo", "--batch-norm=rondo"),
}
ALONE = "one process"
COLORS = {ALONE: "#777777", "gloo": "#c8501e", "rondo": "#1b6ca8", "rondo, SyncBatchNorm": "#2a9d5c"}
# How far losses of ranks may be from those of one process. Gradients in bf16 have 8 bits, and each
# rank rounds its own.
TOLERANCE = {"bf16": 0.02, "f32": 1e-3}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 320, 56, 40, 44
CURVES, BARS = (LEFT, 400), (470, 740)  # from and to, in pixels


def train(name, ranks, arguments):
    """Returns what rank 0 of one run wrote."""
    command = [sys.executable, "-B"]
    if name != ALONE:
        command += ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}",
                    "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        command += [TRAIN, f"--json={path}", *RUNS.get(name, ()), *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment, timeout=600)
        with open(path, encoding="ascii") as file:
            return json.load(file)


def furthest(losses, others):
    return max(abs(a - b) for a, b in zip(losses, others))


def table(runs, ranks):
    """Prints the table, and returns how far any losses are from those of one process."""
    gloo = statistics.median(run["steps_per_second"] for run in runs["gloo"])
    [alone] = runs[ALONE]
    print(f"| {ranks} ranks | steps/s (least - most) | of gloo | losses differ from one process |\n|---|---|---|---|")
    worst = 0.0
    for name in RUNS:
        speeds = [run["steps_per_second"] for run in runs[name]]
        middle = statistics.median(speeds)
        far = max(furthest(alone["losses"], run["losses"]) for run in runs[name])
        worst = max(worst, far)
        print(f"| {name} | {middle:.1f} ({min(speeds):.1f} - {max(speeds):.1f}) | {middle / gloo:.2f} | {far:.2g} |")
    same = all(run["losses"] == runs["gloo"][0]["losses"] for run in runs["gloo"] + runs["rondo"])
    print(f"Losses of gloo and of rondo with the same batch norm are {'equal, bit for bit' if same else 'not equal bit for bit'}.")
    return worst


def text(x, y, words, anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def curves(runs):
    """The losses of each run, over its steps. Dashes let the curves below be seen."""
    begin, end = CURVES
    losses = {name: [sum(part) / len(part) for part in in_fives(of[0]["losses"])] for name, of in runs.items()}
    most = max(max(each) for each in losses.values())
    out = []
    for mark in range(5):
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * mark / 4
        out.append(f'<line x1="{begin}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        out.append(text(begin - 8, y + 4, f"{most * mark / 4:.2f}", "end"))
    for number, (name, each) in enumerate(losses.items()):
        points = " ".join(
            f"{begin + (end - begin) * i / max(1, len(each) - 1):.1f},{HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * loss / most:.1f}"
            for i, loss in enumerate(each)
        )
        dashes = "" if name == ALONE else f' stroke-dasharray="4 8" stroke-dashoffset="{4 * number}"'
        width = 5 if name == ALONE else 2
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[name]}" stroke-width="{width}"{dashes}/>')
    steps = len(next(iter(runs.values()))[0]["losses"])
    out.append(text(begin, TOP - 14, "training loss, means of 5 steps"))
    out.append(text((begin + end) / 2, HEIGHT - 12, f"{steps} steps", "middle"))
    return out


def in_fives(values):
    return [values[begin : begin + 5] for begin in range(0, len(values), 5)]


def bars(runs, ranks):
    """Steps per second: the median of the rounds, and a line from the least to the most."""
    begin, end = BARS
    speeds = {name: sorted(run["steps_per_second"] for run in of) for name, of in runs.items() if name != ALONE}
    most = max(each[-1] for each in speeds.values())
    length = lambda speed: (end - begin - 50) * speed / most
    out = [text(begin, TOP - 14, f"steps per second, {ranks} ranks")]
    for number, (name, each) in enumerate(speeds.items()):
        y, middle = TOP + 66 * number + 18, statistics.median(each)
        out.append(text(begin, y - 5, name))
        out.append(f'<rect x="{begin}" y="{y}" width="{length(middle):.1f}" height="24" fill="{COLORS[name]}"/>')
        out.append(f'<line x1="{begin + length(each[0]):.1f}" x2="{begin + length(each[-1]):.1f}" y1="{y + 12}" y2="{y + 12}" stroke="black" stroke-width="2"/>')
        out.append(text(begin + length(each[-1]) + 6, y + 17, f"{middle:.1f}"))
    y = TOP + 66 * len(speeds) + 18
    out.append(f'<line x1="{begin}" x2="{begin + 20}" y1="{y - 4}" y2="{y - 4}" stroke="{COLORS[ALONE]}" stroke-width="5"/>')
    out.append(text(begin + 26, y, f"{ALONE}, the whole batch"))
    return out


def draw(runs, ranks):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *curves(runs), *bars(runs, ranks), "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--svg", default="torch-training.svg")
    options, arguments = parser.parse_known_args()
    runs = {ALONE: [train(ALONE, 1, arguments)], **{name: [] for name in RUNS}}
    for _ in range(options.rounds):
        for name in RUNS:
            runs[name].append(train(name, options.ranks, arguments))
    worst = table(runs, options.ranks)
    with open(options.svg, "w", encoding="ascii") as file:
        file.write(draw(runs, options.ranks))
    kind = "f32" if "f32" in " ".join(arguments) else "bf16"
    if worst > TOLERANCE[kind]:
        sys.exit(f"the losses differ from those of one process by {worst:.2g}; {TOLERANCE[kind]} is the most for {kind} gradients")


if __name__ == "__main__":
    main()
