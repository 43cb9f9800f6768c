// SPDX-License-Identifier: Apache-2.0
//
// Tensors and arrays in memory of a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "bn/reference.h"
#include "gpu/gpu_ranks.h"
#include "support/fake_kernels.h"

namespace rondo::testing {

// Ranks whose GPUs run the kernels of Rondo.
inline Setup setup_of(int size, Over over = Over::mem) {
  if (FakeCuda::needs_kernels()) register_device_kernels(FakeCuda());
  Setup setup;
  setup.size = size;
  setup.over = over;
  return setup;
}

// A tensor in memory of a GPU, `shift` bytes behind an address that is a multiple of 256.
class GpuTensor {
 public:
  GpuTensor(OnGpu& on, Tensor tensor, std::size_t shift = 0)
      : on_(&on),
        tensor_(std::move(tensor)),
        shift_(shift),
        memory_(on.gpu(), tensor_.bytes().size() + shift + 1) {
    store();
  }
  Activations view() noexcept {
    Activations view = tensor_.view();
    view.data = reinterpret_cast<void*>(memory_.address() + shift_);
    return view;
  }
  void set(Tensor tensor) {
    tensor_ = std::move(tensor);
    store();
  }
  // Waits for nothing: the caller has settled the streams.
  const Tensor& read() {
    const Activations host = tensor_.view();
    on_->copier.read({static_cast<std::byte*>(host.data), tensor_.bytes().size()},
                     memory_.address() + shift_);
    return tensor_;
  }

 private:
  void store() {
    on_->copier.write(memory_.address() + shift_, std::as_bytes(std::span(tensor_.bytes())));
  }

  OnGpu* on_;
  Tensor tensor_;
  std::size_t shift_;
  device::DeviceMemory memory_;
};

// The numbers of a buffer of f64 or f32 on a GPU.
inline Numbers numbers_on(OnGpu& on, const Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.count * size_of(buffer.type));
  on.copier.read(bytes, reinterpret_cast<device::Address>(buffer.data));
  return numbers({bytes.data(), buffer.count, buffer.type});
}

inline void assign_on(OnGpu& on, const Buffer& buffer, const Numbers& values) {
  std::vector<std::byte> bytes(buffer.count * size_of(buffer.type));
  assign({bytes.data(), buffer.count, buffer.type}, values);
  on.copier.write(reinterpret_cast<device::Address>(buffer.data), bytes);
}

}  // namespace rondo::testing
