// SPDX-License-Identifier: Apache-2.0
#include "python/core/session.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace rondo::python {

namespace {

// Counts the forks between the process that loaded this module and this one.
std::atomic<unsigned> generation{0};
[[maybe_unused]] const int registered =
    ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });

// All that are open, for the end of the interpreter. Never destroyed, as objects of Python may
// outlive it. Guarded by Python's lock.
std::vector<Session*>& sessions() {
  static auto& all = *new std::vector<Session*>;
  return all;
}

// Whether the operation has ended. Its request is then gone.
bool has_ended(rondo_request* request) {
  int done = 0;
  static_cast<void>(rondo_test(request, 0, &done));
  return done != 0;
}

}  // namespace

Session::Session(rondo_communicator* communicator)
    : communicator_(communicator), generation_(generation.load()) {
  sessions().push_back(this);
}

Session::~Session() {
  close();
  std::erase(sessions(), this);
}

bool Session::in_child() const noexcept {
  return generation.load(std::memory_order_relaxed) != generation_;
}

Session::Inside::Inside(Session& session) noexcept : session_(session) {
  session_.inside_.fetch_add(1);
  open_ = !session_.closing_.load();
}

void Session::Inside::leave() noexcept {
  if (session_.inside_.fetch_sub(1) == 1 && session_.closing_.load()) session_.inside_.notify_all();
}

void Session::close() {
  if (closing_.exchange(true)) {
    if (in_child()) return;
    const Unlocked unlocked;
    closed_.wait(false);
    return;
  }
  {
    const Unlocked unlocked;
    if (!in_child()) {
      int others = inside_.load();
      if (others != 0)
        rondo_abort_text(communicator_, RONDO_ABORTED, "another thread closed the communicator");
      for (; others != 0; others = inside_.load()) inside_.wait(others);
    }
    rondo_destroy(communicator_);
    closed_.store(true);
    closed_.notify_all();
  }
  settle_kept();
}

Outcome Session::poll(rondo_request* request, std::chrono::milliseconds time, bool& done) {
  const auto look = [&](std::chrono::milliseconds most) {
    int ended = 0;
    Outcome outcome =
        Outcome::of(rondo_poll(request, static_cast<std::uint64_t>(most.count()), &ended));
    done = ended != 0;
    return outcome;
  };
  {
    const Inside inside(*this);
    if (inside.is_open() || in_child()) return look(time);
  }
  // The end of the communicator ends the operation.
  closed_.wait(false);
  return look({});
}

void Session::keep(Pending pending) {
  kept_.push_back(std::move(pending));
  if (is_closed()) settle_kept();
}

// To release a buffer may run code of Python, so the list is not touched meanwhile.
void Session::settle_kept() {
  if (kept_.empty() || in_child()) return;
  const auto ended = std::partition(kept_.begin(), kept_.end(),
                                    [](const Pending& p) { return !has_ended(p.request); });
  const std::vector<Pending> done(std::make_move_iterator(ended),
                                  std::make_move_iterator(kept_.end()));
  kept_.erase(ended, kept_.end());
}

void close_all_sessions() {
  while (!sessions().empty()) {
    Session& last = *sessions().back();
    sessions().pop_back();
    last.close();
  }
}

void refuse_closed() {
  refuse("the communicator is closed");
}

}  // namespace rondo::python
