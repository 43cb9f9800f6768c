// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "python/torch/store.h"

namespace rondo::python {

// A barrier over torch's store that names the ranks which do not come. Each rank writes a key, rank
// 0 waits for each and then answers all of them. Thread-bound.
class MonitoredBarrier {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // number: how many barriers this rank has passed in the group, with this one.
  MonitoredBarrier(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::uint64_t number)
      : store_(std::move(store)),
        rank_(rank),
        size_(size),
        prefix_("rondo-monitored-barrier/" + std::to_string(number) + "/") {}

  // Throws an error that names the ranks which have not come, all of them if wait_all_ranks.
  void pass(Milliseconds timeout, bool wait_all_ranks) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    if (rank_ == 0)
      await_others(until, timeout, wait_all_ranks);
    else
      report(until);
  }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  bool comes(const std::string& key, TimePoint until) {
    return await_key(*store_, key, until, [this] {
      try {
        run_signal_handlers();
      } catch (const py::error_already_set& error) {
        store_->set(gave_up_, "Rank " + std::to_string(rank_) +
                                  " failed to pass monitoredBarrier: " + exception_name(error));
        throw;
      }
      TORCH_CHECK(!store_->check({gave_up_}), store_->get_to_str(gave_up_));
    });
  }

  void await_others(TimePoint until, Milliseconds timeout, bool wait_all_ranks) {
    std::vector<int> missing;
    for (int rank = 1; rank < size_; ++rank) {
      if (std::chrono::steady_clock::now() >= until && missing.empty())
        TORCH_CHECK(false, answer("Rank 0 timed out in monitoredBarrier after " +
                                  std::to_string(timeout.count()) + " ms."));
      if (comes(prefix_ + std::to_string(rank), until)) continue;
      missing.push_back(rank);
      if (!wait_all_ranks) break;
    }
    if (missing.empty()) return static_cast<void>(answer(""));
    std::string text = missing.size() == 1 ? "Rank " : "Ranks ";
    for (std::size_t i = 0; i < missing.size(); ++i)
      text += (i == 0 ? "" : ", ") + std::to_string(missing[i]);
    TORCH_CHECK(false, answer(text + " failed to pass monitoredBarrier in " +
                              std::to_string(timeout.count()) + " ms"));
  }
  // Returns the text.
  std::string answer(const std::string& text) {
    store_->set(prefix_ + "0", text.empty() ? std::string("passed") : text);
    return text;
  }

  void report(TimePoint until) {
    store_->set(prefix_ + std::to_string(rank_), std::string("here"));
    const bool came = comes(prefix_ + "0", until);
    if (came && store_->get_to_str(prefix_ + "0") == "passed") return;
    TORCH_CHECK(false, "Rank ", rank_,
                " successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0. Please check rank 0 logs for faulty rank.");
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, size_;
  const std::string prefix_, gave_up_ = prefix_ + "gave-up";
};

}  // namespace rondo::python
