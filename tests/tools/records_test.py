# SPDX-License-Identifier: Apache-2.0
"""rondo compare, plot and report over records of rondo bench.
Usage: records_test.py PATH_OF_RONDO [unittest arguments]"""

import copy
import html.parser
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

from program import QUICK, RONDO, clean_environment, main, rondo, rows

SVG = "{http://www.w3.org/2000/svg}"
XHTML = "{http://www.w3.org/1999/xhtml}"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
EVIL = "</script></pre><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x01\x1b[31m\u0085\ufffe\u202e"
TIMES = ["mean_us", "min_us", "p50_us", "p90_us", "p99_us", "max_us"]


def slower(row, factor):
    """A row whose times are `factor` times as long, without noise."""
    row = copy.deepcopy(row)
    row.update({name: row["p50_us"] * factor for name in TIMES})
    # Not from the row's own, which has six decimals and is 0 on a busy machine.
    row.update({name: row["bytes"] / row["p50_us"] / 1e3 for name in ("algbw", "busbw")})
    return row


class Records(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="rondo-records-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.several = cls.measure("several", "all_reduce,broadcast,barrier", "--ranks", 2, "--sizes", "8,1K,64K")
        cls.one_way = cls.measure("one way", "sendrecv", "--one-way", "--sizes", "8,64K")

    @classmethod
    def measure(cls, name, *arguments):
        path = cls.folder / f"{name}.json"
        result = rondo("bench", *arguments, *QUICK, "--quiet", "--json", path)
        assert result.returncode == 0, result.stderr
        return path

    def changed(self, name, change, path=None):
        """A changed copy of a record."""
        record = json.loads((path or self.several).read_text())
        change(record)
        changed = self.folder / f"{name}.json"
        changed.write_text(json.dumps(record))
        return changed

    def with_factor(self, name, factor):
        def change(record):
            record["results"] = [slower(row, factor) for row in record["results"]]
        return self.changed(name, change)

    def soak(self):
        def change(record):
            row = next(row for row in record["results"] if row["bytes"] == 1024)
            record.update(kind="soak", results=[dict(slower(row, 1 + second % 7), second=second) for second in range(3600)])
            record["results"][1000]["wrong"] = 3
            record["summary"] = [{name: row[name] for name in ("operation", "bytes", "type", "op", "in_place", "iterations", "min_us",
                                                               "p50_us", "p99_us", "max_us", "wrong")}]
            record["summary"][0].update(intervals=3600, drift_percent_per_hour=1.5, errors=0)
        return self.changed("soak", change)

    def run_rondo(self, *arguments, status=0):
        result = rondo(*arguments)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    # ---- compare ----

    def test_a_record_is_the_same_as_itself(self):
        result = self.run_rondo("compare", self.several, self.several, "--worse", "0%")
        table = rows(result.stdout)
        self.assertEqual(len(table), len(json.loads(self.several.read_text())["results"]))
        self.assertIn(f"{len(table)} same within noise, 0 better, 0 worse", result.stdout)
        self.assertNotIn("differs", result.stdout)

    def test_worse_rows_and_the_exit_status(self):
        steady, slow = self.with_factor("steady", 1), self.with_factor("slow", 1.2)
        for arguments, status in ((["--worse", "10%"], 1), (["--worse", "30%"], 0), ([], 0), (["--worse", "10%", "--metric", "p99"], 1)):
            with self.subTest(arguments=arguments):
                self.run_rondo("compare", steady, slow, *arguments, status=status)
                self.run_rondo("compare", slow, steady, *arguments)
        bandwidth = self.run_rondo("compare", steady, slow, "--worse", "10%", "--metric", "busbw", status=1)
        self.assertIn("FAILED", bandwidth.stdout)
        self.assertIn("1 without this metric", bandwidth.stdout)  # barrier

    def test_several_runs_of_a_side(self):
        one, two, three = (self.with_factor(name, factor) for name, factor in (("one", 1), ("two", 1.3), ("three", 1.6)))
        inside = self.with_factor("inside", 1.25)
        self.run_rondo("compare", f"{one},{two}", inside, "--worse", "10%")
        result = self.run_rondo("compare", f"{one},{two}", f"{three},{three}", "--worse", "10%", status=1)
        self.assertIn("rows 2 | 2", result.stdout)

    def test_rows_of_one_side_only(self):
        def cut(record):
            record["results"] = [row for row in record["results"] if row["bytes"] != 1024]
        result = self.run_rondo("compare", self.several, self.changed("cut", cut), "--worse", "10%")
        self.assertIn("# only in first: all_reduce 1 KiB f32 sum, in place, 2 ranks\n", result.stdout)
        result = self.run_rondo("compare", self.several, self.one_way, status=2)
        self.assertIn("no row in common", result.stderr)

    def test_a_record_that_is_not_complete_cannot_pass(self):
        incomplete = self.changed("incomplete", lambda r: r.update(complete=False, error="rank 1 died"))
        result = self.run_rondo("compare", self.several, incomplete, "--worse", "10%", status=1)
        self.assertIn("not complete (rank 1 died); its", result.stderr)
        self.run_rondo("compare", incomplete, self.several, "--worse", "10%")
        self.run_rondo("compare", self.several, incomplete)

    def test_wrong_elements_fail(self):
        wrong = self.changed("wrong", lambda r: r["results"][0].update(wrong=7))
        self.assertIn("1 with wrong results", self.run_rondo("compare", self.several, wrong, status=1).stdout)

    def test_differences_are_told(self):
        def change(record):
            record["hosts"][0].update(name="other\x1b[31m", processor="Fast")
        text = self.run_rondo("compare", self.several, self.changed("other", change)).stdout
        self.assertRegex(text, r"# differs: processor: .* \| Fast\n")
        self.assertIn("other", text)
        self.assertNotIn("\x1b", text)

    def test_the_comparison_as_json(self):
        slow = self.with_factor("slow", 2)
        result = self.run_rondo("compare", self.with_factor("steady", 1), slow, "--worse", "10%", "--json", "-", status=1)
        document = json.loads(result.stdout)
        self.assertEqual((document["metric"], document["worse_percent"]), ("p50", 10))
        for row in document["rows"]:
            self.assertAlmostEqual(row["ratio"], 2)
            self.assertEqual(row["verdict"], "FAILED")
        self.assertEqual(document["second"][0]["path"], str(slow))

    def test_bad_input(self):
        def expect(text, *arguments):
            with self.subTest(arguments=arguments):
                result = self.run_rondo(*arguments, status=2)
                self.assertIn(text, result.stderr)
                self.assertEqual(result.stdout, "")
        cut = self.folder / "cut off.json"
        cut.write_text(self.several.read_text()[:-20])
        newer = self.changed("newer", lambda r: r.update(version=2))
        old = self.changed("old", lambda r: [r.pop(name) for name in ("version", "kind")])
        for command in (["compare", self.several], ["plot", "-o", self.folder / "bad.svg"], ["report", "-o", self.folder / "bad.html"]):
            expect("cannot be opened: no such file", *command, self.folder / "none.json")
            expect("cannot be read: is a directory", *command, self.folder)
            expect("ends in the middle", *command, cut)
            expect("use the rondo that wrote it", *command, newer)
            expect("before records had a version", *command, old)
            expect("not JSON", *command, __file__)
        self.assertFalse((self.folder / "bad.svg").exists())
        expect("--worse 10: give a percentage", "compare", self.several, self.several, "--worse", "10")
        expect("--metric p51: unknown; did you mean p50?", "compare", self.several, self.several, "--metric", "p51")
        expect("missing", "compare", self.several)
        expect("missing", "plot", self.several)
        expect("is the record", "plot", self.several, "-o", self.several)
        expect("is the record", "report", self.several, "-o", self.several)
        expect("cannot be given together", "plot", self.several, "-o", "-", "--bandwidth", "--latency")
        json.loads(self.several.read_text())  # it is still there

    # ---- plot ----

    def plot(self, *arguments):
        result = self.run_rondo("plot", *arguments, "-o", "-")
        picture = ElementTree.fromstring(result.stdout.encode())
        self.assertEqual(picture.tag, SVG + "svg")
        self.assertNotIn("nan", result.stdout)
        self.assertNotIn("inf", result.stdout.replace("infinity", ""))
        width, height = float(picture.get("width")), float(picture.get("height"))
        for text in picture.iter(SVG + "text"):
            if text.get("x"):
                self.assertTrue(0 <= float(text.get("x")) <= width, text.text)
        self.assertTrue(any(rect.get("fill") == "#ffffff" and float(rect.get("height")) == height for rect in picture.iter(SVG + "rect")))
        return picture

    def texts(self, picture):
        return [text.text for text in picture.iter(SVG + "text")]

    def test_plot_of_a_record(self):
        texts = self.texts(self.plot(self.several))
        self.assertIn("bus bandwidth over size", texts)
        self.assertIn("time over size", texts)
        self.assertIn("all_reduce, in place", texts)
        self.assertTrue(any(text.startswith("p50 without bytes: barrier ") for text in texts), texts)

    def test_parts_of_a_plot(self):
        self.assertNotIn("time over size", self.texts(self.plot(self.several, "--bandwidth")))
        self.assertNotIn("bus bandwidth over size", self.texts(self.plot(self.several, "--latency")))
        self.assertIn("sendrecv_one_way: time over size", self.texts(self.plot(self.one_way, "--latency")))

    def test_plot_of_two_records(self):
        texts = self.texts(self.plot(self.several, self.with_factor("slow", 2)))
        self.assertTrue(any(text.startswith("all_reduce: ") for text in texts))
        self.assertIn("several, in place", texts)
        self.assertIn("slow, in place", texts)

    def test_plot_of_a_soak_is_bounded(self):
        picture = self.plot(self.soak())
        self.assertIn("all_reduce: time of a call in a soak", self.texts(picture))
        self.assertIn("Red: 1 intervals with wrong elements or errors.", self.texts(picture))
        self.assertLess(len(ElementTree.tostring(picture)), 100_000)
        for line in picture.iter(SVG + "polyline"):
            self.assertLessEqual(len(line.get("points").split()), 400)

    def test_texts_of_a_record_cannot_break_a_picture(self):
        def change(record):
            for row in record["results"]:
                row["operation"] += EVIL
            record["hosts"][0]["name"] = EVIL
        picture = self.plot(self.changed("evil", change))
        self.assertFalse(list(picture.iter(SVG + "script")))
        self.assertTrue(any("<script>" in text for text in self.texts(picture)))

    def test_nothing_to_draw(self):
        empty = self.changed("empty", lambda r: r.update(results=[]))
        result = self.run_rondo("plot", empty, "-o", "-", status=2)
        self.assertIn("no result that can be drawn", result.stderr)

    def test_a_lost_output(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([RONDO, "plot", self.several, "-o", "-"], stdout=full,
                                    stderr=subprocess.PIPE, text=True, env=clean_environment(), timeout=60)
        self.assertEqual(result.returncode, 3, result.stderr)

    # ---- report ----

    def report(self, *records):
        path = self.folder / "report.html"
        self.run_rondo("report", *records, "-o", path)
        text = path.read_text()
        self.assertTrue(text.startswith("<!DOCTYPE html>\n<html lang=\"en\""))
        page = ElementTree.fromstring(text)
        self.check_balanced(text)
        self.check_self_contained(page)
        return path, text, page

    def check_balanced(self, text):
        """An HTML parser, which knows other rules than one of XML, finds the same elements."""
        open_elements = []

        class Parser(html.parser.HTMLParser):
            def handle_starttag(self, tag, attributes):
                open_elements.append(tag)

            def handle_startendtag(self, tag, attributes):
                pass

            def handle_endtag(self, tag):
                assert open_elements and open_elements.pop() == tag, tag

        Parser().feed(text)
        self.assertEqual(open_elements, [])

    def check_self_contained(self, page):
        for element in page.iter():
            self.assertNotIn(element.tag.split("}")[1], ("script", "iframe", "object", "embed", "img", "base"))
            for name, value in element.attrib.items():
                self.assertFalse(name.startswith("on"), name)
                if name in ("src", "href", "data", "action"):
                    self.assertTrue(value.startswith("data:"), value)

    def test_report(self):
        _, text, page = self.report(self.several, self.one_way)
        self.assertEqual(len(list(page.iter(SVG + "svg"))), 2)  # they share the charts
        records = [json.loads(pre.text) for pre in page.iter(XHTML + "pre")]
        self.assertEqual(records, [json.loads(path.read_text()) for path in (self.several, self.one_way)])
        cells = [cell.text for cell in page.iter(XHTML + "td")]
        for record in records:
            self.assertIn(record["hosts"][0]["kernel"], cells)
            self.assertTrue(any(record["command"][-1] in (cell or "") for cell in cells))
        self.assertIn("barrier", cells)
        self.assertIn("@media print", text)

    def test_report_of_a_soak(self):
        path, text, page = self.report(self.soak())
        raw = (self.folder / "soak.json").stat().st_size
        self.assertLess(path.stat().st_size, raw + 300_000)
        self.assertIn("The table has the first 200 of 3600 intervals; the record has all.", text)
        self.assertIn("1.50", [cell.text for cell in page.iter(XHTML + "td")])

    def pairs(self):
        def change(record):
            pair = {"from": 0, "to": 1, "from_host": "a", "to_host": "b<", "from_rank": 0, "to_rank": 1, "round": 1, "bandwidth": 1.5,
                    "latency_us": None, "measured_again": 0, "outlier": None}
            record.update(kind="pairs", results=[pair, dict(pair, measured_again=1, bandwidth=2.5), dict(pair, measured_again=2, outlier="bandwidth")],
                          findings=[{"kind": "link", "what": "bandwidth", "links": "between hosts", "text": "a to b is <slow>"}])
        return self.changed("pairs", change)

    def test_report_of_pairs(self):
        _, text, page = self.report(self.pairs())
        self.assertIn("a to b is &lt;slow&gt;", text)
        self.assertIn("1.50", [cell.text for cell in page.iter(XHTML + "td")])
        result = self.run_rondo("compare", self.pairs(), self.pairs(), status=2)
        self.assertIn("a record of pairs of hosts", result.stderr)

    def test_plot_of_pairs(self):
        path = self.folder / "pairs.svg"
        self.run_rondo("plot", self.pairs(), "-o", path)
        picture = ElementTree.parse(path)
        titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
        self.assertIn("a (0) to b< (1): 2.5 GB/s", titles)  # the best of three measurements
        self.assertIn('class="inner"', path.read_text())  # an outlier has a frame

    def test_report_of_an_incomplete_record(self):
        _, text, _ = self.report(self.changed("incomplete", lambda r: r.update(complete=False, error="rank 1 <died>", results=[])))
        self.assertIn("The run did not end: rank 1 &lt;died&gt;", text)

    def evil(self):
        def change(record):
            for name in ("rondo", "time", "transport", "binding", "processors"):
                record[name] = EVIL
            record["command"] = [EVIL]
            record["environment"] = {EVIL: EVIL}
            record["hosts"] = [dict(record["hosts"][0], name=EVIL, kernel=EVIL, processor=EVIL)]
            for row in record["results"]:
                row.update(operation=EVIL, algorithm=EVIL, type=EVIL, op=EVIL)
            record.update(complete=False, error=EVIL)
        return self.changed("evil", change)

    def test_texts_of_a_record_cannot_break_the_page(self):
        self.report(self.evil())

    @unittest.skipIf(CHROMIUM is None, "chromium is not installed, so no browser has loaded the page")
    def test_a_browser_has_nothing_to_complain_of(self):
        for records in ([self.several, self.one_way], [self.soak()], [self.evil()]):
            with self.subTest(records=records), tempfile.TemporaryDirectory() as profile:
                path, _, page = self.report(*records)
                result = subprocess.run(
                    [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--dump-dom",
                     "--enable-logging=stderr", "--v=0", path.as_uri()], capture_output=True, text=True, timeout=120)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertNotIn("CONSOLE", result.stderr)
                self.assertEqual(result.stdout.count("<svg"), len(list(page.iter(SVG + "svg"))))
                self.assertNotIn("<script", result.stdout)
                self.assertNotIn("<img", result.stdout)


if __name__ == "__main__":
    main()
