// SPDX-License-Identifier: Apache-2.0
#include "lib/c/status.h"

#include <rondo/types.h>
#include <rondo/version.h>

#include <algorithm>
#include <array>

namespace rondo::c {

namespace {

// Long messages are cut: a fixed buffer cannot run out of memory.
thread_local std::array<char, 2048> message_text{};

constexpr std::array names = {"ok",
                              "invalid argument",
                              "mismatch",
                              "deadline exceeded",
                              "peer lost",
                              "peer left",
                              "aborted",
                              "rendezvous",
                              "authentication",
                              "corrupt",
                              "unsupported",
                              "system"};
static_assert(static_cast<int>(Errc::invalid_argument) == RONDO_INVALID_ARGUMENT &&
              static_cast<int>(Errc::aborted) == RONDO_ABORTED &&
              static_cast<int>(Errc::system) == RONDO_SYSTEM && names.size() == RONDO_SYSTEM + 1);
static_assert(static_cast<int>(DType::f64) == RONDO_F64 &&
              static_cast<int>(DType::i64) == RONDO_I64 &&
              static_cast<int>(DType::u8) == RONDO_U8 && static_cast<int>(DType::i16) == RONDO_I16);
static_assert(static_cast<int>(ReduceOp::sum) == RONDO_SUM &&
              static_cast<int>(ReduceOp::bit_xor) == RONDO_BIT_XOR);

}  // namespace

rondo_status fail(rondo_status status, std::string_view message) noexcept {
  const std::size_t length = std::min(message.size(), message_text.size() - 1);
  std::copy_n(message.data(), length, message_text.data());
  message_text[length] = '\0';
  return status;
}

rondo_status status_of(const std::error_code& code) noexcept {
  const bool ours = code.category() == error_category();
  return ours ? static_cast<rondo_status>(code.value()) : RONDO_SYSTEM;
}

void write_text(std::string_view what, char* text, std::size_t capacity) {
  require(text, "text");
  if (capacity == 0)
    throw Error(Errc::invalid_argument,
                "capacity is 0: text needs room at least for the final zero");
  const std::size_t length = std::min(what.size(), capacity - 1);
  std::copy_n(what.data(), length, text);
  text[length] = '\0';
}

}  // namespace rondo::c

extern "C" {

const char* rondo_version() {
  return rondo::version().data();
}
const char* rondo_status_name(rondo_status status) {
  const auto index = static_cast<std::size_t>(status);
  return index < rondo::c::names.size() ? rondo::c::names[index] : "unknown";
}
const char* rondo_message() {
  return rondo::c::message_text.data();
}
size_t rondo_size_of(rondo_dtype type) {
  const bool valid = static_cast<unsigned>(type) <= static_cast<unsigned>(RONDO_I16);
  return valid ? rondo::size_of(static_cast<rondo::DType>(type)) : 0;
}
}
