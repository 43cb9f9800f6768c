// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <limits>
#include <span>
#include <vector>

#include "lib/device_stream.h"
#include "tools/ceilings/ceiling.h"
#include "tools/ceilings/rounds.h"
#include "tools/measure/operation.h"
#include "tools/shared/agree.h"
#include "transports/stream.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
using transports::Blob;
constexpr std::size_t most_told = 2048;

// Each rank tells this to all others over the communicator.
struct Announced {
  std::array<std::uint8_t, 2> size{};
  std::array<std::byte, most_told> bytes{};
};
static_assert(sizeof(Announced) == most_told + 2 && alignof(Announced) == 1);

std::vector<Announced> tell_all(Communicator& communicator, const Blob& blob) {
  Announced mine;
  if (blob.size() <= most_told) {
    mine.size = {static_cast<std::uint8_t>(blob.size()),
                 static_cast<std::uint8_t>(blob.size() >> 8)};
    std::copy(blob.begin(), blob.end(), mine.bytes.begin());
  }
  return gather_from_ranks(communicator, mine);
}

std::span<const std::byte> blob_of(const Announced& told) {
  const auto size = static_cast<std::size_t>(told.size[0] | told.size[1] << 8);
  return std::span(told.bytes).first(std::min(size, most_told));
}

// The ceiling for bus bandwidth over RDMA: what the devices of these ranks write at once without
// Rondo, over the links that the operation loads. After a failure of a device, measure()
// returns 0 for good.
class DeviceCeiling final : public Ceiling {
 public:
  // Connects the ring. All ranks call it together. Does not throw when that fails: trouble()
  // says why.
  DeviceCeiling(Communicator& communicator, const Options& options, Operation operation);
  DeviceCeiling(const DeviceCeiling&) = delete;
  DeviceCeiling& operator=(const DeviceCeiling&) = delete;
  bool usable() const noexcept override { return usable_; }

  // Returns the rate in one direction, of messages between pairs that of all their streams, in
  // rounds that are timed like a row: after a barrier, at the slowest rank.
  double measure(const Row& row) override;
  const std::string& trouble() const noexcept override { return trouble_; }

 private:
  template <class Step>
  bool together(Step step);
  void connect(const Options& options);
  double round(std::size_t bytes);

  Communicator& communicator_;
  const Operation operation_;
  const Directions directions_;
  const std::chrono::nanoseconds patience_;
  std::unique_ptr<transports::Stream> stream_;
  Rounds rounds_;
  bool usable_ = false;
  std::string trouble_;
};

DeviceCeiling::DeviceCeiling(Communicator& communicator, const Options& options,
                             Operation operation)
    : communicator_(communicator),
      operation_(operation),
      directions_(directions_of(operation, communicator.rank(), communicator.size())),
      patience_(round_patience(options)) {
  if (communicator.size() < 2) return;
  connect(options);
  if (!usable_ && trouble_.empty())
    trouble_ = "another rank could not connect to its neighbours: see its message";
}

// Does a step of its own on each rank, and returns whether it succeeded on all.
template <class Step>
bool DeviceCeiling::together(Step step) {
  try {
    step();
  } catch (const std::exception& error) {
    trouble_ = error.what();
  }
  return maximum_over_ranks(communicator_, trouble_.empty() ? 0 : 1) == 0;
}

void DeviceCeiling::connect(const Options& options) {
  const auto left = static_cast<std::size_t>(directions_.left),
             right = static_cast<std::size_t>(directions_.right);
  if (!together([&] { stream_ = lib::open_device_stream(options); })) return;
  const auto addresses = tell_all(communicator_, stream_->address());
  transports::Stream::Setup mine;
  if (!together(
          [&] { mine = stream_->prepare(blob_of(addresses[left]), blob_of(addresses[right])); }))
    return;
  const auto for_left = tell_all(communicator_, mine.for_left);
  const auto for_right = tell_all(communicator_, mine.for_right);
  usable_ = together([&] { stream_->connect(blob_of(for_right[left]), blob_of(for_left[right])); });
}

double DeviceCeiling::round(std::size_t bytes) {
  double seconds = std::numeric_limits<double>::infinity();
  communicator_.barrier().wait();
  const auto begin = Clock::now();
  try {
    if (directions_.sends) stream_->write(bytes, begin + patience_);
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  } catch (const std::exception& error) {
    trouble_ = error.what();
  }
  return maximum_over_ranks(communicator_, seconds);
}

double DeviceCeiling::measure(const Row& row) {
  if (!usable_) return 0;
  const auto moved = static_cast<std::size_t>(static_cast<double>(row.bytes) *
                                              bus_factor(operation_, communicator_.size()));
  const double rate = rounds_.best(moved, [this](std::size_t bytes) { return round(bytes); });
  usable_ = rate > 0;
  if (!usable_ && trouble_.empty()) trouble_ = "a device of another rank failed: see its message";
  return rate * streams_of(operation_, communicator_.size());
}

}  // namespace

std::unique_ptr<Ceiling> make_device_ceiling(Communicator& communicator, const Options& options,
                                             Operation operation) {
  return std::make_unique<DeviceCeiling>(communicator, options, operation);
}

}  // namespace rondo::tools
