// SPDX-License-Identifier: Apache-2.0
#include "grad/device/bucket_stream.h"

namespace rondo::grad {

BucketStream::BucketStream(int ordinal, std::size_t parameters)
    : kernels_(ordinal), stream_(gpu()), mark_(gpu()), last_(gpu()), pending_(parameters) {
  readies_.reserve(parameters);
  for (std::size_t i = 0; i < parameters; ++i) readies_.emplace_back(gpu());
}

std::byte* BucketStream::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  return reinterpret_cast<std::byte*>(memory_.emplace_back(gpu(), bytes).address());
}

void BucketStream::wait(device::StreamHandle stream, const device::Event& event) {
  gpu().check(gpu().driver().stream_wait_event(stream, event.get(), 0), "cuStreamWaitEvent");
}

void BucketStream::record(device::Event& event, device::StreamHandle stream) {
  gpu().check(event.record(stream), "cuEventRecord");
}

void BucketStream::take(std::size_t parameter, const std::byte* from, std::span<std::byte> to,
                        device::StreamHandle stream) {
  const device::Current current(gpu());
  const std::lock_guard lock(mutex_);
  if (!to.empty()) {
    wait(stream, last_);
    wait(stream, mark_);  // the program's stream may still use the view
    gpu().check(
        gpu().driver().copy_on_device(reinterpret_cast<device::Address>(to.data()),
                                      reinterpret_cast<device::Address>(from), to.size(), stream),
        "cuMemcpyDtoDAsync");
  }
  record(readies_[parameter], stream);
  pending_[parameter] = 1;
}

void BucketStream::come_after(device::StreamHandle stream) {
  const device::Current current(gpu());
  record(mark_, stream);
  wait(stream_.get(), mark_);
}

// Nothing of a complete bucket changes any more, so this takes no lock.
void BucketStream::await_ready(std::size_t parameter) {
  if (pending_[parameter] == 0) return;
  wait(stream_.get(), readies_[parameter]);
  pending_[parameter] = 0;
}

void BucketStream::run(const Pass& pass, std::span<const Piece> pieces,
                       device::StreamHandle stream) {
  const device::Current current(gpu());
  kernels_.run(pass, pieces, stream);
}

// Later work of the stream comes after all that Rondo has enqueued for gradients so far, and after
// those that have become ready in this step.
void BucketStream::come_after_all(device::StreamHandle stream) {
  for (std::size_t i = 0; i < readies_.size(); ++i)
    if (pending_[i] != 0) wait(stream, readies_[i]);
  wait(stream, last_);
}

// Work of the stream so far comes before all that Rondo will enqueue.
void BucketStream::come_before_all(device::StreamHandle stream) {
  record(last_, stream);
  wait(stream_.get(), last_);
}

void BucketStream::end_step() {
  const device::Current current(gpu());
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < readies_.size(); ++i) await_ready(i);
  record(last_, stream_.get());
}

void BucketStream::make_wait(device::StreamHandle stream) {
  const device::Current current(gpu());
  wait(stream, last_);
}

bool BucketStream::settle(std::chrono::milliseconds time) noexcept {
  if (!gpu().here()) return true;
  try {
    end_step();
    const device::Current current(gpu());
    return device::wait_for(last_, time) != device::not_ready;
  } catch (const std::exception&) {
    return true;  // the GPU has failed, and runs nothing any more
  }
}

}  // namespace rondo::grad
