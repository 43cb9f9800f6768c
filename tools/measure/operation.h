// SPDX-License-Identifier: Apache-2.0
//
// The operations that rondo bench can measure: collectives, and messages between ranks; what each
// rank does in the latter, and how many bytes an operation has to move.
#pragma once

#include <rondo/types.h>

#include <cstdint>
#include <string_view>

#include "base/traits.h"

namespace rondo::tools {

// A row for each form of sendrecv, in the form of the collectives' table.
inline constexpr base::Traits sendrecv_traits{
    .operation = Collective::send, .name = "sendrecv", .messages = true};
inline constexpr base::Traits one_way_traits{
    .operation = Collective::send, .name = "sendrecv_one_way", .messages = true};
inline constexpr base::Traits latency_traits{
    .operation = Collective::send, .name = "latency", .messages = true};
inline constexpr base::Traits bandwidth_traits{
    .operation = Collective::send, .name = "bandwidth", .messages = true};
inline constexpr base::Traits bibandwidth_traits{
    .operation = Collective::send, .name = "bibandwidth", .messages = true};
inline constexpr base::Traits rate_traits{
    .operation = Collective::send, .name = "rate", .messages = true};

// One operation of the bench. A collective converts to it by itself.
class Operation {
 public:
  constexpr Operation(Collective collective) noexcept : traits_(&base::traits_of(collective)) {}
  // Every rank sends to the next rank and receives from the previous one, at once.
  static constexpr Operation sendrecv() noexcept { return Operation(sendrecv_traits); }
  // Rank 0 sends to rank 1, and there are no others.
  static constexpr Operation one_way() noexcept { return Operation(one_way_traits); }

  // The round trip of one message between rank 0 and rank 1, a window of messages from rank 0 to
  // rank 1, one in each direction at once, and one from each rank of the first half to its partner
  // in the second (Role).
  static constexpr Operation latency() noexcept { return Operation(latency_traits); }
  static constexpr Operation bandwidth() noexcept { return Operation(bandwidth_traits); }
  static constexpr Operation bibandwidth() noexcept { return Operation(bibandwidth_traits); }
  static constexpr Operation rate() noexcept { return Operation(rate_traits); }

  constexpr const base::Traits& traits() const noexcept { return *traits_; }
  constexpr bool messages() const noexcept { return traits_->messages; }
  // Messages between the two ranks of a pair, rather than a call of all ranks.
  constexpr bool between_pairs() const noexcept {
    return traits_->messages && traits_ != &sendrecv_traits;
  }
  // An iteration has a window of messages.
  constexpr bool windowed() const noexcept { return between_pairs() && traits_ != &latency_traits; }
  // The time of a row is that of a whole call or message, not a share of a window.
  constexpr bool has_latency() const noexcept { return !windowed() || traits_ == &one_way_traits; }
  // One message at a time uses no link fully, and a barrier has no bytes.
  constexpr bool has_bandwidth() const noexcept {
    return traits_ != &latency_traits && traits_->operation != Collective::barrier;
  }
  // A message cannot be received into the memory from which it is sent, and a barrier has none.
  constexpr bool has_in_place() const noexcept {
    return !traits_->messages && traits_->operation != Collective::barrier;
  }
  friend constexpr bool operator==(const Operation&, const Operation&) noexcept = default;

 private:
  constexpr explicit Operation(const base::Traits& traits) noexcept : traits_(&traits) {}

  const base::Traits* traits_;
};

constexpr std::string_view name_of(const Operation& operation) noexcept {
  return operation.traits().name;
}

// The arguments of a measured operation, apart from its buffers.
struct Variant {
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
};

// The part of one rank in the messages of a window. A rank that sends times the iteration.
struct Role {
  int peer = 0;
  bool sends = true, receives = true;
};

// Rank i of the first half has rank i + ranks / 2 as its peer. The first half sends, and the second
// one receives; in bibandwidth both do both. The number of ranks is even.
constexpr Role role_of(const Operation& operation, int rank, int ranks) noexcept {
  const int half = ranks / 2;
  const bool first = rank < half, both = operation == Operation::bibandwidth();
  return {first ? rank + half : rank - half, both || first, both || !first};
}

// How many messages pass in the time of one: 2 in bibandwidth, one for each pair in rate, otherwise
// 1. The bandwidth of a row is that of all of them together.
constexpr double streams_of(const Operation& operation, int ranks) noexcept {
  if (operation == Operation::bibandwidth()) return 2;
  return operation == Operation::rate() ? ranks / 2 : 1;
}

// Bytes that all ranks together must load and store in an operation over shared memory, whatever
// the algorithm. A copy is loaded once for each receiver, the input of a reduction once, and each
// output is stored once. What an algorithm moves beyond that, into slots and out of them, does not
// count. For messages between pairs it is that of one message in each stream (Role). `bytes` is
// the size of the larger buffer. Returns 0 for a barrier.
double traffic_of(Operation operation, int ranks, std::uint64_t bytes, bool in_place);

// Bus bandwidth over algorithm bandwidth: what crosses the busiest link of an optimal algorithm, as
// nccl-tests counts it.
double bus_factor(Operation operation, int ranks);

}  // namespace rondo::tools
