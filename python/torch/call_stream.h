// SPDX-License-Identifier: Apache-2.0
//
// Orders a call on a GPU, in torch's terms. Nothing here needs CUDA: the streams and events
// are those of torch's device guard, which is there where torch has CUDA.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <vector>

#include "python/torch/flat.h"

namespace rondo::python {

// The stream on which the caller of an operation works: the current one of its GPU. Empty where the
// tensors are in host memory.
class CallStream {
 public:
  CallStream() = default;
  // Throws ValueError if the tensors are on several devices.
  CallStream(const Tensors& inputs, const Tensors& outputs) {
    const at::Tensor* first = nullptr;
    for (const Tensors* const list : {&inputs, &outputs})
      for (const at::Tensor& tensor : *list) {
        if (first == nullptr) first = &tensor;
        TORCH_CHECK_VALUE(tensor.device() == first->device(), "rondo: one tensor of a call is on ",
                          first->device(), " and another on ", tensor.device(),
                          ": move them to one device");
      }
    if (first != nullptr && first->is_cuda()) stream_ = current(first->device());
  }

  explicit operator bool() const noexcept { return stream_.has_value(); }
  // The CUstream: for OpOptions::stream.
  void* handle() const { return stream_ ? stream_->native_handle() : nullptr; }
  // The GPU, for a future whose values are there.
  std::vector<c10::Device> devices() const {
    return stream_ ? std::vector<c10::Device>{stream_->device()} : std::vector<c10::Device>{};
  }
  // A stream for what follows the operations, which have ended. It is not the caller's: who waits
  // for it must not wait for what the caller has enqueued meanwhile.
  std::optional<c10::Stream> side() const {
    if (!stream_) return std::nullopt;
    return guard_of(stream_->device()).getStreamFromGlobalPool(stream_->device());
  }

  static c10::impl::VirtualGuardImpl guard_of(c10::Device device) {
    return c10::impl::VirtualGuardImpl(device.type());
  }
  static c10::Stream current(c10::Device device) { return guard_of(device).getStream(device); }

 private:
  std::optional<c10::Stream> stream_;
};

// Returns what comes after all that is enqueued on the stream now. Empty without a stream.
inline std::optional<c10::Event> mark_of(const std::optional<c10::Stream>& stream) {
  if (!stream) return std::nullopt;
  c10::Event event(stream->device_type());
  event.record(*stream);
  return event;
}

}  // namespace rondo::python
