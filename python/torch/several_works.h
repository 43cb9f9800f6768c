// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

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
    const auto until = steady_clock::now() + timeout;
    for (const auto& work : works_) {
      const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
      work->wait(timeout.count() > 0 ? std::max(left, milliseconds{1}) : timeout);
    }
    return true;
  }
  void synchronize() override {}
  void abort() override { works_.front()->abort(); }
  std::vector<at::Tensor> result() override {
    std::vector<at::Tensor> all;
    for (const auto& work : works_)
      for (at::Tensor& tensor : work->result()) all.push_back(std::move(tensor));
    return all;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(c10::FutureType::create(tensors));
    for (const auto& work : works_) futures.push_back(work->getFuture());
    return c10::collectAll(futures)->then(
        [](c10::ivalue::Future& done) {
          if (done.hasError()) std::rethrow_exception(done.exception_ptr());
          std::vector<at::Tensor> tensors;
          for (const c10::IValue& one : done.value().toListRef())
            for (const at::Tensor& tensor : one.toFuture()->value().toTensorVector())
              tensors.push_back(tensor);
          return c10::IValue(std::move(tensors));
        },
        tensors);
  }

 private:
  const Works works_;
};

}  // namespace rondo::python
