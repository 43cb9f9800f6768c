# SPDX-License-Identifier: Apache-2.0
"""Shows which defects the tests notice.

    mutants.py --check
    mutants.py --build FOLDER [--count N] [--seed S] [--only NAME...] [--results FILE] [--set own|change|all]

A mutant is a file NAME.mutant beside this one: one small defect, its place, and why it is a defect.

    file: transports/tcp/link.cc
    suites: transports issues
    why: A credit is given back twice, so the sender overruns the slots of the receiver.
      a line of context, which makes the place unique
    - the old line
    + the new line

The old lines with their context occur exactly once in the file; indentation does not count.
`suites` are names of tests, with _ for a space, or folders of tests/: those that notice the defect
soonest come first. A line `survives: REASON` says why no test can notice it.

--check fails if the place of a mutant does not exist. --build copies the tree to FOLDER and never
changes the tree itself. In the copy it puts in one mutant after the other, builds only the programs
of its suites, and runs them until a test fails. If none fails, all other tests run, except with
--set own. With --set all, all tests then run once more with all their cases. A test that takes far
longer than without the mutant counts as failed. Results go to a file, so a run that was stopped can
go on. A mutant passes if a test notices it, or if it survives as expected. Otherwise it fails, also
if it has no place or does not compile, and the exit status is 1.
"""

import argparse
import concurrent.futures
import fcntl
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
# Unity files of nine sources: with separate sources the first build takes far longer, and each
# mutant gains only a few seconds. Not eight: meson 1.0 misses a file of librondo.a where the sources
# fill the last one, and there are 256.
OPTIONS = ["-Dunity=on", "-Dunity_size=9", "-Doptimization=1", "-Ddebug=false", "-Dbench=false"]
# Most tests wait more than they compute.
AT_ONCE = 4
# These build the whole tree again, start virtual machines, or check the places of mutants.
NEVER = {"install", "vm", "mutants"}
KEYS = {"file", "suites", "why", "survives"}


class MutantError(Exception):
    pass


class Mutant:
    """A parsed file. `lines` are pairs of a mark (" ", "-" or "+") and a line without indentation."""

    def __init__(self, name, text):
        self.name = name
        self.digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.values, self.lines = {}, []
        for number, line in enumerate(text.splitlines(), 1):
            key, colon, value = line.partition(":")
            if line[:2] in ("  ", "- ", "+ "):
                self.lines.append((line[0], line[2:]))
            elif colon and key in KEYS and key not in self.values and not self.lines:
                self.values[key] = value.strip()
            else:
                raise MutantError(f"{name}:{number}: neither a key ({', '.join(sorted(KEYS))}) nor a changed line: {line!r}")
        if missing := {"file", "suites", "why"} - {key for key, value in self.values.items() if value}:
            raise MutantError(f"{name}: {', '.join(sorted(missing))} is missing")
        if not any(mark != " " for mark, _ in self.lines):
            raise MutantError(f"{name}: no line is changed")
        self.file, self.suites = self.values["file"], self.values["suites"].split()
        self.survives = self.values.get("survives")

    def apply(self, text):
        """The text of the file with the defect in it."""
        lines = text.split("\n")
        old = [line.strip() for mark, line in self.lines if mark != "+"]
        places = [at for at in range(len(lines)) if [line.strip() for line in lines[at:at + len(old)]] == old]
        if len(places) != 1 or not old:
            raise MutantError(f"{self.name}: its place is {len(places)} times in {self.file}, not once")
        at, new, indent = places[0], [], ""
        for mark, line in self.lines:
            if mark != "+":
                indent = re.match(r"\s*", lines[at])[0]
                if mark == " ":
                    new.append(lines[at])
                at += 1
            else:
                new.append(indent + line)
        return "\n".join(lines[:places[0]] + new + lines[at:])


def read_mutants(root, folder):
    """All mutants that can be read, and the problems of those that cannot, have no place, or name
    suites of which no meson.build speaks."""
    mutants, problems = [], []
    builds = "".join(path.read_text(encoding="utf-8") for path in root.glob("tests/**/meson.build"))
    for path in sorted(folder.glob("*.mutant")):
        try:
            mutants.append(Mutant(path.stem, path.read_text(encoding="utf-8")))
            mutants[-1].apply((root / mutants[-1].file).read_text(encoding="utf-8"))
            for suite in mutants[-1].suites:
                # Loops put the names of tests together, so each word must be somewhere.
                if unknown := [word for word in suite.split("_") if not re.search(rf"(\b|_){re.escape(word)}(\b|_)", builds)]:
                    raise MutantError(f"{path.stem}: there is no suite {suite}: no meson.build has {unknown[0]}")
        except OSError as error:
            problems.append(f"{path.stem}: {error}")
        except MutantError as error:
            problems.append(str(error))
    return mutants, problems


def draw(mutants, count, seed):
    """`count` of the mutants that a test must notice, by name. The others take all tests each."""
    noticed = [mutant for mutant in mutants if not mutant.survives]
    return sorted(random.Random(seed).sample(noticed, min(count, len(noticed))), key=lambda mutant: mutant.name)


class Tree:
    """A copy of the tree in FOLDER/source, and its build in FOLDER/build."""

    def __init__(self, root, folder, seed, jobs, cases):
        self.source, self.build = folder / "source", folder / "build"
        self.ninja = ["ninja", "-C", self.build, *([f"-j{jobs}"] if jobs else [])]
        self.environment = dict(os.environ, RONDO_TEST_CASES="change", RONDO_TEST_SEED=str(seed), RONDO_DUMP="off")
        self.digest = self.copy(root)
        if not (self.build / "build.ninja").exists():
            linker = {"CXX_LD": "lld"} if shutil.which("ld.lld") else {}
            subprocess.run(["meson", "setup", *OPTIONS, self.build, self.source], env={**os.environ, **linker}, check=True, stdout=subprocess.DEVNULL)
        self.make("build.ninja")
        targets = self.introspect("--targets")
        self.targets = {target["id"]: target["filename"] for target in targets}
        # The programs in C++ use Catch2, which can stop at the first failure.
        self.catch_programs = {target["name"] for target in targets if target["type"] == "executable" and target["name"].startswith("test_")
                               and not any(group.get("language") == "c" for group in target["target_sources"])}
        self.tests = [test for test in self.introspect("--tests") if self.folder(test) not in NEVER
                      and (cases == "all" or not any(suite.endswith(":check") for suite in test["suite"]))]
        self.unchanged = {}  # seconds of each test without a mutant; None for one that fails
        self.lock, self.processes, self.stopped = threading.Lock(), set(), False

    def copy(self, root):
        """Copies what differs, so that nothing else is built again. Returns a digest of the tree."""
        names = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True, capture_output=True, text=True).stdout.split("\0")
        names = {name for name in names if (root / name).is_file()}
        digest = hashlib.sha256()
        for name in sorted(names):
            content, target = (root / name).read_bytes(), self.source / name
            if not name.endswith(".mutant"):
                digest.update(f"{name}\0{len(content)}\0".encode() + content)
            if not target.is_file() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / name, target)
                shutil.copymode(root / name, target)
        for path in self.source.rglob("*"):
            if path.is_file() and str(path.relative_to(self.source)) not in names and "__pycache__" not in path.parts:
                path.unlink()
        return digest.hexdigest()[:16]

    def introspect(self, what):
        return json.loads(subprocess.run(["meson", "introspect", self.build, what], check=True, capture_output=True, text=True).stdout)

    def folder(self, test):
        """The folder of tests/ that a test belongs to: its suite, else where its program is."""
        suites = [suite.partition(":")[2] for suite in test["suite"] if ":" in suite]
        places = [match[1] for word in test["cmd"] if (match := re.search(r"/tests/(\w+)/", word))]
        return (suites + places + [""])[0]

    def chosen(self, suite):
        """The test of that name, or its parts, else the tests of that folder."""
        names = {test["name"].replace(" ", "_"): test for test in self.tests}
        named = [test for name, test in names.items() if name == suite or name.startswith(suite + "_")]
        return named or [test for test in self.tests if self.folder(test) == suite]

    def make(self, *targets):
        """Builds; returns the end of what the build printed when it fails, else None."""
        done = subprocess.run([*self.ninja, *targets], capture_output=True, text=True)
        return None if done.returncode == 0 else done.stdout[-3000:]

    def make_for(self, tests):
        names = {name for test in tests for target in test["depends"] for name in self.targets.get(target, [])}
        return self.make(*sorted(os.path.relpath(name, self.build) for name in names)) if names else None

    def run(self, test, limit, cases="change"):
        """Runs a test; returns its seconds, and None or how it failed."""
        command = list(test["cmd"])
        if os.path.basename(command[0]) in self.catch_programs:
            command.append("--abort")
        environment = {**self.environment, **test["env"], "RONDO_TEST_CASES": cases}
        with tempfile.TemporaryFile() as output:
            started = time.monotonic()
            with self.lock:
                if self.stopped:
                    return 0, "stopped"
                process = subprocess.Popen(command, cwd=test["workdir"] or self.build, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                           stderr=subprocess.STDOUT, start_new_session=True)
                self.processes.add(process)
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                with self.lock:
                    self.processes.discard(process)
                kill_group(process)
                process.wait()
            seconds = time.monotonic() - started
            output.seek(0)
            text = output.read().decode(errors="replace")
        if status in (0, 77):
            return seconds, None
        return seconds, f"no end in {limit:.0f} s" if status is None else case_that_failed(text) or f"status {status}"

    def measure(self, tests):
        """Runs tests without a mutant, once each."""
        fresh = [test for test in tests if test["name"] not in self.unchanged]
        if fresh and (problem := self.make_for(fresh)):
            sys.exit(f"the tree does not compile without mutants:\n{problem}")
        for test in fresh:
            seconds, failure = self.run(test, test["timeout"])
            self.unchanged[test["name"]] = None if failure else seconds
            if failure:
                print(f"not used, because it fails without a mutant: {test['name']}: {failure}", flush=True)

    def killer(self, tests, cases="change"):
        """The first test that fails and how, the fastest first; None when all pass."""
        tests = sorted((test for test in tests if self.unchanged[test["name"]] is not None), key=lambda test: self.unchanged[test["name"]])
        alone = [test for test in tests if any(suite.endswith(":alone") for suite in test["suite"])]
        return self.first_failure([test for test in tests if test not in alone], cases, AT_ONCE) or self.first_failure(alone, cases, 1)

    def first_failure(self, tests, cases, at_once):
        try:
            with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
                names = {pool.submit(self.run, test, self.limit(test, cases), cases): test["name"] for test in tests}
                try:
                    for done in concurrent.futures.as_completed(names):
                        if failure := done.result()[1]:
                            return f"{names[done]}: {failure}"
                finally:
                    self.stop()
        finally:
            self.stopped = False
        return None

    def limit(self, test, cases):
        return test["timeout"] if cases == "all" else min(test["timeout"], 60 + 6 * self.unchanged[test["name"]])

    def stop(self):
        """Ends the tests that run; no other one begins."""
        with self.lock:
            self.stopped = True
            for process in self.processes:
                kill_group(process)


def kill_group(process):
    """Kills a process and its descendants."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def case_that_failed(text):
    """The test case of Catch2 or unittest that failed first, else the last line."""
    if match := re.search(r"^-{70,}\n(.+)\n(?:(?!-{70,}).*\n)*?-{70,}\n(?:(?!-{70,}).*\n)*?.*(?:FAILED:|error:)", text, re.MULTILINE):
        return match[1].strip()
    if match := re.search(r"^(?:FAIL|ERROR): (\S+)", text, re.MULTILINE):
        return match[1]
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:100] if lines else ""


def judge(tree, mutant, cases):
    """Tries a mutant; returns its line of the results."""
    place = tree.source / mutant.file
    before = place.read_text(encoding="utf-8")
    groups = [tree.chosen(suite) for suite in mutant.suites]
    if missing := [suite for suite, tests in zip(mutant.suites, groups) if not tests]:
        raise MutantError(f"{mutant.name}: no test belongs to {' '.join(missing)}")
    if cases != "own":
        groups.append([test for test in tree.tests if not any(test in group for group in groups)])
    started, killer = time.monotonic(), None
    try:
        for tests in groups:
            tree.measure(tests)
            place.write_text(mutant.apply(before), encoding="utf-8")
            if problem := tree.make_for(tests):
                raise MutantError(f"{mutant.name}: does not compile:\n{problem}")
            if killer := tree.killer(tests):
                break
            if cases == "all" and tests is groups[-1]:
                killer = tree.killer(tree.tests, "all")
            place.write_text(before, encoding="utf-8")
    finally:
        place.write_text(before, encoding="utf-8")
    return {"killer": killer, "seconds": round(time.monotonic() - started, 1)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--build", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--count", type=int, metavar="N", help="try only N of those that a test must notice; the seed draws them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--jobs", type=int, metavar="N", help="how many jobs a build runs at a time")
    parser.add_argument("--set", choices=["own", "change", "all"], default="change")
    options = parser.parse_args()
    root = HERE.parent.parent
    mutants, problems = read_mutants(root, HERE)
    if problems:
        sys.exit("\n".join(problems))
    if options.only:
        if unknown := set(options.only) - {mutant.name for mutant in mutants}:
            sys.exit(f"there is no mutant {', '.join(sorted(unknown))}")
        mutants = [mutant for mutant in mutants if mutant.name in options.only]
    if options.count is not None:
        mutants = draw(mutants, options.count, options.seed)
    if options.build is None:
        print(f"{len(mutants)} mutants have their places")
        return 0

    # SIGTERM must end the test that runs and restore the source, which the finally clauses do.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = options.build.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    lock = open(folder / ".lock", "w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"mutants are running in {folder}")
    tree = Tree(root, folder, options.seed, options.jobs, options.set)
    path = options.results or folder / "results.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    results = {line["key"]: line for line in map(json.loads, lines)}
    wrong = 0
    for mutant in mutants:
        key = f"{mutant.name} {mutant.digest} {tree.digest} {options.seed} {options.set}"
        line = results.get(key)
        if line is None:
            try:
                line = judge(tree, mutant, options.set)
            except MutantError as error:
                line = {"error": str(error), "seconds": 0}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, **line}) + "\n")
        expected = "error" not in line and bool(line["killer"]) != bool(mutant.survives)
        wrong += not expected
        what = line.get("error") or line["killer"] or "SURVIVED" + (f", as expected: {mutant.survives}" if mutant.survives else "")
        print(f"{mutant.name:<40} {line['seconds']:7.1f} s  {'' if expected else '*** '}{what}", flush=True)
    print(f"{len(mutants) - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
