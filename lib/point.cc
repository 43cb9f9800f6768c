// SPDX-License-Identifier: Apache-2.0
//
// The calls that move messages between two ranks: their arguments are checked here, and turned into
// transfers.
#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "lib/state.h"

namespace rondo::lib {

namespace {

constexpr std::size_t most_elements = std::size_t{1} << 50;

struct Caller {
  std::string_view name;
  int rank, size;

  [[noreturn]] void refuse(std::string_view what, Errc code = Errc::invalid_argument) const {
    throw Error(code, fmt::format("{} on rank {}: {}", name, rank, what));
  }
  void check(const Buffer& b) const {
    if (!is_valid(b.type))
      refuse(fmt::format("type is {}, not a DType (0 to {})", static_cast<int>(b.type),
                         moved_dtype_count - 1));
    if (b.device >= 0)
      refuse(
          fmt::format(
              "device is {}: this build moves host memory only; copy to the host or pass device -1",
              b.device),
          Errc::unsupported);
    if (b.count > most_elements)
      refuse(fmt::format("count is {}, more than memory can hold", b.count));
    if (b.data == nullptr && b.count != 0)
      refuse(fmt::format("data is null but count is {}: pass memory or a count of 0", b.count));
  }
  void check(const OpOptions& options) const {
    if (options.scale) refuse("a scale factor applies to reductions only");
    if (options.deadline.count() < 0)
      refuse(
          fmt::format("the deadline is {} ms, it must be more than 0, or 0 for Options::deadline",
                      options.deadline.count()));
  }
  void check_peer(int peer) const {
    if (peer < 0 || peer >= size)
      refuse(fmt::format("the peer is {}, it must be from 0 to {}", peer, size - 1));
  }
};

point::PointTransfer transfer_of(bool sending, const Buffer& b, int peer, point::PointKey key) {
  return {sending, peer, key, b.type, b.count, static_cast<std::byte*>(b.data)};
}

// Where each rank's part of a buffer begins is the sum of the counts before it.
void check_parts(const Caller& caller, const Buffer& b, std::span<const std::size_t> counts,
                 std::string_view name) {
  if (counts.size() != static_cast<std::size_t>(caller.size))
    caller.refuse(fmt::format("{} counts has {} entries, there are {} ranks", name, counts.size(),
                              caller.size));
  std::size_t total = 0;
  for (const std::size_t count : counts) {
    if (count > most_elements || total > most_elements)
      caller.refuse("more elements than memory can hold");
    total += count;
  }
  if (total != b.count)
    caller.refuse(fmt::format("the {} counts add up to {}, the buffer has {} elements", name, total,
                              b.count));
}

}  // namespace

Work CommunicatorState::start_transfers(const point::PointShape& shape, const OpOptions& options) {
  refuse_child();
  point::PointCall call{transfers_, shape, {}, options.tag};
  call.time_limit = std::min(options.deadline.count() > 0 ? options.deadline : options_.deadline,
                             longest_deadline);
  return Work(engine_->start(call));
}

Work CommunicatorState::start_transfer(bool sending, const Buffer& buffer, int peer,
                                       std::uint32_t tag, const OpOptions& options) {
  const Caller caller{sending ? "send" : "receive", place_.rank, place_.size};
  caller.check(buffer);
  caller.check_peer(peer);
  caller.check(options);
  transfers_.assign(1, transfer_of(sending, buffer, peer, {tag, 0}));
  return start_transfers({sending ? Collective::send : Collective::receive, false, peer, tag, 1,
                          buffer.count * size_of(buffer.type)},
                         options);
}

Work CommunicatorState::start_batch(std::span<const Transfer> batch, const OpOptions& options) {
  const Caller caller{"batch", place_.rank, place_.size};
  caller.check(options);
  transfers_.clear();
  point::PointShape shape{Collective::send, true, 0, 0, batch.size(), 0};
  for (const Transfer& t : batch) {
    caller.check(t.buffer);
    caller.check_peer(t.peer);
    if (t.kind != Transfer::Kind::send && t.kind != Transfer::Kind::receive)
      caller.refuse("a transfer is neither a send nor a receive");
    shape.bytes += t.buffer.count * size_of(t.buffer.type);
    transfers_.push_back(transfer_of(t.kind == Transfer::Kind::send, t.buffer, t.peer, {t.tag, 0}));
  }
  return transfers_.empty() ? Work() : start_transfers(shape, options);
}

Work CommunicatorState::start_all_to_all_v(const Buffer& in,
                                           std::span<const std::size_t> send_counts,
                                           const Buffer& out,
                                           std::span<const std::size_t> receive_counts,
                                           const OpOptions& options) {
  const Caller caller{"all_to_all_v", place_.rank, place_.size};
  caller.check(in);
  caller.check(out);
  caller.check(options);
  check_parts(caller, in, send_counts, "send");
  check_parts(caller, out, receive_counts, "receive");
  if (in.type != out.type)
    caller.refuse(fmt::format("in is {} and out is {}: both must have one type", name_of(in.type),
                              name_of(out.type)));
  const std::size_t element = size_of(in.type);
  const auto* const from = static_cast<std::byte*>(in.data);
  const auto* const to = static_cast<std::byte*>(out.data);
  if (in.count != 0 && out.count != 0 && from < to + out.count * element &&
      to < from + in.count * element)
    caller.refuse("in and out overlap: in place is not possible");
  transfers_.clear();
  std::size_t sent = 0, received = 0;
  for (int peer = 0; peer < place_.size; ++peer) {
    const std::size_t out_count = send_counts[static_cast<std::size_t>(peer)];
    const std::size_t in_count = receive_counts[static_cast<std::size_t>(peer)];
    const Buffer give{static_cast<std::byte*>(in.data) + sent * element, out_count, in.type};
    const Buffer take{static_cast<std::byte*>(out.data) + received * element, in_count, out.type};
    transfers_.push_back(transfer_of(true, give, peer, {0, 1}));
    transfers_.push_back(transfer_of(false, take, peer, {0, 1}));
    sent += out_count;
    received += in_count;
  }
  return start_transfers(
      {Collective::all_to_all_v, false, 0, 0, transfers_.size(), (sent + received) * element},
      options);
}

}  // namespace rondo::lib
