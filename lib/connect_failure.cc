// SPDX-License-Identifier: Apache-2.0
#include "lib/connect_failure.h"

#include <rondo/error.h>

#include "lib/wire/join_report.h"

namespace rondo::lib {
namespace {

// Rank 0 answers at once. If it does not, this rank's own control plane decides within two seconds.
constexpr milliseconds verdict_time{3'000};

operation::Failure failure_of(const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  const bool ours = known != nullptr && known->code().category() == error_category();
  return {ours ? static_cast<Errc>(known->code().value()) : Errc::system, error.what()};
}

}  // namespace

void fail_before_joining(const rendezvous::Place& place, const Options& options,
                         const std::exception& error) {
  const operation::Failure failure = rendezvous::fail_to_join(place, options, failure_of(error));
  throw Error(failure.code, failure.cause);
}

void fail_together(control::Control& control, int rank, const std::exception& error) {
  operation::Failure failure = failure_of(error);
  failure.cause = wire::could_not_connect(rank, failure.cause);
  control.report(failure);
  const auto first = control.await_failure(base::after(base::Clock::now(), verdict_time));
  throw Error(first ? first->code : failure.code, first ? first->cause : failure.cause);
}

}  // namespace rondo::lib
