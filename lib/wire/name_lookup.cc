// SPDX-License-Identifier: Apache-2.0
#include "lib/wire/name_lookup.h"

#include <netdb.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "base/text.h"
#include "base/thread.h"

namespace rondo::wire {
namespace {

struct Resolved {
  std::vector<Endpoint> endpoints;
  std::string why;
};

struct FreeList {
  void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};

Resolved look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int result = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (result != 0)
    return {{},
            "the name '" + host + "' has no address: " +
                (result == EAI_SYSTEM ? base::describe_errno(errno)
                                      : std::string(::gai_strerror(result)))};
  const std::unique_ptr<addrinfo, FreeList> owner(list);
  Resolved found;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    Endpoint endpoint;
    std::memcpy(&endpoint.storage, entry->ai_addr, entry->ai_addrlen);
    endpoint.bytes = entry->ai_addrlen;
    endpoint.set_port(port);
    // /etc/hosts may have an address twice, and a port can be listened at once.
    const bool known = std::ranges::any_of(
        found.endpoints, [&](const Endpoint& other) { return other.text() == endpoint.text(); });
    if (!known) found.endpoints.push_back(endpoint);
  }
  if (found.endpoints.empty()) found.why = "the name '" + host + "' has no IPv4 or IPv6 address";
  return found;
}

// Shared by the thread and its caller: either may be the last to need it.
struct Answer {
  std::mutex mutex;
  std::condition_variable came;
  bool done = false;
  Resolved found;
};

struct Lookup {
  std::shared_ptr<Answer> answer;
  std::thread thread;
};

// Threads whose callers have given up. Thread-safe; locks mutex_, then the mutex of an answer.
class LateLookups {
 public:
  LateLookups() = default;
  LateLookups(const LateLookups&) = delete;
  LateLookups& operator=(const LateLookups&) = delete;
  // The resolver waits in calls that are cancellation points. What it holds is freed with the
  // process.
  ~LateLookups() {
    if (::getpid() != process_) {
      leave_behind();
      return;
    }
    for (Lookup& one : lookups_) {
      ::pthread_cancel(one.thread.native_handle());
      one.thread.join();
    }
  }

  void add(Lookup lookup) {
    const std::lock_guard lock(mutex_);
    lookups_.push_back(std::move(lookup));
  }

  void join_finished() {
    const std::lock_guard lock(mutex_);
    for (auto one = lookups_.begin(); one != lookups_.end();) {
      const bool done = [&] {
        const std::lock_guard answer_lock(one->answer->mutex);
        return one->answer->done;
      }();
      if (done) one->thread.join();
      one = done ? lookups_.erase(one) : std::next(one);
    }
  }

  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return lookups_.size();
  }

 private:
  // A child made by fork does not have the threads: it must neither join nor destroy their handles.
  void leave_behind() {
    left_behind_ = std::make_unique<std::list<Lookup>>(std::move(lookups_)).release();
  }

  const pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::list<Lookup> lookups_;
  std::list<Lookup>* left_behind_ = nullptr;  // never destroyed
};

LateLookups& late_lookups() {
  static LateLookups late;
  return late;
}

constexpr std::size_t most_late = 16;

}  // namespace

std::vector<Endpoint> resolve(const std::string& host, std::uint16_t port, base::TimePoint until,
                              std::string& why) {
  // A number needs no resolver.
  if (Resolved number = look_up(host, port, AI_NUMERICHOST); !number.endpoints.empty())
    return std::move(number.endpoints);
  LateLookups& late = late_lookups();
  late.join_finished();
  if (late.count() >= most_late) {
    why = "the name '" + host +
          "' cannot be looked up: the system's resolver has not answered earlier lookups";
    return {};
  }
  Lookup lookup{std::make_shared<Answer>(), {}};
  lookup.thread = base::start_thread("rondo-resolve", [host, port, answer = lookup.answer] {
    Resolved found = look_up(host, port, 0);
    {
      const std::lock_guard lock(answer->mutex);
      answer->found = std::move(found);
      answer->done = true;
    }
    answer->came.notify_all();
  });
  bool done = false;
  {
    std::unique_lock lock(lookup.answer->mutex);
    done = lookup.answer->came.wait_until(lock, until, [&] { return lookup.answer->done; });
  }
  if (!done) {
    late.add(std::move(lookup));
    why = "the system's resolver has not answered for the name '" + host +
          "' yet: check the name servers, or give an address as a number";
    return {};
  }
  lookup.thread.join();
  why = std::move(lookup.answer->found.why);
  return std::move(lookup.answer->found.endpoints);
}

}  // namespace rondo::wire
