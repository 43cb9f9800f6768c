#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that a machine with one GPU can tell, in a given time, from a folder that
# bench/gpu/pack.sh has made. It needs CUDA's driver and Python 3.
#
#   run_on_gpu.sh [SECONDS] [PART...]    parts: smoke probe faults figures norm tests torch peers rest
#
# Logs go to $OUT (default: the folder out here). Each part has a limit, and goes on after failures.
# RONDO_TRY_BUILD=FOLDER runs over the fake driver of that build folder instead, to try the script.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
total=${1:-420}
(($# == 0)) || shift
parts=("$@")
(($#)) || parts=(smoke probe faults figures norm tests torch peers rest)
out=${OUT:-$here/out}
mkdir -p "$out"
work=$(mktemp -d /tmp/rondo-gpu-XXXXXX)
trap 'rm -rf "$work"' EXIT
tar -xzf "$here/binaries.tgz" -C "$work"
how=(--binaries "$work/bin")
[[ -z ${RONDO_TRY_BUILD:-} ]] || how=(--fake --build "$RONDO_TRY_BUILD")
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
left() { echo $((total - SECONDS)); }

# part NAME SECONDS COMMAND...: its output goes to $out/NAME.log. Programs that take --seconds get {}.
part() {
  local name=$1 seconds=$2 begin=$SECONDS status
  shift 2
  ((seconds <= $(left))) || seconds=$(left)
  if ((seconds < 5)); then
    echo "$name: no time was left" | tee -a "$out/summary.log"
    return
  fi
  timeout -k 5 $((seconds + 5)) "${@//\{\}/$seconds}" >>"$out/$name.log" 2>&1
  status=$?
  echo "$name: status $status after $((SECONDS - begin)) s: $(tail -n 1 "$out/$name.log" | cut -c1-200)" | tee -a "$out/summary.log"
}

gpu() { # LOG SECONDS NAMES...
  local log=$1 seconds=$2
  shift 2
  part "$log" "$seconds" python3 "$here/repo/tests/gpu/gpu.py" "${how[@]}" --seconds {} --each 8 --log "$out/failures.log" --json "$work/$log.json" "$@"
}

torch_setup() {
  mkdir -p "$work/torch"
  cp "$work"/bin/lib/libfmt.so.* "$work/torch/"
  ldconfig -p | grep -q 'libcrypto.so.3 ' || cp "$work/bin/lib/libcrypto.so.3" "$work/torch/"
  # 32: so that a stream that a test holds shares no queue of the GPU with others.
  export LD_LIBRARY_PATH=$work/torch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONPATH=$here/torch CUDA_DEVICE_MAX_CONNECTIONS=32
}

for name in "${parts[@]}"; do
  case $name in
    smoke)
      part machine 20 sh -c 'nvidia-smi; uname -a; ldd --version | head -1; python3 --version; nproc; nvidia-smi topo -m; "$0" info' "$work/bin/rondo-with-libraries"
      gpu smoke 60 info "collectives: 1 rank" "collectives: 2 ranks" "collectives: every type"
      ;;
    probe) part probe 60 "$work/bin/probe" ;;
    figures) part figures 130 python3 "$here/repo/bench/gpu/figures.py" "${how[@]}" --seconds {} --json "$out/figures.json" --log "$out/failures.log" ;;
    norm)
      size=(64 256 3136 20)
      [[ -z ${RONDO_TRY_BUILD:-} ]] || size=(4 16 49 3)
      part norm 30 "$work/bin/norm-with-libraries" "${size[@]}"
      ;;
    faults) gpu faults 70 fault ;;
    tests) gpu tests 120 device gpu "batch norm" ;;
    torch) (torch_setup; RONDO_TEST_LIMIT=20 part torch 180 python3 "$here/repo/tests/torch/real_gpu.py") ;;
    peers) (torch_setup; part peers 150 python3 "$here/repo/bench/torch/one_gpu.py" --seconds {}) ;;
    rest) gpu rest 300 table "collectives: 4" "collectives: 8" "bench" ;;
    *) echo "there is no part $name" >&2; exit 2 ;;
  esac
done
# At most eight files come back from some machines.
tar -czf "$out/cases.tgz" -C "$work" $(cd "$work" && ls ./*.json 2>/dev/null) 2>/dev/null

echo "==== probe"
tail -n 12 "$out/probe.log" 2>/dev/null
echo "==== all_reduce, direct in windows; staged; slots: largest sizes"
python3 - "$out/figures.json" <<'END'
import json, sys
try:
    for run in json.load(open(sys.argv[1]))["runs"]:
        rows = run.get("document", {}).get("results", [])
        print(run["name"], "|", *(f"{r['bytes']} B {'in' if r.get('in_place') else 'out'} {r['p50_us']:.1f} us {r.get('ceiling_percent', 0):.0f} %;" for r in rows[-2:]),
              run.get("error", "").strip().splitlines()[-1:] or "")
except (OSError, ValueError) as error:
    print(error)
END
for log in norm peers; do echo "==== $log"; tail -n 14 "$out/$log.log" 2>/dev/null | cut -c1-420; done
for log in smoke faults tests rest; do echo "==== $log"; grep -E '^(failed| +----)|passed,' "$out/$log.log" 2>/dev/null | cut -c1-160 | head -30; done
echo "==== torch"
grep -E '^(FAIL|ERROR|Ran|OK)|\.\.\. (FAIL|ERROR)|^FAILED' "$out/torch.log" 2>/dev/null | sort -u | cut -c1-160 | head -40
echo "==== parts"
cat "$out/summary.log"
