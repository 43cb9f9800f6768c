// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/copy.h"
#include "base/event.h"
#include "base/mix.h"
#include "base/mutex.h"
#include "transports/assembler.h"
#include "transports/mem/mem.h"
#include "transports/transport.h"

namespace rondo::mem {

// Wakes one rank. The sleeper says that it is about to sleep and then looks once more for work; the
// others do their work and then look whether it sleeps. All of it is sequentially consistent, so
// one of the two sees the other: no wake-up is lost. A system call is made only for a rank that
// sleeps.
class MemBell {
 public:
  MemBell();  // Throws Error(system).
  int descriptor() const noexcept { return event_.descriptor(); }
  // The sleeper's side.
  void lie_down() noexcept {
    lying_ = true;
    asleep_.store(true);
  }
  // Clears the event in any case. A ring that is under way may still come after this: it wakes the
  // next sleep once for nothing.
  void get_up() noexcept {
    if (!std::exchange(lying_, false)) return;
    asleep_.store(false);
    event_.clear();
  }
  // Everybody else's. Nothing is written to what all share when nobody sleeps.
  void ring() noexcept {
    if (asleep_.load() && asleep_.exchange(false)) event_.set();
  }

 private:
  base::Event event_;
  std::atomic<bool> asleep_{false};
  bool lying_ = false;  // the sleeper's own
};

// Bytes in flight: at most `capacity` that were written and not read yet. One thread writes and one
// reads. The counters run on for ever; a byte's place is its number modulo the capacity. They are
// sequentially consistent because sleeping depends on it.
class MemRing {
 public:
  explicit MemRing(std::size_t capacity) noexcept : capacity_(capacity) {}

  // The writer's side. Takes what fits and says how much that was.
  std::size_t write(std::span<const std::byte> bytes) {
    if (!bytes_) bytes_ = std::make_unique<std::byte[]>(capacity_);
    const std::size_t count = std::min(bytes.size(), room());
    const std::uint64_t written = written_.load();
    const std::size_t place = written % capacity_, first = std::min(count, capacity_ - place);
    base::copy_bytes(bytes_.get() + place, bytes.data(), first);
    base::copy_bytes(bytes_.get(), bytes.data() + first, count - first);
    written_.store(written + count);
    return count;
  }
  std::size_t room() const noexcept {
    return capacity_ - static_cast<std::size_t>(written_.load() - read_.load());
  }

  // The reader's side. The view stays good until its bytes are consumed.
  std::span<const std::byte> view() const noexcept {
    const std::uint64_t read = read_.load();
    const auto count = static_cast<std::size_t>(written_.load() - read);
    const std::size_t place = read % capacity_;
    return {count == 0 ? nullptr : bytes_.get() + place, std::min(count, capacity_ - place)};
  }
  void consume(std::size_t count) noexcept { read_.store(read_.load() + count); }
  std::uint64_t position() const noexcept { return read_.load(); }  // of the next byte to read

 private:
  std::size_t capacity_;
  // Made at the first write: most links of a large job are never used.
  std::unique_ptr<std::byte[]> bytes_;
  std::atomic<std::uint64_t> written_{0}, read_{0};
};

// One direction of a link.
struct MemRoute {
  // Memory that the receiver has granted for the payload of one frame. The sender writes it by
  // itself, as an RDMA writer does: at a time of its own, in any order, and before the header has
  // come.
  struct Grant {
    std::uint64_t frame = 0;
    std::span<std::byte> destination;
    bool written = false;
  };
  enum Purpose : std::uint64_t { delay, stall, coin, piece, late };

  // Draws what goes wrong: 0 to `most`, nearly even. It is a pure function of the seed, the route
  // and the arguments, so it does not matter when or how often it is asked for.
  std::uint64_t roll(Purpose purpose, std::uint64_t index, std::uint64_t most) const noexcept;
  // The grant for this frame; null: there is none.
  Grant* grant_for(std::uint64_t frame) RONDO_REQUIRES(mutex) {
    const auto found = std::ranges::find(grants, frame, &Grant::frame);
    return found == grants.end() ? nullptr : &*found;
  }

  const int from, to;
  const transports::Lane lane;
  const MemFaults& faults;
  const std::uint64_t seed;
  MemBell &writer, &reader;
  MemRing ring{faults.capacity};
  std::atomic<bool> held{false};         // nothing arrives
  std::atomic<bool> room_wanted{false};  // by the writer
  // Held during the copy of a payload: once the receiver has closed this, no write is under way.
  base::Mutex mutex{};
  std::vector<Grant> grants RONDO_GUARDED_BY(mutex){};
  bool closed RONDO_GUARDED_BY(mutex) = false;  // nothing more is granted
};

// Holds what the two ends of a link share.
struct MemPipe {
  enum State : int { open, closed, cut };
  static constexpr std::uint64_t not_cut = UINT64_MAX;

  MemRoute& from(int rank) noexcept { return upwards.from == rank ? upwards : downwards; }
  // The first end counts.
  void end(State how) noexcept {
    int expected = open;
    state.compare_exchange_strong(expected, how);
  }

  MemRoute upwards, downwards;  // from the lower rank to the higher, and back
  std::atomic<int> state{open};
  std::atomic<std::uint64_t> cut_after{not_cut};  // bytes, for the message
};

// One end of a link. It sends from a short queue of frames, the first of which may be partly in the
// ring. It receives one frame after the other, as Assembler says.
class MemLink final : public transports::Link {
 public:
  MemLink(int rank, int peer, transports::Lane lane, const transports::Sinks& sinks, MemPipe& pipe);
  ~MemLink() override;  // closes in order

  transports::Send send(const transports::HeaderBytes& header,
                        std::span<const std::byte> payload) override;
  // Moves what can be moved, a bounded number of bytes. True when anything moved.
  bool progress();
  // Whether progress() has something to do. Asked after the bell has been told that this rank lies
  // down.
  bool ready() const noexcept;
  // Nothing moves any more, the peer writes to no memory that was granted, and the sink hears no
  // more of this link.
  void halt() noexcept;

 private:
  struct Frame {
    transports::HeaderBytes header;
    std::span<const std::byte> payload;
    std::uint64_t number = 0;
    std::vector<std::byte> own{};  // the payload, where it is not borrowed
    std::size_t moved = 0;         // header bytes included
    // The payload goes straight to the memory that the receiver has granted, after so many progress
    // calls; the header waits until it is there.
    std::optional<std::uint64_t> late{};
    std::size_t bytes() const noexcept { return header.size() + payload.size(); }
    void own_payload();
  };

  // Sending.
  bool is_open() const noexcept { return pipe_.state.load() == MemPipe::open; }
  transports::Send refuse(std::size_t room_needed);
  transports::Send enqueue(Frame frame);
  bool is_granted(std::size_t payload_bytes);
  bool write_granted();
  bool send_queued();
  bool may_try_again() const noexcept;
  bool ready_to_send() const noexcept;
  bool stalls();
  void flip_bit(Frame& frame);
  bool push(Frame& frame);
  void write(Frame& frame, std::span<const std::byte> bytes);
  void cut_if_due(bool frame_ends) noexcept;
  // Receiving.
  bool receive();
  bool receive_step();
  void grant_ahead();
  bool collect_header();
  void show();
  void end_grant();
  bool show_again();
  bool deliver();
  void finish();
  std::span<const std::byte> piece(std::size_t most) const noexcept;
  void consume(std::size_t count) noexcept;
  bool stuck() const noexcept { return frames_.held() || frames_.closed(); }
  // The end.
  bool over() const noexcept;
  void break_off(std::error_code code, std::string_view what, bool clean);

  MemPipe& pipe_;
  MemRoute &out_, &in_;
  bool broken_ = false;

  std::optional<MemFaults::Cut> cut_;
  std::vector<MemFaults::Flip> flips_;  // still to come
  std::vector<Frame> queue_;            // never grows beyond what was reserved
  std::uint64_t taken_ = 0;             // frames: the number of the next
  std::uint64_t written_ = 0;           // bytes
  std::uint64_t stall_drawn_ = 0;       // frames for which a stall has been drawn
  std::uint64_t stall_ = 0;             // progress calls for which nothing moves
  bool refusing_ = false;               // ... and nothing is taken over either
  // Full was answered, and it has not been shown since that there is room: in the ring, with
  // nothing queued before it; 0: a place in the queue.
  std::optional<std::size_t> refused_;

  transports::Assembler frames_;
  std::size_t budget_ = 0;         // bytes that this progress() may still deliver
  std::uint64_t frame_ = 0;        // number of the frame being received
  std::uint64_t delay_drawn_ = 0;  // frames for which a delay has been drawn
  std::uint64_t delay_ = 0;        // progress calls for which the frame is not seen
  bool broken_promise_ = false;    // of the sink: a frame is not taken where it was granted
};

}  // namespace rondo::mem
