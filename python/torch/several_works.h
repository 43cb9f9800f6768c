// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace rondo::torch_backend {

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
  bool wait(std::chrono::milliseconds timeout) override {
    for (const auto& work : works_) work->wait(timeout);
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
    std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
    futures.reserve(works_.size());
    for (const auto& work : works_) futures.push_back(work->getFuture());
    return c10::collectAll(c10::List<c10::intrusive_ptr<c10::ivalue::Future>>(std::move(futures)));
  }

 private:
  const Works works_;
};

}  // namespace rondo::torch_backend
