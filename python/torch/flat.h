// SPDX-License-Identifier: Apache-2.0
//
// Tensors of any layout as contiguous memory, in the order of their elements. So ranks agree about
// elements even where their strides differ.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <utility>
#include <vector>

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

// One tensor as contiguous memory: itself where it is contiguous.
class Flat {
 public:
  enum class Use { reads, writes, both };

  Flat() = default;
  Flat(at::Tensor tensor, Use use) : tensor_(std::move(tensor)) {
    check_tensor(tensor_);
    if (tensor_.is_contiguous())
      memory_ = tensor_;
    else if (use == Use::writes)
      memory_ = at::empty_like(tensor_, at::MemoryFormat::Contiguous);
    else
      memory_ = tensor_.contiguous();
    copies_back_ = use != Use::reads && !memory_.is_same(tensor_);
  }

  const at::Tensor& tensor() const noexcept { return tensor_; }
  const at::Tensor& memory() const noexcept { return memory_; }
  bool copies_back() const noexcept { return copies_back_; }
  void copy_back() {
    if (!copies_back_) return;
    tensor_.copy_(memory_);
    keep_for_current_stream(tensor_);
    keep_for_current_stream(memory_);
  }

 private:
  at::Tensor tensor_, memory_;
  bool copies_back_ = false;
};

// Several tensors of one type as blocks that follow each other. Where they do that already, as
// views of one storage, nothing is copied.
class FlatList {
 public:
  FlatList() = default;
  FlatList(Tensors tensors, Flat::Use use) : tensors_(std::move(tensors)) {
    TORCH_CHECK_VALUE(!tensors_.empty(), "rondo: a list of tensors is empty");
    for (const at::Tensor& tensor : tensors_) {
      check_tensor(tensor);
      TORCH_CHECK_VALUE(tensor.scalar_type() == tensors_.front().scalar_type(),
                        "rondo: tensors of one list have different types");
      TORCH_CHECK_VALUE(tensor.device() == tensors_.front().device(),
                        "rondo: tensors of one list are on different devices");
      counts_.push_back(static_cast<std::size_t>(tensor.numel()));
      total_ += tensor.numel();
    }
    if (follow_each_other()) {
      memory_ = tensors_.front().new_empty({0});
      memory_.set_(tensors_.front().storage(), tensors_.front().storage_offset(), {total_}, {1});
      return;
    }
    memory_ = at::empty({total_}, tensors_.front().options());
    if (use == Flat::Use::writes) {
      copies_back_ = true;
      return;
    }
    for_each_block([](at::Tensor& tensor, const at::Tensor& block) { block.copy_(tensor); });
    copies_back_ = use == Flat::Use::both;
  }

  const at::Tensor& memory() const noexcept { return memory_; }
  // Elements of each block, as torch counts them.
  const std::vector<std::size_t>& counts() const noexcept { return counts_; }
  bool even() const noexcept {
    for (const std::size_t count : counts_)
      if (count != counts_.front()) return false;
    return true;
  }
  std::size_t size() const noexcept { return tensors_.size(); }
  bool copies_back() const noexcept { return copies_back_; }
  void copy_back() {
    if (!copies_back_) return;
    for_each_block([](at::Tensor& tensor, const at::Tensor& block) {
      tensor.copy_(block);
      keep_for_current_stream(tensor);
    });
    keep_for_current_stream(memory_);
  }

 private:
  bool follow_each_other() const {
    std::int64_t next = tensors_.front().storage_offset();
    for (const at::Tensor& tensor : tensors_) {
      if (!tensor.is_contiguous() || !tensor.storage().is_alias_of(tensors_.front().storage()) ||
          tensor.storage_offset() != next)
        return false;
      next += tensor.numel();
    }
    return true;
  }
  template <class Function>
  void for_each_block(const Function& function) {
    std::int64_t offset = 0;
    for (at::Tensor& tensor : tensors_) {
      function(tensor, memory_.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
      offset += tensor.numel();
    }
  }

  Tensors tensors_;
  at::Tensor memory_;
  std::vector<std::size_t> counts_;
  std::int64_t total_ = 0;
  bool copies_back_ = false;
};

}  // namespace rondo::python
