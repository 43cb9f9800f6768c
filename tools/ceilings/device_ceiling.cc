// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lib/device_stream.h"
#include "tools/ceilings/rounds.h"
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

// Writes of the devices of these ranks.
class DeviceRing final : public Ring {
 public:
  explicit DeviceRing(const Options& options) : stream_(lib::open_device_stream(options)) {}
  transports::Stream& stream() noexcept { return *stream_; }
  void move(const Directions& directions, std::size_t bytes, Clock::time_point deadline) override {
    if (directions.sends) stream_->write(bytes, deadline);
  }

 private:
  std::unique_ptr<transports::Stream> stream_;
};

}  // namespace

std::unique_ptr<Ceiling> make_device_ceiling(Communicator& communicator, const Options& options,
                                             Operation operation) {
  auto ceiling = std::make_unique<RingCeiling>(communicator, options, operation,
                                               "a device of another rank failed: see its message");
  const auto left = static_cast<std::size_t>(ceiling->directions().left),
             right = static_cast<std::size_t>(ceiling->directions().right);
  std::unique_ptr<DeviceRing> ring;
  if (!ceiling->together([&] { ring = std::make_unique<DeviceRing>(options); })) return ceiling;
  const auto addresses = tell_all(communicator, ring->stream().address());
  transports::Stream::Setup mine;
  if (!ceiling->together([&] {
        mine = ring->stream().prepare(blob_of(addresses[left]), blob_of(addresses[right]));
      }))
    return ceiling;
  const auto for_left = tell_all(communicator, mine.for_left);
  const auto for_right = tell_all(communicator, mine.for_right);
  if (ceiling->together(
          [&] { ring->stream().connect(blob_of(for_right[left]), blob_of(for_left[right])); }))
    ceiling->add(std::move(ring));
  return ceiling;
}

}  // namespace rondo::tools
