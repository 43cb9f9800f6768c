// SPDX-License-Identifier: Apache-2.0
#include "support/ranks.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lib/connect.h"
#include "support/threads.h"

namespace rondo::testing {

void MemoryStore::put(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  values_.insert_or_assign(std::string(key), std::string(value));
  changed_.notify_all();
}

std::string MemoryStore::get(std::string_view key, std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline, [&] { return values_.contains(key); }))
    throw Error(Errc::deadline_exceeded, "nobody has put " + std::string(key));
  return values_.find(key)->second;
}

void expect(bool good, std::string_view message) {
  if (!good) throw std::runtime_error(std::string(message));
}

namespace {

// Collects how the ranks of one run end. Thread-safe.
class Outcome {
 public:
  explicit Outcome(int size) : running_(size), done_(static_cast<std::size_t>(size)) {}

  void ended(int rank, std::string_view problem) {
    const std::lock_guard lock(mutex_);
    done_[static_cast<std::size_t>(rank)] = true;
    if (!problem.empty())
      problems_ += "rank " + std::to_string(rank) + ": " + std::string(problem) + "\n";
    if (--running_ == 0) all_done_.notify_all();
  }
  // Waits for all ranks. Returns false when not all ended in time.
  bool wait(std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    return all_done_.wait_for(lock, limit, [this] { return running_ == 0; });
  }
  std::string problems() {
    const std::lock_guard lock(mutex_);
    return problems_;
  }
  std::string hanging() {
    const std::lock_guard lock(mutex_);
    std::string ranks;
    for (std::size_t rank = 0; rank < done_.size(); ++rank)
      if (!done_[rank]) ranks.append(" ").append(std::to_string(rank));
    return ranks;
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_done_;
  int running_;
  std::vector<bool> done_;
  std::string problems_;
};

}  // namespace

void run_ranks(int size, std::string_view what, const std::function<void(int)>& function,
               std::chrono::seconds limit) {
  Outcome outcome(size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      ::pthread_setname_np(::pthread_self(), ("rank " + std::to_string(rank)).c_str());
      std::string problem;
      try {
        function(rank);
      } catch (const std::exception& error) {
        problem = error.what();
      }
      outcome.ended(rank, problem);
    });
  if (!outcome.wait(limit)) {
    std::fprintf(stderr, "%.*s: after %lld s these ranks have not ended:%s\n%s%s",
                 static_cast<int>(what.size()), what.data(), static_cast<long long>(limit.count()),
                 outcome.hanging().c_str(), outcome.problems().c_str(), describe_threads().c_str());
    std::abort();
  }
  threads.clear();
  if (!outcome.problems().empty())
    throw std::runtime_error(std::string(what) + ":\n" + outcome.problems());
}

void RankBarrier::arrive_and_wait() {
  std::unique_lock lock(mutex_);
  const std::uint64_t round = round_;
  if (++arrived_ == size_) {
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
  } else if (!changed_.wait_for(lock, std::chrono::seconds{60}, [&] { return round_ != round; })) {
    throw std::runtime_error("another rank has not come to the barrier of this test");
  }
}

namespace {

// Makes a mem fabric for each communicator of a job. Thread-safe.
class Fabrics {
 public:
  explicit Fabrics(const Setup& setup) : setup_(setup) {}

  std::unique_ptr<transports::Transport> endpoint(const rendezvous::Place& place) {
    const std::lock_guard lock(mutex_);
    auto& fabric = fabrics_[place.group];
    if (!fabric) fabric = std::make_unique<mem::MemFabric>(place.size, setup_.faults, setup_.seed);
    return fabric->endpoint(place.rank);
  }

 private:
  const Setup& setup_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<mem::MemFabric>> fabrics_;
};

}  // namespace

std::string_view name_of(Over over) noexcept {
  constexpr std::string_view names[] = {"mem", "tcp", "shm", "rdma"};
  return names[static_cast<std::size_t>(over)];
}

Options Setup::quick_options() {
  Options options;
  options.deadline = std::chrono::seconds{60};
  options.connect_deadline = std::chrono::seconds{30};
  return options;
}

void run_communicators(const Setup& setup, std::string_view what,
                       const std::function<void(Communicator&, int)>& function,
                       std::chrono::seconds limit) {
  MemoryStore store;
  Fabrics fabrics(setup);
  const auto rank_main = [&](int rank) {
    Options options = setup.options;
    options.rank = rank;
    if (!setup.hosts.empty())
      options.host = "host " + std::to_string(setup.hosts[static_cast<std::size_t>(rank)]);
    options.size = setup.size;
    options.store = &store;
    if (setup.over != Over::mem) options.transports = {std::string(name_of(setup.over))};
    const auto mem = [&](const rendezvous::Place& place, const Options&) {
      lib::TransportList list;
      list.push_back(fabrics.endpoint(place));
      return list;
    };
    Communicator communicator =
        setup.over == Over::mem ? lib::connect_with(options, mem) : Communicator::connect(options);
    function(communicator, rank);
  };
  run_ranks(setup.size, what, rank_main, limit);
}

}  // namespace rondo::testing
