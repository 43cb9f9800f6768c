// SPDX-License-Identifier: Apache-2.0
#include "grad/failure.h"

#include <fmt/format.h>

#include <exception>

#include <rondo/error.h>

namespace rondo::grad {

void Failure::check() const {
  if (!happened()) return;
  const std::lock_guard lock(mutex_);
  throw Error(code_, message_);
}

void Failure::keep(std::error_code code, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (!happened()) {
      code_ = code;
      message_ = message;
      happened_.store(true, std::memory_order_release);
    }
  }
  lib::release_bulk(setup_.communicator, &setup_);
}

void Failure::keep_current(std::uint64_t step) {
  const auto tell = [&](const std::exception& error) {
    std::string text = fmt::format("rank {}: gradient buckets: step {}: {}",
                                   setup_.communicator.rank(), step, error.what());
    setup_.communicator.abort(Errc::aborted, text);
    return text;
  };
  try {
    throw;
  } catch (const Error& error) {
    keep(error.code(), error.what());
    if (error.code() != Errc::mismatch) tell(error);
  } catch (const std::exception& error) {
    keep(Errc::system, tell(error));
  }
}

}  // namespace rondo::grad
