// SPDX-License-Identifier: Apache-2.0
//
// One rank of Gloo with gradient buckets, as frameworks build them on Gloo. When all gradients of a
// bucket are ready, a thread reduces it; the thread reduces one bucket after the other. STORE is an
// empty folder that all ranks share.
//
//   overlap_gloo CONTROL RANK SIZE STORE INTERFACE
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <iostream>
#include <mutex>
#include <thread>
#include <utility>

#include "../peers/gloo_runs.h"
#include "trainer.h"

namespace {

using rondo::compare::GlooRun;
using rondo::compare::GlooRuns;

class Gloo final : public rondo::overlap::Trainer {
 public:
  Gloo(int rank, int size, const std::string& store_path, const std::string& interface)
      : runs_(rank, size, store_path, interface), thread_([this] { reduce(); }) {}
  ~Gloo() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  int rank() const override { return runs_.rank(); }
  int size() const override { return runs_.size(); }
  std::vector<std::string> algorithms() const override { return GlooRuns::algorithms(); }

  // Every bucket gets its own connections; peer_gloo.cc says why.
  void prepare(std::string_view algorithm, std::span<const std::size_t> counts,
               std::size_t bucket_bytes) override {
    const std::lock_guard lock(mutex_);
    std::size_t total = 0;
    ends_.assign(counts.size(), 0);
    counts_.assign(counts.begin(), counts.end());
    for (std::size_t i = counts.size(); i-- > 0;) ends_[i] = total += counts[i];
    const std::vector<Bucket> old = std::exchange(buckets_, {});
    gradients_.assign(total, 0.0F);
    std::size_t limit = std::min(bucket_bytes, rondo::overlap::first_bucket_bytes) / sizeof(float);
    for (std::size_t first = 0; first < total; limit = bucket_bytes / sizeof(float)) {
      const auto elements = std::span(gradients_).subspan(first, std::min(limit, total - first));
      first += elements.size();
      buckets_.push_back({first, runs_.make(algorithm, elements, elements)});
    }
    gloo::barrier(*buckets_.front().run.barrier);  // then no rank uses the old connections
  }

  std::span<float> gradient(std::size_t tensor) override {
    return std::span(gradients_).subspan(ends_[tensor] - counts_[tensor], counts_[tensor]);
  }
  void begin_step() override {
    const std::lock_guard lock(mutex_);
    launched_ = finished_ = 0;
  }
  // Starts the buckets that end at or before this tensor: buckets are in the order in which
  // gradients become ready.
  void ready(std::size_t tensor) override {
    std::unique_lock lock(mutex_);
    const std::size_t before = launched_;
    while (launched_ < buckets_.size() && buckets_[launched_].end <= ends_[tensor]) ++launched_;
    if (launched_ == before) return;
    lock.unlock();
    changed_.notify_all();
  }
  void finish() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finished_ == buckets_.size() || failure_; });
    if (failure_) std::rethrow_exception(failure_);
  }
  void barrier() override { gloo::barrier(*buckets_.front().run.barrier); }

 private:
  struct Bucket {
    std::size_t end = 0;  // elements of all buckets up to and including this one
    GlooRun run;
  };

  void reduce() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || finished_ < launched_; });
      if (ending_) return;
      const Bucket& bucket = buckets_[finished_];
      lock.unlock();
      try {
        bucket.run.run();
        lock.lock();
        ++finished_;
      } catch (...) {
        lock.lock();
        failure_ = std::current_exception();
        ending_ = true;
      }
      changed_.notify_all();
    }
  }

  GlooRuns runs_;
  std::vector<float> gradients_;            // in the order in which they become ready
  std::vector<std::size_t> counts_, ends_;  // by tensor: its elements, and where it ends
  std::vector<Bucket> buckets_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t launched_ = 0, finished_ = 0;
  bool ending_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: " << argv[0]
              << " CONTROL RANK SIZE STORE INTERFACE (started by bench/hosts/overlap.py)\n";
    return 2;
  }
  return rondo::overlap::run_rank(argv[1], [argv] {
    return std::make_unique<Gloo>(std::stoi(argv[2]), std::stoi(argv[3]), argv[4], argv[5]);
  });
}
