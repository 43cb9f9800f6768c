#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds outside programs against Rondo, installed into a scratch prefix that is then moved.
#
#   install_test.sh pkg-config|cmake|subproject|symbols|readme|alone SOURCE BUILD LIBDIR BINDIR
#
# BUILD is a finished build; LIBDIR and BINDIR are relative to the prefix. The environment has MESON
# and CXX (one word or more, as in make).
set -euo pipefail

what=$1 source=$2 build=$3 libdir=$4 bindir=$5
here=$source/tests/install
read -ra cxx <<<"$CXX"

skip() {
  echo "skipped: $*"
  exit 77
}

# The scratch folder is in the build folder. It is kept, so that a failure can be examined and the
# subproject is not built again. Where this user may not write there (./dev unprivileged), it is a
# temporary folder.
if [[ -w $build/tests/install && (! -e $build/tests/install/$what || -w $build/tests/install/$what) ]]; then
  scratch=$build/tests/install/$what
else
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
fi

install_rondo() {
  rm -rf "$scratch"
  mkdir -p "$scratch"
  "$MESON" install -C "$build" --no-rebuild --quiet --destdir "$scratch/staged" >"$scratch/install.log" ||
    { cat "$scratch/install.log"; return 1; }
  # The prefix is the folder with include/. After the move the package files must still be right.
  local include
  include=$(find "$scratch/staged" -type d -path '*/include/rondo')
  prefix="$scratch/${1:-moved here}"
  mv "${include%/include/rondo}" "$prefix"
  export PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig
  # Only installed files may say where the library is.
  unset LD_LIBRARY_PATH
}

# Runs a program as the only rank, and as two ranks.
try_program() {
  local program=$1 output
  output=$("$program")
  [[ $output == "rank 0 of 1: sum 1" ]] || { echo "$program printed: $output"; return 1; }
  output=$("$prefix/$bindir/rondo" run -n 2 -- "$program" join)
  [[ $(grep -c 'rank [01] of 2: sum 3' <<<"$output") == 2 ]] || { echo "$program as two ranks printed: $output"; return 1; }
}

needs_librondo() { readelf -d "$1" | grep -q 'NEEDED.*librondo\.so\.0'; }

test_pkg_config() {
  command -v pkg-config >/dev/null || skip "no pkg-config"
  install_rondo
  # The paths contain a space, which pkg-config escapes for a shell: hence eval.
  eval "shared=($(pkg-config --cflags --libs rondo))"
  "${cxx[@]}" -std=c++20 "$here/outside.cc" -o "$scratch/shared" "${shared[@]}" "-Wl,-rpath,$prefix/$libdir"
  needs_librondo "$scratch/shared"
  try_program "$scratch/shared"
  eval "static=($(pkg-config --cflags --static --libs rondo))"
  "${cxx[@]}" -std=c++20 "$here/outside.cc" -o "$scratch/static" "${static[@]/#-lrondo/-l:librondo.a}"
  if needs_librondo "$scratch/static"; then echo "the static program needs librondo.so"; return 1; fi
  try_program "$scratch/static"
}

test_cmake() {
  command -v cmake >/dev/null || skip "no cmake"
  install_rondo
  CXX=${cxx[*]} cmake -S "$here" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/cmake.log" 2>&1 ||
    { cat "$scratch/cmake.log"; return 1; }
  cmake --build "$scratch/build" >"$scratch/make.log" 2>&1 || { cat "$scratch/make.log"; return 1; }
  needs_librondo "$scratch/build/shared"
  try_program "$scratch/build/shared"
  if needs_librondo "$scratch/build/static"; then echo "the static program needs librondo.so"; return 1; fi
  try_program "$scratch/build/static"
}

# Builds without RDMA, which no other test does.
test_subproject() {
  [[ ${RONDO_TEST_CASES:-} == all ]] || skip "it builds the whole library anew, which takes minutes: set RONDO_TEST_CASES=all"
  [[ $scratch == "$build"/* ]] || skip "this user may not write to $build/tests/install: the whole library would be built anew"
  mkdir -p "$scratch/subprojects"
  ln -sfn "$source" "$scratch/subprojects/rondo"
  cp "$here/outside.cc" "$scratch/outside.cc"
  cp "$here/subproject.meson" "$scratch/meson.build"
  # A folder of an earlier run may have other options.
  local options=(-Drondo:rdma=disabled -Drondo:cuda=disabled -Drondo:optimization=0)
  [[ ! -f $scratch/build/build.ninja ]] || "$MESON" configure "$scratch/build" "${options[@]}"
  [[ -f $scratch/build/build.ninja ]] ||
    CXX=${cxx[*]} "$MESON" setup --unity=on --unity-size=40 "${options[@]}" "$scratch/build" "$scratch" >"$scratch/setup.log" || { cat "$scratch/setup.log"; return 1; }
  ninja -C "$scratch/build" outside >"$scratch/ninja.log" || { cat "$scratch/ninja.log"; return 1; }
  "$scratch/build/outside"
}

# Runs the example of README with the commands of README. The name of its prefix has no space, which
# $(pkg-config ...) would split.
test_readme() {
  command -v pkg-config >/dev/null || skip "no pkg-config"
  install_rondo moved
  cd "$scratch"
  awk '/^```cpp$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' "$source/README.md" >example.cc
  local build_line run_line output
  build_line=$(grep -m1 '^    g++ .*example\.cc' "$source/README.md")
  run_line=$(grep -m1 '^    rondo run .*example' "$source/README.md")
  # The command of README, with the compiler of this build.
  eval "${build_line/g++/${cxx[*]}}"
  needs_librondo example
  output=$(PATH=$prefix/$bindir:$PATH eval "$run_line")
  [[ $(grep -c '^rank [0-3]: 1.5$' <<<"$output") == 4 ]] || { echo "'$run_line' printed: $output"; return 1; }
}

# The program starts from where it was installed, and pkg-config needs no other package for the
# flags of a program.
test_alone() {
  install_rondo
  "$prefix/$bindir/rondo" --version
  "$prefix/$bindir/rondo" bench -b 8 -e 8 -n 1 --ranks 2 --no-ceiling
  if needs_librondo "$prefix/$bindir/rondo"; then echo "the installed program needs librondo.so"; return 1; fi
  command -v pkg-config >/dev/null || skip "no pkg-config: its part was not tried"
  PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR=$prefix/$libdir/pkgconfig pkg-config --cflags --libs rondo
}

# The library exports only Rondo's own symbols.
test_symbols() {
  local leaked
  leaked=$(nm -D --defined-only -C "$build/librondo.so" |
    sed -E 's/^[0-9a-f]* *[A-Za-z] (typeinfo for |typeinfo name for |vtable for )?//' | grep -v '^rondo::\|^rondo_' || true)
  [[ -z $leaked ]] || { echo "librondo.so exports symbols that are not Rondo's:"; echo "$leaked"; return 1; }
  [[ $(nm -D --defined-only -C "$build/librondo.so" | grep -c 'rondo::Communicator::') -gt 5 ]] ||
    { echo "librondo.so does not export the public API"; return 1; }
  if readelf -d "$build/librondo.so" | grep -q 'TEXTREL\|RPATH\|RUNPATH'; then echo "librondo.so has text relocations or a run path"; return 1; fi
}

"test_${what//-/_}"
