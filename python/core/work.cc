// SPDX-License-Identifier: Apache-2.0
#include "python/core/work.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "python/core/error.h"

namespace rondo::python {

namespace {

using std::chrono::steady_clock;

// Operations that nobody waits for. A forked child leaves those of its parent alone.
std::vector<Pending>& kept() {
  return of_this_process<std::vector<Pending>>();
}

void keep(Pending pending) {
  if (!pending.work.done()) kept().push_back(std::move(pending));
}

}  // namespace

// To release a buffer may run code of Python, so the list is not touched meanwhile.
void settle_kept() {
  std::vector<Pending>& all = kept();
  if (all.empty()) return;
  const auto ended =
      std::partition(all.begin(), all.end(), [](const Pending& p) { return !p.work.done(); });
  const std::vector<Pending> done(std::make_move_iterator(ended),
                                  std::make_move_iterator(all.end()));
  all.erase(ended, all.end());
}

Work::~Work() {
  if (ended_) return;
  if (session_->in_child())
    static_cast<void>(new Pending(std::move(pending_)));  // of the parent, whose locks may be held
  else
    keep(std::move(pending_));
}

bool Work::drive(Session::TimePoint until) {
  return session_->await(pending_.work, until, run_signal_handlers);
}

void Work::end() {
  ended_ = true;
  const Borrowed last = std::exchange(pending_.buffers, {});
}

bool Work::look(Session::TimePoint until) {
  if (ended_) return true;
  {
    const Unlocked unlocked;
    if (!drive(until)) return false;
  }
  end();
  return true;
}

void Work::check() const {
  if (pending_.work.error()) throw Error(pending_.work.error(), pending_.work.message());
}

bool Work::wait(std::optional<std::chrono::milliseconds> time) {
  const auto until = time ? base::after(steady_clock::now(), *time) : Session::TimePoint::max();
  if (!look(until)) return false;
  check();
  return true;
}

bool Work::done() {
  if (!ended_ && session_->in_child()) return pending_.work.done();  // its parent drives it
  return look(steady_clock::now());
}

py::object Work::error() {
  if (!done() || !pending_.work.error()) return py::none();
  return exception_of({pending_.work.error(), pending_.work.message()});
}

py::object Work::source() {
  const int rank = done() ? pending_.work.source() : -1;
  return rank >= 0 ? py::object(py::int_(rank)) : py::none();
}

}  // namespace rondo::python
