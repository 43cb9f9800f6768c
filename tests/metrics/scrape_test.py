# SPDX-License-Identifier: Apache-2.0
"""Three jobs on a host, scraped by a real node_exporter and Prometheus: no series is dropped, and
every query of the dashboard tells the jobs apart. Skipped where these programs are missing.
Usage: scrape_test.py PATH_OF_RONDO PATH_OF_RANK ROOT"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

RONDO, RANK, ROOT = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
LAUNCHER = re.compile(r"^(RONDO_|OMPI_|PMI|PMIX_|SLURM_|TORCHELASTIC_|MPI_)|^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_\w+)$")
RUNS = {"old", "one", "two"}
NOBODY = 65534
SECONDS = 60  # for each wait, on a busy machine


def find(*names: str) -> str:
    for name in names:
        if path := shutil.which(name):
            return path
    print(f"skipped: {names[0]} is not installed (Debian: {names[0]})")
    sys.exit(77)


EXPORTER, PROMETHEUS = find("prometheus-node-exporter", "node_exporter"), find("prometheus")


class Scrape(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="rondo-scrape-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.chmod(self.folder, 0o755)
        os.mkdir(os.path.join(self.folder, "textfiles"))

    def run_job(self, name: str) -> None:
        environment = {name: text for name, text in os.environ.items() if not LAUNCHER.match(name)}
        environment["RONDO_METRICS"] = os.path.join(self.folder, "textfiles", f"{name}.prom")
        subprocess.run([RONDO, "run", "-n", "2", RANK, "late", self.folder], env=environment, check=True, timeout=SECONDS, umask=0o077)

    def listen(self, command: list[str], **options) -> str:
        """Starts a program that listens at a free port. Returns its address, which it logs."""
        process = subprocess.Popen([*command, "--web.listen-address=127.0.0.1:0"], stderr=subprocess.PIPE, text=True, **options)

        def end() -> None:
            process.kill()
            process.communicate()
        self.addCleanup(end)
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r'msg="Listening on" address=(\S+)', line):
                return found[1]
        self.fail("".join(said))

    def ask(self, path: str, **arguments: str) -> list:
        with urllib.request.urlopen(f"http://{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(arguments)}", timeout=SECONDS) as answer:
            data = json.load(answer)["data"]
        return data["result"] if isinstance(data, dict) else data

    def until(self, ask, holds, what: str):
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                answer = ask()
            except urllib.error.URLError as error:  # it is not ready
                answer = error if isinstance(error, urllib.error.HTTPError) and error.code == 400 else []
                self.assertEqual(answer, [], what)
            if holds(answer):
                return answer
            self.assertLess(time.monotonic(), deadline, f"{what}: {answer}")
            time.sleep(0.05)

    def test_jobs_of_one_host(self):
        for name in sorted(RUNS):
            self.run_job(name)
        user = {"user": NOBODY} if os.geteuid() == 0 else {}  # node_exporter is seldom the job's user
        exporter = self.listen([EXPORTER, "--collector.disable-defaults", "--collector.textfile",
                                f"--collector.textfile.directory={self.folder}/textfiles"], **user)
        with open(os.path.join(self.folder, "prometheus.yml"), "w", encoding="utf-8") as file:
            json.dump({"scrape_configs": [{"job_name": "node", "scrape_interval": "1s", "scrape_timeout": "1s",
                                           "static_configs": [{"targets": [exporter]}]}]}, file)
        self.prometheus = self.listen([PROMETHEUS, f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data"])
        with open(os.path.join(ROOT, "examples", "grafana", "dashboard.json"), encoding="utf-8") as file:
            dashboard = json.load(file)

        calls = self.until(lambda: self.ask("query", query='rondo_operations_total{operation="all_reduce",tag="step"}'), bool, "a first scrape")
        self.assertEqual({(one["metric"]["run"], one["metric"]["rank"], one["value"][1]) for one in calls},
                         {(run, rank, "101") for run in RUNS for rank in "01"})
        self.assertEqual([one["value"][1] for one in self.ask("query", query="node_textfile_scrape_error")], ["0"])
        variables = {one["name"]: one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"}
        series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variables["run"]).groups()
        self.assertEqual(set(self.ask(f"label/{label}/values", **{"match[]": series.replace("$job", ".*")})), RUNS)
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                for chosen in ".*", "two":
                    query = target["expr"].replace("$__rate_interval", "1m").replace("$run", chosen)
                    query = re.sub(r"\$(job|rank)\b", ".*", query)
                    with self.subTest(query=query):
                        self.assertNotIn("$", query)
                        found = self.until(lambda: self.ask("query", query=query), bool, query)
                        if "{{run}}" in target["legendFormat"]:
                            self.assertEqual({one["metric"]["run"] for one in found}, RUNS if chosen == ".*" else {chosen})


if __name__ == "__main__":
    unittest.main()
