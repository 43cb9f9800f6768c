// SPDX-License-Identifier: Apache-2.0
//
// torch's store as the place where the ranks of a group meet.
#pragma once

#include <rondo/error.h>
#include <rondo/store.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace rondo::python {

// torch gives each group a prefix of its own. Never changes the store's timeout: other groups share
// the connection. Thread-bound. A store written in Python takes the GIL: callers do not hold it.
class TorchStore final : public Store {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void put(std::string_view key, std::string_view value) override {
    store_->set(std::string(key), std::string(value));
  }
  std::string get(std::string_view key, std::chrono::steady_clock::time_point deadline) override {
    const std::string name(key);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    try {
      store_->wait({name}, std::max(left, std::chrono::milliseconds{1}));
    } catch (const std::exception& error) {
      if (std::chrono::steady_clock::now() < deadline) throw;
      throw Error(Errc::deadline_exceeded,
                  "no rank has written " + name + " to the store of torch: " + error.what());
    }
    return store_->get_to_str(name);
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace rondo::python
