// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "contexts.h"
#include "control.h"
#include "memory.h"

namespace fake {

// The event word: what one cuEventRecord has recorded. The executor stores success when all work
// before it has ended, or the error that dropped it.
struct Record {
  explicit Record(ContextHandle of) : context(of) {}
  const ContextHandle context;
  std::atomic<Status> status{rondo::device::not_ready};
};

// One piece of work of a stream. The thread that enqueues makes it; then only the executor uses it.
class Work {
 public:
  Work() = default;
  virtual ~Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // The edge between the call that enqueues and the work. TSan sees both.
  void hand_over() { handed_over_.store(1, std::memory_order_release); }
  void take_over() { (void)handed_over_.load(std::memory_order_acquire); }

  // Whether it could run now. Quiet.
  virtual bool is_ready() const { return true; }
  // Runs a part, which TSan sees. True: the work has ended. A status other than 0 breaks the GPU.
  virtual bool run(Status* status) = 0;
  // The work does not run, because the GPU is broken. Quiet.
  virtual void drop(Status) {}

  std::chrono::steady_clock::time_point not_before{};

 private:
  std::atomic<int> handed_over_{0};
};

class CopyWork final : public Work {
 public:
  CopyWork(const char* function, Address to, Address from, std::size_t bytes)
      : function_(function), to_(to), from_(from), bytes_(bytes) {}
  bool run(Status* status) override;

 private:
  const char* const function_;
  const Address to_, from_;
  const std::size_t bytes_;
  std::size_t done_ = 0;
};

class FillWork final : public Work {
 public:
  FillWork(Address to, unsigned char value, std::size_t bytes)
      : to_(to), value_(value), bytes_(bytes) {}
  bool run(Status* status) override;

 private:
  const Address to_;
  const unsigned char value_;
  const std::size_t bytes_;
  std::size_t done_ = 0;
};

class RecordWork final : public Work {
 public:
  explicit RecordWork(std::shared_ptr<Record> record) : record_(std::move(record)) {}
  bool run(Status* status) override;
  void drop(Status status) override { record_->status.store(status); }

 private:
  const std::shared_ptr<Record> record_;
};

class WaitWork final : public Work {
 public:
  explicit WaitWork(std::shared_ptr<Record> record) : record_(std::move(record)) {}
  bool is_ready() const override { return record_->status.load() != rondo::device::not_ready; }
  bool run(Status* status) override;

 private:
  const std::shared_ptr<Record> record_;
};

class HostFunctionWork final : public Work {
 public:
  HostFunctionWork(void (*function)(void*), void* argument)
      : function_(function), argument_(argument) {}
  bool run(Status* status) override;

 private:
  void (*const function_)(void*);
  void* const argument_;
};

class KernelWork final : public Work {
 public:
  // parameters: the bytes of each.
  KernelWork(RondoFakeKernel* run, const RondoFakeLaunch& launch,
             std::vector<std::vector<std::byte>> parameters);
  bool run(Status* status) override;

 private:
  RondoFakeKernel* const run_;
  RondoFakeLaunch launch_;
  std::vector<std::vector<std::byte>> parameters_;
  std::vector<void*> pointers_;
};

}  // namespace fake
