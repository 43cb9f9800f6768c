# SPDX-License-Identifier: Apache-2.0
"""Finds types with two definitions. No linker enforces the one-definition rule.

Two files that define rondo::Frame differently compile and link, but the linker keeps the inline
functions of only one of them. A type in an unnamed namespace or in a function belongs to its file
and may have any name.
"""

import functools
import re

# Comments, literals (raw strings first), and directives with their continued lines. Nothing in them
# defines a type.
NOISE = re.compile(
    r"""//(?:\\\n|[^\n])*|/\*.*?\*/
      | (?:u8|[uUL])?R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)"
      | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*"
      | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'
      | ^[ \t]*\#(?:\\\n|[^\n])*""",
    re.VERBOSE | re.DOTALL | re.MULTILINE)
TEMPLATE_HEAD = re.compile(r"\btemplate\s*<")
ATTRIBUTE = re.compile(r"\[\[.*?\]\]|\balignas\s*\([^()]*(?:\([^()]*\)[^()]*)*\)", re.DOTALL)
NAMESPACE = re.compile(r"(?:inline\s+)?\bnamespace\b\s*(?P<name>[\w:]*)\s*$")
# The last word before the bases is the name: struct RONDO_API Memory final : Base.
TYPE = re.compile(r"\b(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+(?:[A-Z_]+\s+)?(?P<name>[\w:]+)\s*"
                  r"(?P<arguments><.*>)?\s*(?:final)?\s*(?::(?!:).*)?$", re.DOTALL)


def blank(match):
    """Replaces the match by as many empty lines, so that line numbers stay."""
    return " " + "\n" * match.group(0).count("\n")


def without_template_heads(text):
    """Cuts template<...>: the words class and struct in it define nothing."""
    while match := TEMPLATE_HEAD.search(text):
        depth, at = 1, match.end()
        while at < len(text) and depth:
            depth += {"<": 1, ">": -1}.get(text[at], 0)
            at += 1
        text = text[:match.start()] + text[at:]
    return text


@functools.lru_cache(maxsize=None)
def types_of(text):
    return list(find_types(text))


def find_types(text):
    """Yields (qualified name, line) for each type of the text that other files may see."""
    text = NOISE.sub(blank, text)
    scopes = [""]  # the qualified name of each open brace; None in functions and unnamed namespaces
    start = 0
    for match in re.finditer(r"[{};]", text):
        head, at = text[start:match.start()], match.start()
        start = match.end()
        if match.group(0) == "}":
            if len(scopes) > 1:
                scopes.pop()
            continue
        if match.group(0) == ";":
            continue
        outer, inner = scopes[-1], None
        if outer is not None:
            head = without_template_heads(ATTRIBUTE.sub(" ", head)).strip()
            if space := NAMESPACE.search(head):
                inner = f"{outer}{space.group('name')}::" if space.group("name") else None
            elif kind := TYPE.search(head):
                name = outer + kind.group("name") + re.sub(r"\s+", "", kind.group("arguments") or "")
                inner = name + "::"
                yield name, text.count("\n", 0, at) + 1
        scopes.append(inner)


def twice(files):
    """Yields a problem for each type that two files define. files: pairs (path, text) in order."""
    first = {}
    for path, text in files:
        for name, line in types_of(text):
            where = first.setdefault(name, (path, line))
            if where[0] != path:
                yield f"{path}:{line}: {name} is defined in {where[0]}:{where[1]} too; give one another name or namespace"
