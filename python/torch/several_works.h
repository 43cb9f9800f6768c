// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "python/torch/call_stream.h"

namespace rondo::python {

// One work for all operations between startCoalescing and endCoalescing. Thread-safe.
class SeveralWorks final : public c10d::Work {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  SeveralWorks(int rank, Works works)
      : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override {
    bool all = true;
    for (const auto& work : works_) all = work->isCompleted() && all;
    return all;
  }
  bool isSuccess() const override {
    for (const auto& work : works_)
      if (!work->isSuccess()) return false;
    return true;
  }
  std::exception_ptr exception() const override {
    for (const auto& work : works_)
      if (auto error = work->exception()) return error;
    return nullptr;
  }
  // The timeout is for all of them. 0 is none.
  bool wait(std::chrono::milliseconds timeout) override {
    using std::chrono::milliseconds, std::chrono::steady_clock;
    const auto until = base::after(steady_clock::now(), timeout);
    for (const auto& work : works_) {
      const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
      work->wait(timeout.count() > 0 ? std::max(left, milliseconds{1}) : timeout);
    }
    return true;
  }
  void synchronize() override {
    for (const auto& work : works_) work->synchronize();
  }
  void abort() override { works_.front()->abort(); }
  std::vector<at::Tensor> result() override {
    std::vector<at::Tensor> all;
    for (const auto& work : works_)
      for (at::Tensor& tensor : work->result()) all.push_back(std::move(tensor));
    return all;
  }
  // The futures of several works have no GPUs in torch, so streams would not wait for them.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    using c10::ivalue::Future;
    const c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
    c10::List<c10::intrusive_ptr<Future>> parts(c10::FutureType::create(tensors));
    std::vector<c10::Device> devices;
    for (const auto& work : works_) {
      parts.push_back(work->getFuture());
      const auto& more = parts.get(parts.size() - 1)->devices();
      devices.insert(devices.end(), more.begin(), more.end());
    }
    auto all = c10::make_intrusive<Future>(tensors, std::move(devices));
    c10::collectAll(parts)->addCallback(
        [all, parts](Future& done) { complete(*all, parts, done); });
    return all;
  }

 private:
  static void complete(c10::ivalue::Future& all,
                       const c10::List<c10::intrusive_ptr<c10::ivalue::Future>>& parts,
                       c10::ivalue::Future& done) {
    if (done.hasError()) return all.setError(done.exception_ptr());
    std::vector<c10::Stream> sides;
    for (const c10::Device& device : all.devices())
      sides.push_back(CallStream::guard_of(device).getStreamFromGlobalPool(device));
    const c10::MultiStreamGuard guard(sides);
    std::vector<at::Tensor> results;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts.get(i)->wait();  // it has ended; the streams wait
      for (const at::Tensor& tensor : parts.get(i)->value().toTensorVector())
        results.push_back(tensor);
    }
    all.markCompleted(c10::IValue(std::move(results)));
  }

  const Works works_;
};

}  // namespace rondo::python
