# SPDX-License-Identifier: Apache-2.0
"""examples/launchers/rondo-preflight.service: systemd-analyze reads it, and its command runs on hosts
with the variables that systemd would give it. systemd itself does not run here.
Usage: systemd_test.py PATH_OF_RONDO [unittest arguments]"""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from case import VICTIM, LauncherCase, main, one_end
from stage import EXAMPLES, SECRETS, on

UNIT = EXAMPLES / "rondo-preflight.service"
# A folder as systemd makes it for %d.
CREDENTIALS = f"{SECRETS}/rondo-preflight.service"


def settings() -> dict[str, str]:
    """All settings of the unit; none is given twice."""
    found = {}
    for line in UNIT.read_text().splitlines():
        if line and line[0] not in "#[":
            name, value = line.split("=", 1)
            assert name not in found, name
            found[name] = value
    return found


def variables_of_file() -> dict[str, str]:
    return dict(line.split("=", 1) for line in (EXAMPLES / "rondo-preflight.env").read_text().splitlines() if not line.startswith("#"))


@one_end
class Preflight(LauncherCase):
    def launch(self, size, threshold):
        unit = settings()
        credential, _ = unit["LoadCredential"].split(":")
        self.stage.secret(f"{CREDENTIALS}/{credential}")
        name, value = unit["Environment"].split("=", 1)
        run = self.stage.run()
        for rank, host in enumerate(self.hosts):
            variables = variables_of_file() | {name: value.replace("%d", CREDENTIALS), "RONDO_RANK": str(rank), "BYTES": size, "MIN_BANDWIDTH": threshold}
            program, *words = unit["ExecStart"].split()
            command = [re.sub(r"\$\{(\w+)\}", lambda match, known=variables: known[match[1]], word) for word in words]
            run.start(on(host, ["env", *(f"{key}={value}" for key, value in variables.items()), Path(program).name, *command]))
        return run

    def test_passed(self):
        self.check_passed()

    def test_missed(self):
        self.assertEqual(self.check_missed()[0], [1, 1, 1, 1])

    def test_killed(self):
        self.assertEqual(self.check_killed(), [3, 3, -9, 3])


class Unit(unittest.TestCase):
    def test_ranks_give_up_first(self):
        """Ranks that find no others say so before systemd ends them."""
        self.assertLess(int(variables_of_file()["RONDO_CONNECT_DEADLINE"]), int(settings()["TimeoutStartSec"]))

    def test_it_stays_active(self):
        """A restart of a service that requires the preflight does not start it again, on one host alone."""
        self.assertEqual((settings()["Type"], settings()["RemainAfterExit"]), ("oneshot", "yes"))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed (Debian: systemd)")
    def test_systemd_reads_it(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, settings()["ExecStart"].split()[0].lstrip("/"))
            program.parent.mkdir(parents=True)
            program.write_text("")
            program.chmod(0o755)
            units = Path(folder, "etc/systemd/system")
            units.mkdir(parents=True)
            shutil.copy(UNIT, units)
            for other in "sysinit", "basic", "shutdown", "network-online":
                (units / f"{other}.target").write_text("[Unit]\nDescription=a target of the system\n")
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", f"--root={folder}", f"/etc/systemd/system/{UNIT.name}"],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    main()
