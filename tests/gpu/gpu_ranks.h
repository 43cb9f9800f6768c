// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of this process, each with a GPU: of the fake driver (tests/device/fake) or a
// real one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/fake/control.h"
#include "device/gpus.h"
#include "support/gpu_memory.h"
#include "support/ranks.h"
#include "support/tsan.h"

namespace rondo::testing {

// For operations of which some reach it. Others end within it, also on a machine with other work.
inline constexpr std::chrono::milliseconds short_deadline{under_tsan ? 5000 : 1500};

// A rank's GPU, and copies to and from it.
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

// Memory of the GPU as cuMemCreate gives it.
class MappedMemory {
 public:
  explicit MappedMemory(const device::Gpu& gpu) : gpu_(gpu) {
    const device::Current current(gpu);
    device::AllocationProperties properties;
    properties.location.id = gpu.ordinal();
    device::AccessDescription access;
    access.location.id = gpu.ordinal();
    const device::CudaDriver& driver = gpu.driver();
    gpu.check(driver.allocation_create(&handle_, bytes, &properties, 0), "create");
    gpu.check(driver.address_reserve(&address_, bytes, 0, 0, 0), "reserve");
    gpu.check(driver.memory_map(address_, bytes, 0, handle_, 0), "map");
    gpu.check(driver.memory_set_access(address_, bytes, &access, 1), "access");
  }
  ~MappedMemory() {
    const device::Current current(gpu_);
    unmap();
    gpu_.driver().address_free(address_, bytes);
    gpu_.driver().allocation_release(handle_);
  }
  void* data() const noexcept { return reinterpret_cast<void*>(address_); }
  Buffer buffer() const noexcept {
    return {data(), bytes / sizeof(float), DType::f32, gpu_.ordinal()};
  }
  void unmap() noexcept {
    if (mapped_) gpu_.driver().memory_unmap(address_, bytes);
    mapped_ = false;
  }

 private:
  static constexpr std::size_t bytes = 2 << 20;
  const device::Gpu& gpu_;
  device::AllocationHandle handle_ = 0;
  device::Address address_ = 0;
  bool mapped_ = true;
};

inline constexpr Collective with_chunks[] = {Collective::all_reduce,     Collective::reduce,
                                             Collective::broadcast,      Collective::all_gather,
                                             Collective::gather,         Collective::scatter,
                                             Collective::reduce_scatter, Collective::all_to_all};

// By direct algorithms over shm, with chunks of 64 KiB, and of 8 KiB through slots of GPUs.
inline Setup direct_setup(int size) {
  Setup setup;
  setup.over = Over::shm;
  setup.size = size;
  setup.options.algorithm = "direct";
  setup.options.staging_bytes = 1;
  return setup;
}

// Waits for the stream, as a program does at its end.
inline void settle(const OnGpu& on, const device::Stream& stream) {
  device::Event event(on.gpu());
  const device::Current current(on.gpu());
  on.gpu().check(event.record(stream.get()), "cuEventRecord");
  device::Status status;
  while ((status = event.query()) == device::not_ready) ::sched_yield();
  on.gpu().check(status, "the stream");
}

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

// Does the same. Returns every rank's message; empty where it threw none.
inline std::vector<std::string> messages_of(
    const Setup& setup, const std::function<void(Communicator&, OnGpu&)>& function) {
  std::vector<std::string> messages(static_cast<std::size_t>(setup.size));
  run_on_gpus(setup, "mistake", [&](Communicator& c, OnGpu& on) {
    try {
      function(c, on);
    } catch (const Error& error) {
      messages[static_cast<std::size_t>(c.rank())] = error.what();
    }
  });
  return messages;
}

// Throws std::runtime_error unless the function throws an Error with this code and text.
template <class Function>
void refused(Errc code, const std::string& text, Function function) {
  try {
    function();
  } catch (const Error& error) {
    expect(error.code() == code && std::string(error.what()).find(text) != std::string::npos,
           error.what());
    return;
  }
  expect(false, "not refused: " + text);
}

// Rank 1 has aborted, and the operation may have ended before that, or a GPU has failed.
inline void expect_failure(const Work& work, bool aborted) {
  try {
    work.wait();
    expect(aborted, "it ended well");
  } catch (const Error& error) {
    const std::string_view text = error.what();
    expect(text.find(aborted ? "rank 1 called abort" : "CUDA_ERROR_ILLEGAL_ADDRESS") !=
               std::string_view::npos,
           text);
  }
}

// Two ranks: the stream of rank 1 does not move, and rank 0 aborts. before: makes what the
// communicator keeps, because freed memory waits for streams.
template <class Before, class AfterTheEnd>
void abort_beside_a_held_stream(const Setup& setup, std::string_view what, Before before,
                                AfterTheEnd after) {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  RankBarrier together(2);
  run_on_gpus(setup, what, [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    device::Event mark(on.gpu());
    MappedMemory values(on.gpu());
    before(c, on);
    together.arrive_and_wait();
    if (c.rank() == 1) {
      fake.hold(stream.get());
      const device::Current current(on.gpu());
      on.gpu().check(mark.record(stream.get()), "record");
    }
    const Work work =
        c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum, {.stream = stream.get()});
    together.arrive_and_wait();
    if (c.rank() == 0) c.abort(Errc::aborted, "a test");
    try {
      work.wait();
      expect(false, "it ended well");
    } catch (const Error&) {
    }
    after(c, on, values);
    fake.let_go(stream.get());
  });
}

// The communicator ends without a wait for the stream.
inline void ends_soon(Communicator& c, OnGpu&, MappedMemory&) {
  const auto began = std::chrono::steady_clock::now();
  { const Communicator gone = std::move(c); }
  expect(std::chrono::steady_clock::now() - began < std::chrono::seconds{10},
         "it waited for the stream");
}

}  // namespace rondo::testing
