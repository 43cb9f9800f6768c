#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Usage: kernel_symbols.sh library.a...
# Fails when a library defines weak symbols. Inline functions become weak symbols, which the linker
# shares between all objects. From a library that is built for one instruction set, other code
# would get instructions that its processor may lack. Type information (_ZTI, _ZTS: clang's sanitizer
# makes it for types of functions) has no instructions.
status=0
for library in "$@"; do
  weak=$(nm --defined-only "$library" | awk '$2 ~ /^[WwVvu]$/ && $3 !~ /^__(asan|odr_asan|tsan|ubsan|sanitizer)|^DW\.ref\.|^_ZT[IS]/ {print $3}')
  if [ -n "$weak" ]; then
    echo "$library defines weak symbols; put these functions in an anonymous namespace:" >&2
    echo "$weak" >&2
    status=1
  fi
done
exit $status
