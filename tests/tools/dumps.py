# SPDX-License-Identifier: Apache-2.0
"""Makes dumps of the recorder (docs/recorder.md has their grammar) for tests of rondo trace."""

JOB = "00000000000000ab"


def field(name, value):
    text = f"{value:.6f}" if isinstance(value, float) else str(value)
    plain = text and all("!" <= character <= "~" and character != '"' for character in text)
    return f"{name}={text}" if plain else '{}="{}"'.format(name, text.replace("\\", "\\\\").replace('"', '\\"'))


def line(word, **fields):
    names = {"lane_": "lane", "from_": "from"}
    return " ".join([word, *(field(names.get(name, name), value) for name, value in fields.items() if value is not None)])


def call(name="all_reduce", **fields):
    """The fields of a collective of 64 MiB that has ended."""
    call = dict(state="done", name=name, type="f32", count=1 << 24, algorithm="ring", plan="12ab", bytes=1 << 26)
    if name in ("all_reduce", "reduce", "reduce_scatter"):
        call["op"] = "sum"
    call.update(fields)
    return call


def message(name, peer, key, **fields):
    return dict(state="done", name=name, type="u8", count=1024, bytes=1024, peer=peer, key=key, **fields)


class Rank:
    """The dump of one rank. The steady clock began `boot` seconds after that of rank 0's host; the dump
    is written at the time `now` of rank 0's clock. The times of calls are of that clock too."""

    def __init__(self, rank, size, why="signal", now=100.0, boot=0.0, clock_id="a", **written):
        self.rank, self.size, self.why, self.now = rank, size, why, now
        self.written = dict(why=why, rank=rank, size=size, group="", job=JOB, host=f"node{rank // 2}", process=1000 + rank, version="0.1.0",
                            transport="tcp", time=f"2026-11-30T22:36:{int(now) % 60:02}.{round(now % 1 * 1e6):06}Z",
                            clock=round((now - boot + 10_000) * 1e9), clock_id=clock_id)
        self.written.update(written)
        self.lanes = {"bulk": [], "urgent": [], "messages": []}
        self.head, self.tail, self.lane_fields, self.ends = [], [], {}, None

    def add(self, lane, number=None, **fields):
        numbers = [call["number"] for call in self.lanes[lane]]
        number = number or max(numbers, default=0) + 1
        for name in ("called", "sent", "arrived", "ended"):
            if fields.get(name) is not None:
                fields[name] = float(fields[name] - self.now)
        self.lanes[lane].append(dict(number=number, **fields))
        return self

    def verdict(self, **fields):
        self.head.append(line("verdict", **fields))
        return self

    def text(self):
        lines = [line("written", **self.written), *self.head]
        for lane, calls in self.lanes.items():
            ended = [call["number"] for call in calls if call["state"] in ("done", "failed")]
            fields = dict(started=max((call["number"] for call in calls), default=0), finished=max(ended, default=0))
            lines.append(line("lane", lane=lane, **{**fields, **self.lane_fields.get(lane, {})}))
        for lane, calls in self.lanes.items():
            lines += [line("op", lane=lane, **call) for call in sorted(calls, key=lambda call: -call["number"])]
        lines += [line("member", rank=rank, host=f"node{rank // 2}") for rank in range(self.size)] + self.tail
        return "\n".join(["rondo dump 1", *lines, self.ends or f"end lines={len(lines)}"]) + "\n"

    def write(self, folder):
        path = folder / JOB / f"rank{self.rank}.{self.why}.dump"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text())
        return path


def job(size, calls=40, **options):
    """Ranks that have made the same calls, one each 0.1 s."""
    ranks = [Rank(rank, size, **options) for rank in range(size)]
    for number in range(calls):
        for rank in ranks:
            begin = 90 + number / 10
            rank.add("bulk", called=begin, sent=begin + 0.001, ended=begin + 0.02, tag=f"layer {number % 4}", **call())
    return ranks
