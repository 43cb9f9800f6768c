// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of this process, each with a GPU: of the fake driver (tests/device/fake) or a
// real one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "device/fake/control.h"
#include "device/gpus.h"
#include "support/gpu_memory.h"
#include "support/ranks.h"

namespace rondo::testing {

// What a rank uses: its GPU, and copies to and from it.
struct OnGpu {
  explicit OnGpu(int ordinal) : copier(gpus.gpu(ordinal)) {}
  const device::Gpu& gpu() const noexcept { return copier.gpu(); }

  device::Gpus gpus;
  GpuCopier copier;
};

// f32 elements in memory of a GPU.
class GpuFloats {
 public:
  GpuFloats(OnGpu& on, std::size_t count, float value)
      : on_(on), memory_(on.gpu(), count * sizeof(float)), count_(count) {
    set(value);
  }
  void set(float value) {
    const std::vector<float> values(count_, value);
    on_.copier.write(memory_.address(), std::as_bytes(std::span(values)));
  }
  Buffer buffer() const noexcept {
    return {reinterpret_cast<void*>(memory_.address()), count_, DType::f32, on_.gpu().ordinal()};
  }
  device::Address address() const noexcept { return memory_.address(); }
  // Whether all elements have this value.
  bool are(float value) {
    std::vector<float> values(count_);
    on_.copier.read(std::as_writable_bytes(std::span(values)), memory_.address());
    return std::ranges::all_of(values, [=](float v) { return v == value; });
  }

 private:
  OnGpu& on_;
  device::DeviceMemory memory_;
  std::size_t count_;
};

// Two ranks over the links of each transport, and by direct algorithms.
inline std::vector<Setup> every_way() {
  std::vector<Setup> setups(4);
  setups[1].over = Over::tcp;
  setups[2].over = setups[3].over = Over::shm;
  setups[3].options.algorithm = "direct";
  return setups;
}

// run_communicators, with a GPU for each rank, in turn.
inline void run_on_gpus(const Setup& setup, std::string_view what,
                        const std::function<void(Communicator&, OnGpu&)>& function) {
  run_communicators(setup, what, [&](Communicator& communicator, int rank) {
    OnGpu on(rank % gpus_of_tests());
    function(communicator, on);
  });
}

}  // namespace rondo::testing
