// SPDX-License-Identifier: Apache-2.0
#include "collectives/lanes/direct_owner.h"

#include <fmt/format.h>

namespace rondo::lanes {

namespace {

// The most in one pass: steps, and chunks of an urgent call.
constexpr int steps_in_a_row = 16, chunks_in_a_row = 4;

}  // namespace

DirectOwner::DirectOwner(transports::Windows& windows, const direct::DirectOptions& options,
                         Priority priority, operation::LaneCalls& calls, operation::OwnerHost& host)
    : priority_(priority), calls_(calls), host_(host), lane_(windows, options, priority) {}

bool DirectOwner::run() {
  using Step = direct::DirectLane::Step;
  bool moved = false;
  int chunks = 0;
  for (int i = 0; i < steps_in_a_row && !lane_.idle(); ++i) {
    operation::DirectOperation& operation = lane_.first();
    const bool listens = calls_.watch().waits_for_ranks(operation);
    const Step step = lane_.advance();
    if (step == Step::none) break;
    if (listens && (step == Step::done || lane_.agreed())) calls_.watch().heard_all(operation);
    moved = true;
    calls_.moved();
    if (step == Step::done) {
      calls_.ended(operation);
      host_.finished(operation);
    }
    // A large operation has moved a chunk: the urgent lane gets its turn first.
    if (step == Step::moved && (priority_ == Priority::bulk || ++chunks == chunks_in_a_row)) break;
    if (step == Step::refused) {
      refuse();
      break;
    }
  }
  return moved;
}

// A rank's post does not agree with the first operation.
void DirectOwner::refuse() {
  if (const auto theirs = lane_.offence())
    return host_.suspect(calls_.disagreement(lane_.offender(), &lane_.first(), *theirs));
  host_.suspect({Errc::corrupt,
                 fmt::format("rank {} has posted a call that cannot be read", lane_.offender()),
                 -1,
                 {lane_.offender()}});
}

operation::Standing standing_of(direct::DirectLane& lane, bool wants_only) {
  if (lane.idle() || lane.agreed()) return {};
  operation::Standing result{WaitCause::ranks};
  if (const auto only = wants_only ? lane.only_missing() : std::nullopt) {
    result.only = *only;
    result.warns = lane.is_first_but(*only);
  }
  return result;
}

// The lane knows this only of its first operation, for which those behind it wait.
void DirectOwner::append_awaited(const operation::Operation&, operation::Awaited& awaited) const {
  lane_.append_awaited(awaited.ranks);
  awaited.device = lane_.awaited_device();
}

operation::Traffic DirectOwner::traffic() const noexcept {
  operation::Traffic result;
  result.bytes_received = lane_.bytes_loaded();
  return result;
}

void DirectOwner::append_views(std::vector<operation::PeerView>& views) const {
  lane_.append_views(calls_.lane(), views);
}

}  // namespace rondo::lanes
