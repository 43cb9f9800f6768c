// SPDX-License-Identifier: Apache-2.0
//
// Each stage works on one part of one call at a time, in an order that depends on the calls alone.
// So the ranks of a host meet in the same direct operation without talking about it.
#include "collectives/lanes/two_level_owner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/lanes/direct_owner.h"

namespace rondo::lanes {

namespace {

// Steps of a host's part that may follow each other before the links and the other lanes get their
// turn.
constexpr int host_steps_in_a_row = 4;

std::span<const int> ranks_beside(int rank, const schedules::Hosts& hosts) {
  return hosts.on(hosts.host(rank));
}

direct::DirectOptions lane_of(const TwoLevelOwner::Options& options, std::span<const int> ranks,
                              direct::DirectUse use) {
  return {.rank = options.rank,
          .ranks = ranks,
          .use = use,
          .in_steps = false,
          .device_chunk_bytes = options.device_chunk_bytes};
}

std::array<std::vector<schedules::Row>, collective_count> all_rows(int rank,
                                                                   const schedules::Hosts& hosts) {
  std::array<std::vector<schedules::Row>, collective_count> rows;
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = schedules::rows_inside(static_cast<Collective>(i), hosts.host(rank), hosts);
  return rows;
}

}  // namespace

TwoLevelOwner::TwoLevelOwner(transports::Windows& windows, const Options& options, Parts parts,
                             operation::LaneCalls& calls, ScheduledLane& links,
                             operation::OwnerHost& host)
    : priority_(options.priority),
      ranks_(ranks_beside(options.rank, options.hosts).begin(),
             ranks_beside(options.rank, options.hosts).end()),
      local_(static_cast<std::size_t>(options.hosts.local(options.rank))),
      rows_(all_rows(options.rank, options.hosts)),
      calls_(calls),
      links_(links),
      host_(host),
      stages_{Stage{{windows, lane_of(options, ranks_, direct::DirectUse::sums), priority_},
                    std::move(parts[sums])},
              Stage{{windows, lane_of(options, ranks_, direct::DirectUse::copies), priority_},
                    std::move(parts[copies])}},
      blocks_(ranks_.size()) {}

// The root's host shares the buffer before the links carry it, or collects what they bring. On
// other hosts, and in a barrier, a leader has a token to send when all ranks have called, and one
// to pass on at the end.
std::optional<Collective> TwoLevelOwner::part_of(Which which,
                                                 const schedules::Signature& s) const noexcept {
  const base::Traits& traits = base::traits_of(s.operation);
  const bool roots =
      traits.rooted() && std::ranges::binary_search(ranks_, static_cast<int>(s.root));
  if (which == sums) {
    if (traits.reduces) return Collective::reduce_scatter_v;
    if (roots) return Collective::broadcast;
    return traits.gathers() ? std::nullopt : std::optional(Collective::barrier);
  }
  if (traits.scatters() || (roots && !traits.reduces)) return std::nullopt;
  if (s.operation == Collective::barrier) return Collective::barrier;
  if (s.operation == Collective::reduce) return roots ? Collective::gather : Collective::barrier;
  return Collective::all_gather_v;
}

void TwoLevelOwner::begin(operation::ScheduledOperation& operation) {
  for (const Which which : {sums, copies}) {
    if (!part_of(which, operation.signature)) continue;
    Stage& stage = stages_[which];
    operation.stages[which] = {};
    if (which == sums) limit_links(operation);
    (stage.first == nullptr ? stage.first : stage.last->stages[which].next) = &operation;
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
  for (int i = 0; i < host_steps_in_a_row; ++i) {
    if (stage.lane.idle() && !begin_part(which)) break;
    const bool listens = which == sums && calls_.watch().waits_for_ranks(*stage.first);
    const Step step = stage.lane.advance();
    if (step == Step::none) break;
    if (listens && (step == Step::done || stage.lane.agreed()))
      calls_.watch().heard_all(*stage.first);
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

// The ranks of a host take the parts in one order, which depends on the call alone. In an
// all_gather the blocks of this host come first, in all segments: no link brings them.
TwoLevelOwner::Part TwoLevelOwner::next_part(Which which) const noexcept {
  const operation::ScheduledOperation& whole = *stages_[which].first;
  const std::uint64_t done = whole.stages[which].done, segments = whole.run.segments();
  if (part_of(which, whole.signature) == Collective::barrier) return {};
  const std::size_t count = rows(whole.signature.operation).size();
  if (!base::traits_of(whole.signature.operation).gathers())
    return {done / count, done % count, which == sums};
  if (done < segments) return {done, 0, true};
  return {(done - segments) / (count - 1), 1 + (done - segments) % (count - 1), false};
}

// Sums run ahead of the links by as many segments as these hold, so links find the next sums ready.
// Sums that lie in staging memory run ahead only as far as it reaches, and not over what is still
// to be gathered there. The root shares a segment when all other hosts have called.
bool TwoLevelOwner::ready(Which which, const Part& part) const {
  operation::ScheduledOperation& whole = *stages_[which].first;
  if (!whole.mark.reached) return false;
  const operation::Run& run = whole.run;
  const auto does = part_of(which, whole.signature);
  if (does == Collective::barrier) return which == sums || run.complete();
  if (which == copies) return part.of_inputs || part.segment < run.segments_done();
  if (does == Collective::broadcast && run.program().leading_tokens() != 0)
    return run.has_tokens(part.segment);
  if (part_of(copies, whole.signature) == Collective::gather &&
      part.segment >= whole.stages[copies].done + run.window())
    return false;
  return part.segment < std::min(run.segments_openable() + run.window(), run.segments_with_room());
}

// Writes to blocks_ where the ranks' slices of a part lie in the buffer.
void TwoLevelOwner::lay_out(const operation::ScheduledOperation& whole, const Part& part) {
  const schedules::Row& row = rows(whole.signature.operation)[part.row];
  for (std::size_t local = 0; local < row.size(); ++local) {
    const auto [first, end] = row[local];
    blocks_[local] = {};
    if (first == end) continue;
    const schedules::Range last = whole.run.place(part.segment, end - 1);
    const std::size_t start = whole.run.place(part.segment, first).offset;
    blocks_[local] = {start, last.offset + last.count - start};
  }
}

// Begins the next part of the first call, if it is ready.
bool TwoLevelOwner::begin_part(Which which) {
  Stage& stage = stages_[which];
  if (stage.first == nullptr) return false;
  const Part part = next_part(which);
  if (!ready(which, part)) return false;
  const operation::ScheduledOperation& whole = *stage.first;
  schedules::Call call;
  call.signature = whole.signature;
  call.signature.operation = *part_of(which, whole.signature);
  call.signature.root = static_cast<std::uint32_t>(
      std::ranges::lower_bound(ranks_, static_cast<int>(whole.signature.root)) - ranks_.begin());
  call.signature.count = 0;
  call.priority = priority_;
  if (call.signature.operation != Collective::barrier) give_memory(which, part, call);
  const operation::DeviceInside& inside = whole.staged.inside;
  stage.operation->memory = which == sums ? inside.sums : inside.copies;
  stage.operation->in_is_pinned = whole.run.staged() && which == copies && !part.of_inputs;
  stage.operation->out_is_pinned = whole.run.staged() && which == sums;
  const bool has_blocks = base::traits_of(call.signature.operation).blocks;
  stage.operation->keep_blocks(std::span(blocks_).first(has_blocks ? blocks_.size() : 0));
  stage.operation->start_part(call, whole.signature, whole.number);
  stage.lane.begin(*stage.operation);
  return true;
}

// Writes the elements and the memory of a part to its call.
void TwoLevelOwner::give_memory(Which which, const Part& part, schedules::Call& call) {
  const operation::ScheduledOperation& whole = *stages_[which].first;
  const operation::Run& run = whole.run;
  lay_out(whole, part);
  for (const schedules::Range& block : blocks_) call.signature.count += block.count;
  if (call.signature.operation == Collective::broadcast) {
    const std::size_t element = size_of(whole.signature.type);
    const std::size_t start = blocks_.front().offset * element;
    call.out = whole.out + start;
    call.out_bytes = call.signature.count * element;
    if (call.signature.root != local_) return;
    call.in = whole.in + start;
    call.in_bytes = call.out_bytes;
    return;
  }
  const schedules::Slices own = rows(whole.signature.operation)[part.row][local_];
  const std::size_t own_bytes = blocks_[local_].count * size_of(whole.signature.type);
  // A rank without slices in this row neither gives nor gets any bytes there. What links bring has
  // staging memory, but perhaps not yet what this rank has put in.
  const bool has_value = own.first != own.end && !(which == copies && part.of_inputs);
  std::byte* const value = has_value ? run.value(part.segment, own.first) : whole.out;
  if (which == sums) {
    // The last hop between hosts finishes the result.
    if (call.signature.op == ReduceOp::mean) call.signature.op = ReduceOp::sum;
    call.signature.scale = run.input_factor();
    call.input_scale = whole.input_scale;
    call.in = whole.in;
    call.in_bytes = whole.in_bytes;
    call.out = value;
    call.out_bytes = own_bytes;
  } else {
    call.in = part.of_inputs ? run.input_in_buffer(part.segment, own.first) : value;
    call.in_bytes = own_bytes;
    call.out = whole.out;
    call.out_bytes = whole.out_bytes;
  }
}

// Steps come in the order of the rows, so a row that is summed lets its steps begin. Tokens before
// the first value wait for nothing here, unless this host waits for its ranks.
void TwoLevelOwner::limit_links(operation::ScheduledOperation& whole) const noexcept {
  const std::uint64_t done = whole.stages[sums].done;
  if (part_of(sums, whole.signature) == Collective::barrier)
    return whole.run.limit(done * whole.run.segments(), 0);
  const Rows& rows = this->rows(whole.signature.operation);
  std::uint32_t steps = whole.run.program().leading_tokens();
  for (std::size_t row = 0; row < done % rows.size(); ++row)
    for (std::uint32_t slice = rows[row][local_].first; slice < rows[row][local_].end; ++slice)
      steps += static_cast<std::uint32_t>(whole.run.program().chain(slice).size());
  whole.run.limit(done / rows.size(), steps);
}

void TwoLevelOwner::end_part(Which which) {
  Stage& stage = stages_[which];
  operation::ScheduledOperation& whole = *stage.first;
  const std::size_t count = rows(whole.signature.operation).size();
  const std::uint64_t done = ++whole.stages[which].done;
  if (which == sums) limit_links(whole);
  if (which == copies && whole.run.staged() && ends_segment(whole)) whole.run.stored();
  if (part_of(which, whole.signature) != Collective::barrier && done < whole.run.segments() * count)
    return;
  stage.first = whole.stages[which].next;
  if (which == sums || !whole.ends_in_memory) return;
  links_.take_back_staging(whole);
  calls_.ended(whole);
  host_.finished(whole);
}

// Whether the copies that have been made are all those of a segment and of the segments before it.
bool TwoLevelOwner::ends_segment(const operation::ScheduledOperation& whole) const noexcept {
  const std::uint64_t done = whole.stages[copies].done, segments = whole.run.segments();
  const std::size_t count = rows(whole.signature.operation).size();
  if (!base::traits_of(whole.signature.operation).gathers()) return done % count == 0;
  return done > segments && (done - segments) % (count - 1) == 0;
}

// A rank's post does not agree with the first call of the stage.
void TwoLevelOwner::refuse(const Stage& stage) {
  if (const auto theirs = stage.lane.offence())
    return host_.suspect(calls_.disagreement(stage.lane.offender(), stage.first, *theirs));
  host_.suspect(
      {Errc::corrupt,
       fmt::format("rank {} has posted a call that cannot be read", stage.lane.offender()),
       -1,
       {stage.lane.offender()}});
}

// Ranks of this host tell by their posts of the first sums, where there are sums. Later posts, and
// links where there are sums, need what others have done. So does the post of a broadcast's root.
operation::Standing TwoLevelOwner::standing(const operation::Operation& operation,
                                            bool wants_only) {
  const auto& scheduled = static_cast<const operation::ScheduledOperation&>(operation);
  Stage& stage = stages_[sums];
  if (stage.first == &operation && scheduled.stages[sums].done == 0 &&
      part_of(sums, scheduled.signature) != Collective::broadcast)
    return standing_of(stage.lane, wants_only);
  return links_.standing(operation, wants_only);
}

// Where the sums of the next segment are missing, other hosts are not to blame.
void TwoLevelOwner::append_awaited(const operation::Operation& operation,
                                   operation::Awaited& awaited) const {
  const std::size_t before = awaited.ranks.size();
  for (const Stage& stage : stages_) {
    if (stage.first != &operation) continue;
    awaited.device = stage.first->awaited_mark();
    if (awaited.device.empty()) awaited.device = stage.lane.awaited_device();
    if (!awaited.device.empty()) return;
    stage.lane.append_awaited(awaited.ranks);
  }
  if (awaited.ranks.size() == before) links_.append_awaited(operation, awaited);
}

operation::Traffic TwoLevelOwner::traffic() const noexcept {
  operation::Traffic result;
  for (const Stage& stage : stages_) result.bytes_received += stage.lane.bytes_loaded();
  return result;
}

void TwoLevelOwner::append_views(std::vector<operation::PeerView>& views) const {
  for (const Stage& stage : stages_) stage.lane.append_views(calls_.lane(), views);
}

}  // namespace rondo::lanes
