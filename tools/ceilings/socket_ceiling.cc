// SPDX-License-Identifier: Apache-2.0
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tools/ceilings/rounds.h"
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
  std::array<char, 102> host{};  // ends with a zero
  std::array<std::uint8_t, 2> port{};
  Token token{};
};
static_assert(sizeof(Announcement) == 120 && alignof(Announcement) == 1);

// Plain TCP sockets between these ranks.
class SocketRing final : public Ring {
 public:
  const Announcement& mine() const noexcept { return mine_; }

  void listen(const std::string& address, const Options& options) {
    Endpoint endpoint = parse_endpoint(address);
    if (endpoint.host.size() >= mine_.host.size())
      throw std::runtime_error("address too long: " + endpoint.host);
    listener_ = listen_at(endpoint, options.port_first, options.port_last);
    std::copy(endpoint.host.begin(), endpoint.host.end(), mine_.host.begin());
    mine_.port = {static_cast<std::uint8_t>(endpoint.port),
                  static_cast<std::uint8_t>(endpoint.port >> 8)};
    if (::getrandom(mine_.token.data(), mine_.token.size(), 0) !=
        static_cast<ssize_t>(mine_.token.size()))
      throw std::runtime_error("getrandom gave too few bytes");
  }

  void connect(Announcement neighbour, std::size_t bounded) {
    const auto deadline = Clock::now() + patience;
    const auto port = static_cast<std::uint16_t>(neighbour.port[0] | neighbour.port[1] << 8);
    neighbour.host.back() = 0;
    right_ = connect_to({neighbour.host.data(), port}, deadline);
    send_all(right_, std::as_bytes(std::span(neighbour.token)), deadline);
    left_ = accept_with_token(listener_, std::as_bytes(std::span(mine_.token)), stranger_patience,
                              deadline);
    if (bounded == 0) return;
    bound_buffers(right_, bounded);
    bound_buffers(left_, bounded);
  }

  void move(const Directions& directions, std::size_t bytes, Clock::time_point deadline) override {
    try {
      stream(right_, directions.sends ? bytes : 0, left_, directions.receives ? bytes : 0, chunk_,
             deadline);
    } catch (const std::exception&) {
      right_.reset();
      left_.reset();
      throw;
    }
  }

 private:
  Announcement mine_;
  base::FileDescriptor listener_, right_, left_;
  std::vector<std::byte> chunk_ = std::vector<std::byte>(chunk_bytes);
};

}  // namespace

// Connects at the addresses that the communicator uses: once with socket buffers that the kernel
// adapts (better between hosts), and once with small ones that stay in the cache (better within a
// host).
std::unique_ptr<Ceiling> make_socket_ceiling(Communicator& communicator, const Options& options,
                                             Operation operation) {
  auto ceiling = std::make_unique<RingCeiling>(communicator, options, operation,
                                               "another rank lost its neighbours");
  const auto right = static_cast<std::size_t>(ceiling->directions().right);
  for (const std::size_t bounded : {std::size_t{0}, bounded_bytes}) {
    auto ring = std::make_unique<SocketRing>();
    if (!ceiling->together([&] { ring->listen(communicator.address(), options); })) break;
    const auto all = gather_from_ranks(communicator, ring->mine());
    if (!ceiling->together([&] { ring->connect(all[right], bounded); })) break;
    ceiling->add(std::move(ring));
  }
  return ceiling;
}

}  // namespace rondo::tools
