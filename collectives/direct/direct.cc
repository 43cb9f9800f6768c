// SPDX-License-Identifier: Apache-2.0
//
// Writes the posts of this rank and decides from the posts of all.
#include "collectives/direct/direct.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <rondo/error.h>

#include "base/copy.h"
#include "base/mix.h"

namespace rondo::direct {

namespace {

// The chunk of buffers in windows, which grows where a rank's part would be less than the second
// number. It bounds the time of one advance().
constexpr std::size_t window_chunk_bytes = std::size_t{512} << 10,
                      least_window_part = std::size_t{32} << 10;

// Chunks through slots. Large ones take fewer steps, and several of a call let ranks work at once.
constexpr std::size_t least_slot_chunk = std::size_t{128} << 10,
                      least_gpu_slot_chunk = std::size_t{1} << 20, chunks_wanted = 4;

// Returns what a chunk of the call may take of a slot of that size.
std::size_t slot_chunk_bytes(const schedules::Signature& s, std::size_t slot_bytes,
                             std::size_t least) noexcept {
  if (schedules::is_blocked(s.operation)) return slot_bytes;
  const std::size_t bytes = s.count * size_of(s.type);
  return std::min(slot_bytes, std::max(least, bytes / chunks_wanted));
}

// Returns the same in host memory. What all ranks of a GPU give in a chunk must fit into one
// carrier.
std::size_t host_chunk_bytes(const schedules::Signature& s, std::size_t slot_bytes,
                             std::size_t ranks) noexcept {
  const bool shares_carrier = s.on_gpu && base::traits_of(s.operation).gathers();
  return slot_chunk_bytes(s, shares_carrier ? slot_bytes / ranks : slot_bytes, least_slot_chunk);
}

std::uint64_t hash_of(const schedules::Signature& s) noexcept {
  const auto code =
      static_cast<std::uint64_t>(s.operation) | static_cast<std::uint64_t>(s.on_gpu) << 7 |
      static_cast<std::uint64_t>(s.type) << 8 | static_cast<std::uint64_t>(s.op) << 16 |
      static_cast<std::uint64_t>(s.algorithm) << 24 | static_cast<std::uint64_t>(s.root) << 32;
  return base::mix_hash(base::mix_hash(base::mix_hash(base::mix_hash(1, code), s.count),
                                       std::bit_cast<std::uint64_t>(s.scale)),
                        s.plan);
}

}  // namespace

DirectLane::DirectLane(transports::Windows& windows, const DirectOptions& options, Priority lane)
    : windows_(windows),
      lane_(lane),
      ranks_(options.ranks.begin(), options.ranks.end()),
      size_(ranks_.size()),
      rank_(static_cast<std::size_t>(std::ranges::lower_bound(ranks_, options.rank) -
                                     ranks_.begin())),
      in_steps_(options.in_steps),
      gpu_chunk_bytes_(options.gpu_chunk_bytes),
      flags_(windows, ranks_, rank_, options.use, lane),
      places_(size_),
      ins_(size_),
      sources_(size_),
      outs_(size_),
      gpu_slots_(size_),
      pieces_(size_),
      input_scales_(size_, 1) {}

void DirectLane::begin(operation::DirectOperation& operation) {
  operation.turn = ++begun_;
  queue_.push(operation);
  if (next_ != nullptr) return;
  next_ = &operation;
  // A refusal of a GPU is a failure of the lane, not of the start.
  if (operation.on_gpu.mover == nullptr) post_more();
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

// A rank without operations has none that another could still be ending: a rank leaves an operation
// on windows when all have read what they need.
void DirectLane::clear() noexcept {
  if (!queue_.empty()) flags_.stop();
  queue_.clear();
  next_ = nullptr;
}

bool DirectLane::Form::serves(const operation::DirectOperation& operation) const noexcept {
  return lasts && operation.blocks().empty() && signature == operation.signature &&
         posted == operation.posted;
}

const DirectLane::Form& DirectLane::form(const operation::DirectOperation& operation) {
  if (form_->turn == operation.turn) return *form_;
  if (!form_->serves(operation)) {
    form_ = form_ == &forms_[0] ? &forms_[1] : &forms_[0];
    if (!form_->serves(operation)) make_form(operation);
  }
  form_->turn = operation.turn;
  return *form_;
}

void DirectLane::make_form(const operation::DirectOperation& operation) {
  const schedules::Signature& s = operation.signature;
  if (form_->hash == 0 || operation.posted != form_->posted)
    form_->hash = hash_of(operation.posted);
  form_->posted = operation.posted;
  form_->signature = s;
  form_->lasts = operation.blocks().empty();
  form_->roles = Roles(schedules::without_counts(s.operation), s.root, rank_, size_);
  form_->element = size_of(s.type);
  form_->shape = DirectShape(s, size_, operation.blocks(),
                             host_chunk_bytes(s, direct_slot_bytes(lane_), size_));
  const bool reducing = form_->roles.reducing();
  const bool barrier = form_->roles.plain() == Collective::barrier;
  const std::size_t most = barrier ? 0 : most_in_bytes();
  form_->eager = most <= most_eager_bytes;
  form_->ring = form_->eager ? ring_for(most) : Ring::posts;
  form_->reduce = reducing ? kernels::find_reduce(s.type, s.op) : nullptr;
  form_->scaled_sum = schedules::sums_floats(s) ? kernels::find_scaled_sum(s.type) : nullptr;
  if (in_steps_ && reducing) form_->pair = kernels::PairReduction(s.type, s.op, s.scale, size_);
  form_->finish = kernels::Finish{
      s.scale, s.op == ReduceOp::mean && reducing ? static_cast<double>(size_) : 1.0};
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
  const Roles& roles = form_->roles;
  const GpuMover* const mover = operation.on_gpu.mover;
  DirectPlaces places;
  if (mover != nullptr &&
      (!mover->windows().reaches_all() || (roles.reducing() && !mover->has_kernels()))) {
    places.no_windows = 1;
    return places;
  }
  transports::Windows& windows = windows_of(operation);
  if (!operation.on_gpu.in_is_pinned && roles.may_show_in(operation.in == operation.out))
    places.in = windows.find(operation.in, operation.in_bytes);
  if (roles.gets_out(rank_)) places.out = windows.find(operation.out, operation.out_bytes);
  if (mover != nullptr) places.slots = mover->slots().place();
  return places;
}

void DirectLane::write_post(std::uint64_t sequence, std::uint64_t number) {
  const Form& form = this->form(*next_);
  if (form.eager) post_value(flags_.area(rank_).value(form.ring, number));
  write_details(sequence);
  if (!form.eager) posted_ = {&windows_of(*next_), own_};
  GpuMover* const mover = next_->on_gpu.mover;
  if (mover == nullptr) return;
  mover->begin(form.eager);
  if (!form.eager) mover->hold_windows();
}

// Writes only what is new: most calls are like those before. Only calls with chunks have places.
void DirectLane::write_details(std::uint64_t sequence) {
  DirectDetails& details = flags_.area(rank_).details(sequence);
  std::uint64_t& told = told_[sequence % direct_posts];
  if (told != form_->hash) details.header = operation::encode({.signature = form_->posted});
  told = form_->hash;
  if (next_->input_scale != 1) details.input_scale = next_->input_scale;
  if (form_->eager) return;
  if (details.places != own_) details.places = own_;
}

std::optional<operation::Frame> DirectLane::offence() const {
  const transports::HeaderBytes header =
      flags_.area(protocol_.offender()).details(protocol_.first()).header;
  auto frame = operation::decode(header);
  if (frame) frame->number = queue_.first()->number;
  return frame;
}

// All ranks decide alike, since they decide from the posts. Maps what is used.
Agreement DirectLane::agree(std::uint64_t sequence) {
  // Copies the places once: the decision and the maps must be about the same ones, whatever a peer
  // writes meanwhile.
  for (std::size_t rank = 0; rank < size_; ++rank)
    places_[rank] = flags_.area(rank).details(sequence).places;
  const Ways ways = queue_.first()->signature.on_gpu ? ways_on_gpu() : ways_of_places();
  map_places(ways);
  uses_windows_ = ways.in_windows || ways.out_windows;
  if (form_->roles.reducing()) read_input_scales(sequence);
  if (const std::size_t bytes = chunk_bytes(ways); bytes != 0) {
    form_->lasts = false;
    form_->shape = DirectShape(queue_.first()->signature, size_, queue_.first()->blocks(), bytes);
  }
  return {ways, form_->shape.chunks()};
}

Ways DirectLane::ways_of_places() const {
  return form_->roles.ways([&](std::size_t rank) {
    return Windowed{places_[rank].in.generation != 0, places_[rank].out.generation != 0};
  });
}

// Slots are in memory of GPUs if every rank's are. Otherwise they are in host memory, where no
// kernel combines, so nothing is used where it lies.
Ways DirectLane::ways_on_gpu() {
  constexpr auto has_slots = [](const DirectPlaces& places) {
    return places.slots.generation != 0;
  };
  if (std::ranges::any_of(places_, [](const auto& places) { return places.no_windows != 0; }))
    return {};
  const Ways ways = ways_of_places();
  if (!ways.slots) return ways;
  GpuMover* const mover = queue_.first()->on_gpu.mover;  // null if this rank has no bytes
  if (mover == nullptr || !std::ranges::all_of(places_, has_slots)) {
    if (mover != nullptr) mover->slots().want();
    return {};
  }
  gpu_slot_bytes_ = mover->slots().slot_bytes();
  return ways;
}

void DirectLane::map_places(const Ways& ways) {
  const operation::DirectOperation& operation = *queue_.first();
  GpuMover* const mover = operation.on_gpu.mover;
  const bool uses_gpu_slots = gpu_slot_bytes_ != 0;
  for (std::size_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const auto open = [&](transports::WindowPlace place, std::size_t length) {
      std::byte* const data = mover != nullptr ? mover->map(ranks_[rank], place, length)
                                               : windows_.map(ranks_[rank], place, length);
      if (data == nullptr)
        throw Error(Errc::system, "the memory that rank " + std::to_string(ranks_[rank]) +
                                      " has allocated cannot be mapped: see the limits of this "
                                      "process on memory and maps");
      return data;
    };
    if (ways.in_windows && form_->roles.needs_in(rank))
      ins_[rank] = open(places_[rank].in, in_bytes(rank));
    if (ways.out_windows && form_->roles.gets_out(rank))
      outs_[rank] = open(places_[rank].out, operation.signature.count * form_->element);
    if (uses_gpu_slots) gpu_slots_[rank] = open(places_[rank].slots, mover->slots().whole_bytes());
  }
  outs_[rank_] = operation.out;
  if (uses_gpu_slots) gpu_slots_[rank_] = mover->slots().memory();
}

// Returns what a chunk takes where it is not the form's; else 0.
std::size_t DirectLane::chunk_bytes(const Ways& ways) const noexcept {
  const schedules::Signature& s = queue_.first()->signature;
  if (gpu_slot_bytes_ != 0) return slot_chunk_bytes(s, gpu_slot_bytes_, least_gpu_slot_chunk);
  if (ways.slots) return 0;
  return s.on_gpu ? gpu_chunk_bytes_ : std::max(window_chunk_bytes, least_window_part * size_);
}

// An operation that may have read what a failed rank has changed never ends by itself: the failure
// reaches this rank too.
DirectLane::Step DirectLane::advance() {
  if (cut_off_) return Step::none;
  if (next_ != nullptr && next_->on_gpu.mover != nullptr && post_next_on_gpu()) return Step::moved;
  if (queue_.first() == next_) return Step::none;
  Bytes bytes{*this};
  const Step step = protocol_.advance(flags_, bytes);
  if (step != Step::done) return step;
  gpu_slot_bytes_ = 0;
  cut_off_ = std::exchange(uses_windows_, false) && flags_.any_stopped();
  if (cut_off_) return Step::none;
  if (queue_.first()->on_gpu.mover != nullptr) queue_.first()->on_gpu.mover->release_windows();
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
  if (std::exchange(missing_turn_, queue_.first()->turn) != queue_.first()->turn)
    missing_cursor_ = 0;
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

void DirectLane::append_awaited(std::vector<int>& ranks) const {
  if (queue_.first() == next_) return;  // it is not posted, or there is none
  for (std::size_t rank = 0; rank < size_; ++rank)
    if (rank != rank_ && protocol_.awaits(flags_, rank)) ranks.push_back(ranks_[rank]);
}

}  // namespace rondo::direct
