// SPDX-License-Identifier: Apache-2.0
//
// What orders a call on a GPU, in torch's terms. Nothing here needs CUDA: the streams and events
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
  // For a future whose values are there.
  std::vector<c10::Device> devices() const {
    return stream_ ? std::vector<c10::Device>{stream_->device()} : std::vector<c10::Device>{};
  }
  // While it lives, this thread enqueues on the stream.
  c10::OptionalStreamGuard guard() const { return c10::OptionalStreamGuard(stream_); }
  // What comes after all that is enqueued on the stream now. Empty without a stream.
  std::optional<c10::Event> mark() const {
    if (!stream_) return std::nullopt;
    c10::Event event(stream_->device_type());
    event.record(*stream_);
    return event;
  }
  // Makes this thread's current stream wait for the event, which is of this stream.
  void join(const std::optional<c10::Event>& event) const {
    if (!event) return;
    const c10::Stream own = current(stream_->device());
    if (own != *stream_) event->block(own);
  }

 private:
  static c10::Stream current(c10::Device device) {
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }

  std::optional<c10::Stream> stream_;
};

}  // namespace rondo::python
