# SPDX-License-Identifier: Apache-2.0
"""Prints every text that Rondo may show to its users, one a line, and checks a few rules.

    messages.py ROOT      prints each text as path:line: text; exit status 1 when one breaks a rule

A text is a literal of at least three words in the library or in the program; {} stands for a value.
Help texts and grammars are texts too. No program can check whether a text is clear: read the list
aloud.
"""

import pathlib
import re
import sys

FOLDERS = ["base", "transports", "collectives", "lib", "training", "grad", "bn", "tools"]
# Matches comments, literals, directives and all other characters. Only literals become texts.
TOKEN = re.compile(
    r"""//(?:\\\n|[^\n])*|/\*.*?\*/
      | (?:u8|[uUL])?R"(?P<end>[^()\\\s]{0,16})\((?P<raw>.*?)\)(?P=end)"
      | "(?P<text>(?:\\.|[^"\\\n])*)"
      | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'
      | ^[ \t]*\#(?:\\\n|[^\n])*
      | (?P<other>\S)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE)
ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "0": "\0", "r": "\r"}
# Pictures that only insiders understand, and phrases that need a second reading, each with its
# remedy. ARCHITECTURE.md lists the words of the field.
FORBIDDEN = {
    r"\b(encounter|guest|reception|vigil|costume)\b": "a word of the field: handshake, joiner, acceptor, keepalive",
    r"\b(that|which) (is|are) none\b": "say what is wrong: 'invalid', 'appears twice', 'NaN'",
    r"\bnumbers? that (is|are) no\b": "NaN",
    r"\b(oops|sorry|please|simply|just)\b": "nothing: the cause and the remedy are enough",
    r"!$": "no exclamation mark",
    r"  +\S": None,  # columns of help texts and tables
}
MOST_CHARACTERS = 400


def unescape(text):
    return re.sub(r"\\(.)", lambda m: ESCAPES.get(m.group(1), m.group(0)), text)


def texts_of(source):
    """Yields (line, text) for each run of literals that the compiler joins."""
    parts, line = [], 0
    for match in TOKEN.finditer(source):
        literal = match.group("raw") if match.group("raw") is not None else match.group("text")
        if literal is not None:
            if not parts:
                line = source.count("\n", 0, match.start()) + 1
            parts.append(literal if match.group("raw") is not None else unescape(literal))
        elif match.group("other") is not None and parts:
            yield line, "".join(parts)
            parts = []
    if parts:
        yield line, "".join(parts)


def is_text(text):
    """Whether it is words with spaces between, not a name, a path or a format of numbers."""
    return len(re.findall(r"[A-Za-z]{2,}", text)) >= 3 and " " in text.strip()


def problems_of(text):
    for pattern, remedy in FORBIDDEN.items():
        if remedy and (found := re.search(pattern, text, re.IGNORECASE)):
            yield f"'{found.group(0)}': {remedy}"
    if len(text) > MOST_CHARACTERS and "\n" not in text:
        yield f"{len(text)} characters in one line: at most {MOST_CHARACTERS}"


def check(root, out):
    """Prints all texts below root, a pathlib.Path. Returns the problems and the number of texts."""
    problems, count = [], 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cc", ".cu"):
                continue
            name = path.relative_to(root).as_posix()
            for line, text in texts_of(path.read_text(encoding="utf-8")):
                if not is_text(text):
                    continue
                count += 1
                print(f"{name}:{line}: {text!r}", file=out)
                problems += [f"{name}:{line}: {problem} in {text!r}" for problem in problems_of(text)]
    return problems, count


if __name__ == "__main__":
    found, texts = check(pathlib.Path(sys.argv[1]), sys.stdout)
    print(f"{texts} texts, {len(found)} against the rules", *found, sep="\n", file=sys.stderr)
    sys.exit(1 if found or texts < 300 else 0)
