// SPDX-License-Identifier: Apache-2.0
#include "grad/trainer.h"

#include <cstring>

namespace rondo::testing {

std::vector<Device> devices() {
  try {
    if (gpus_of_tests() > 0) return {Device::host, Device::gpu};
  } catch (const std::runtime_error&) {  // there is no driver
  }
  return {Device::host};
}

int device_of(Device device, int rank) {
  if (device == Device::host) return -1;
  have_kernels();
  return rank % gpus_of_tests();
}

struct Trainer::Memory {
  Memory(const OnGpu& on, std::size_t bytes)
      : gradient(on, bytes), rest(on, bytes), source(on.gpu(), bytes + 8) {}
  PinnedBytes gradient, rest;
  device::DeviceMemory source;
};

struct Trainer::Gpu {
  Gpu(int ordinal, const Model& model) : on(ordinal), a(on.gpu()), b(on.gpu()) {
    for (std::size_t i = 0; i < model.size(); ++i)
      memory.push_back(std::make_unique<Memory>(on, model.bytes(i)));
  }
  static void copy(const PinnedBytes& by, const Bytes& from, device::Address to,
                   const device::Stream& stream) {
    if (from.empty()) return;
    std::memcpy(by.data(), from.data(), from.size());
    by.to_gpu(to, from.size(), stream);
  }

  OnGpu on;
  device::Stream a, b;
  std::vector<std::unique_ptr<Memory>> memory;  // by parameter
};

void Trainer::Destroy::operator()(Gpu* gpu) const noexcept {
  delete gpu;
}

Trainer::Trainer(Communicator& c, Device device, const Model& model, const GradientOptions& options,
                 std::chrono::milliseconds patience)
    : rank_(c.rank()),
      patience_(patience),
      gpu_(device == Device::gpu ? new Gpu(device_of(device, rank_), model) : nullptr),
      buckets(c, model.parameters(device_of(device, rank_)), options) {}

OnStream Trainer::first() const noexcept {
  return {gpu_ ? gpu_->a.get() : nullptr};
}

void Trainer::zero() {
  buckets.zero(first());
}

void Trainer::write(std::size_t parameter, const Bytes& values) {
  const Buffer view = buckets.gradient(parameter);
  if (gpu_)
    Gpu::copy(gpu_->memory[parameter]->rest, values, address_of(view), gpu_->a);
  else if (!values.empty())
    std::memcpy(view.data, values.data(), values.size());
}

void Trainer::begin(StepOptions options) {
  if (gpu_) options.stream = gpu_->a.get();
  buckets.begin_step(options);
  if (gpu_) chain(gpu_->on, gpu_->a, gpu_->b);
}

void Trainer::give(std::size_t parameter, const Bytes& gradient, bool copy) {
  const Buffer view = buckets.gradient(parameter);
  if (gpu_) {
    const Memory& memory = *gpu_->memory[parameter];
    const device::Stream& stream = parameter % 2 == 0 ? gpu_->a : gpu_->b;
    const device::Address to = copy ? memory.source.address() : address_of(view);
    Gpu::copy(memory.gradient, gradient, to, stream);
    if (copy)
      buckets.ready(parameter, reinterpret_cast<const void*>(to), OnStream{stream.get()});
    else
      buckets.ready(parameter, OnStream{stream.get()});
    return;
  }
  if (copy) return buckets.ready(parameter, gradient.data());
  if (!gradient.empty()) std::memcpy(view.data, gradient.data(), gradient.size());
  buckets.ready(parameter);
}

void Trainer::finish(bool on_stream) {
  on_stream ? buckets.finish(first()) : buckets.finish();
}

void Trainer::step(const Model& model, std::size_t step, const StepOptions& options) {
  begin(options);
  for (std::size_t i = model.size(); i-- > 0;) give(i, model.gradient(step, rank_, i));
  finish();
}

void Trainer::clip(double most) {
  buckets.clip(most, first());
}

Bytes Trainer::read(std::size_t parameter) {
  const Buffer view = buckets.gradient(parameter);
  if (!gpu_) return bytes_of(view);
  settle();
  expect(view.device == gpu_->on.gpu().ordinal(), "a gradient is elsewhere");
  Bytes bytes(view.count * size_of(view.type));
  gpu_->on.copier.read(bytes, address_of(view));
  return bytes;
}

void Trainer::settle() {
  if (!gpu_) return;
  for (const device::Stream* stream : {&gpu_->a, &gpu_->b}) {
    device::Event event(gpu_->on.gpu());
    const device::Current current(gpu_->on.gpu());
    gpu_->on.gpu().check(event.record(stream->get()), "record");
    gpu_->on.gpu().check(device::wait_for(event, patience_), "a stream of the test");
  }
}

}  // namespace rondo::testing
