// SPDX-License-Identifier: Apache-2.0
//
// The ceilings of memory traffic: memcpy on the host, and copies within GPUs.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

#include "base/copy.h"
#include "tools/ceilings/ceiling.h"
#include "tools/shared/agree.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t least_bytes = 4096;
constexpr double copy_round_seconds = 0.01;
constexpr int rounds = 5, most_trials = 20;

// The ceiling of memory traffic (traffic_of), for ranks that are all on one host. All ranks call
// memcpy at once, each on its own memory, and together move as many bytes as the row. So data that
// fits into caches stays there in both. Every byte copied counts twice: loaded and stored.
class CopyCeiling final : public Ceiling {
 public:
  // `from` and `to` are the buffers of the benchmark: both have the same size, on all ranks.
  // measure() overwrites them.
  CopyCeiling(Communicator& communicator, std::span<std::byte> from, std::span<std::byte> to)
      : communicator_(communicator), from_(from), to_(to) {}

  // Returns the best of five rounds. A round takes about ten milliseconds, or one copy where that
  // takes longer.
  double measure(const Row& row) override;

 private:
  double seconds_of_a_round(std::size_t bytes, std::size_t copies);

  Communicator& communicator_;
  std::span<std::byte> from_, to_;
};

// The maximum over the ranks is the whole round: the rank that leaves the first barrier first waits
// in the second one until the last rank has copied.
double CopyCeiling::seconds_of_a_round(std::size_t bytes, std::size_t copies) {
  communicator_.barrier().wait();
  const auto begin = Clock::now();
  for (std::size_t i = 0; i < copies; ++i) {
    base::copy_bytes(to_.data(), from_.data(), bytes);
    std::atomic_signal_fence(
        std::memory_order_seq_cst);  // otherwise the compiler may drop all copies but the last
  }
  communicator_.barrier().wait();
  return maximum_over_ranks(communicator_,
                            std::chrono::duration<double>(Clock::now() - begin).count());
}

double CopyCeiling::measure(const Row& row) {
  const double wanted = row.traffic / (2.0 * communicator_.size());
  const std::size_t bytes = std::min(std::max(static_cast<std::size_t>(wanted), least_bytes),
                                     std::min(from_.size(), to_.size()));
  // Pages that nobody has written share one page of zeros, which would stay in the cache.
  std::memset(from_.data(), 1, bytes);
  std::memset(to_.data(), 2, bytes);
  // The loop adds copies until the time of the barriers does not count. The first round warms the
  // caches.
  std::size_t copies = 1;
  seconds_of_a_round(bytes, copies);
  for (int i = 0; i < most_trials; ++i) {
    const double seconds = seconds_of_a_round(bytes, copies);
    if (seconds > copy_round_seconds / 2) break;
    copies *= static_cast<std::size_t>(std::clamp(copy_round_seconds / seconds, 2.0, 100.0));
  }
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < rounds; ++i)
    best = std::min(best, seconds_of_a_round(bytes, copies) / static_cast<double>(copies));
  return 2.0 * static_cast<double>(bytes) * communicator_.size() / best / 1e9;
}

// The ceiling of memory traffic (traffic_of) for buffers on GPUs: copies of a large memory within
// each GPU, all GPUs at once. One rank of each GPU copies while the others wait, because processes
// take turns on a GPU. Every byte copied counts twice: loaded and stored.
class GpuCeiling final : public Ceiling {
 public:
  // gpu: null on ranks that do not copy. copy_bytes: of each copy.
  GpuCeiling(Communicator& communicator, GpuStream* gpu, std::size_t copy_bytes)
      : communicator_(communicator), gpu_(gpu), copy_bytes_(copy_bytes) {}

  // Returns the best of five rounds. A round takes ten milliseconds or a little more.
  double measure(const Row& row) override;
  std::string trouble() const override { return trouble_; }

 private:
  Communicator& communicator_;
  GpuStream* gpu_;
  const std::size_t copy_bytes_;
  std::string trouble_;
};

double GpuCeiling::measure(const Row& /*row*/) {
  double rate = 0;
  const bool measured = succeeds_on_all(communicator_, trouble_, [&] {
    if (gpu_ != nullptr) rate = 2 * gpu_->measure(GpuCopy::on_gpu, copy_bytes_) / 1e9;
  });
  return measured ? sum_over_ranks(communicator_, rate) : 0;
}

}  // namespace

std::unique_ptr<Ceiling> make_copy_ceiling(Communicator& communicator, std::span<std::byte> from,
                                           std::span<std::byte> to) {
  return std::make_unique<CopyCeiling>(communicator, from, to);
}

std::unique_ptr<Ceiling> make_gpu_ceiling(Communicator& communicator, GpuStream* gpu,
                                          std::size_t copy_bytes) {
  return std::make_unique<GpuCeiling>(communicator, gpu, copy_bytes);
}

}  // namespace rondo::tools
