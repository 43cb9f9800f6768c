// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <rondo/communicator.h>

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "python/torch/element.h"
#include "python/torch/flat.h"
#include "python/torch/group_session.h"

namespace rondo::python {

// The sum of sparse COO tensors over ranks, which have different numbers of values. A collective
// tells all ranks these numbers. Then each rank sends its indices and values to each other rank:
// messages need no common order with the collectives that ranks start meanwhile. All ranks add in
// the order of ranks, so their results are equal. Thread-bound.
class SparseSum {
 public:
  // number: how many of them the rank has started in the group.
  SparseSum(const at::Tensor& tensor, int rank, int size, std::uint32_t number)
      : target_(tensor), rank_(rank), tag_(first_tag + number % first_tag) {
    const at::Tensor own = tensor.coalesce();
    indices_.resize(static_cast<std::size_t>(size));
    values_.resize(static_cast<std::size_t>(size));
    own_indices() = own.indices().contiguous();
    own_values() = own.values().contiguous();
    heads_ = at::empty({size, 2}, at::kLong);
    heads_[rank][0] = own_indices().size(1);
    heads_[rank][1] = shape_hash(tensor);
  }

  Work start(Communicator& communicator, const OpOptions& options) {
    return communicator.all_gather(whole(heads_[rank_]), whole(heads_), options);
  }

  // When start() has ended on this rank. Waits for the other ranks, at most until the time given.
  void finish(GroupSession& session, std::chrono::steady_clock::time_point until) {
    check_shapes();
    OpOptions options;
    options.deadline = std::max(
        std::chrono::milliseconds{1},
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()));
    std::vector<Work> messages;
    session.start([&](Communicator& c) {
      for (int peer = 0; peer < size(); ++peer)
        if (peer != rank_) exchange(c, peer, options, messages);
    });
    session.await_all(messages);
    const at::Tensor sum =
        at::sparse_coo_tensor(at::cat(indices_, 1), at::cat(values_, 0), target_.sizes());
    target_.copy_(sum.coalesce());
  }

 private:
  // Tags of the program are smaller: they are non-negative ints.
  static constexpr std::uint32_t first_tag = std::uint32_t{1} << 31;

  int size() const { return static_cast<int>(indices_.size()); }
  at::Tensor& own_indices() { return indices_[static_cast<std::size_t>(rank_)]; }
  at::Tensor& own_values() { return values_[static_cast<std::size_t>(rank_)]; }

  static std::int64_t shape_hash(const at::Tensor& tensor) {
    std::uint64_t hash = static_cast<std::uint64_t>(tensor.sparse_dim()) * 256 +
                         static_cast<std::uint64_t>(tensor.scalar_type());
    for (const std::int64_t length : tensor.sizes())
      hash = (hash ^ static_cast<std::uint64_t>(length)) * 0x9e3779b97f4a7c15;
    return static_cast<std::int64_t>(hash);
  }
  void check_shapes() {
    const auto heads = heads_.accessor<std::int64_t, 2>();
    for (int rank = 0; rank < size(); ++rank)
      TORCH_CHECK_VALUE(heads[rank][1] == heads[rank_][1],
                        "rondo: sparse all_reduce needs tensors of one shape and type: that of "
                        "rank ",
                        rank, " differs from ", target_.sizes(), " ",
                        c10::toString(target_.scalar_type()), " of rank ", rank_);
  }

  void exchange(Communicator& c, int peer, const OpOptions& options, std::vector<Work>& messages) {
    const auto place = static_cast<std::size_t>(peer);
    const std::int64_t number = heads_[peer][0].item<std::int64_t>();
    auto shape = own_values().sizes().vec();
    shape[0] = number;
    indices_[place] = at::empty({own_indices().size(0), number}, own_indices().options());
    values_[place] = at::empty(shape, own_values().options());
    for (const auto& [own, other] :
         {std::pair{own_indices(), indices_[place]}, std::pair{own_values(), values_[place]}}) {
      if (own_indices().size(1) > 0) messages.push_back(c.send(whole(own), peer, tag_, options));
      if (number > 0) messages.push_back(c.receive(whole(other), peer, tag_, options));
    }
  }

  at::Tensor target_;
  const int rank_;
  const std::uint32_t tag_;
  at::Tensor heads_;          // of each rank: the number of its values, shape_hash
  Tensors indices_, values_;  // of each rank
};

}  // namespace rondo::python
