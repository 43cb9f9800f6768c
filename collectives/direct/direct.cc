// SPDX-License-Identifier: Apache-2.0
//
// Writes the posts of this rank and decides from the posts of all.
#include "collectives/direct/direct.h"

#include <algorithm>
#include <utility>

#include <rondo/error.h>

#include "base/mix.h"

namespace rondo::direct {

namespace {

// The chunk of buffers in windows, which grows where a rank's part would be less than the second
// number. It bounds the time of one advance().
constexpr std::size_t window_chunk_bytes = std::size_t{512} << 10,
                      least_window_part = std::size_t{32} << 10;

// The least chunk through slots in device memory.
constexpr std::size_t least_device_slot_chunk = std::size_t{1} << 20;

}  // namespace

DirectLane::DirectLane(transports::Windows& windows, const DirectOptions& options, Priority lane)
    : windows_(windows),
      ranks_(options.ranks.begin(), options.ranks.end()),
      size_(ranks_.size()),
      rank_(static_cast<std::size_t>(std::ranges::lower_bound(ranks_, options.rank) -
                                     ranks_.begin())),
      device_chunk_bytes_(options.device_chunk_bytes),
      flags_(windows, ranks_, rank_, options.use, lane),
      exchange_(flags_, protocol_, options.in_steps, lane),
      places_(size_) {}

// A refusal of a device is a failure of the lane, not of the start: advance() posts then.
void DirectLane::begin(operation::DirectOperation& operation) {
  operation.turn = ++begun_;
  queue_.push(operation);
  if (next_ != nullptr) return;
  next_ = &operation;
  if (operation.memory == nullptr) post_more();
}

// Whether the next operation may be posted, as far as its own bytes are concerned.
bool DirectLane::is_ready() {
  if (!next_->mark.reached) return false;
  Mover* const mover = mover_of(*next_);
  return mover == nullptr || !next_rules_->eager || next_->in_is_pinned ||
         mover->load_value(*next_);
}

// Posts the operations that wait, in order, up to the first that must wait longer.
void DirectLane::post_more() {
  Bytes bytes{*this};
  while (next_ != nullptr && !protocol_.is_alone()) {
    if (!next_rules_) next_rules_ = rules_of(*next_);
    if (!protocol_.may_post(flags_, bytes, *next_rules_)) return;
    protocol_.post(flags_, bytes, *next_rules_);
    next_rules_.reset();
    next_ = queue_.after(*next_);
  }
}

// Whether the next operation is posted now.
bool DirectLane::post_next() {
  const operation::DirectOperation* const before = next_;
  post_more();
  return next_ != before;
}

// A rank without operations has none that another could still be ending: a rank leaves an operation
// on windows when all have read what they need.
void DirectLane::clear() noexcept {
  if (!queue_.empty()) flags_.stop();
  queue_.clear();
  next_ = nullptr;
}

CallRules DirectLane::rules_of(const operation::DirectOperation& operation) {
  const Form& form = this->form(operation);
  CallRules rules;
  rules.check = (base::mix_hash(form.hash, operation.number) & ~scaled_input) |
                (operation.input_scale != 1 ? scaled_input : 0);
  rules.chunks = form.shape.chunks();
  rules.eager = form.eager;
  rules.ring = form.ring;
  rules.reducing = form.roles.reducing();
  if (form.eager) return rules;
  const Roles& roles = form.roles;
  own_ = places_of(operation);
  rules.gives = roles.gives_any();
  rules.takes = roles.takes_any();
  rules.early = roles.needs_in(rank_) && own_.in.generation == 0 && own_.slots.generation == 0;
  return rules;
}

DirectPlaces DirectLane::places_of(const operation::DirectOperation& operation) {
  const Roles& roles = exchange_.form().roles;
  const Mover* const mover = mover_of(operation);
  DirectPlaces places;
  if (mover != nullptr && !mover->works_in_windows(roles.reducing())) {
    places.no_windows = 1;
    return places;
  }
  transports::Windows& windows = windows_of(operation);
  if (!operation.in_is_pinned && roles.may_show_in(operation.in == operation.out))
    places.in = windows.find(operation.in, operation.in_bytes);
  if (roles.gets_out(rank_)) places.out = windows.find(operation.out, operation.out_bytes);
  if (mover != nullptr) places.slots = mover->place_of_slots();
  return places;
}

void DirectLane::write_post(std::uint64_t sequence, std::uint64_t number) {
  const Form& form = this->form(*next_);
  Mover* const mover = mover_of(*next_);
  const bool is_packed = mover != nullptr && !next_->in_is_pinned;
  if (form.eager)
    exchange_.post_value(flags_.area(rank_).value(form.ring, number),
                         is_packed ? mover->value() : nullptr);
  write_details(sequence);
  if (!form.eager) posted_ = {&windows_of(*next_), own_};
  if (mover != nullptr) mover->posted(form.eager);
}

// Writes only what is new: most calls are like those before. Only calls with chunks have places.
void DirectLane::write_details(std::uint64_t sequence) {
  const Form& form = exchange_.form();
  DirectDetails& details = flags_.area(rank_).details(sequence);
  std::uint64_t& told = told_[sequence % direct_posts];
  if (told != form.hash) details.header = operation::encode({.signature = form.posted});
  told = form.hash;
  if (next_->input_scale != 1) details.input_scale = next_->input_scale;
  if (form.eager) return;
  if (details.places != own_) details.places = own_;
}

std::optional<operation::Frame> DirectLane::offence() const {
  const transports::HeaderBytes header =
      flags_.area(protocol_.offender()).details(protocol_.first()).header;
  auto frame = operation::decode(header);
  if (frame) frame->number = first().number;
  return frame;
}

// All ranks decide alike, since they decide from the posts. Maps what is used.
Agreement DirectLane::agree(std::uint64_t sequence) {
  // Copies the places once: the decision and the maps must be about the same ones, whatever a peer
  // writes meanwhile.
  for (std::size_t rank = 0; rank < size_; ++rank)
    places_[rank] = flags_.area(rank).details(sequence).places;
  const Ways ways = first().signature.on_device ? ways_of_device() : ways_of_places();
  map_places(ways);
  uses_windows_ = ways.in_windows || ways.out_windows;
  if (exchange_.form().roles.reducing()) exchange_.read_input_scales(sequence);
  if (const std::size_t bytes = chunk_bytes(ways); bytes != 0) exchange_.set_chunk(bytes);
  return {ways, exchange_.form().shape.chunks()};
}

Ways DirectLane::ways_of_places() const {
  return exchange_.form().roles.ways([&](std::size_t rank) {
    return Windowed{places_[rank].in.generation != 0, places_[rank].out.generation != 0};
  });
}

// Slots are in device memory if every rank's are. Otherwise they are in host memory, where no
// kernel combines, so nothing is used where it lies.
Ways DirectLane::ways_of_device() {
  constexpr auto has_slots = [](const DirectPlaces& places) {
    return places.slots.generation != 0;
  };
  if (std::ranges::any_of(places_, [](const auto& places) { return places.no_windows != 0; }))
    return {};
  const Ways ways = ways_of_places();
  if (!ways.slots) return ways;
  Mover* const mover = mover_of(first());  // null if this rank has no bytes
  if (mover == nullptr || !std::ranges::all_of(places_, has_slots)) {
    if (mover != nullptr) mover->want_slots();
    return {};
  }
  exchange_.device_slot_bytes = mover->slots().slot_bytes;
  return ways;
}

std::byte* DirectLane::map(std::size_t rank, transports::WindowPlace place, std::size_t bytes) {
  Mover* const mover = mover_of(first());
  std::byte* const data = mover != nullptr ? mover->map(ranks_[rank], place, bytes)
                                           : windows_.map(ranks_[rank], place, bytes);
  if (data == nullptr)
    throw Error(Errc::system, "the memory that rank " + std::to_string(ranks_[rank]) +
                                  " has allocated cannot be mapped: see the limits of this "
                                  "process on memory and maps");
  return data;
}

void DirectLane::map_places(const Ways& ways) {
  const Form& form = exchange_.form();
  const bool uses_device_slots = exchange_.device_slot_bytes != 0;
  const Mover::Slots own = uses_device_slots ? mover_of(first())->slots() : Mover::Slots();
  for (std::size_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    if (ways.in_windows && form.roles.needs_in(rank))
      exchange_.ins[rank] = map(rank, places_[rank].in, form.in_bytes(rank));
    if (ways.out_windows && form.roles.gets_out(rank))
      exchange_.outs[rank] = map(rank, places_[rank].out, first().signature.count * form.element);
    if (uses_device_slots)
      exchange_.device_slots[rank] = map(rank, places_[rank].slots, own.bytes());
  }
  exchange_.outs[rank_] = first().out;
  if (uses_device_slots) exchange_.device_slots[rank_] = own.memory;
}

// Returns what a chunk takes where it is not the form's; else 0.
std::size_t DirectLane::chunk_bytes(const Ways& ways) const noexcept {
  const schedules::Signature& s = first().signature;
  if (const std::size_t slot = exchange_.device_slot_bytes; slot != 0)
    return slot_chunk_bytes(s, slot, least_device_slot_chunk);
  if (ways.slots) return 0;
  return s.on_device ? device_chunk_bytes_
                     : std::max(window_chunk_bytes, least_window_part * size_);
}

// The result of a value in device memory is made in host memory, and stored from there.
void DirectLane::finish_value(std::uint64_t number) {
  if (exchange_.form().roles.plain() == Collective::barrier) return;
  Mover* const mover = first().out_is_pinned ? nullptr : mover_of(first());
  exchange_.finish_value(number, mover == nullptr ? first().out : mover->result());
  if (mover != nullptr) mover->store_result(exchange_);
}

// An operation that may have read what a failed rank has changed never ends by itself: the failure
// reaches this rank too.
DirectLane::Step DirectLane::advance() {
  if (cut_off_) return Step::none;
  if (next_ != nullptr && next_->memory != nullptr && post_next()) return Step::moved;
  if (queue_.first() == next_) return Step::none;
  Bytes bytes{*this};
  const Step step = protocol_.advance(flags_, bytes);
  if (step != Step::done) return step;
  exchange_.device_slot_bytes = 0;
  cut_off_ = std::exchange(uses_windows_, false) && flags_.any_stopped();
  if (cut_off_) return Step::none;
  if (Mover* const mover = mover_of(first())) mover->ended();
  if (transports::Windows* const windows = std::exchange(posted_.windows, nullptr)) {
    windows->ended(posted_.places.in);
    windows->ended(posted_.places.out);
    windows->ended(posted_.places.slots);
  }
  queue_.pop();
  post_more();
  return step;
}

std::optional<int> DirectLane::only_missing() {
  if (std::exchange(missing_turn_, first().turn) != first().turn) missing_cursor_ = 0;
  const std::size_t rank = protocol_.only_missing(flags_, missing_cursor_);
  return rank < size_ ? std::optional(ranks_[rank]) : std::nullopt;
}

std::uint64_t DirectLane::awaited() const noexcept {
  std::uint64_t bits = 0;
  if (queue_.first() != next_)
    protocol_.for_each_awaited(
        [&](std::size_t rank) { bits |= transports::wake_bit(ranks_[rank]); });
  return bits;
}

std::uint64_t DirectLane::lacking() const noexcept {
  std::uint64_t bits = 0;
  for (std::size_t rank = 0; queue_.first() != next_ && rank < size_; ++rank)
    if (rank != rank_ && protocol_.awaits(flags_, rank)) bits |= transports::wake_bit(ranks_[rank]);
  return bits;
}

void DirectLane::append_awaited(std::vector<int>& ranks) const {
  if (queue_.first() == next_) return;  // it is not posted, or there is none
  for (std::size_t rank = 0; rank < size_; ++rank)
    if (rank != rank_ && protocol_.awaits(flags_, rank)) ranks.push_back(ranks_[rank]);
}

void DirectLane::append_views(transports::Lane lane,
                              std::vector<operation::PeerView>& views) const {
  if (queue_.empty()) return;
  const std::uint64_t call = first().number;
  const bool is_posted = queue_.first() != next_;
  for (std::size_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    operation::PeerView view;
    view.lane = lane;
    view.rank = ranks_[rank];
    const bool posted = is_posted && flags_.posted(rank, protocol_.first());
    if (is_posted && protocol_.awaits(flags_, rank))
      view.expected = fmt::format("{} of #{}", posted ? "chunks" : "post", call);
    if (posted)
      view.seen = fmt::format("post of #{}, {} chunks in, {} combined, {} out", call,
                              flags_.count(rank, Counter::copied_in) - protocol_.base(),
                              flags_.count(rank, Counter::combined) - protocol_.base(),
                              flags_.count(rank, Counter::copied_out) - protocol_.base());
    views.push_back(std::move(view));
  }
}

std::string DirectLane::awaited_device() const {
  if (queue_.empty() || first().memory == nullptr) return {};
  const std::string before = first().awaited_mark();
  return before.empty() ? mover_of(first())->awaited_work(&first() != next_) : before;
}

}  // namespace rondo::direct
