# SPDX-License-Identifier: Apache-2.0
"""Compares the enums and structs of rondo/c.h with those of the C++ headers, name by name."""

import pathlib
import re
import sys
import unittest

INCLUDE = pathlib.Path(sys.argv.pop(1)) / "include" / "rondo"

# By C++ struct: the C struct, the fields of C++ that C writes otherwise, and those that C lacks.
STRUCTS = {
    "Options": ("rondo_options", {"ports": {"port_first", "port_last"}, "connect_deadline": {"connect_deadline_ms"},
                                  "deadline": {"deadline_ms"}, "metrics_period": {"metrics_period_ms"},
                                  "interrupted": {"interrupted", "interrupted_context"}}, set()),
    "OpOptions": ("rondo_call", {"deadline": {"deadline_ms"}, "priority": {"urgent"}, "scale": {"has_scale", "scale"},
                                 "input_scale": {"has_input_scale", "input_scale"}}, {"owner"}),
    "Statistics": ("rondo_statistics", {"waited": {f"waited_{cause}_ns" for cause in ("ranks", "transfer", "gpu", "messages")}},
                   {"late_ranks"}),
}
# Members of C alone: the size, and where a buffer of C++ says it itself.
ONLY_IN_C = {"bytes", "has_device", "device"}


def text_of(name):
    return re.sub(r"(?<!:)//[^\n]*|/\*.*?\*/", "", (INCLUDE / name).read_text(encoding="utf-8"), flags=re.DOTALL)


CPP = "\n".join(text_of(name) for name in ("communicator.h", "error.h", "options.h", "types.h"))
C = text_of("c.h")


def body(text, head):
    """The text between the braces that follow `head`."""
    start = text.index("{", re.search(head, text).end() - 1)
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start + 1:at]
    raise ValueError(head)


def enumerators(text, head):
    return [part.split("=")[0].strip() for part in body(text, head).split(",") if part.strip()]


def fields(text, head):
    """The names of the fields of a struct: the last word of each declaration, without initializers."""
    found = set()
    for declaration in re.sub(r"\{[^{}]*\}", "", body(text, head)).split(";"):
        declaration = re.sub(r"=[^,]*", "", declaration).strip()
        if pointer := re.search(r"\(\*(\w+)\)", declaration):
            found.add(pointer.group(1))
        elif declaration and "(" not in re.sub(r"<.*>", "", declaration, flags=re.DOTALL):
            found.update(re.findall(r"(\w+)\s*(?=,|$)", re.sub(r"<.*>", "", declaration, flags=re.DOTALL)))
    return found


class SameNames(unittest.TestCase):
    def test_enums(self):
        for cpp, c, prefix in (("Errc", "rondo_status", ["OK"]), ("DType", "rondo_dtype", []), ("ReduceOp", "rondo_op", []),
                               ("Collective", "rondo_collective", [])):
            theirs = prefix + [name.upper() for name in enumerators(CPP, rf"enum class {cpp}\b[^;{{]*{{")]
            ours = [name.removeprefix("RONDO_") for name in enumerators(C, rf"typedef enum {c} {{")]
            self.assertEqual(ours[:-1], theirs, f"{c} and rondo::{cpp}")
            self.assertTrue(ours[-1].endswith("_BITS"))

    def test_structs(self):
        for cpp, (c, otherwise, missing) in STRUCTS.items():
            expected = set()
            for name in fields(CPP, rf"struct (?:RONDO_API )?{cpp} {{") - missing:
                expected |= otherwise.get(name, {name})
            self.assertEqual(fields(C, rf"typedef struct {c} {{") - ONLY_IN_C, expected, f"{c} and rondo::{cpp}")


if __name__ == "__main__":
    unittest.main()
