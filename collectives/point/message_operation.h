// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "collectives/operation/operation.h"
#include "collectives/point/call.h"

namespace rondo::point {

// A send, a receive, a batch of them, or all_to_all_v. Each rank numbers its own: other ranks start
// other messages. Threads: see operation::Operation.
class MessageOperation final : public operation::Operation {
 public:
  using Operation::Operation;

  // Keeps the transfers for an operation that begins later. Comes before start(), because it can
  // throw std::bad_alloc.
  void keep(std::span<const PointTransfer> transfers) {
    kept_.assign(transfers.begin(), transfers.end());
  }
  std::span<const PointTransfer> kept() const noexcept { return kept_; }
  void start(const PointCall& call, std::uint64_t its_number);

  // A later call does not wait for the memory of messages: the caller sees to that.
  bool conflicts(std::span<const std::byte>, std::span<const std::byte>) const noexcept override {
    return false;
  }
  // "send #12 (8 f32 to rank 1, tag 7 over tcp)"
  std::string describe(std::string_view transport) const override;
  void outline(operation::Record& record) const noexcept override;
  int source() const noexcept override { return source_; }
  // The rank that a single message comes from or goes to; any_rank for other calls.
  int only_peer() const noexcept {
    return shape_.transfers == 1 && !shape_.batch ? shape_.peer : any_rank;
  }
  // A receive of this call has ended. Its message came from this rank.
  void received_from(int rank) noexcept {
    if (shape_.operation == Collective::receive) source_ = rank;
  }

  std::size_t transfers_left = 0;

 private:
  PointShape shape_;
  DType type_ = DType::u8;   // of the first transfer
  std::uint64_t count_ = 0;  // likewise
  int source_ = -1;
  std::vector<PointTransfer> kept_;
};

// "send #5 (10 f32 to rank 1, tag 7)", "receive #6 (10 f32 from any rank, tag 7)"
std::string describe_transfer(bool sending, std::uint64_t number, std::uint64_t count, DType type,
                              int peer, const PointKey& key);

// Fills in the record of a send that has ended without an operation.
void record_sent(const PointCall& call, std::uint64_t number, base::TimePoint now,
                 operation::Record& record) noexcept;

}  // namespace rondo::point
