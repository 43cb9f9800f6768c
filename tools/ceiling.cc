// SPDX-License-Identifier: Apache-2.0
#include "tools/ceiling.h"

#include <sys/random.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "tools/agree.h"
#include "tools/socket.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds patience{10}, stranger_patience{2};
constexpr std::size_t first_bytes = std::size_t{4} << 20, chunk_bytes = std::size_t{256} << 10,
                      bounded_bytes = std::size_t{128} << 10;
constexpr double round_seconds = 0.08;
constexpr int rounds = 4;

using Token = std::array<std::uint8_t, 16>;

// What each rank tells all others, over the communicator: where it listens, and what its left neighbour must show there.
struct Announcement {
  std::uint8_t listens = 0;
  std::array<char, 101> host{};  // ends with a zero
  std::array<std::uint8_t, 2> port{};
  Token token{};
};
static_assert(sizeof(Announcement) == 120 && alignof(Announcement) == 1);

std::vector<Announcement> exchange(Communicator& communicator, const Announcement& mine) {
  std::vector<Announcement> all(static_cast<std::size_t>(communicator.size()));
  const auto rank = static_cast<std::size_t>(communicator.rank());
  all[rank] = mine;
  communicator
      .all_gather(Buffer{&all[rank], sizeof mine, DType::u8, -1},
                  Buffer{all.data(), sizeof mine * all.size(), DType::u8, -1})
      .wait();
  for (Announcement& announcement : all) announcement.host.back() = 0;
  return all;
}

}  // namespace

struct SocketCeiling::Ring {
  Announcement mine;
  Descriptor listener, right, left;
  std::vector<std::byte> chunk = std::vector<std::byte>(chunk_bytes);

  void listen(const std::string& address, const Options& options) {
    Endpoint endpoint = parse_endpoint(address);
    if (endpoint.host.size() >= mine.host.size())
      throw std::runtime_error("address too long: " + endpoint.host);
    listener = listen_at(endpoint, options.port_first, options.port_last);
    std::copy(endpoint.host.begin(), endpoint.host.end(), mine.host.begin());
    mine.port = {static_cast<std::uint8_t>(endpoint.port), static_cast<std::uint8_t>(endpoint.port >> 8)};
    if (::getrandom(mine.token.data(), mine.token.size(), 0) != static_cast<ssize_t>(mine.token.size()))
      throw std::runtime_error("getrandom gave too few bytes");
    mine.listens = 1;
  }

  void close_ring(const Announcement& neighbour, Clock::time_point deadline) {
    const auto port = static_cast<std::uint16_t>(neighbour.port[0] | neighbour.port[1] << 8);
    right = connect_to({neighbour.host.data(), port}, deadline);
    send_all(right, std::as_bytes(std::span(neighbour.token)), deadline);
    left = accept_with_token(listener, std::as_bytes(std::span(mine.token)), stranger_patience, deadline);
  }
};

SocketCeiling::SocketCeiling(Communicator& communicator, const Options& options)
    : communicator_(communicator), adapting_(std::make_unique<Ring>()), bounded_(std::make_unique<Ring>()) {
  if (communicator.size() < 2) return;
  usable_ = connect(*adapting_, options) && connect(*bounded_, options);
  if (!usable_ && trouble_.empty()) trouble_ = "another rank could not connect its neighbours";
  if (!usable_) return;
  bound_buffers(bounded_->right, bounded_bytes);
  bound_buffers(bounded_->left, bounded_bytes);
}

SocketCeiling::~SocketCeiling() = default;

// The same result on all ranks.
bool SocketCeiling::connect(Ring& ring, const Options& options) {
  try {
    ring.listen(communicator_.address(), options);
  } catch (const std::exception& error) {
    trouble_ = error.what();
  }
  const auto all = exchange(communicator_, ring.mine);
  const bool all_listen =
      std::all_of(all.begin(), all.end(), [](const auto& one) { return one.listens != 0; });
  try {
    const auto right = static_cast<std::size_t>((communicator_.rank() + 1) % communicator_.size());
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
    stream(ring.right, ring.left, bytes, ring.chunk, begin + patience);
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  } catch (const std::exception& error) {
    trouble_ = error.what();
    ring.right.close();
    ring.left.close();
  }
  return maximum_over_ranks(communicator_, seconds);
}

double SocketCeiling::measure(Ring& ring) {
  std::size_t bytes = first_bytes;
  double best = 0;
  for (int i = 0; i < rounds && usable_; ++i) {
    const double seconds = round(ring, bytes);
    usable_ = std::isfinite(seconds);
    best = std::max(best, static_cast<double>(bytes) / seconds / 1e9);
    bytes = static_cast<std::size_t>(std::clamp(best * 1e9 * round_seconds, 65536.0, 1e9));
  }
  return best;
}

double SocketCeiling::measure() {
  const double adapting = measure(*adapting_), bounded = measure(*bounded_);  // in this order on every rank
  if (!usable_ && trouble_.empty()) trouble_ = "another rank lost its neighbours";
  return usable_ ? std::max(adapting, bounded) : 0;
}

}  // namespace rondo::tools
