// SPDX-License-Identifier: Apache-2.0
#include "lib/rendezvous/rendezvous.h"

#include <openssl/rand.h>

#include <algorithm>
#include <mutex>

#include <rondo/error.h>

#include "base/interruption.h"
#include "lib/rendezvous/joiner.h"
#include "lib/rendezvous/meeting.h"
#include "lib/rendezvous/rank_zero.h"
#include "lib/settings/reachability.h"

namespace rondo::rendezvous {

std::uint64_t fresh_job() {
  std::uint64_t job = 0;
  while (job == 0)
    if (RAND_bytes(reinterpret_cast<unsigned char*>(&job), sizeof job) != 1)
      throw Error(Errc::system, "no random bytes from OpenSSL for the job's nonce");
  return job;
}

namespace {

// If the program interrupts the join, tells rank 0 why, if rank 0 can be found.
JoinResult join_or_give_up(const Place& place, const Options& options,
                           const transports::Blob& record) {
  try {
    return join_rank_zero(place, options, record);
  } catch (const base::Interrupted& interrupted) {
    Place hasty = place;
    hasty.deadline = base::after(base::Clock::now(), milliseconds{1'000});
    const std::string who = "rank " + std::to_string(place.rank) + " could not connect: ";
    try {
      if (place.group.empty())
        report_to_rank_zero(hasty, options, {Errc::aborted, who + interrupted.what()}, false);
    } catch (const std::exception&) {  // rank 0 is not there
    }
    throw;
  }
}

}  // namespace

Joined join(const Place& place, const Options& options, const transports::Blob& record) {
  if (record.size() > wire::most_record_bytes)
    throw Error(Errc::invalid_argument,
                "the record of rank " + std::to_string(place.rank) + " has " +
                    std::to_string(record.size()) + " bytes: at most " +
                    std::to_string(wire::most_record_bytes) + " are possible");
  if (place.size == 1) return {fresh_job(), {record}, nullptr};
  // Threads that join at the same time would take each other's ranks.
  std::unique_lock<std::timed_mutex> turn;
  if (place.meeting) {
    turn = std::unique_lock(place.meeting->turn, std::defer_lock);
    if (!turn.try_lock_until(place.deadline))
      throw Error(Errc::deadline_exceeded, "another thread of rank " + std::to_string(place.rank) +
                                               " was joining until the deadline");
  }
  JoinResult result = place.rank == 0 ? accept_all_ranks(place, options, record)
                                      : join_or_give_up(place, options, record);
  Joined joined{result.job, std::move(result.records), nullptr};
  joined.control = place.rank == 0
                       ? control::make_hub(std::move(result.streams), std::move(result.members))
                       : control::make_spoke(std::move(result.streams.front()), place.rank);
  return joined;
}

namespace {

// A filter with a mistake cannot say where to listen: listen as if there was none.
Options without_bad_filter(Options options) {
  try {
    settings::describe_interfaces(options.interfaces);
  } catch (const Error&) {
    options.interfaces.clear();
  }
  return options;
}

}  // namespace

operation::Failure fail_to_join(const Place& place, const Options& options,
                                const operation::Failure& failure) {
  // The groups of a split report failures over the parent instead.
  if (place.size == 1 || !place.group.empty()) return failure;
  operation::Failure told{
      failure.code, "rank " + std::to_string(place.rank) + " cannot take part: " + failure.cause};
  const base::TimePoint until =
      std::min(place.deadline, base::after(base::Clock::now(), failure_grace));
  try {
    Place hasty = place;
    hasty.deadline = until;
    if (place.by_launcher != settings::ExchangeKind::none && !place.meeting)
      meet_by_launcher(hasty, without_bad_filter(options));
    if (place.rank == 0) return refuse_all(hasty, without_bad_filter(options), told, until);
    return report_to_rank_zero(hasty, options, told);
  } catch (const std::exception&) {  // nobody is there to hear it
    return told;
  }
}

}  // namespace rondo::rendezvous
