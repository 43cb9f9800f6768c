// SPDX-License-Identifier: Apache-2.0
//
// The GPUs of rondo bench --device cuda: which one each rank uses, and whether it can.
#pragma once

#include <rondo/communicator.h>
#include <rondo/gpu.h>
#include <rondo/info.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/measure/operation.h"

namespace rondo::tools {

// The value of --device.
struct DeviceChoice {
  bool on_gpus = false;
  std::vector<int> gpus;  // in the order of the flag; empty: all
  std::string text;       // as the user wrote it

  // Reads "cpu", "cuda" or "cuda:0,1". Throws UsageError.
  static DeviceChoice parse(const std::string& text, Operation operation);
};

// The needs that ranks on one host have of its GPUs.
struct GpuNeeds {
  int ranks = 1;
  std::uint64_t bytes_of_rank = 0;
};
// The GPUs of this host to use, in turn by local rank. Throws UsageError where there is no driver
// or no such GPU, where several processes cannot share one, and where its memory is too small.
std::vector<GpuInfo> choose_gpus(const DeviceChoice& choice, const GpuNeeds& needs);

// The GPU of a rank.
struct BenchGpu {
  GpuInfo info;
  std::unique_ptr<GpuStream> stream;
  bool measures = false;  // the first rank of its host on this GPU
  // The rates that pinned memory of rank 0 reaches, in GB/s; 0: not measured.
  double to_host = 0, to_gpu = 0;

  // How many bytes copies within the GPU have: more than its caches hold.
  std::size_t copy_bytes() const;
};
// Opens the GPU of this rank. All ranks call it together. When one cannot, it says why, and all
// throw: UsageError where it is the fault of the flags. measure: rank 0 also measures copies.
BenchGpu open_gpu(Communicator& communicator, const DeviceChoice& choice,
                  std::uint64_t bytes_of_rank, bool measure);

}  // namespace rondo::tools
