// SPDX-License-Identifier: Apache-2.0
//
//   message = magic:u32 ("RRDM") notice:u32 value:u64 [setup | text] zero*      (512 bytes)
//   text    = value*u8                          ; notice failed: ASCII characters, none for control
//   setup   = slot_bytes:u32 slots:u32 slots_address:u64 paths:u32 path*
//   path    = queue_pair:u32 first_packet:u32 slots_key:u32 device:u32
//   control = consumed:u64 grants:u64 grant*
//   grant   = frame:u64 address:u64 bytes:u64 key:u32*4
#include "transports/rdma/messages.h"

#include <algorithm>
#include <string_view>

#include "base/bytes.h"

namespace rondo::rdma {
namespace {

constexpr std::uint32_t magic = 0x4d445252;
constexpr std::uint32_t packet_numbers = 1u << 24, queue_pair_numbers = 1u << 24;
constexpr std::uint32_t largest_slot = 64u << 10;

class Cursor {
 public:
  explicit Cursor(std::byte* at) noexcept : at_(at) {}
  template <class T>
  void put(T value) noexcept {
    base::store_little(at_, value);
    at_ += sizeof value;
  }

 private:
  std::byte* at_;
};

bool is_possible(const LinkSetup& setup) noexcept {
  return setup.slots != 0 && setup.slots <= most_slots && setup.slot_bytes >= 4096 &&
         setup.slot_bytes <= largest_slot && setup.slot_bytes % 64 == 0 &&
         std::size_t{setup.slot_bytes} * setup.slots >= 2 * transports::eager_bytes;
}

bool is_visible(char one) noexcept {
  return one >= ' ' && one <= '~';
}

}  // namespace

Message encode(const Told& told) noexcept {
  Message message{};
  Cursor cursor(message.data());
  cursor.put(magic);
  cursor.put(static_cast<std::uint32_t>(told.notice));
  if (told.notice == Notice::failed) {
    constexpr std::size_t most = message_bytes - message_head_bytes;
    constexpr std::string_view cut = "...";
    const std::string_view text = told.text;
    const bool fits = text.size() <= most;
    cursor.put(std::uint64_t{fits ? text.size() : most});
    for (const char one : text.substr(0, fits ? most : most - cut.size()))
      cursor.put(static_cast<std::uint8_t>(is_visible(one) ? one : '?'));
    if (!fits)
      for (const char one : cut) cursor.put(static_cast<std::uint8_t>(one));
    return message;
  }
  cursor.put(told.value);
  if (told.notice != Notice::setup) return message;
  cursor.put(told.setup.slot_bytes);
  cursor.put(told.setup.slots);
  cursor.put(told.setup.slots_address);
  cursor.put(static_cast<std::uint32_t>(told.setup.paths.size()));
  for (const PathSetup& path : told.setup.paths) {
    cursor.put(path.queue_pair);
    cursor.put(path.first_packet);
    cursor.put(path.slots_key);
    cursor.put(path.device);
  }
  return message;
}

std::optional<Told> decode(const Message& message) {
  static_assert(36 + 16 * most_paths <= message_bytes);
  base::Reader reader(message);
  if (reader.get<std::uint32_t>() != magic) return std::nullopt;
  const auto notice = reader.get<std::uint32_t>();
  if (notice < static_cast<std::uint32_t>(Notice::setup) ||
      notice > static_cast<std::uint32_t>(Notice::failed))
    return std::nullopt;
  Told told{static_cast<Notice>(notice), reader.get<std::uint64_t>(), {}};
  if (told.notice == Notice::failed) {
    if (told.value > message_bytes - message_head_bytes) return std::nullopt;
    for (const std::byte one : reader.get_bytes(told.value)) told.text += static_cast<char>(one);
    if (!std::ranges::all_of(told.text, is_visible)) return std::nullopt;
  }
  if (told.notice != Notice::setup) return told;
  LinkSetup& setup = told.setup;
  setup.slot_bytes = reader.get<std::uint32_t>();
  setup.slots = reader.get<std::uint32_t>();
  setup.slots_address = reader.get<std::uint64_t>();
  const auto paths = reader.get<std::uint32_t>();
  if (paths == 0 || paths > most_paths || !is_possible(setup)) return std::nullopt;
  for (std::uint32_t i = 0; i < paths; ++i) {
    PathSetup path;
    path.queue_pair = reader.get<std::uint32_t>();
    path.first_packet = reader.get<std::uint32_t>();
    path.slots_key = reader.get<std::uint32_t>();
    path.device = reader.get<std::uint32_t>();
    if (path.device >= most_devices || path.queue_pair >= queue_pair_numbers ||
        path.first_packet >= packet_numbers)
      return std::nullopt;
    setup.paths.push_back(path);
  }
  return told;
}

std::size_t encode(std::uint64_t consumed, std::span<const Grant> grants,
                   ControlBytes& bytes) noexcept {
  Cursor cursor(bytes.data());
  cursor.put(consumed);
  cursor.put(std::uint64_t{grants.size()});
  for (const Grant& grant : grants) {
    cursor.put(grant.frame);
    cursor.put(grant.address);
    cursor.put(grant.bytes);
    for (const std::uint32_t key : grant.keys) cursor.put(key);
  }
  return control_head_bytes + grants.size() * grant_bytes;
}

std::optional<std::size_t> decode(std::span<const std::byte> bytes, std::uint64_t& consumed,
                                  std::span<Grant, most_grants_at_once> grants) noexcept {
  base::Reader reader(bytes);
  consumed = reader.get<std::uint64_t>();
  const auto count = reader.get<std::uint64_t>();
  if (!reader.ok() || count > most_grants_at_once || reader.left() != count * grant_bytes)
    return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) {
    Grant& grant = grants[i];
    grant.frame = reader.get<std::uint64_t>();
    grant.address = reader.get<std::uint64_t>();
    grant.bytes = reader.get<std::uint64_t>();
    for (std::uint32_t& key : grant.keys) key = reader.get<std::uint32_t>();
  }
  return static_cast<std::size_t>(count);
}

}  // namespace rondo::rdma
