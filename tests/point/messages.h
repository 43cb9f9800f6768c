// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/ranks.h"
#include "support/values.h"

namespace rondo::testing {

inline Setup point_setup(Over over, int size) {
  Setup setup;
  setup.over = over;
  setup.size = size;
  return setup;
}

// Bytes that depend on the sender, receiver and number of a message.
inline std::vector<std::uint8_t> content(int from, int to, std::uint64_t number,
                                         std::size_t bytes) {
  std::vector<std::uint8_t> result(bytes);
  std::uint64_t state = mixed(static_cast<std::uint64_t>(from * 1000 + to), number);
  for (std::size_t i = 0; i < bytes; ++i) {
    if (i % 8 == 0) state = state * 6364136223846793005u + 1442695040888963407u;
    result[i] = static_cast<std::uint8_t>(state >> (8 * (i % 8)));
  }
  return result;
}

inline Buffer bytes_of(std::vector<std::uint8_t>& bytes) {
  return {bytes.data(), bytes.size(), DType::u8};
}

inline Transfer send_of(Buffer buffer, int peer, std::uint32_t tag = 0) {
  return {Transfer::Kind::send, buffer, peer, tag};
}
inline Transfer receive_of(Buffer buffer, int peer, std::uint32_t tag = 0) {
  return {Transfer::Kind::receive, buffer, peer, tag};
}

// How a function ended: with an error, or with none.
struct Ended {
  std::error_code code;
  std::string message;
};
template <class Function>
Ended ended(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

}  // namespace rondo::testing
