// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

#include "transports/shm/shm.h"

namespace rondo::testing {

inline constexpr std::uint64_t shm_job = 0x1234567890abcdefu;

// The number of open descriptors of this process.
inline std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// Raises the soft limit of open files to the hard limit. True when this process then has room for
// so many ranks, each of which has two descriptors for every other.
inline bool have_room(std::size_t ranks) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max >= ranks * (2 * ranks + 20);
}

// Makes `size` shm transports of one host. As many threads start them at once. edit: changes each
// rank's options before its transport is made.
inline std::vector<std::unique_ptr<transports::Transport>> shm_transports(
    int size, const std::function<void(shm::Options&)>& edit = {}) {
  std::vector<std::unique_ptr<transports::Transport>> transports;
  std::vector<transports::Blob> addresses;
  for (int rank = 0; rank < size; ++rank) {
    shm::Options options;
    options.rank = rank;
    options.size = size;
    options.host = "one host";
    options.deadline = base::after(base::Clock::now(), std::chrono::minutes{3});
    if (edit) edit(options);
    transports.push_back(shm::make_shm(options));
    addresses.push_back(transports.back()->address());
  }
  std::vector<std::exception_ptr> failures(transports.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < transports.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        transports[rank]->start(addresses, shm_job);
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return transports;
}

// Where the others find memory of one rank. All have mapped it after two rounds: the owner sends
// its descriptor when it uses the memory, and the others take it when they use any memory.
inline transports::WindowPlace find_everywhere(
    const std::vector<std::unique_ptr<transports::Transport>>& transports, std::size_t owner,
    const void* data, std::size_t bytes) {
  transports[owner]->windows()->find(data, bytes);
  for (const auto& transport : transports) transport->windows()->find(nullptr, 0);
  return transports[owner]->windows()->find(data, bytes);
}

}  // namespace rondo::testing
