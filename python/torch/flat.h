// SPDX-License-Identifier: Apache-2.0
//
// Tensors of any layout as contiguous memory, in the order of their elements. So ranks agree about
// elements even where their strides differ.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "python/torch/element.h"

namespace rondo::python {

using Tensors = std::vector<at::Tensor>;

// Tells torch's allocator that the current stream uses the memory of a tensor on a GPU, which may
// be of another stream.
inline void keep_for_current_stream(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return;
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(tensor.device()));
}

// Refuses what no operation takes.
inline void check_tensor(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "rondo: a tensor is undefined");
  TORCH_CHECK_VALUE(tensor.is_cpu() || tensor.is_cuda(), "rondo: a tensor is on ", tensor.device(),
                    ": Rondo moves tensors in host memory and on CUDA GPUs");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided,
                    "rondo: a tensor is sparse: only all_reduce takes sparse tensors");
}
inline const at::Tensor& only_one(const Tensors& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "rondo: the call needs one tensor and got ",
                    tensors.size());
  check_tensor(tensors.front());
  return tensors.front();
}

// Contiguous memory for one tensor, or for several of one type as blocks that follow each other.
// Where they lie so already, it is their own and nothing is copied.
class Flat {
 public:
  enum class Use { reads, writes, both };

  Flat() = default;
  Flat(const at::Tensor& tensor, Use use) {
    check_tensor(tensor);
    if (tensor.is_contiguous())
      memory_ = tensor;
    else
      copy({tensor}, use);
  }
  Flat(const Tensors& blocks, Use use) {
    TORCH_CHECK_VALUE(!blocks.empty(), "rondo: a list of tensors is empty");
    for (const at::Tensor& block : blocks) {
      check_tensor(block);
      TORCH_CHECK_VALUE(block.scalar_type() == blocks.front().scalar_type(),
                        "rondo: tensors of one list have different types");
      TORCH_CHECK_VALUE(block.device() == blocks.front().device(),
                        "rondo: tensors of one list are on different devices");
      counts_.push_back(block.nbytes() / size_of(moved_type(block)));
    }
    if (follow_each_other(blocks)) {
      memory_ = blocks.front().new_empty({0});
      memory_.set_(blocks.front().storage(), blocks.front().storage_offset(), {total(blocks)}, {1});
    } else {
      copy(blocks, use);
    }
  }

  const at::Tensor& memory() const noexcept { return memory_; }
  Buffer buffer() const { return memory_.defined() ? whole(memory_) : Buffer{}; }
  // Elements of each block, as Rondo counts them.
  const std::vector<std::size_t>& counts() const noexcept { return counts_; }
  bool even() const noexcept {
    return std::ranges::all_of(counts_, [&](std::size_t one) { return one == counts_.front(); });
  }
  bool copies_back() const noexcept { return !copied_to_.empty(); }
  // Writes what came into the memory to the tensors.
  void copy_back() {
    if (!copies_back()) return;
    for_each(copied_to_, [](at::Tensor& tensor, const at::Tensor& block) {
      tensor.copy_(block);
      keep_for_current_stream(tensor);
    });
    keep_for_current_stream(memory_);
  }

 private:
  void copy(Tensors blocks, Use use) {
    memory_ = at::empty({total(blocks)}, blocks.front().options());
    if (use != Use::writes)
      for_each(blocks, [](at::Tensor& tensor, const at::Tensor& block) { block.copy_(tensor); });
    if (use != Use::reads) copied_to_ = std::move(blocks);
  }
  // Calls function(tensor, its part of the memory).
  template <class Function>
  void for_each(Tensors& tensors, const Function& function) {
    std::int64_t offset = 0;
    for (at::Tensor& tensor : tensors) {
      function(tensor, memory_.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
      offset += tensor.numel();
    }
  }
  static std::int64_t total(const Tensors& tensors) {
    std::int64_t sum = 0;
    for (const at::Tensor& tensor : tensors) sum += tensor.numel();
    return sum;
  }
  static bool follow_each_other(const Tensors& tensors) {
    std::int64_t next = tensors.front().storage_offset();
    for (const at::Tensor& tensor : tensors) {
      if (!tensor.is_contiguous() || !tensor.storage().is_alias_of(tensors.front().storage()) ||
          tensor.storage_offset() != next)
        return false;
      next += tensor.numel();
    }
    return true;
  }

  at::Tensor memory_;
  std::vector<std::size_t> counts_;
  Tensors copied_to_;
};

// The memory of one operation of Rondo, and its reduction. A call of torch may be several
// operations.
struct Operands {
  Flat in{}, out{};
  Reduction how{};
};

}  // namespace rondo::python
