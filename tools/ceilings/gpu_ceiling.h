// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>
#include <rondo/gpu.h>

#include <cstddef>
#include <string>

#include "tools/ceilings/ceiling.h"

namespace rondo::tools {

// The ceiling of memory traffic (traffic.h) for buffers on GPUs: copies of a large memory within
// each GPU, all GPUs at once. One rank of each GPU copies while the others wait, because processes
// take turns on a GPU. Every byte copied counts twice: loaded and stored.
class GpuCeiling final : public Ceiling {
 public:
  // gpu: null on ranks that do not copy. copy_bytes: of each copy.
  GpuCeiling(Communicator& communicator, GpuStream* gpu, std::size_t copy_bytes)
      : communicator_(communicator), gpu_(gpu), copy_bytes_(copy_bytes) {}

  // Returns the best of five rounds. A round takes ten milliseconds or a little more.
  double measure(const Row& row) override;
  const std::string& trouble() const noexcept override { return trouble_; }

 private:
  Communicator& communicator_;
  GpuStream* gpu_;
  const std::size_t copy_bytes_;
  std::string trouble_;
};

}  // namespace rondo::tools
