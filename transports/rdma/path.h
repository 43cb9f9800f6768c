// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <rondo/error.h>

#include "transports/rdma/address.h"
#include "transports/rdma/devices.h"
#include "transports/rdma/messages.h"

namespace rondo::rdma {

// Why a half of a link has ended.
struct Fault {
  Errc code = Errc::corrupt;
  std::string what;
};

// How long a device tries to reach a silent peer before it gives up.
struct Patience {
  std::uint8_t timeout = 14;  // 4.096 us * 2^timeout for one attempt, four times that in practice
  std::uint8_t attempts = 6;  // 7 would mean "for ever" on some devices
};
// The patience for operations that have `deadline` to finish: a quarter of it, at most 2 s.
Patience patience_for(std::uint64_t deadline_ns) noexcept;

// A work request of a Path keeps these in use until it is complete.
struct Posted {
  int piece = -1;           // of the send pool
  int frame = -1;           // place in the queue of frames whose payload the device still reads
  std::size_t payload = 0;  // bytes
};

// One write to the peer's memory, or one message.
struct Request {
  std::array<ibv_sge, 2> parts{};
  int part_count = 0;
  std::uint64_t address = 0;  // at the peer; unused by a message
  std::uint32_t key = 0;
  enum class Kind { write, write_with_mark, message } kind = Kind::write;
  std::uint32_t mark = 0;
  bool inlined = false;  // the device copies the parts at once
};

// One queue pair. Thread-bound (the driver of the transport), without locks. A failed call throws
// Error(system) before the connection stands; after that post() returns an errno value.
class Path {
 public:
  static constexpr std::uint32_t send_depth = 64;
  static constexpr std::uint32_t receive_depth = 64;
  // Used receives are posted again so many at a time: fewer calls, and fewer doorbells of a device.
  static constexpr std::uint32_t receive_batch = 8;
  static_assert(receive_depth % receive_batch == 0);
  // So many requests stay free for messages when there is no room for pieces.
  static constexpr std::uint32_t reserve = 8;

  // number: of this path among those of the transport; it comes back with every completion. The
  // queue pair is made and initialized.
  Path(Device& device, const Port& port, ibv_cq* completions, std::uint32_t number);
  ~Path() { destroy(); }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  std::uint32_t number() const noexcept { return number_; }
  std::size_t device_index() const noexcept { return port_.device_index; }
  std::size_t most_inline() const noexcept { return most_inline_; }
  PathSetup setup(std::uint32_t slots_key) const noexcept;

  // Memory for messages; empty: this path gets pieces only.
  void post_receives(std::span<std::byte> messages, std::uint32_t key);
  // This receive has completed, and its message was read.
  void receive_again(std::uint32_t index);
  std::span<std::byte> message(std::uint32_t index) const noexcept {
    return messages_.subspan(index * control_bytes, control_bytes);
  }
  // Makes the queue pair ready to receive and to send.
  void connect(const PortAddress& peer, const PathSetup& theirs, Patience patience,
               std::uint8_t service_level, std::uint8_t traffic_class);

  bool has_room(std::uint32_t requests) const noexcept {
    return queue_pair_ != nullptr && send_depth - used() >= requests;
  }
  std::size_t payload_under_way() const noexcept { return payload_under_way_; }
  bool idle() const noexcept { return used() == 0; }
  // An errno value; 0 when the request was taken.
  int post(const Request& request, const Posted& uses);
  // Posts a request whose completion means that all before it are complete.
  int post_flush(std::uint64_t address, std::uint32_t key);
  // All requests up to this one are complete. Calls release(const Posted&) for each.
  template <class Release>
  void complete(std::uint32_t sequence, Release release) {
    while (done_ != posted_ && static_cast<std::int32_t>(sequence - done_) >= 0) {
      const Posted one = uses_[done_++ % send_depth];
      payload_under_way_ -= one.payload;
      release(one);
    }
  }

  // destroy(), and all requests count as complete.
  template <class Release>
  void abandon(Release release) {
    destroy();
    complete(posted_ - 1, release);
  }
  // The device forgets the queue pair: nothing that a peer writes over it lands any more.
  void destroy() noexcept;
  // Both ends of the path, for messages.
  const std::string& route() const noexcept { return route_; }
  const Port& port() const noexcept { return port_; }
  std::uint32_t queue_pair_number() const noexcept { return queue_pair_number_; }

  // In the identity of a work request: the path, whether it is a receive, and its number.
  static constexpr std::uint64_t receive_bit = std::uint64_t{1} << 63;

 private:
  std::uint32_t used() const noexcept { return posted_ - done_; }
  std::uint64_t identity(std::uint32_t sequence) const noexcept {
    return std::uint64_t{number_} << 32 | sequence;
  }
  void create(ibv_cq* completions);
  void initialize();
  void check(int error, const char* what) const;
  int post(ibv_send_wr& request, const Posted& uses);

  Device& device_;
  const Port port_;
  const std::uint32_t number_;
  const std::uint32_t first_packet_;
  ibv_qp* queue_pair_ = nullptr;
  std::uint32_t queue_pair_number_ = 0;
  std::size_t most_inline_ = 0;
  std::uint32_t posted_ = 0, done_ = 0, unsignalled_ = 0;
  std::size_t payload_under_way_ = 0;
  std::array<Posted, send_depth> uses_{};
  std::span<std::byte> messages_;
  std::uint32_t messages_key_ = 0;
  std::array<std::uint32_t, receive_batch> used_receives_{};
  std::size_t used_receive_count_ = 0;
  std::string route_;
  const unsigned generation_ = base::process_generation();
};

}  // namespace rondo::rdma
