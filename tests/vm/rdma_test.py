# SPDX-License-Identifier: Apache-2.0
"""Tests on RDMA devices (Soft-RoCE) in guests: ./dev rdma

    rdma_test.py [--build FOLDER] [--json FILE] [--offline] [NAME...]

Runs the cases whose names contain a NAME, or all; their table is CASES. The last line is
"N passed, N failed[, N skipped]". The exit status is 1 when a case failed, and 77 when there can be
no guests here. --json writes figures; --offline downloads no kernel.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import math
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from guest import Guest, GuestError, two_guests
from image import Image, Unable, build

SKIPPED = 77  # the exit status with which a test tells meson that it could not run
PROGRAMS = {Path(path).name: path for path in ("tools/rondo", "tests/table/test_table", "tests/issues/test_issues",
                                               "tests/hot_path/test_hot_path", "tests/transports/test_rdma")}  # in the build folder
PERFTEST_PORT = 18515


@dataclasses.dataclass(frozen=True)
class Case:
    """Scripts that run at the same time and must all end with `status` within `seconds`. With one
    host they share a guest with two devices, rxe0 and rxe1; with two hosts each has a guest."""
    name: str
    scripts: list[str]
    hosts: int = 1
    seconds: float = 30
    status: int = 0
    program: str = "rondo"  # of PROGRAMS
    # The other scripts start when the first listens at this port.
    port: int = 0
    # The figures in the output; none where they could not be measured. Raises ValueError where the
    # output lacks them.
    figures: Callable[[str], dict[str, float]] = lambda output: {}


# ---- cases ----

def perftest(name: str, program: str, size: int, iterations: int, *, client: str, hosts: int = 1, impaired: str = "") -> Case:
    """A program of perftest between rxe0 of the first host and `client`. Its messages go by RoCE v2
    with IPv4 (index 1)."""
    command = f"{program} -x 1 -s {size} -n {iterations}"
    impair = f"impair d0 {impaired} && impair d1 {impaired} || exit; " if impaired else ""
    return Case(f"perftest: {name}", [f"{impair}{command} -d rxe0", f"{command} -d {client} 10.78.0.1"], hosts, port=PERFTEST_PORT,
                figures=latency if program.endswith("_lat") else bandwidth)


def rows(output: str) -> list[list[str]]:
    """The lines of a table that begin with a number."""
    found = [line.split() for line in output.splitlines() if re.match(r"\s*\d+\s+\d+\s", line)]
    if not found:
        raise ValueError("there are no figures in its output")
    return found


def bandwidth(output: str) -> dict[str, float]:
    return finite(mib_per_second=rows(output)[0][3])


def latency(output: str) -> dict[str, float]:
    row = rows(output)[0]
    return finite(least_us=row[2], typical_us=row[4], mean_us=row[5])


def finite(**figures: str) -> dict[str, float]:
    """perftest measures its clock, and prints nothing but inf, or 0, where the machine is too busy
    for that."""
    return {name: float(text) for name, text in figures.items() if 0 < float(text) < math.inf}


def all_reduce(output: str) -> dict[str, float]:
    """The median in place, by size, of what `rondo bench` prints."""
    return {f"p50_us_{row[0]}": float(row[14]) for row in rows(output)}


def rondo(name: str, ranks: int = 2, transport: str = "rdma", settings: str = "", **options) -> Case:
    """All-reduces of some sizes, each checked, between ranks of one guest. A device sends to itself, so
    nothing goes over the cable."""
    return Case(f"rondo: all_reduce over {transport}, {name}", [f"{settings} {BENCH} --ranks {ranks} --transport {transport}"], figures=all_reduce,
                seconds=60, **options)


def rondo_ceiling() -> Case:
    """Rondo against the devices themselves, in one run."""
    script = """rondo bench -b 1M -e 1M -n 10 --ranks 2 --transport rdma >/tmp/bench || exit
cat /tmp/bench
grep -q '# %ceil: busbw in percent of what the RDMA devices' /tmp/bench && grep '^# Ceiling' /tmp/bench"""
    return Case("rondo: the ceiling of the devices", [script], seconds=60, figures=ceiling)


def ceiling(output: str) -> dict[str, float]:
    found = re.search(r"# Ceiling +: ([\d.]+) to [\d.]+ GB/s; %ceil on average ([\d.]+)", output)
    if not found or float(found[1]) <= 0:
        raise ValueError("there is no ceiling in its output")
    return {"ceiling_gb_per_second": float(found[1]), "percent_of_ceiling": float(found[2])}


# Calls that the device costs (the library of Soft-RoCE calls write for each request), and sleeping:
# its completion channel is read. strace slows the ranks so that many sleep.
DEVICE_CALLS = "write ioctl read epoll_wait poll"
# Counts each of them, for one operation of one rank. An all-reduce of two ranks has up to three
# requests.
MOST_DEVICE_CALLS = 4
# Calls that depend on time: other threads and timers are woken, and cores given away.
TIMED_CALLS = "futex timerfd_settime sched_yield getrusage wait4 rt_sigreturn restart_syscall"


def system_calls() -> Case:
    """Ten times as many all-reduces make no more system calls than those of the device and of sleeping.
    Threads come and go alike in both runs, so the difference has what operations cost: for each
    iteration two ranks have one in place and one out of place. A call of one of the two by one rank
    would be a quarter as many as there are operations; a fifth is too many. Fewer depend on time:
    ranks ask each other about an operation that takes a second, as some do under strace. An openat
    that fails is not counted: a rank looks for the rendezvous file until rank 0 has written it."""
    script = f"""
count() {{
  strace -f -c -o /tmp/calls rondo bench all_reduce --ranks 2 --transport rdma -b $1 -e $1 -n $2 -c 0 --no-ceiling >/tmp/bench || {{ cat /tmp/bench >&2; exit 1; }}
  awk '$1 ~ /^[0-9.]+$/ && $NF != "total" {{ print $NF, $NF == "openat" && NF == 6 ? $4 - $5 : $4 }}' /tmp/calls
}}
for run in "8 20" "64K 6"; do
  set -- $run
  count $1 $2 >/tmp/few; count $1 $((10 * $2)) >/tmp/many
  grep -q '^write' /tmp/few || exit
  operations=$((4 * 9 * $2))
  awk -v run="$run" -v operations=$operations 'BEGIN {{ split("{DEVICE_CALLS}", names); for (i in names) device[names[i]]; split("{TIMED_CALLS}", others); for (i in others) timed[others[i]] }}
    NR == FNR {{ few[$1] = $2; next }}
    $1 in timed {{ next }}
    $2 - few[$1] > operations * ($1 in device ? {MOST_DEVICE_CALLS} : 1 / 5) {{ print "size and count " run ": " $2 - few[$1] " more calls of " $1; bad = 1 }}
    END {{ exit bad }}' /tmp/few /tmp/many || exit
done"""
    return Case("rondo: no system call but those of the device", [script], seconds=300)


def may_not_lock_memory() -> Case:
    """An ordinary user whose limit of locked memory is too small for a device: the job runs over tcp, and
    each rank says so once."""
    script = f"""
su nobody -s /bin/sh -c 'ulimit -l 64; exec {BENCH} --ranks 2 --transport rdma,tcp' >/tmp/bench 2>&1
status=$?
cat /tmp/bench
[ $status = 0 ] && for rank in 0 1; do
  [ "$(grep -c "rank $rank does not use RDMA: .*RLIMIT_MEMLOCK" /tmp/bench)" = 1 ] || exit
done"""
    return Case("rondo: tcp where memory may not be locked", [script], figures=all_reduce)


def over_cable(name: str, impaired: str) -> Case:
    """All-reduces between rxe0 and rxe1 over the cable, which loses or delays packets."""
    scripts = [f"RONDO_RDMA_DEVICES=rxe{number} rank {number} {BENCH} --transport rdma" for number in range(2)]
    # That more than half a megabyte went over the cable shows that the devices were used as wanted.
    scripts[0] = f"""impair d0 {impaired} && impair d1 {impaired} && {scripts[0]} || exit
sent=$(tc -s qdisc show dev d0 | awk '$1 == "Sent" {{ print $2 }}')
echo "sent $sent bytes over the cable"
[ "$sent" -gt 500000 ]"""
    return Case(f"rondo: all_reduce over rdma, {name}", scripts, figures=all_reduce, seconds=60)


def between_hosts(name: str, transport: str = "rdma", before: str = "") -> Case:
    return Case(f"rondo: all_reduce over {transport}, two hosts{name}", [f"{before} rank {number} {BENCH} --transport {transport}" for number in range(2)],
                hosts=2, seconds=60, figures=all_reduce)


def devices_without_a_way() -> Case:
    """The devices get addresses of their own, and no packet arrives between them, while tcp works.
    Both hosts must say so, also the one whose own requests have not failed yet."""
    def script(number: int) -> str:
        return f"""ip address add 10.79.0.{number + 1}/24 dev eth0 && ip neigh replace 10.79.0.{2 - number} lladdr 02:00:00:00:00:99 nud permanent dev eth0 || exit
export RONDO_INTERFACE=10.78.0.0/16
index=none
for turn in 1 2 3 4 5 6 7 8 9 10; do
  for each in 1 2 3 4; do RONDO_RDMA_GID_INDEX=$each rondo info | grep -q "GID $each 10.79.0" && index=$each; done
  [ $index = none ] || break
  sleep 0.2  # the kernel fills the table of GIDs later
done
[ $index != none ] || exit 93
RONDO_RDMA_GID_INDEX=$index rank {number} {BENCH} >/tmp/log 2>&1 && exit 1
cat /tmp/log
grep -q 'does not answer (transport retries exceeded)' /tmp/log"""
    return Case("fault: two hosts whose devices do not reach each other", [script(number) for number in range(2)], hosts=2, seconds=60)


def fault(name: str, act: str, message: str, seconds: float = 5, settings: str = "") -> Case:
    """Something happens to two ranks in the middle of their work. Both must end, and say what
    happened, within `seconds`. Status 90: the job succeeded; 91: its ranks did not start; 92: they
    did not end in time."""
    script = f"""
now() {{ cut -d' ' -f1 /proc/uptime; }}
{settings} rondo bench --ranks 2 --transport rdma -b 256K -e 256K -n 1000000 --no-ceiling -c 0 >/tmp/fault.log 2>&1 &
job=$!
for second in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
  sleep 1
  [ "$(pidof rondo | wc -w)" -ge 3 ] && [ "$second" -ge 4 ] && break
done
[ "$(pidof rondo | wc -w)" -ge 3 ] || exit 91
rm -f /tmp/late
began=$(now)
{act}
( sleep {seconds:g}; touch /tmp/late; kill -9 $(pidof rondo) 2>/dev/null ) &
wait $job && exit 90
[ ! -e /tmp/late ] || exit 92
echo "ended after $(echo "$(now) $began" | awk '{{ print $1 - $2 }}') s"
cat /tmp/fault.log
grep -q "{message}" /tmp/fault.log"""
    return Case(f"fault: {name}", [script], seconds=60, figures=time_to_end)


def time_to_end(output: str) -> dict[str, float]:
    return {"seconds_to_end": float(re.search(r"ended after ([\d.]+) s", output)[1])}


def hidden(name: str, program: str, case: str, settings: str = "") -> Case:
    """Hidden cases of a test program, which need a device."""
    return Case(name, [f"{settings} {program} -w NoTests '{case}'"], seconds=240, program=program)


FEW = "RONDO_TEST_CASES=few"
BENCH = "rondo bench --wide -b 8 -e 1M -f 64 -n 10 --no-ceiling"
CASES = [
    Case("devices", ["ibv_devinfo -d rxe0 | grep 'active_mtu:[[:space:]]*4096' && ibv_devinfo -d rxe1"]),
    perftest("write 64 KiB, one device", "ib_write_bw", 1 << 16, 500, client="rxe0"),
    perftest("write 1 MiB, one device", "ib_write_bw", 1 << 20, 50, client="rxe0"),
    perftest("write latency 8 B, one device", "ib_write_lat", 8, 1000, client="rxe0"),
    perftest("write 64 KiB, two devices", "ib_write_bw", 1 << 16, 500, client="rxe1"),
    perftest("write 1 MiB, two devices", "ib_write_bw", 1 << 20, 50, client="rxe1"),
    perftest("write latency 8 B, two devices", "ib_write_lat", 8, 1000, client="rxe1"),
    perftest("write 64 KiB, 1 % of the packets lost", "ib_write_bw", 1 << 16, 50, client="rxe1", impaired="loss 1%"),
    Case("rondo info", ["rondo info | grep 'rdma rxe0:1 *usable: RoCE v2 (IPv4), GID 1 10.78.0.1 on d0, MTU 4096'"]),
    Case("rondo info: devices that cannot be opened", ["""mv /dev/infiniband /dev/hidden
rondo info | grep 'transport rdma *no: the kernel has rxe0, rxe1, but libibverbs shows none of them'
status=$?
mv /dev/hidden /dev/infiniband
exit $status"""]),
    Case("rondo info: a filter that matches nothing", ["""RONDO_RDMA_DEVICES=nonsense rondo info >/tmp/info && exit 1
grep "transport rdma *no: RONDO_RDMA_DEVICES: nothing matches 'nonsense'; libibverbs shows rxe0:1, rxe1:1" /tmp/info && grep 'rdma rxe0:1 *usable' /tmp/info"""]),
    Case("rondo info: too little memory may be locked", ["su nobody -s /bin/sh -c 'ulimit -l 64; rondo info' | grep 'transport rdma *no: .*RLIMIT_MEMLOCK'"]),
    rondo("2 ranks", transport="tcp"),
    rondo("2 ranks"),
    rondo("3 ranks", 3),
    rondo("4 ranks", 4),
    rondo("8 ranks", 8),
    rondo("2 ranks without grants", settings="RONDO_RDMA_GRANTS=0"),
    rondo("2 ranks, one device", settings="RONDO_RDMA_DEVICES=rxe0"),
    rondo("2 ranks, two queue pairs a port", settings="RONDO_CONNECTIONS=2"),
    rondo_ceiling(),
    may_not_lock_memory(),
    system_calls(),
    over_cable("0.1 % of the packets lost", "loss 0.1%"),
    over_cable("packets delayed by 2 ms", "delay 2ms"),
    hidden("table of collectives, 2 to 8 ranks", "test_table", "table: rdma", settings=FEW),
    hidden("table of collectives, 2 to 8 ranks, grants", "test_table", "table: rdma on registered memory", settings=FEW),
    hidden("table of collectives, 2 to 8 ranks, registered memory without grants", "test_table", "table: rdma on registered memory",
           settings=f"{FEW} RONDO_RDMA_GRANTS=0"),
    hidden("descriptors", "test_issues", "a communicator over rdma takes the descriptors that are told"),
    hidden("nothing is allocated", "test_hot_path", "nothing is allocated over rdma after the first operation of a shape"),
    hidden("a granted destination, a bad key, a receiver that is not ready, a queue pair in error", "test_rdma", "rdma on a device*"),
    fault("a rank is killed", "kill -9 $(pidof rondo | cut -d' ' -f1)", "lost rank"),
    fault("a rank is stopped", "kill -STOP $(pidof rondo | cut -d' ' -f1)", "the deadline of 3 s", 25, settings="RONDO_DEADLINE=3"),
    fault("the link goes down", "ip link set d0 down", "the port is down\\|on queue pair [0-9]*, rxe0:1"),
    perftest("write 64 KiB, two hosts", "ib_write_bw", 1 << 16, 100, client="rxe0", hosts=2),
    perftest("write latency 8 B, two hosts", "ib_write_lat", 8, 100, client="rxe0", hosts=2),
    between_hosts("", transport="tcp"),
    between_hosts(""),
    between_hosts(", 1 % of the packets lost", before="impair eth0 loss 1% && "),
    devices_without_a_way(),
]


# ---- running them ----

@dataclasses.dataclass
class Result:
    case: Case
    seconds: float
    failure: str = ""  # why it failed
    output: str = ""
    figures: dict[str, float] = dataclasses.field(default_factory=dict)

    def line(self) -> str:
        figures = ", ".join(f"{name} {value:g}" for name, value in self.figures.items())
        return f"{'FAILED' if self.failure else 'passed'} {self.seconds:6.1f} s  {self.case.name}" + (f"  ({figures})" if figures else "")


def run(case: Case, guests: list[Guest]) -> Result:
    began = time.monotonic()
    places = [guests[number % len(guests)] for number in range(len(case.scripts))]
    scripts = []
    for place, text in zip(places, case.scripts):
        scripts.append(place.start(text, case.seconds, case.name))
        if case.port and len(scripts) == 1:
            place.run(f"listening {case.port}", case.seconds)
    for place, script in zip(places, scripts):
        place.finish(script)
    result = Result(case, time.monotonic() - began, output="\n".join(script.output for script in scripts))
    for script in scripts:
        if script.ran_out_of_time:
            result.failure = f"it took longer than {case.seconds:g} s"
        elif script.status != case.status and not result.failure:
            result.failure = f"a script ended with status {script.status}, not {case.status}"
    if not result.failure:
        try:
            result.figures = case.figures(result.output)
        except ValueError as error:
            result.failure = str(error)
    return result


def run_all(cases: list[Case], boot: Callable[[], contextlib.AbstractContextManager[list[Guest]]]) -> Iterator[Result]:
    """Boots guests for the cases. A case that loses a guest fails, and the next has new ones."""
    left = list(cases)
    while left:
        case = left[0]
        began = time.monotonic()
        try:
            with boot() as guests:
                while left:
                    case = left[0]
                    began = time.monotonic()
                    if len(guests) == 1:
                        guests[0].check("restore")
                    result = run(case, guests)
                    left.pop(0)
                    yield result
        except GuestError as error:
            left.remove(case)
            yield Result(case, time.monotonic() - began, str(error))


@contextlib.contextmanager
def one_host(image: Image, folder: Path) -> Iterator[list[Guest]]:
    with Guest(image, folder) as guest:
        guest.check("two_devices")
        yield [guest]


@contextlib.contextmanager
def two_hosts(image: Image, folder: Path) -> Iterator[list[Guest]]:
    with two_guests(image, folder) as guests:
        yield list(guests)


def report(results: Iterable[Result]) -> list[Result]:
    kept = []
    for result in results:
        kept.append(result)
        print(result.line(), flush=True)
        if result.failure:
            print("".join(f"    {line}\n" for line in [result.failure, *result.output.splitlines()[-20:]]), end="", flush=True)
    return kept


def write_figures(path: str, image: Image, results: list[Result]) -> None:
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    figures = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "processor": processor[1] if processor else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "kernel_of_guest": image.release,
        "cases": [{"name": result.case.name, "passed": not result.failure, "failure": result.failure, "seconds": round(result.seconds, 1),
                   "figures": result.figures} for result in results],
    }
    Path(path).write_text(json.dumps(figures, indent=2) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev rdma", description="Tests on RDMA devices (Soft-RoCE) in guests.")
    parser.add_argument("--build", default="build", metavar="FOLDER", help="the build folder with the programs (default: build)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    parser.add_argument("--offline", action="store_true", help="download no kernel; skip the cases when there is none")
    parser.add_argument("names", nargs="*", metavar="NAME", help="run the cases whose names contain one of these (default: all)")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.names or any(name in case.name for name in options.names)]
    for name in options.names:
        if not any(name in case.name for case in CASES):
            parser.error(f"no case has '{name}' in its name")
    programs = [os.path.join(options.build, PROGRAMS[name]) for name in sorted({case.program for case in cases})]
    for program in programs:
        if not os.path.exists(program):
            parser.error(f"{program} is not built")
    with tempfile.TemporaryDirectory(prefix="rondo-rdma-") as temporary:
        folder = Path(temporary)
        try:
            image = build(programs, folder, download=not options.offline)
        except Unable as reason:
            print(f"skipped: {reason}")
            print(f"0 passed, 0 failed, {len(cases)} skipped")
            return SKIPPED
        results = []
        for hosts, boot in (1, one_host), (2, two_hosts):
            results += report(run_all([case for case in cases if case.hosts == hosts], lambda: boot(image, folder)))
    if options.json:
        write_figures(options.json, image, results)
    failed = sum(bool(result.failure) for result in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
