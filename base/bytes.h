// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes fixed-width little-endian integers. Everything that crosses a wire goes through
// here. store_little() and load_little() check no bounds; Reader does. Reentrant.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::base {

// On little-endian processors each is one access: compilers do not always see that in the loops.
template <std::unsigned_integral T>
void store_little(std::byte* to, T value) noexcept {
  if constexpr (std::endian::native == std::endian::little)
    std::memcpy(to, &value, sizeof value);
  else
    for (std::size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

template <std::unsigned_integral T>
T load_little(const std::byte* from) noexcept {
  T value = 0;
  if constexpr (std::endian::native == std::endian::little)
    std::memcpy(&value, from, sizeof value);
  else
    for (std::size_t i = 0; i < sizeof(T); ++i)
      value = static_cast<T>(value | std::to_integer<std::uint64_t>(from[i]) << (8 * i));
  return value;
}

// Appends to a growing message.
class Writer {
 public:
  template <std::unsigned_integral T>
  void put(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  void put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  // A u32 length and the bytes.
  void put_string(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text.data(), text.size())));
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads from untrusted bytes. Past the end every get gives zero or nothing and ok() stays false:
// check it once, at the end.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}
  template <std::unsigned_integral T>
  T get() noexcept {
    const auto part = get_bytes(sizeof(T));
    return part.empty() ? T{0} : load_little<T>(part.data());
  }
  std::span<const std::byte> get_bytes(std::size_t count) noexcept {
    if (!ok_ || count > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const auto part = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return part;
  }
  // A u32 length of at most `limit` and the bytes.
  std::string get_string(std::size_t limit) {
    const std::size_t count = get<std::uint32_t>();
    if (count > limit) ok_ = false;
    const auto part = get_bytes(count);
    return std::string(reinterpret_cast<const char*>(part.data()), part.size());
  }
  bool ok() const noexcept { return ok_; }
  std::size_t left() const noexcept { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace rondo::base
