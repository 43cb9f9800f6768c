// SPDX-License-Identifier: Apache-2.0
#include "tools/ranks/socket.h"

#include <array>
#include <stdexcept>

#include "catch.h"

using namespace rondo::tools;

namespace {

using Clock = std::chrono::steady_clock;
using Token = std::array<std::byte, 16>;

constexpr std::chrono::milliseconds patience{100};

Token token_of(unsigned char value) {
  Token token;
  token.fill(std::byte{value});
  return token;
}

}  // namespace

TEST_CASE("strangers that connect first do not keep the neighbour out") {
  Endpoint endpoint{"127.0.0.1", 0};
  const rondo::base::FileDescriptor listener = listen_at(endpoint, 0, 0);
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  connect_to(endpoint, deadline).reset();
  const rondo::base::FileDescriptor silent = connect_to(endpoint, deadline),
                                    wrong = connect_to(endpoint, deadline),
                                    right = connect_to(endpoint, deadline);
  send_all(wrong, token_of(1), deadline);
  send_all(right, token_of(2), deadline);
  send_all(right, token_of(3), deadline);

  const rondo::base::FileDescriptor accepted =
      accept_with_token(listener, token_of(2), patience, deadline);
  Token next{};
  receive_all(accepted, next, deadline);
  CHECK(next == token_of(3));
}

TEST_CASE("without the neighbour accepting ends at its deadline") {
  Endpoint endpoint{"127.0.0.1", 0};
  const rondo::base::FileDescriptor listener = listen_at(endpoint, 0, 0);
  const rondo::base::FileDescriptor silent =
      connect_to(endpoint, Clock::now() + std::chrono::seconds(30));
  const auto deadline = Clock::now() + std::chrono::milliseconds(200);
  CHECK_THROWS_AS(accept_with_token(listener, token_of(2), std::chrono::seconds(60), deadline),
                  std::runtime_error);
  CHECK(Clock::now() >= deadline);
}
