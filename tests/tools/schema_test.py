# SPDX-License-Identifier: Apache-2.0
"""docs/reference/record.schema.json against records of several runs.
Usage: schema_test.py PATH_OF_RONDO [unittest arguments]"""

import copy
import json
import pathlib
import unittest

from program import QUICK, main, rondo

try:
    import jsonschema
except ImportError:
    jsonschema = None

SCHEMA = json.loads((pathlib.Path(__file__).parents[2] / "docs/reference/record.schema.json").read_text())
RUNS = {
    "all collectives": ["all_reduce,reduce,broadcast,all_gather,reduce_scatter,barrier,gather,scatter,all_to_all,all_gather_v,"
                        "reduce_scatter_v", "--ranks", 3, "--sizes", "0,1200,40K", *QUICK],
    "types and reductions": ["all_reduce", "--ranks", 2, "-d", "all", "-o", "all", "--sizes", "64", *QUICK],
    "neighbours": ["sendrecv", "--ranks", 2, "--sizes", "8,64K", "-m", 3, *QUICK],
    "messages between two ranks": ["sendrecv", "--one-way", "--sizes", "8,64K", "--window", 4, *QUICK],
    "a ceiling": ["all_reduce", "--ranks", 2, "--sizes", "64K", "--transport", "tcp", "-n", 3],
    "one rank": ["all_reduce", "--ranks", 1, "--sizes", "64", *QUICK],
    "a late rank": ["broadcast", "--ranks", 2, "--sizes", "64", "--delay", "1:2ms", *QUICK],
}


@unittest.skipIf(jsonschema is None, "python3-jsonschema is not installed")
class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        cls.validator = jsonschema.Draft202012Validator(SCHEMA)
        cls.records = {}
        for name, arguments in RUNS.items():
            result = rondo("bench", *arguments, "--json", "-")
            assert result.returncode == 0, result.stderr
            cls.records[name] = json.loads(result.stdout)

    def problems(self, record):
        return [f"{list(e.absolute_path)}: {e.message}"[:500] for e in self.validator.iter_errors(record)]

    def check_refused(self, record, change):
        changed = copy.deepcopy(record)
        change(changed)
        self.assertTrue(self.problems(changed))

    def test_records_of_several_runs(self):
        for name, record in self.records.items():
            with self.subTest(name):
                self.assertEqual(self.problems(record), [])
                self.assertTrue(record["complete"])
                self.assertTrue(record["results"])

    def test_a_secret_is_not_in_a_record(self):
        text = rondo("bench", "--ranks", 1, "--sizes", 8, *QUICK, "--json", "-", RONDO_SECRET="correct horse").stdout
        self.assertEqual(self.problems(json.loads(text)), [])
        self.assertNotIn("correct horse", text)

    def test_a_run_that_fails(self):
        result = rondo("bench", "--ranks", 2, "--sizes", "8,16", *QUICK, "--delay", "1:3s", "--deadline", 1, "--json", "-")
        self.assertNotEqual(result.returncode, 0)
        record = json.loads(result.stdout)
        self.assertEqual(self.problems(record), [])
        self.assertFalse(record["complete"])
        self.check_refused(record, lambda r: r.pop("error"))

    def test_missing_members_are_refused(self):
        record = self.records["messages between two ranks"]
        optional = {"agg_iters", "window", "messages_per_second"}
        for name in record:
            with self.subTest(name):
                self.check_refused(record, lambda r: r.pop(name))
        for name in record["results"][0]:
            if name not in optional:
                with self.subTest(row=name):
                    self.check_refused(record, lambda r: r["results"][0].pop(name))
        self.check_refused(record, lambda r: r["results"][0].pop("window"))
        for name in record["hosts"][0]:
            with self.subTest(host=name):
                self.check_refused(record, lambda r: r["hosts"][0].pop(name))

    def test_unknown_members_are_refused(self):
        record = self.records["all collectives"]
        self.check_refused(record, lambda r: r.update(more=1))
        self.check_refused(record, lambda r: r["results"][0].update(more=1))
        self.check_refused(record, lambda r: r["hosts"][0].update(more=1))
        self.check_refused(record, lambda r: r["results"][0].update(window=1))
        self.check_refused(record, lambda r: r.update(summary=[]))
        self.check_refused(record, lambda r: r.update(error="why"))

    def test_wrong_values_are_refused(self):
        record = self.records["all collectives"]
        for name, value in {"version": 2, "kind": "other", "ranks": 0, "time": "now", "environment": {"A": 1}, "command": "rondo"}.items():
            with self.subTest(name):
                self.check_refused(record, lambda r: r.update({name: value}))
        for name, value in {"bytes": -1, "p50_us": "1", "type": "f31", "root": -2, "late_share": 1.5, "ceiling_of": "sky"}.items():
            with self.subTest(row=name):
                self.check_refused(record, lambda r: r["results"][0].update({name: value}))

    def test_a_soak(self):
        record = self.soak()
        self.assertEqual(self.problems(record), [])
        self.check_refused(record, lambda r: r["results"][0].pop("second"))
        self.check_refused(record, lambda r: r["results"][0].pop("p50_us"))
        self.check_refused(record, lambda r: r["summary"][0].pop("drift_percent_per_hour"))

    def record_of(self, *arguments):
        result = rondo("bench", *arguments, "--ranks", 3, "--json", "-")
        self.assertEqual(result.returncode, 0, result.stderr)
        record = json.loads(result.stdout)
        self.assertEqual(self.problems(record), [])
        return record

    def soak(self):
        return self.record_of("--sizes", "8,1K", "--seconds", "1", "--interval", "100ms")

    def test_pairs(self):
        record = self.record_of("pairs", "--ranks-too", "--pair-time", "10ms")
        for name in record["results"][0]:
            with self.subTest(name):
                self.check_refused(record, lambda r: r["results"][0].pop(name))
        finding = {"what": "bandwidth", "links": "within hosts", "kind": "host", "host": 1, "text": "host b is slow"}
        record["findings"] = [finding]
        self.assertEqual(self.problems(record), [])
        self.check_refused(record, lambda r: r["findings"][0].pop("text"))
        self.check_refused(record, lambda r: r.update(summary=[]))


if __name__ == "__main__":
    main()
