// SPDX-License-Identifier: Apache-2.0
#include "python/core/session.h"

namespace rondo::python {

void Session::abort(const std::string& why) noexcept {
  const Inside inside(*this);
  if (!is_closed()) communicator_->abort(make_error_code(Errc::aborted), why);
}

bool Session::close(const char* abort) noexcept {
  if (closing_.exchange(true)) {
    if (!in_child()) closed_.wait(false);
    return false;
  }
  if (!in_child()) {
    int others = inside_.load();
    if (others != 0 && abort != nullptr)
      communicator_->abort(make_error_code(Errc::aborted), abort);
    for (; others != 0; others = inside_.load()) inside_.wait(others);
  }
  communicator_.reset();
  closed_.store(true);
  closed_.notify_all();
  return true;
}

}  // namespace rondo::python
