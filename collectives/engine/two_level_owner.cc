// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/two_level_owner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/schedules/schedules.h"

namespace rondo::engine {

namespace {

constexpr int steps_in_a_row = 4;

std::span<const int> ranks_beside(int rank, const schedules::Hosts& hosts) {
  return hosts.on(hosts.host(rank));
}

std::vector<std::uint32_t> first_slices(int ranks, const schedules::Hosts& hosts) {
  std::vector<std::uint32_t> slices;
  for (int local = 0; local <= ranks; ++local)
    slices.push_back(schedules::number(schedules::first_rail(local, ranks, hosts.most_on_a_host()) *
                                       hosts.count()));
  return slices;
}

}  // namespace

TwoLevelOwner::TwoLevelOwner(transports::Windows& windows, const Options& options, Parts parts,
                             LaneCalls& calls, const ScheduledLane& links, OwnerHost& host)
    : priority_(options.priority),
      ranks_(ranks_beside(options.rank, options.hosts).begin(),
             ranks_beside(options.rank, options.hosts).end()),
      local_(schedules::number(options.hosts.local(options.rank))),
      first_slices_(first_slices(static_cast<int>(ranks_.size()), options.hosts)),
      calls_(calls),
      links_(links),
      host_(host),
      stages_{Stage{{windows, {options.rank, ranks_, direct::DirectUse::sums}, priority_},
                    std::move(parts[sums])},
              Stage{{windows, {options.rank, ranks_, direct::DirectUse::copies}, priority_},
                    std::move(parts[copies])}},
      counts_(ranks_.size()) {}

void TwoLevelOwner::begin(ScheduledOperation& operation) {
  operation.run.limit(0);
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    Stage& stage = stages_[i];
    operation.stages[i] = {};
    (stage.first == nullptr ? stage.first : stage.last->stages[i].next) = &operation;
    stage.last = &operation;
  }
}

void TwoLevelOwner::clear() noexcept {
  for (Stage& stage : stages_) {
    stage.lane.clear();
    stage.first = stage.last = nullptr;
  }
}

// Copies come first: they end calls.
bool TwoLevelOwner::run() {
  const Outcome copied = run(copies);
  if (copied == Outcome::refused) return true;
  return run(sums) != Outcome::nothing || copied == Outcome::moved;
}

TwoLevelOwner::Outcome TwoLevelOwner::run(Which which) {
  using Step = direct::DirectLane::Step;
  Stage& stage = stages_[which];
  Outcome outcome = Outcome::nothing;
  for (int i = 0; i < steps_in_a_row; ++i) {
    if (stage.lane.idle() && !begin_part(which)) break;
    const Step step = stage.lane.advance();
    if (step == Step::none) break;
    outcome = Outcome::moved;
    calls_.moved();
    if (step == Step::done) end_part(which);
    if (step == Step::refused) {
      refuse(stage);
      return Outcome::refused;
    }
    // A large segment has moved a chunk: the urgent lane and the links get their turn first.
    if (step == Step::moved && priority_ == Priority::bulk) break;
  }
  return outcome;
}

// Begins the part for the next segment of the first call, if the segment is ready for this stage.
// Sums run ahead of the links by as many segments as these hold, so links find the next sums ready.
bool TwoLevelOwner::begin_part(Which which) {
  Stage& stage = stages_[which];
  if (stage.first == nullptr) return false;
  const ScheduledOperation& whole = *stage.first;
  const std::uint64_t segment = whole.stages[which].done;
  const std::uint64_t ready =
      which == sums ? whole.run.segments_open() + whole.run.window() : whole.run.segments_done();
  if (segment >= std::min(ready, whole.run.segments())) return false;

  const auto start_of = [&](std::size_t local) {
    return whole.run.place(segment, first_slices_[local]).offset;
  };
  const schedules::Range last = whole.run.place(segment, first_slices_.back() - 1);
  const std::size_t start = start_of(0), end = last.offset + last.count;
  for (std::size_t local = 0; local < counts_.size(); ++local)
    counts_[local] = (local + 1 < counts_.size() ? start_of(local + 1) : end) - start_of(local);

  const std::size_t element = size_of(whole.signature.type);
  std::byte* const own = whole.out + start_of(local_) * element;
  const std::size_t own_bytes = counts_[local_] * element, bytes = (end - start) * element;
  schedules::Call call;
  call.signature = whole.signature;
  call.signature.count = end - start;
  call.counts = counts_;
  call.priority = priority_;
  if (which == sums) {
    // The last hop between hosts finishes the result.
    call.signature.operation = Collective::reduce_scatter_v;
    if (call.signature.op == ReduceOp::mean) call.signature.op = ReduceOp::sum;
    call.signature.scale = whole.run.input_factor();
    call.in = whole.in + start * element;
    call.in_bytes = bytes;
    call.out = own;
    call.out_bytes = own_bytes;
  } else {
    call.signature.operation = Collective::all_gather_v;
    call.in = own;
    call.in_bytes = own_bytes;
    call.out = whole.out + start * element;
    call.out_bytes = bytes;
  }
  stage.part->keep_counts(call);
  stage.part->start_part(call, whole.signature, whole.number);
  stage.lane.begin(*stage.part);
  return true;
}

void TwoLevelOwner::end_part(Which which) {
  Stage& stage = stages_[which];
  ScheduledOperation& whole = *stage.first;
  const std::uint64_t done = ++whole.stages[which].done;
  if (which == sums) whole.run.limit(done);
  if (done < whole.run.segments()) return;
  stage.first = whole.stages[which].next;
  if (which == sums) return;
  calls_.ended(whole);
  host_.finished(whole);
}

// A rank's post does not agree with the first call of the stage.
void TwoLevelOwner::refuse(const Stage& stage) {
  if (const auto theirs = stage.lane.offence())
    return host_.suspect(calls_.disagreement(stage.lane.offender(), stage.first, *theirs));
  host_.suspect({Errc::corrupt, fmt::format("rank {} has posted a call that cannot be read",
                                            stage.lane.offender())});
}

// Where the sums of the next segment are missing, other hosts are not to blame.
void TwoLevelOwner::append_awaited(const Operation& operation, std::vector<int>& ranks) const {
  const std::size_t before = ranks.size();
  for (const Stage& stage : stages_)
    if (stage.first == &operation) stage.lane.append_awaited(ranks);
  if (ranks.size() == before) links_.append_awaited(operation, ranks);
}

std::string TwoLevelOwner::late_text(const Operation& operation) const {
  std::vector<int> ranks;
  append_awaited(operation, ranks);
  return calls_.late_text(operation.time_limit, ranks);
}

Traffic TwoLevelOwner::traffic() const noexcept {
  Traffic result;
  for (const Stage& stage : stages_) result.bytes_received += stage.lane.bytes_loaded();
  return result;
}

}  // namespace rondo::engine
