// SPDX-License-Identifier: Apache-2.0
#include <rondo/gpu.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "device/gpus.h"
#include "device/objects.h"
#include "lib/gpu_buffers.h"

namespace rondo::lib {
namespace {

constexpr std::size_t slot_bytes = std::size_t{4} << 20;
constexpr std::chrono::seconds most_time_of_copies{60};
constexpr double least_round_seconds = 0.01;
constexpr int measured_rounds = 5, most_copies = 4096;

device::Address address_of(const void* data) {
  return reinterpret_cast<device::Address>(data);
}

}  // namespace

// A GPU with a stream, and two slots of pinned memory, so that the processor copies into one while
// the GPU copies from the other.
class GpuStreamState {
 public:
  explicit GpuStreamState(int device) : gpu_(gpus_.gpu(device)), stream_(gpu_) {}

  const device::Gpu& gpu() const noexcept { return gpu_; }
  void* stream() const noexcept { return stream_.get(); }
  void copy_to_gpu(device::Address to, const std::byte* from, std::size_t bytes);
  void copy_to_host(std::byte* to, device::Address from, std::size_t bytes);
  double measure(GpuCopy copy, std::size_t bytes);

 private:
  struct Slot {
    explicit Slot(const device::Gpu& gpu) : memory(gpu, slot_bytes), ended(gpu) {}
    device::PinnedMemory memory;
    device::Event ended;
    bool used = false;
  };
  std::array<std::optional<Slot>, 2>& slots();
  void record(device::Event& event) { gpu_.check(event.record(stream_.get()), "cuEventRecord"); }
  void wait(const device::Event& event) const;
  template <class Copy>
  double seconds_of(Copy copy, device::Event& ended, int copies);
  template <class Copy>
  double rate_of(Copy copy, std::size_t bytes);

  device::Gpus gpus_;
  const device::Gpu& gpu_;
  device::Stream stream_;
  std::array<std::optional<Slot>, 2> slots_;
};

// Pinned memory is taken at the first copy. Making it needs no current context.
std::array<std::optional<GpuStreamState::Slot>, 2>& GpuStreamState::slots() {
  for (auto& slot : slots_)
    if (!slot) slot.emplace(gpu_);
  return slots_;
}

void GpuStreamState::wait(const device::Event& event) const {
  gpu_.check(device::wait_for(event, most_time_of_copies), "copies");
}

void GpuStreamState::copy_to_gpu(device::Address to, const std::byte* from, std::size_t bytes) {
  auto& slots = this->slots();
  const device::Current current(gpu_);
  for (std::size_t done = 0, turn = 0; done < bytes; ++turn) {
    Slot& slot = *slots[turn % 2];
    if (turn >= 2) wait(slot.ended);
    const std::size_t part = std::min(slot_bytes, bytes - done);
    std::memcpy(slot.memory.data(), from + done, part);
    gpu_.check(gpu_.driver().copy_to_device(to + done, slot.memory.data(), part, stream_.get()),
               "cuMemcpyHtoDAsync of " + base::describe_bytes(part));
    record(slot.ended);
    slot.used = true;
    done += part;
  }
  for (auto& slot : slots)
    if (std::exchange(slot->used, false)) wait(slot->ended);
}

void GpuStreamState::copy_to_host(std::byte* to, device::Address from, std::size_t bytes) {
  auto& slots = this->slots();
  const device::Current current(gpu_);
  const auto part_at = [&](std::size_t at) { return std::min(slot_bytes, bytes - at); };
  const auto take = [&](std::size_t turn) {
    const Slot& slot = *slots[turn % 2];
    wait(slot.ended);
    const std::size_t at = turn * slot_bytes;
    std::memcpy(to + at, slot.memory.data(), part_at(at));
  };
  const std::size_t turns = (bytes + slot_bytes - 1) / slot_bytes;
  for (std::size_t turn = 0; turn < turns; ++turn) {
    if (turn >= 2) take(turn - 2);
    Slot& slot = *slots[turn % 2];
    const std::size_t at = turn * slot_bytes;
    gpu_.check(
        gpu_.driver().copy_to_host(slot.memory.data(), from + at, part_at(at), stream_.get()),
        "cuMemcpyDtoHAsync of " + base::describe_bytes(part_at(at)));
    record(slot.ended);
  }
  for (std::size_t turn = turns - std::min<std::size_t>(turns, 2); turn < turns; ++turn) take(turn);
}

template <class Copy>
double GpuStreamState::seconds_of(Copy copy, device::Event& ended, int copies) {
  const device::Current current(gpu_);
  const auto begin = base::Clock::now();
  for (int i = 0; i < copies; ++i) gpu_.check(copy(), "a copy");
  record(ended);
  wait(ended);
  return std::chrono::duration<double>(base::Clock::now() - begin).count();
}

// The first round warms the GPU, whose clocks rise with work.
template <class Copy>
double GpuStreamState::rate_of(Copy copy, std::size_t bytes) {
  device::Event ended(gpu_);
  int copies = 1;
  while (seconds_of(copy, ended, copies) < least_round_seconds && copies < most_copies) copies *= 2;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < measured_rounds; ++i)
    best = std::min(best, seconds_of(copy, ended, copies) / copies);
  return static_cast<double>(bytes) / best;
}

double GpuStreamState::measure(GpuCopy copy, std::size_t bytes) {
  const device::CudaDriver& driver = gpu_.driver();
  const device::DeviceMemory memory(gpu_, bytes);
  if (copy == GpuCopy::on_gpu) {
    const device::DeviceMemory other(gpu_, bytes);
    return rate_of(
        [&] {
          return driver.copy_on_device(memory.address(), other.address(), bytes, stream_.get());
        },
        bytes);
  }
  const device::PinnedMemory host(gpu_, bytes);
  if (copy == GpuCopy::to_gpu)
    return rate_of(
        [&] { return driver.copy_to_device(memory.address(), host.data(), bytes, stream_.get()); },
        bytes);
  return rate_of(
      [&] { return driver.copy_to_host(host.data(), memory.address(), bytes, stream_.get()); },
      bytes);
}

}  // namespace rondo::lib

namespace rondo {

Memory allocate_on_gpu(int device, std::size_t bytes) {
  return Memory(lib::allocate_on_gpu(std::make_shared<device::Gpus>(), device, bytes));
}

GpuStream::GpuStream(int device) : state_(std::make_unique<lib::GpuStreamState>(device)) {}
GpuStream::GpuStream(GpuStream&&) noexcept = default;
GpuStream& GpuStream::operator=(GpuStream&&) noexcept = default;
GpuStream::~GpuStream() = default;

int GpuStream::device() const noexcept {
  return state_->gpu().ordinal();
}

void* GpuStream::get() const noexcept {
  return state_->stream();
}

void GpuStream::copy_to_gpu(void* to, const void* from, std::size_t bytes) {
  state_->copy_to_gpu(lib::address_of(to), static_cast<const std::byte*>(from), bytes);
}

void GpuStream::copy_to_host(void* to, const void* from, std::size_t bytes) {
  state_->copy_to_host(static_cast<std::byte*>(to), lib::address_of(from), bytes);
}

double GpuStream::measure(GpuCopy copy, std::size_t bytes) {
  if (bytes == 0) throw Error(Errc::invalid_argument, "copies of 0 bytes have no rate");
  return state_->measure(copy, bytes);
}

}  // namespace rondo
