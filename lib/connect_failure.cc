// SPDX-License-Identifier: Apache-2.0
#include "lib/connect_failure.h"

#include <rondo/error.h>

namespace rondo::lib {
namespace {

// Rank 0 answers at once. If it does not, this rank's own control plane decides within two seconds.
constexpr milliseconds verdict_time{3'000};

engine::Failure failure_of(const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  const bool ours = known != nullptr && known->code().category() == error_category();
  return {ours ? static_cast<Errc>(known->code().value()) : Errc::system, error.what()};
}

}  // namespace

std::string could_not_connect(int rank, const std::string& why) {
  const std::string who = "rank " + std::to_string(rank) + " ";
  // No rank is to blame for a message that begins so: all ranks find it out together.
  const bool known = why.starts_with(who) || why.starts_with("the ranks ");
  return known ? why : who + "could not connect: " + why;
}

void fail_before_joining(const rendezvous::Place& place, const Options& options,
                         const std::exception& error) {
  const engine::Failure failure = rendezvous::fail_to_join(place, options, failure_of(error));
  throw Error(failure.code, failure.cause);
}

void fail_together(control::Control& control, int rank, const std::exception& error) {
  engine::Failure failure = failure_of(error);
  failure.cause = could_not_connect(rank, failure.cause);
  control.report(failure);
  const auto first = control.await_failure(base::after(base::Clock::now(), verdict_time));
  throw Error(first ? first->code : failure.code, first ? first->cause : failure.cause);
}

}  // namespace rondo::lib
