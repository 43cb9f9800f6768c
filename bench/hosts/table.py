# SPDX-License-Identifier: Apache-2.0
"""Prints, for each size, iperf3's rate, and for each candidate its p50, its bus bandwidth and
the share of that rate."""

from statistics import median

from compare import in_words
from turns import Figures, Series


class Table:
    def __init__(self, rates: list[str], placement: list[int], rounds: int):
        self._ranks = len(placement)
        self._title = (f"all_reduce, f32 sum, {self._ranks} ranks on hosts {' '.join(map(str, placement))}, links of {' and '.join(rates)}: "
                       f"medians of {rounds} rounds")
        self.rows: list[dict] = []

    def print_header(self, names: list[str]) -> None:
        print(f"# {self._title}")
        print("# MB/s: bus bandwidth; %: of what iperf3 reaches; on link: bytes that the busiest host sends for each operation, its headers,")
        print("# acknowledgements and the barrier before it included; ratio: p50 of this / p50 of the first, median over the rounds")
        self._width = max(map(len, [*names, 'simulated']))
        print(f"{'size':>8}  {'':<{self._width}} {'p50 us':>11} {'MB/s':>8} {'%':>6} {'on link':>12} {'ratio':>6}  (least - most)", flush=True)

    def add(self, figures: Figures, simulated_us: dict[str, float]) -> None:
        if figures.limit:
            print(f"{in_words(figures.bytes):>8}  {'iperf3':<{self._width}} {'':>11} {figures.limit / 1e6:8.1f}")
        first = next(iter(figures.series.values()), None)
        for name, series in figures.series.items():
            self._add_row(figures, name, series, first)
            if name in simulated_us:
                share = simulated_us[name] / median(series.p50_us)
                self.rows[-1]["simulated_us"] = simulated_us[name]
                print(f"{in_words(figures.bytes):>8}  {'simulated':<{self._width}} {simulated_us[name]:11.1f}   {share:.2f} of the measured time", flush=True)

    def _add_row(self, figures: Figures, name: str, series: Series, first: Series) -> None:
        p50 = median(series.p50_us)
        bandwidth = figures.bytes / p50 * 2 * (self._ranks - 1) / self._ranks  # bytes per microsecond: MB/s
        ratios = [theirs / its for theirs, its in zip(series.p50_us, first.p50_us)]
        share = bandwidth * 1e6 / figures.limit if figures.limit else None
        self.rows.append({"bytes": figures.bytes, "ranks": self._ranks, "name": name, "p50_us": p50, "busbw": bandwidth / 1e3,
                          "iperf3": figures.limit and figures.limit / 1e9, "link_bytes": median(series.link_bytes), "ratio": median(ratios)})
        percent = "-" if share is None else f"{100 * share:.1f}"
        spread = "" if series is first else f"{median(ratios):6.2f}  ({min(ratios):.2f} - {max(ratios):.2f})"
        print(f"{in_words(figures.bytes):>8}  {name:<{self._width}} {p50:11.1f} {bandwidth:8.1f} {percent:>6} {median(series.link_bytes):12.0f} {spread}",
              flush=True)

    @staticmethod
    def print_end(missing: dict[str, str]) -> None:
        for name, reason in missing.items():
            print(f"{name}: {reason}")
