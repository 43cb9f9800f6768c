// SPDX-License-Identifier: Apache-2.0
#include "tools/ceilings/ceiling.h"

#include <sys/random.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <vector>

#include "tools/ceilings/rounds.h"
#include "tools/measure/operation.h"
#include "tools/ranks/socket.h"
#include "tools/shared/agree.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds patience{10}, stranger_patience{2};
constexpr std::size_t chunk_bytes = std::size_t{256} << 10, bounded_bytes = std::size_t{128} << 10;

using Token = std::array<std::uint8_t, 16>;

// Each rank tells this to all others over the communicator: the address where it listens, and the
// token that its left neighbour must send there.
struct Announcement {
  std::uint8_t listens = 0;
  std::array<char, 101> host{};  // ends with a zero
  std::array<std::uint8_t, 2> port{};
  Token token{};
};
static_assert(sizeof(Announcement) == 120 && alignof(Announcement) == 1);

struct Ring {
  Announcement mine;
  base::FileDescriptor listener, right, left;
  std::vector<std::byte> chunk = std::vector<std::byte>(chunk_bytes);
  Rounds rounds;

  void listen(const std::string& address, const Options& options) {
    Endpoint endpoint = parse_endpoint(address);
    if (endpoint.host.size() >= mine.host.size())
      throw std::runtime_error("address too long: " + endpoint.host);
    listener = listen_at(endpoint, options.port_first, options.port_last);
    std::copy(endpoint.host.begin(), endpoint.host.end(), mine.host.begin());
    mine.port = {static_cast<std::uint8_t>(endpoint.port),
                 static_cast<std::uint8_t>(endpoint.port >> 8)};
    if (::getrandom(mine.token.data(), mine.token.size(), 0) !=
        static_cast<ssize_t>(mine.token.size()))
      throw std::runtime_error("getrandom gave too few bytes");
    mine.listens = 1;
  }

  void close_ring(const Announcement& neighbour, Clock::time_point deadline) {
    const auto port = static_cast<std::uint16_t>(neighbour.port[0] | neighbour.port[1] << 8);
    right = connect_to({neighbour.host.data(), port}, deadline);
    send_all(right, std::as_bytes(std::span(neighbour.token)), deadline);
    left = accept_with_token(listener, std::as_bytes(std::span(mine.token)), stranger_patience,
                             deadline);
  }
};

// The ceiling for bus bandwidth: what plain TCP sockets between these ranks reach at once, over the
// links that the operation loads (directions_of). It measures once with socket buffers that the
// kernel adapts (better between hosts), and once with small ones that stay in the cache (better
// within a host). A socket that fails makes it useless for good: measure() returns 0.
class SocketCeiling final : public Ceiling {
 public:
  // Connects the ring at the addresses that the communicator uses. All ranks call it together.
  // A socket that fails does not throw: trouble() says why.
  SocketCeiling(Communicator& communicator, const Options& options, Operation operation);
  SocketCeiling(const SocketCeiling&) = delete;
  SocketCeiling& operator=(const SocketCeiling&) = delete;

  // Returns the rate in one direction, of messages between pairs that of all their streams, in
  // rounds that are timed like a row: after a barrier, at the slowest rank.
  double measure(const Row& row) override;
  bool usable() const noexcept override { return usable_; }
  const std::string& trouble() const noexcept override { return trouble_; }

 private:
  bool connect(Ring& ring, const Options& options);
  double round(Ring& ring, std::size_t bytes);

  Communicator& communicator_;
  Operation operation_;
  const Directions directions_;
  const std::chrono::nanoseconds patience_;
  std::unique_ptr<Ring> adapting_, bounded_;
  bool usable_ = false;
  std::string trouble_;
};

SocketCeiling::SocketCeiling(Communicator& communicator, const Options& options,
                             Operation operation)
    : communicator_(communicator),
      operation_(operation),
      directions_(directions_of(operation, communicator.rank(), communicator.size())),
      patience_(round_patience(options)),
      adapting_(std::make_unique<Ring>()),
      bounded_(std::make_unique<Ring>()) {
  if (communicator.size() < 2) return;
  usable_ = connect(*adapting_, options) && connect(*bounded_, options);
  if (!usable_ && trouble_.empty())
    trouble_ = "another rank could not connect to its neighbours: see its message";
  if (!usable_) return;
  bound_buffers(bounded_->right, bounded_bytes);
  bound_buffers(bounded_->left, bounded_bytes);
}

// Connects one ring. All ranks call it together and get the same result.
bool SocketCeiling::connect(Ring& ring, const Options& options) {
  try {
    ring.listen(communicator_.address(), options);
  } catch (const std::exception& error) {
    trouble_ = error.what();
  }
  auto all = gather_from_ranks(communicator_, ring.mine);
  for (Announcement& announcement : all) announcement.host.back() = 0;
  const bool all_listen =
      std::all_of(all.begin(), all.end(), [](const auto& one) { return one.listens != 0; });
  try {
    const auto right = static_cast<std::size_t>(directions_.right);
    if (all_listen) ring.close_ring(all[right], Clock::now() + patience);
  } catch (const std::exception& error) {
    trouble_ = error.what();
  }
  return maximum_over_ranks(communicator_, all_listen && trouble_.empty() ? 0 : 1) == 0;
}

double SocketCeiling::round(Ring& ring, std::size_t bytes) {
  double seconds = std::numeric_limits<double>::infinity();
  communicator_.barrier().wait();
  const auto begin = Clock::now();
  try {
    stream(ring.right, directions_.sends ? bytes : 0, ring.left, directions_.receives ? bytes : 0,
           ring.chunk, begin + patience);
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  } catch (const std::exception& error) {
    trouble_ = error.what();
    ring.right.reset();
    ring.left.reset();
  }
  return maximum_over_ranks(communicator_, seconds);
}

double SocketCeiling::measure(const Row& row) {
  const auto moved = static_cast<std::size_t>(static_cast<double>(row.bytes) *
                                              bus_factor(operation_, communicator_.size()));
  double best = 0;
  for (Ring* const ring : {adapting_.get(), bounded_.get()}) {
    if (!usable_) break;
    const double rate =
        ring->rounds.best(moved, [&](std::size_t bytes) { return round(*ring, bytes); });
    usable_ = rate > 0;
    best = std::max(best, rate);
  }
  if (!usable_ && trouble_.empty()) trouble_ = "another rank lost its neighbours";
  return usable_ ? best * streams_of(operation_, communicator_.size()) : 0;
}

}  // namespace

std::unique_ptr<Ceiling> make_socket_ceiling(Communicator& communicator, const Options& options,
                                             Operation operation) {
  return std::make_unique<SocketCeiling>(communicator, options, operation);
}

}  // namespace rondo::tools
