#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Usage: kernel_symbols.sh library.a...
# Inline functions become weak symbols that the linker shares between all objects. In a library that is built for one instruction set
# that would give its instructions to everybody, so there must be none.
status=0
for library in "$@"; do
  weak=$(nm --defined-only "$library" | awk '$2 ~ /^[WwVvu]$/ && $3 !~ /^__(asan|odr_asan|tsan|ubsan|sanitizer)|^DW\.ref\./ {print $3}')
  if [ -n "$weak" ]; then
    echo "$library defines weak symbols; put these functions in an anonymous namespace:" >&2
    echo "$weak" >&2
    status=1
  fi
done
exit $status
