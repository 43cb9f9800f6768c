// SPDX-License-Identifier: Apache-2.0
//
// A stream of RDMA writes, over the ports and queue pairs that a link would use.
#include "transports/stream.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <rondo/error.h>

#include "base/text.h"
#include "transports/rdma/address.h"
#include "transports/rdma/completions.h"
#include "transports/rdma/context.h"
#include "transports/rdma/failures.h"
#include "transports/rdma/messages.h"
#include "transports/rdma/path.h"
#include "transports/rdma/rdma.h"
#include "transports/rdma/send_pool.h"

namespace rondo::rdma {
namespace {

// Each write moves up to write_bytes from the block of this rank to one of the `targets` blocks of
// its right neighbour. A few are enough, and locked memory is short.
constexpr std::uint32_t write_bytes = 64u << 10, targets = 2;
// The rank sleeps after this many polls without a completion.
constexpr unsigned most_polls = 200;

class DeviceStream final : public transports::Stream {
 public:
  DeviceStream(const Options& options, std::shared_ptr<Context> context);

  Setup prepare(std::span<const std::byte> left, std::span<const std::byte> right) override;
  void connect(std::span<const std::byte> from_left,
               std::span<const std::byte> from_right) override;
  void write(std::uint64_t bytes, base::TimePoint deadline) override;

 private:
  // The queue pairs between this rank and one neighbour, in the order of the sender's ports.
  struct Side {
    std::vector<PortAddress> peer;
    std::vector<PortPair> pairs;
    std::vector<std::unique_ptr<Path>> paths;
  };
  void make_paths(Side& side, std::vector<PortPair> pairs);
  transports::Blob setup_of(const Side& side) const;
  LinkSetup connect(Side& side, std::span<const std::byte> told);
  std::uint64_t post(std::uint64_t bytes);
  std::uint64_t post_write(Path& path, std::uint32_t key, std::uint64_t most);
  bool take_completions();
  void sleep(base::TimePoint deadline);
  bool all_written() const noexcept {
    return std::ranges::all_of(right_.paths, [](const auto& path) { return path->idle(); });
  }

  const Options options_;
  const std::shared_ptr<Context> context_;
  std::vector<PortAddress> ports_;
  // The block that this rank sends, then the blocks that its left neighbour writes.
  const base::Pages pages_{std::size_t{write_bytes} * (1 + targets)};
  const MemoryRegion region_;
  std::vector<std::unique_ptr<Completions>> completions_;  // by device
  Side left_, right_;
  std::vector<Path*> paths_;  // by number
  LinkSetup target_;          // the right neighbour's memory
  std::uint64_t posted_ = 0;
  std::size_t next_path_ = 0;
};

std::vector<PortAddress> read_ports(std::span<const std::byte> bytes) {
  auto ports = decode_ports(bytes);
  if (!ports)
    throw Error(
        Errc::corrupt,
        "a neighbour sent an invalid list of RDMA ports: run one version of Rondo on all ranks");
  return std::move(*ports);
}

DeviceStream::DeviceStream(const Options& options, std::shared_ptr<Context> context)
    : Stream(encode(addresses_of(context->devices->ports()))),
      options_(options),
      context_(std::move(context)),
      ports_(addresses_of(context_->devices->ports())),
      region_(context_->devices, pages_.memory(),
              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) {
  for (const auto& device : context_->devices->all())
    completions_.push_back(std::make_unique<Completions>(
        *device, 2 * most_paths * (Path::send_depth + Path::receive_depth)));
}

transports::Stream::Setup DeviceStream::prepare(std::span<const std::byte> left,
                                                std::span<const std::byte> right) {
  left_.peer = read_ports(left);
  right_.peer = read_ports(right);
  // The sender's ports come first, so that both ends pair them in the same way.
  auto to_left = pair_ports(left_.peer, ports_);
  for (PortPair& pair : to_left) std::swap(pair.mine, pair.theirs);
  make_paths(left_, std::move(to_left));
  make_paths(right_, pair_ports(ports_, right_.peer));
  return {setup_of(left_), setup_of(right_)};
}

void DeviceStream::make_paths(Side& side, std::vector<PortPair> pairs) {
  if (pairs.empty()) throw Error(Errc::system, "there are no ports that can talk to each other");
  side.pairs = std::move(pairs);
  const std::size_t count = std::min(most_paths, side.pairs.size() * options_.connections);
  for (std::size_t i = 0; i < count; ++i) {
    const Port& port = context_->devices->ports()[side.pairs[i % side.pairs.size()].mine];
    Completions& completions = *completions_[port.device_index];
    completions.reserve(Path::send_depth + Path::receive_depth);
    side.paths.push_back(std::make_unique<Path>(completions.device(), port, completions.queue(),
                                                static_cast<std::uint32_t>(paths_.size())));
    paths_.push_back(side.paths.back().get());
  }
}

// The second half of the memory is where the left neighbour writes.
transports::Blob DeviceStream::setup_of(const Side& side) const {
  Told told{Notice::setup, 0, {write_bytes, targets, 0, {}}};
  told.setup.slots_address = reinterpret_cast<std::uintptr_t>(pages_.memory().data()) + write_bytes;
  for (const auto& path : side.paths)
    told.setup.paths.push_back(path->setup(region_.keys().remote[path->device_index()]));
  const Message message = encode(told);
  return {message.begin(), message.end()};
}

void DeviceStream::connect(std::span<const std::byte> from_left,
                           std::span<const std::byte> from_right) {
  connect(left_, from_left);
  target_ = connect(right_, from_right);
}

LinkSetup DeviceStream::connect(Side& side, std::span<const std::byte> told) {
  Message message{};
  if (told.size() == message.size()) std::ranges::copy(told, message.begin());
  const auto theirs = decode(message);
  if (!theirs || theirs->notice != Notice::setup)
    throw Error(Errc::corrupt,
                "a neighbour sent an invalid set-up of its queue pairs: run one version of Rondo "
                "on all ranks");
  // The other end may want more connections, or fewer.
  for (std::size_t i = 0; i < std::min(side.paths.size(), theirs->setup.paths.size()); ++i)
    side.paths[i]->connect(side.peer[side.pairs[i % side.pairs.size()].theirs],
                           theirs->setup.paths[i],
                           patience_for(static_cast<std::uint64_t>(options_.deadline.count())),
                           static_cast<std::uint8_t>(options_.service_level),
                           static_cast<std::uint8_t>(options_.traffic_class));
  return theirs->setup;
}

void DeviceStream::write(std::uint64_t bytes, base::TimePoint deadline) {
  unsigned quiet = 0;
  while (bytes != 0 || !all_written()) {
    if (base::Clock::now() >= deadline)
      throw Error(Errc::deadline_exceeded,
                  "the devices did not complete the writes to the right neighbour in time");
    const std::uint64_t taken = post(bytes);
    bytes -= taken;
    if (take_completions() || taken != 0)
      quiet = 0;
    else if (++quiet >= most_polls)
      sleep(deadline);
  }
}

// Posts what the queues take now, over all paths in turn; returns how many bytes.
std::uint64_t DeviceStream::post(std::uint64_t bytes) {
  const std::size_t paths = std::min(right_.paths.size(), target_.paths.size());
  std::uint64_t taken = 0;
  for (std::size_t full = 0; full < paths && taken < bytes;) {
    next_path_ = (next_path_ + 1) % paths;
    Path& path = *right_.paths[next_path_];
    if (!path.has_room(1)) {
      ++full;
      continue;
    }
    full = 0;
    taken += post_write(path, target_.paths[next_path_].slots_key, bytes - taken);
  }
  return taken;
}

// Posts one write of at most `most` bytes; returns its size.
std::uint64_t DeviceStream::post_write(Path& path, std::uint32_t key, std::uint64_t most) {
  const auto size = std::min<std::uint64_t>({most, write_bytes, target_.slot_bytes});
  Request request;
  request.parts[0] = {reinterpret_cast<std::uintptr_t>(pages_.memory().data()),
                      static_cast<std::uint32_t>(size), region_.keys().local[path.device_index()]};
  request.part_count = 1;
  request.address = target_.slots_address + posted_++ % target_.slots * target_.slot_bytes;
  request.key = key;
  if (const int error = path.post(request, {.frame = 0, .payload = size}); error != 0)
    throw Error(Errc::system, fmt::format("{}: cannot post a write: {}", path.route(),
                                          base::describe_errno(error)));
  return size;
}

// Returns whether there were any.
bool DeviceStream::take_completions() {
  bool any = false;
  for (const auto& completions : completions_) {
    for (const ibv_wc& one : completions->poll()) {
      any = true;
      Path& path = *paths_.at((one.wr_id & ~Path::receive_bit) >> 32);
      if (one.status != IBV_WC_SUCCESS) throw Error(Errc::peer_lost, describe_failure(one, path));
      path.complete(static_cast<std::uint32_t>(one.wr_id), [](const Posted&) {});
    }
    if (completions->failed())
      throw Error(Errc::system,
                  completions->device().name() + ": its completion queue cannot be read");
  }
  return any;
}

void DeviceStream::sleep(base::TimePoint deadline) {
  std::vector<pollfd> channels;
  for (const auto& completions : completions_) {
    completions->arm();
    channels.push_back({completions->descriptor(), POLLIN, 0});
  }
  if (take_completions()) return;
  ::poll(channels.data(), channels.size(), base::poll_timeout(base::Clock::now(), deadline));
  for (std::size_t i = 0; i < channels.size(); ++i)
    if (channels[i].revents != 0) completions_[i]->take_event();
}

}  // namespace

std::unique_ptr<transports::Stream> make_stream(const Options& options, const Shared& shared) {
  if (!shared.obstacle().empty()) throw Error(Errc::system, shared.obstacle());
  return std::make_unique<DeviceStream>(options, shared.context());
}

}  // namespace rondo::rdma
