#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes a folder with all that run_on_gpu.sh needs on a machine where nothing can be built.
#
#   bench/gpu/pack.sh FOLDER [BUILD]     BUILD: a build folder, default build (./dev gpu --fake makes it)
#
# The package `rondo` for the Python and the torch of that machine must be put in FOLDER/torch by
# hand; without it the parts torch and peers fail.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$(realpath -m "$1") build=$(realpath "${2:-build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -B tests/gpu/gpu.py --build "$build" --pack "$work/bin"
"${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" -std=c++20 -O3 -gencode=arch=compute_80,code=[sm_80,compute_80] -gencode=arch=compute_90,code=sm_90 \
  bench/gpu/probe.cu -o "$work/bin/probe"
find "$work/bin" -maxdepth 1 -type f -exec strip {} +
for pair in rondo:rondo norm:batch_norm_bench; do
  script=$work/bin/${pair%%:*}-with-libraries
  # shellcheck disable=SC2016
  printf '#!/bin/sh\nhere=$(dirname "$0")\nLD_LIBRARY_PATH=$here/lib:$LD_LIBRARY_PATH exec "$here/%s" "$@"\n' "${pair##*:}" >"$script"
  chmod +x "$script"
done
mkdir -p "$folder/torch"
tar -czf "$folder/binaries.tgz" -C "$work" bin
rm -rf "$folder/repo"
for path in tests/gpu/gpu.py tests/summary.py bench/gpu/figures.py bench/torch/one_gpu.py tests/support/cases.py tests/torch/*.py tests/torch/real/*.py; do
  mkdir -p "$folder/repo/$(dirname "$path")"
  cp "$path" "$folder/repo/$path"
done
cp bench/gpu/run_on_gpu.sh "$folder/"
du -sh "$folder"
