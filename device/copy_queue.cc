// SPDX-License-Identifier: Apache-2.0
#include "device/copy_queue.h"

#include <string>

#include "base/text.h"

namespace rondo::device {

CopyQueue::CopyQueue(const Gpu& gpu, bool urgent)
    : gpu_(gpu), stream_(gpu, urgent), watch_(gpu, urgent) {
  events_.reserve(most_batches);
  for (std::size_t i = 0; i < most_batches; ++i) events_.emplace_back(gpu);
}

void CopyQueue::to_host(std::byte* to, Address from, std::size_t bytes) {
  const Status status = gpu_.driver().copy_to_host(to, from, bytes, stream_.get());
  open_ = open_ || status == success;
  if (status != success) gpu_.check(status, "cuMemcpyDtoHAsync of " + base::describe_bytes(bytes));
}

void CopyQueue::to_device(Address to, const std::byte* from, std::size_t bytes) {
  const Status status = gpu_.driver().copy_to_device(to, from, bytes, stream_.get());
  open_ = open_ || status == success;
  if (status != success) gpu_.check(status, "cuMemcpyHtoDAsync of " + base::describe_bytes(bytes));
}

void CopyQueue::on_device(Address to, Address from, std::size_t bytes) {
  const Status status = gpu_.driver().copy_on_device(to, from, bytes, stream_.get());
  open_ = open_ || status == success;
  if (status != success) gpu_.check(status, "cuMemcpyDtoDAsync of " + base::describe_bytes(bytes));
}

void CopyQueue::launch(FunctionHandle kernel, const char* name, unsigned blocks, unsigned threads,
                       void** parameters) {
  const Status status = gpu_.driver().launch_kernel(kernel, blocks, 1, 1, threads, 1, 1, 0,
                                                    stream_.get(), parameters, nullptr);
  open_ = open_ || status == success;
  if (status != success) gpu_.check(status, std::string("cuLaunchKernel of ") + name);
}

void CopyQueue::end_batch() {
  Event& event = events_[(oldest_ + count_) % most_batches];
  gpu_.check(event.record(stream_.get()), "cuEventRecord");
  ++count_;
  open_ = false;
}

void CopyQueue::record(Event& event) {
  gpu_.check(event.record(stream_.get()), "cuEventRecord");
}

bool CopyQueue::take_ended() {
  const Status status = events_[oldest_].query();
  if (status == not_ready) return false;
  gpu_.check(status, "a copy");
  forget_oldest();
  return true;
}

void CopyQueue::forget_oldest() noexcept {
  oldest_ = (oldest_ + 1) % most_batches;
  --count_;
  watched_ = false;
}

bool CopyQueue::call_when_ended(void (*function)(void*), void* argument) {
  if (watched_) return false;
  gpu_.check(watch_.wait(events_[oldest_]), "cuStreamWaitEvent");
  gpu_.check(gpu_.driver().launch_host_function(watch_.get(), function, argument),
             "cuLaunchHostFunc");
  return watched_ = true;
}

bool CopyQueue::failed() const noexcept {
  const Status status = events_.front().query();
  return status != success && status != not_ready;
}

bool CopyQueue::drain() noexcept {
  while (count_ != 0 && events_[oldest_].query() != not_ready) forget_oldest();
  if (open_ && count_ == 0) {
    if (failed()) return true;
    if (events_[oldest_].record(stream_.get()) != success) return false;
    open_ = false;
    ++count_;
  }
  return count_ == 0;
}

}  // namespace rondo::device
