# SPDX-License-Identifier: Apache-2.0
"""Prints the rows of one transport and number of ranks. docs/compare.md explains the columns."""

from launch import BEFORE, CEILING, RONDO
from rounds import Row

SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LONGEST = {"gloo": "gloo_halving_doubling"}


def in_words(count: int) -> str:
    for suffix, factor in reversed(SUFFIXES.items()):
        if count % factor == 0:
            return f"{count // factor} {suffix}iB"
    return f"{count} B"


def short(value: float | None) -> str:
    """A time in microseconds in at most five characters; 233k is 233,000."""
    if value is None:
        return "-"
    if value > 99999:
        return f"{value / 1000:.0f}k"
    return format(value, ".2f" if value < 9.995 else ".1f" if value < 99.95 else ".0f")


def decimals(value: float | None, count: int) -> str:
    return "-" if value is None else format(value, f".{count}f")


def has_ceiling(transport: str, peers: list[str]) -> bool:
    """Whether the table has a ceiling. A run that only compares builds has none."""
    return transport == "shm" and not set(peers) <= set(BEFORE.values())


class Table:
    def __init__(self, transport: str, peers: list[str]):
        self._ours = RONDO[transport]
        self._ceiling = has_ceiling(transport, peers)
        self._columns = [*self._ours, *peers, *([CEILING] if self._ceiling else [])]
        self._best = max(len(LONGEST.get(name, name)) for name in ("best peer", *peers)) + 1

    def print_header(self, title: str) -> None:
        names = [name.removeprefix("rondo_") for name in self._columns]
        print(f"\n{title}")
        print(" " * 8 + "".join(f"{name:>14}" for name in names))
        times = f"{'p50':>8}{'mean':>6}" * len(names)
        ratios = "".join(f"{'ratio' if name == 'rondo' else 'alloc':>6}{'mean':>6}{'  (least-most)' if name == 'rondo' else ''}"
                         for name in self._ours)
        percent = f"{'%ceil':>6}" if self._ceiling else ""
        print(f"{'size':>8}{times}{'p90/med':>8}  {'best peer':<{self._best}}{ratios}{percent}", flush=True)

    def print_row(self, row: Row) -> None:
        times = "".join(f"{short(row.p50.us.get(name)):>8}{short(row.mean.us.get(name)):>6}" for name in self._columns)
        spread = decimals(row.p90_over_median("rondo"), 2)
        ratios = "".join(self._ratios(row, name) for name in self._ours)
        percent = f"{decimals(row.percent_of_ceiling(), 0):>6}" if self._ceiling else ""
        print(f"{in_words(row.bytes):>8}{times}{spread:>8}  {row.p50.best or '-':<{self._best}}{ratios}{percent}".rstrip(), flush=True)

    @staticmethod
    def _ratios(row: Row, name: str) -> str:
        text = f"{decimals(row.p50.ratio(name), 2):>6}{decimals(row.mean.ratio(name), 2):>6}"
        if name != "rondo":
            return text
        rounds = row.p50.ratios.get(name)
        spread = f"({min(rounds):.2f}-{max(rounds):.2f})" if rounds else ""
        return f"{text}  {spread:<12}"
