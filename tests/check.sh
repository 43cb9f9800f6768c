# SPDX-License-Identifier: Apache-2.0
#
# The tests and checks of ./dev, which sources this file. docs/testing.md explains the two sets of
# tests, the seed that draws their cases, and the parts of ./dev check.

# Ctrl-C ends everything, not only the test program under way.
trap 'exit 130' INT

# Prints a seed: successive commits draw different cases. A shallow clone cannot count its commits.
seed() {
  if [[ $(git rev-parse --is-shallow-repository 2>/dev/null) == true ]]; then
    git log -1 --format=%ct
  else
    git rev-list --count HEAD 2>/dev/null || echo 1
  fi
}
export RONDO_TEST_SEED=${RONDO_TEST_SEED:-$(seed)}
[[ $RONDO_TEST_SEED =~ ^(0|[1-9][0-9]{0,17})$ ]] || fail "RONDO_TEST_SEED takes a number of at most 18 digits without leading zeros, not '$RONDO_TEST_SEED'"
# run_tests reads these; commands and parts set them first.
case_set=change   # or all
suites=()         # those that run; none: all
wrapper=()        # a command in front of meson test
logbase=testlog
# How many programs run at a time: of those that wait, and of those that compute.
waiting=6 computing=$(nproc)
beside=1  # whether both kinds run at the same time
again="./dev test"

# ---- running tests ----

# run_kind FOLDER KIND PROCESSES: runs the tests of one kind, if there are any.
run_kind() {
  local names
  mapfile -t names <"$1/meson-logs/$logbase-$2.names"
  ((${#names[@]} == 0)) || meson_test "$1" "$logbase-$2" --num-processes "$3" "${names[@]}"
}
# Its status does not matter: what its log lacks has failed. The lock of run_tests is not for what
# tests leave behind.
meson_test() {
  "${wrapper[@]}" meson test -C "$1" --no-rebuild --print-errorlogs --setup "$case_set" --logbase "$2" \
    ${times:+--wrapper "$(printf '%q ' "$PWD/tests/times.py" "$times")"} "${@:3}" {lock}>&- || true
}

# refuse_beside FOLDER: fails while another run tests what is built there.
refuse_beside() {
  [[ -f $1/.tests.lock ]] || return 0
  flock --nonblock "$1/.tests.lock" true || fail "tests of $1 are running; wait for their end"
}

# run_tests FOLDER [ARGUMENTS of meson test]: runs the tests of the set and suites above, or those
# that the arguments name. Those that wait run beside those that compute. The last line is
# "N passed, N failed[, N skipped]".
run_tests() {
  local folder=$1 base=$1/meson-logs/$logbase kind lock logs names options
  shift
  exec {lock}>"$folder/.tests.lock"
  flock --nonblock "$lock" || fail "tests of $folder are running; wait for their end"
  rm -f "$base"*.json "$base"*.names
  say "$case_set cases, drawn by RONDO_TEST_SEED=$RONDO_TEST_SEED"
  if (($#)); then
    python tests/suites.py named "$folder" "$case_set" "$@" >"$base.names" || return 1
    mapfile -t names <"$base.names"
    mapfile -t options < <(python tests/suites.py options "$@")
    meson_test "$folder" "$logbase" "${options[@]}" "${names[@]}"
  else
    for kind in waits computes alone; do
      python tests/suites.py names "$folder" "$kind" "$case_set" "${suites[@]}" >"$base-$kind.names" || return 1
    done
    run_kind "$folder" waits "$waiting" &
    [[ $beside ]] || wait
    run_kind "$folder" computes "$computing"
    wait
    run_kind "$folder" alone 1
  fi
  exec {lock}>&-
  logs=("$base"*.json) names=("$base"*.names)
  summary "--again=RONDO_TEST_SEED=$RONDO_TEST_SEED $again" "${names[@]/#/--names=}" "${logs[@]}"
}
# build_tests [ARGUMENTS of meson test]: builds what the tests need that the arguments name.
build_tests() {
  local targets=()
  # A caller that looks at the status switches off set -e in here.
  setup || return 1
  switch_on tests || return 1
  configure build || return 1
  if (($#)); then
    ninja -C build build.ninja >/dev/null || return 1
    python tests/suites.py named build "$case_set" "$@" >/dev/null || return 1
    mapfile -t targets < <(words_of "$@" | xargs -rd '\n' python tests/suites.py targets build "$case_set")
  fi
  ninja -C build "${targets[@]}"
}
words_of() { python tests/suites.py words "$@"; }

# summary LOG...: see tests/summary.py.
summary() { python tests/summary.py "$@"; }

# test [--all] [--times] [ARGUMENTS of meson test]; --all: all cases; --times: also prints how long
# each program took, and its processor time.
run_test() {
  local status=0 argument arguments=()
  for argument in "$@"; do
    case $argument in
      --all) case_set=all again+=" --all" ;;
      --times) times=$PWD/build/meson-logs/times.txt ;;
      *) arguments+=("$argument") ;;
    esac
  done
  build_tests "${arguments[@]}" || return 1
  [[ -z $times ]] || rm -f "$times"
  run_tests build "${arguments[@]}" || status=$?
  [[ -z $times ]] || python tests/times.py --table "$times"
  return $status
}
times=""

# Runs the tests as an ordinary user, because root is exempt from many limits.
unprivileged() {
  [[ ${1:-} != --all ]] || fail "unprivileged runs the set change; it takes names"
  build_tests "$@" || return 1
  # Each meson test gives the folder of logs to that user until it ends, so two cannot run at once.
  logbase=unprivileged wrapper=(tests/unprivileged.sh build) again="./dev unprivileged" beside=""
  run_tests build "$@"
}

# ---- sanitizers ----

# configure_sanitized FOLDER OPTION...: for TSan g++ takes 2.7 times as long as clang++, and ld four
# times as long as lld. At -O1 tests that compute much take a third of their time at -O0; meson.build
# says which programs are optimized. A folder that was set up without lld is made again.
configure_sanitized() {
  refuse_beside "$1"
  if [[ -f $1/build.ninja ]] && ! grep -q fuse-ld=lld "$1/build.ninja"; then rm -rf "$1"; fi
  CXX="$(cached clang++)" CXX_LD=lld configure "$@" -Db_lundef=false -Dbench=false -Doptimization=1 -Ddebug=false \
    -Dcpp_args='-g1 -fno-omit-frame-pointer'
}
# With coverage feedback for fuzzing.
configure_asan() { configure_sanitized build-asan -Dfuzz=true -Db_sanitize=address,undefined; }
configure_tsan() { configure_sanitized build-tsan -Db_sanitize=thread; }

# sanitize [--all] [--build] [--suites SUITE,...] [asan] [tsan] [NAME...]: builds and tests one of them, or
# both; --build: only builds. With suites, it builds what these need.
sanitize() {
  local names=() only_build="" name known status=0 targets tests=()
  while (($#)); do
    case $1 in
      asan | tsan) names+=("$1") ;;
      --all) case_set=all ;;
      --build) only_build=1 ;;
      --suites)
        [[ ${2:-} ]] || fail "--suites takes SUITE,..."
        IFS=, read -ra suites <<<"$2"
        known=$(python tests/suites.py others .)
        for name in "${suites[@]}"; do
          grep -qx -- "$name" <<<"$known" || fail "there is no suite '$name'; a suite is a folder of tests/"
        done
        shift
        ;;
      -*) fail "sanitize takes --all, --build, --suites SUITE,..., asan, tsan and names of tests, not '$1'" ;;
      *) tests+=("$1") ;;
    esac
    shift
  done
  ((${#names[@]})) || names=(asan tsan)
  # Under a sanitizer every program computes; with more at a time, tests miss their deadlines.
  waiting=2 computing=1
  need "${build_packages[@]}" "${test_packages[@]}" "${clang_packages[@]}"
  for name in "${names[@]}"; do
    "configure_$name" || return 1
    # Targets may have been added since.
    ninja -C "build-$name" build.ninja >/dev/null || return 1
    targets=()
    if ((${#tests[@]})); then
      python tests/suites.py named "build-$name" "$case_set" "${tests[@]}" >/dev/null || return 1
      mapfile -t targets < <(words_of "${tests[@]}" | xargs -rd '\n' python tests/suites.py targets "build-$name" "$case_set")
    elif ((${#suites[@]})); then
      mapfile -t targets < <(python tests/suites.py targets "build-$name" "$case_set" "${suites[@]}")
      ((${#targets[@]})) || { say "build-$name has no tests of ${suites[*]}"; continue; }
    fi
    if ! ninja -C "build-$name" "${targets[@]}"; then
      status=1
    elif [[ ! $only_build ]]; then
      say "tests in build-$name"
      again="./dev sanitize$([[ $case_set == change ]] || echo " --all") $name"
      "test_$name" "${tests[@]}" || status=1
    fi
  done
  return $status
}

test_asan() { run_tests build-asan "$@"; }
test_tsan() {
  # With strong address randomization TSan finds no room for its shadow memory.
  if setarch -R true 2>/dev/null; then wrapper=(setarch -R); fi
  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 run_tests build-tsan "$@"
}

fuzz() {
  local seconds=${1:-60} fuzzers fuzzer name each status=0
  [[ $seconds =~ ^[1-9][0-9]*$ ]] || fail "fuzz takes a number of seconds, not '$seconds'"
  need "${build_packages[@]}" "${test_packages[@]}" "${clang_packages[@]}"
  configure_asan
  ninja -C build-asan fuzzers
  mapfile -t fuzzers < <(find build-asan/tests/fuzz -maxdepth 1 -type f -name '*_fuzz')
  ((${#fuzzers[@]})) || fail "there are no fuzz targets in build-asan"
  each=$((seconds / ${#fuzzers[@]} > 0 ? seconds / ${#fuzzers[@]} : 1))
  for fuzzer in "${fuzzers[@]}"; do
    name=$(basename "$fuzzer" _fuzz)
    say "fuzzing $name for $each s"
    # New inputs that it finds stay in the build folder, and the next run starts from them.
    mkdir -p "build-asan/found/$name"
    local corpora=("build-asan/found/$name")
    [[ ! -d tests/fuzz/corpus/$name ]] || corpora+=("tests/fuzz/corpus/$name")
    "$fuzzer" "-max_total_time=$each" -timeout=5 -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1 \
      "-artifact_prefix=build-asan/$name-" "${corpora[@]}" || { say "$name: fix the defect and keep the input in tests/fuzz/corpus/$name"; status=1; }
  done
  return $status
}

# ---- parts of ./dev check ----

declare -A parts=(
  [plain]="all cases of the tests that no part below has to itself"
  [asan]="the tests under ASan and UBSan"
  [tsan]="the tests under TSan"
  [lint]="format, clang-tidy with all checks, definitions of types compared at link time"
  [unprivileged]="the set change as an ordinary user with 1,024 descriptors"
  [rdma]="RDMA devices (Soft-RoCE) in virtual machines"
  [gpu]="all cases of the suites gpu and device over the fake CUDA driver, and ./dev gpu --fake"
  [hosts]="all cases between hosts (network namespaces)"
  [launchers]="all cases with launchers: real Slurm, mpirun over real ssh daemons, torchrun"
  [frameworks]="frameworks that use PyTorch, in an environment of 0.9 GB"
  [fuzz]="every decoder fuzzed, five minutes in all"
  [soak]="random calls and cycles for five minutes, and rounds of faults"
  [install]="installed library, subproject, wheel"
  [one-core]="the set change on one core"
  [mutants]="defects put in on purpose, which the tests must find"
)
part_order=(plain asan tsan lint unprivileged rdma gpu hosts launchers frameworks fuzz soak install one-core mutants)
# Suites that are not in the part plain. The suite install also has the test of the wheel, from
# tests/python.
apart=(gpu device hosts launchers frameworks fuzz soak install vm mutants)

run_suites() {
  case_set=all suites=("$@") again="$longer./dev test --all"
  build_tests || return 1
  run_tests build
}
part_plain() {
  local all
  need_daemons "${metrics_packages[@]}"
  mapfile -t all < <(python tests/suites.py others . "${apart[@]}")
  run_suites "${all[@]}"
}
part_asan() { sanitize --all asan; }
part_tsan() { sanitize --all tsan; }
part_lint() {
  format --check
  lint
  # g++ compares the definitions of each type when it links.
  CXX=$(cached g++) configure build-lto -Db_lto=true -Dtests=false -Dbench=false
  ninja -C build-lto tools/rondo
}
part_unprivileged() { unprivileged; }
part_rdma() { run_suites vm; }
part_gpu() {
  local status=0
  run_suites gpu device || status=1
  ./dev gpu --fake || status=1
  return $status
}
part_hosts() { run_suites hosts; }
part_launchers() {
  need_daemons "${launchers_packages[@]}"
  run_suites launchers
}
part_frameworks() {
  # Without a network the tests are skipped.
  setup --frameworks || true
  run_suites frameworks
}
part_fuzz() { fuzz 300; }
part_soak() {
  export RONDO_TEST_SOAK_SECONDS=300 RONDO_TEST_ROUNDS=200
  longer="RONDO_TEST_SOAK_SECONDS=300 RONDO_TEST_ROUNDS=200 "
  run_suites soak faults
}
longer=""  # variables of the part
part_install() { run_suites install; }
part_one-core() {
  build_tests || return 1
  logbase=one-core wrapper=(taskset -c 0) again="taskset -c 0 ./dev test"
  run_tests build
}
part_mutants() { mutants "$@"; }

# mutants N|all: tries N mutants that the seed draws, or all.
mutants() {
  need "${build_packages[@]}" "${test_packages[@]}"
  local count=(--count "$1")
  [[ $1 != all ]] || count=()
  python tests/mutants/mutants.py --build build-mutants --seed "$RONDO_TEST_SEED" "${count[@]}"
}

list_parts() {
  local part
  for part in "${part_order[@]}"; do printf '  %-13s %s\n' "$part" "${parts[$part]}"; done
}

mutant_count=12  # for ./dev check

# Changes when a file that git does not ignore changes, or the seed.
digest() {
  { git ls-files -z --cached --others --exclude-standard | sort -z | xargs -0 sha256sum 2>/dev/null || true  # a file may be deleted
    echo "$RONDO_TEST_SEED"; } | sha256sum | cut -c1-16
}

# check [--list] [--resume] [PART...]: runs these parts, or all; --resume: only those that have not
# passed on the same sources with the same seed. Output and results go to build-check/.
check() {
  local resume="" chosen=() part sources stamp line failed=0 passed=0 skipped=0 lock
  while (($#)); do
    case $1 in
      --list) list_parts && return ;;
      --resume) resume=1 ;;
      mutants)
        chosen+=(mutants)
        if [[ ${2:-} =~ ^([0-9]+|all)$ ]]; then
          [[ $2 =~ ^([1-9]|all) ]] || fail "check mutants takes a number of at least 1, or all, not '$2'"
          mutant_count=$2
          shift
        fi
        ;;
      -*) fail "check takes --list, --resume and parts, not '$1'" ;;
      *) [[ $1 && ${parts[$1]:-} ]] || fail "check has no part '$1'; its parts are:"$'\n'"$(list_parts)"
        chosen+=("$1") ;;
    esac
    shift
  done
  ((${#chosen[@]})) || chosen=("${part_order[@]}")
  mkdir -p build-check
  exec {lock}>build-check/.lock
  flock --nonblock "$lock" || fail "a check of this tree is running; wait for its end"
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    sources=$(digest)
  elif [[ $resume ]]; then
    fail "--resume needs git, which knows the sources"
  fi
  setup all
  for part in "${chosen[@]}"; do
    stamp=${sources:-unknown}
    [[ $part != mutants ]] || stamp+=-$mutant_count
    if [[ $resume ]] && grep -Eqs "^$stamp [1-9][0-9]* passed, 0 failed" "build-check/$part.result"; then
      say "$part has passed on these sources"
    else
      run_part "$part" "$stamp" {lock}>&-
    fi
  done
  say "parts, with seed $RONDO_TEST_SEED"
  for part in "${chosen[@]}"; do
    line=$(cat "build-check/$part.result")
    printf '  %-13s %s\n' "$part" "${line#* }"
    [[ $line =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)? ]]
    ((passed += BASH_REMATCH[1], failed += BASH_REMATCH[2], skipped += ${BASH_REMATCH[4]:-0})) || true
  done
  echo "$passed passed, $failed failed$( ((skipped)) && echo ", $skipped skipped")"
  ((failed == 0))
}

# run_part PART SOURCES: shows the part's output and keeps it in build-check/PART.log. Its result is
# the sum of the lines that count tests; a part without such a line counts as one test.
run_part() {
  local started=$SECONDS status=0 line count=()
  [[ $1 != mutants ]] || count=("$mutant_count")
  say "==== $1: ${parts[$1]}"
  ./dev part "$1" "${count[@]}" 2>&1 | tee "build-check/$1.log" || status=1
  line=$(awk '/^[0-9]+ passed, [0-9]+ failed/ { passed += $1; failed += $3; skipped += $5; found = 1 }
    END { if (found) printf "%d passed, %d failed%s", passed, failed, skipped ? ", " skipped " skipped" : "" }' "build-check/$1.log")
  if ((status == 0)); then
    line=${line:-1 passed, 0 failed}
  elif [[ -z $line || $line == *" 0 failed"* ]]; then
    line="0 passed, 1 failed"
  fi
  echo "$2 $line in $((SECONDS - started)) s" >"build-check/$1.result"
}
