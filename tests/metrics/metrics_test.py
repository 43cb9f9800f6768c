# SPDX-License-Identifier: Apache-2.0
"""The files that RONDO_METRICS asks for: their text, what they count, and what happens when they
cannot be. Every series that the dashboard and the page name is written by a run of two ranks."""

import glob
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import unittest

RONDO, RANK, ROOT = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
LAUNCHER = re.compile(r"^(RONDO_|OMPI_|PMI|PMIX_|SLURM_|TORCHELASTIC_|MPI_)|^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_\w+)$")
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')
UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def parse(text: str) -> dict[str, dict[tuple, float]]:
    """The samples by name and labels. Raises AssertionError where the text breaks a rule of
    Prometheus's text format, or what docs/reference/metrics.md promises."""
    assert text.endswith("\n"), "the last line has no end"
    families: dict[str, dict[tuple, float]] = {}
    kinds: dict[str, str] = {}
    helped = current = None
    for line in text.removesuffix("\n").split("\n"):
        if found := re.fullmatch(rf"# HELP ({NAME}) (\S.*)", line):
            helped = found[1]
            assert helped not in kinds, f"{helped} comes twice"
        elif found := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge)", line):
            assert found[1] == helped, f"the type of {found[1]} does not follow its help"
            current = found[1]
            kinds[current], families[current] = found[2], {}
        else:
            found = re.fullmatch(rf"({NAME})\{{(.*)\}} ([0-9]+(?:\.[0-9]+)?)", line)
            assert found and found[1] == current, f"this line is no sample of {current}: {line!r}"
            labels, rest = [], found[2]
            while label := LABEL.match(rest):
                labels.append((label[1], re.sub(r'\\[\\"n]', lambda one: UNESCAPED[one[0]], label[2])))
                rest = rest[label.end():]
                assert rest == "" or rest.startswith(","), line
                rest = rest.removeprefix(",")
            assert rest == "" and len(dict(labels)) == len(labels), line
            key = tuple(sorted(labels))
            assert key not in families[current], f"{line!r} comes twice"
            families[current][key] = float(found[3])
    assert current is not None and all(families.values()), "a family has no sample"
    for name, kind in kinds.items():
        assert name.endswith("_total") == (kind == "counter"), name
        assert name.startswith("rondo_"), name
    return families


def value(families, name, **labels):
    """The sum of the samples that have these labels."""
    return sum(value for key, value in families.get(name, {}).items() if labels.items() <= dict(key).items())


def read(path: str):
    with open(path, encoding="utf-8") as file:
        return parse(file.read())


class Metrics(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="rondo-metrics-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, what: str, ranks: int = 2, pattern: str = "job.prom", **changes: str) -> subprocess.Popen:
        environment = {name: text for name, text in os.environ.items() if not LAUNCHER.match(name)}
        environment |= {"RONDO_METRICS": os.path.join(self.folder, pattern), "RONDO_METRICS_PERIOD": "0.01", **changes}
        return subprocess.Popen([RONDO, "run", "-n", str(ranks), RANK, what, self.folder], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self, job: subprocess.Popen, status: int = 0) -> str:
        output, errors = job.communicate(timeout=90)
        self.assertEqual(job.returncode, status, output + errors)
        return output + errors

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder))

    def test_a_late_rank_and_whole_files(self):
        job = self.start("late")
        versions = set()
        while job.poll() is None:
            for path in glob.glob(os.path.join(self.folder, "*.prom")):
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                parse(text)
                versions.add(text)
        self.end(job)
        self.assertEqual(self.names(), ["job.0.prom", "job.1.prom"])
        self.assertGreater(len(versions), 2)
        of = [read(os.path.join(self.folder, f"job.{rank}.prom")) for rank in range(2)]
        for rank, families in enumerate(of):
            mine = {"rank": str(rank), "run": "job"}
            for samples in families.values():
                self.assertTrue(all(mine.items() <= dict(key).items() for key in samples))
            self.assertEqual(value(families, "rondo_operations_total", operation="all_reduce", tag="step"), 101)
            self.assertEqual(value(families, "rondo_operations_total", operation="barrier", tag=""), 1)
            self.assertEqual(value(families, "rondo_operations_total", operation="messages"), 1)
            self.assertEqual(value(families, "rondo_failures_total"), 1)
            self.assertEqual(value(families, "rondo_communicators"), 0)
            self.assertGreater(value(families, "rondo_received_bytes_total", transport="shm"), 0)
        late = value(of[0], "rondo_late_seconds_total", late_rank="1")
        self.assertGreater(value(of[0], "rondo_late_calls_total", late_rank="1"), 50)
        self.assertGreater(late, 0.1)
        self.assertGreater(late, value(of[1], "rondo_late_seconds_total", late_rank="0"))
        self.assertGreaterEqual(value(of[0], "rondo_waited_seconds_total", cause="ranks", tag="step"), 0.9 * late)
        self.check_names(set(of[0]) | set(of[1]))

    def check_names(self, written: set[str]):
        with open(os.path.join(ROOT, "examples", "grafana", "dashboard.json"), encoding="utf-8") as file:
            dashboard = json.load(file)
        self.assertGreaterEqual(dashboard["schemaVersion"], 36)
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        queries += [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
        self.assertGreaterEqual(len(queries), 6)
        shown = {name for query in queries for name in re.findall(r"rondo_\w+", query)}
        with open(os.path.join(ROOT, "docs", "reference", "metrics.md"), encoding="utf-8") as file:
            documented = set(re.findall(r"^\| `(rondo_\w+)", file.read(), re.MULTILINE))
        self.assertLessEqual(shown, written)
        self.assertEqual(documented, written)

    def test_tags_are_bounded(self):
        job = self.start("tags", pattern="%r.prom", RONDO_METRICS_LABELS="team=a b")
        self.end(job)
        self.assertEqual(self.names(), ["0.prom", "1.prom"])
        families = read(os.path.join(self.folder, "0.prom"))
        others = read(os.path.join(self.folder, "1.prom"))
        runs = {(dict(key)["run"], dict(key)["team"]) for key in [*families["rondo_failures_total"], *others["rondo_failures_total"]]}
        self.assertEqual(len(runs), 1)
        self.assertRegex(runs.pop()[0], "^[0-9a-f]{8}$")
        tags = {dict(key)["tag"] for key in families["rondo_operations_total"]}
        self.assertEqual(len(tags - {""}), 33)
        self.assertEqual(value(families, "rondo_operations_total", tag="tag 31"), 1)
        self.assertEqual(value(families, "rondo_operations_total", tag="other"), 8)

    def test_communicators_of_a_process_share_a_file(self):
        before = os.umask(0o077)
        try:
            job = self.start("several", ranks=4)
        finally:
            os.umask(before)
        self.end(job)
        self.assertEqual(self.names(), [f"job.{rank}.prom" for rank in range(4)])
        for name in self.names():  # a collector may be another user
            self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.folder, name)).st_mode), 0o644)
        for rank in range(4):
            families = read(os.path.join(self.folder, f"job.{rank}.prom"))
            self.assertEqual(value(families, "rondo_operations_total", operation="all_reduce", rank=str(rank)), 15)

    def test_a_forked_child_writes_nothing(self):
        self.assertEqual(self.end(self.start("fork", ranks=1)), "")
        self.assertEqual(self.names(), [])

    def test_a_file_that_cannot_be_written_is_told_once(self):
        os.mkdir(os.path.join(self.folder, "here"))
        errors = self.end(self.start("gone", pattern="here/job.prom"))
        for rank in range(2):
            line = f"rondo warning: the metrics cannot be written to {self.folder}/here/job.{rank}.prom: No such file or directory"
            self.assertEqual(errors.count(line), 1, errors)

    def test_a_folder_that_does_not_exist_is_an_error(self):
        errors = self.end(self.start("late", pattern="no/job.prom"), status=1)
        self.assertIn(f"RONDO_METRICS (Options::metrics) is '{self.folder}/no/job.prom': the folder {self.folder}/no cannot be "
                      "used (No such file or directory); make it, or name a folder that exists", errors)

    def test_the_parser_is_strict(self):
        good = '# HELP rondo_a_total b\n# TYPE rondo_a_total counter\nrondo_a_total{r="0"} 1\n'
        self.assertEqual(parse(good), {"rondo_a_total": {(("r", "0"),): 1.0}})
        for bad in [good[:-1], good.replace("counter", "sum"), good.replace('"0"', '"0'), good.replace("} 1", "} x"),
                    good + good, good + 'rondo_a_total{r="0"} 2\n', good.replace("# TYPE rondo_a", "# TYPE rondo_b"),
                    good.replace('"0"', '"\\x"'), good.replace("} 1", "}")]:
            with self.assertRaises(AssertionError, msg=bad):
                parse(bad)


if __name__ == "__main__":
    unittest.main()
