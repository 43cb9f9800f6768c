// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of one process, for the tests of the rendezvous and the control plane.
#pragma once

#include <arpa/inet.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <rondo/error.h>
#include <rondo/store.h>

#include "lib/rendezvous/rendezvous.h"
#include "lib/settings/settings.h"
#include "lib/wire/socket.h"

namespace rondo::tests {

// All addresses of this machine on that port: IPv6 with IPv4, or IPv4 alone if there is no IPv6.
inline std::vector<wire::Endpoint> any_address(std::uint16_t port) {
  const auto v6 = wire::parse_endpoint("[::]:" + std::to_string(port));
  return v6.front().is_local() ? v6 : wire::parse_endpoint("0.0.0.0:" + std::to_string(port));
}

// Returns a port that nobody listens on, below those that the kernel gives to outgoing connections.
inline std::uint16_t free_port() {
  static std::atomic<std::uint32_t> next{static_cast<std::uint32_t>(::getpid()) * 37};
  for (;;) {
    const auto port = static_cast<std::uint16_t>(20'000 + next++ % 12'000);
    try {
      wire::listen_on(any_address(port), 0, 0);
      return port;
    } catch (const Error&) {
    }
  }
}
inline std::string free_url() {
  return "tcp://127.0.0.1:" + std::to_string(free_port());
}

inline transports::Blob record_of(int rank) {
  transports::Blob blob(static_cast<std::size_t>(rank % 7) * 11 + 1);
  for (std::size_t i = 0; i < blob.size(); ++i)
    blob[i] = static_cast<std::byte>(static_cast<std::size_t>(rank) * 31 + i);
  return blob;
}

struct Outcome {
  std::optional<rendezvous::Joined> joined;
  Errc code{};
  std::string message;
  double seconds = 0;
};

inline Outcome join_one(rendezvous::Place place, const Options& given,
                        const transports::Blob& record) {
  const Options options = settings::with_environment(given);
  Outcome outcome;
  const base::TimePoint start = base::Clock::now();
  place.deadline = base::after(start, options.connect_deadline);
  try {
    outcome.joined = rendezvous::join(place, options, record);
  } catch (const Error& error) {
    outcome.code = static_cast<Errc>(error.code().value());
    outcome.message = error.what();
  }
  outcome.seconds = std::chrono::duration<double>(base::Clock::now() - start).count();
  return outcome;
}

inline rendezvous::Place place_of(int rank, int size, const std::string& url,
                                  const std::string& secret = {}) {
  rendezvous::Place place;
  place.rank = rank;
  place.size = size;
  place.url = url;
  place.secret = secret;
  return place;
}

inline Options with_deadline(milliseconds time) {
  Options options;
  options.connect_deadline = time;
  return options;
}

// Joins all places at once, each on its own thread.
inline std::vector<Outcome> join_all(const std::vector<rendezvous::Place>& places,
                                     const Options& options = with_deadline(milliseconds{20'000})) {
  std::vector<std::future<Outcome>> futures;
  for (const rendezvous::Place& place : places)
    futures.push_back(std::async(std::launch::async,
                                 [&] { return join_one(place, options, record_of(place.rank)); }));
  std::vector<Outcome> outcomes;
  for (auto& future : futures) outcomes.push_back(future.get());
  return outcomes;
}

inline std::vector<rendezvous::Place> all_places(int size, const std::string& url,
                                                 const std::string& secret = {}) {
  std::vector<rendezvous::Place> places;
  for (int rank = 0; rank < size; ++rank) places.push_back(place_of(rank, size, url, secret));
  return places;
}

// Returns what is wrong; empty if nothing is.
inline std::string what_is_wrong(const std::vector<Outcome>& outcomes) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const Outcome& outcome = outcomes[rank];
    const std::string who = "rank " + std::to_string(rank) + ": ";
    if (!outcome.joined) return who + outcome.message;
    if (outcome.joined->job == 0 || outcome.joined->job != outcomes.front().joined->job)
      return who + "another job";
    if (outcome.joined->records.size() != outcomes.size())
      return who + "the number of records is wrong";
    for (std::size_t other = 0; other < outcomes.size(); ++other)
      if (outcome.joined->records[other] != record_of(static_cast<int>(other)))
        return who + "a record is wrong";
    if ((outcome.joined->control == nullptr) != (outcomes.size() == 1)) return who + "control";
  }
  return {};
}

class MapStore final : public Store {
 public:
  void put(std::string_view key, std::string_view value) override {
    {
      const std::lock_guard lock(mutex_);
      values_[std::string(key)] = value;
    }
    changed_.notify_all();
  }
  std::string get(std::string_view key, std::chrono::steady_clock::time_point deadline) override {
    std::unique_lock lock(mutex_);
    const std::string name(key);
    if (!changed_.wait_until(lock, deadline, [&] { return values_.count(name) != 0; }))
      throw Error(Errc::deadline_exceeded, "no value for " + name);
    return values_[name];
  }
  void remove(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    values_.erase(std::string(key));
  }
  bool empty() {
    const std::lock_guard lock(mutex_);
    return values_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

// A directory that the destructor removes.
class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "rondo-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace rondo::tests
