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
constexpr std::size_t least_slot_chunk = std::size_t{128} << 10, chunks_wanted = 4;

// What a chunk of the call may take of a slot of that size.
std::size_t slot_chunk_bytes(const schedules::Signature& s, std::size_t slot_bytes,
                             std::size_t ranks) noexcept {
  // On a GPU what all ranks give in a chunk must fit into one carrier.
  if (s.on_gpu && base::traits_of(s.operation).gathers()) return slot_bytes / ranks;
  if (schedules::is_blocked(s.operation)) return slot_bytes;
  const std::size_t bytes = s.count * size_of(s.type);
  return std::min(slot_bytes, std::max(least_slot_chunk, bytes / chunks_wanted));
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
      input_scales_(size_, 1) {}

void DirectLane::begin(engine::DirectOperation& operation) {
  operation.turn = ++begun_;
  operation.next_direct = nullptr;
  (first_ == nullptr ? first_ : last_->next_direct) = &operation;
  last_ = &operation;
  if (next_ != nullptr) return;
  next_ = &operation;
  // What a GPU refuses is a failure of the lane, not of the start.
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
    next_ = next_->next_direct;
  }
}

// A rank without operations has none that another could still be ending: a rank leaves an operation
// on windows when all have read what they need.
void DirectLane::clear() noexcept {
  if (first_ != nullptr) flags_.stop();
  first_ = next_ = last_ = nullptr;
}

bool DirectLane::Form::serves(const engine::DirectOperation& operation) const noexcept {
  return lasts && operation.blocks().empty() && signature == operation.signature &&
         posted == operation.posted;
}

const DirectLane::Form& DirectLane::form(const engine::DirectOperation& operation) {
  if (form_->turn == operation.turn) return *form_;
  if (!form_->serves(operation)) {
    form_ = form_ == &forms_[0] ? &forms_[1] : &forms_[0];
    if (!form_->serves(operation)) make_form(operation);
  }
  form_->turn = operation.turn;
  return *form_;
}

void DirectLane::make_form(const engine::DirectOperation& operation) {
  const schedules::Signature& s = operation.signature;
  if (form_->hash == 0 || operation.posted != form_->posted)
    form_->hash = hash_of(operation.posted);
  form_->posted = operation.posted;
  form_->signature = s;
  form_->lasts = operation.blocks().empty();
  form_->roles = Roles(schedules::without_counts(s.operation), s.root, rank_, size_);
  form_->element = size_of(s.type);
  form_->shape = DirectShape(s, size_, operation.blocks(),
                             slot_chunk_bytes(s, direct_slot_bytes(lane_), size_));
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

CallRules DirectLane::rules_of(const engine::DirectOperation& operation) {
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
  own_ = {};
  transports::Windows& windows = windows_of(operation);
  const bool combines =
      operation.on_gpu.mover == nullptr || !rules.reducing || operation.on_gpu.mover->has_kernels();
  if (combines && roles.may_show_in(operation.in == operation.out))
    own_.in = windows.find(operation.in, operation.in_bytes);
  if (combines && roles.gets_out(rank_))
    own_.out = windows.find(operation.out, operation.out_bytes);
  rules.gives = roles.gives_any();
  rules.takes = roles.takes_any();
  rules.early = roles.needs_in(rank_) && own_.in.generation == 0;
  return rules;
}

void DirectLane::write_post(std::uint64_t sequence, std::uint64_t number) {
  const Form& form = this->form(*next_);
  if (form.eager) post_value(flags_.area(rank_).value(form.ring, number));
  write_details(sequence);
  if (!form.eager) posted_ = {&windows_of(*next_), own_};
  if (GpuMover* const mover = next_->on_gpu.mover) mover->begin(form.eager);
}

// Writes only what is new: most calls are like those before. Only calls with chunks have places.
void DirectLane::write_details(std::uint64_t sequence) {
  DirectDetails& details = flags_.area(rank_).details(sequence);
  std::uint64_t& told = told_[sequence % direct_posts];
  if (told != form_->hash) details.header = engine::encode({.signature = form_->posted});
  told = form_->hash;
  if (next_->input_scale != 1) details.input_scale = next_->input_scale;
  if (form_->eager) return;
  const GpuMover* const mover = next_->on_gpu.mover;
  const std::uint32_t no_windows = mover != nullptr && !mover->windows().reaches_all() ? 1 : 0;
  if (details.no_windows != no_windows) details.no_windows = no_windows;
  if (details.in != own_.in) details.in = own_.in;
  if (details.out != own_.out) details.out = own_.out;
}

std::optional<engine::Frame> DirectLane::offence() const {
  const transports::HeaderBytes header =
      flags_.area(protocol_.offender()).details(protocol_.first()).header;
  auto frame = engine::decode(header);
  if (frame) frame->number = first_->number;
  return frame;
}

// All ranks decide alike, since they decide from the posts. Maps the windows that are used.
Agreement DirectLane::agree(std::uint64_t sequence) {
  const engine::DirectOperation& operation = *first_;
  // Copies the places once: the decision and the maps must be about the same ones, whatever a peer
  // writes meanwhile.
  bool no_windows = false;
  for (std::size_t rank = 0; rank < size_; ++rank) {
    const DirectDetails& details = flags_.area(rank).details(sequence);
    places_[rank] = {details.in, details.out};
    no_windows = no_windows || details.no_windows != 0;
  }
  Ways ways = form_->roles.ways([&](std::size_t rank) {
    return Windowed{places_[rank].in.generation != 0, places_[rank].out.generation != 0};
  });
  // Slots are in host memory, where no kernel combines.
  const bool on_gpu = operation.signature.on_gpu;
  if (on_gpu && (ways.slots || no_windows)) ways = {};
  transports::Windows& windows = windows_of(operation);
  for (std::size_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const auto open = [&](transports::WindowPlace place, std::size_t length) {
      std::byte* const data = windows.map(ranks_[rank], place, length);
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
  }
  outs_[rank_] = operation.out;
  uses_windows_ = ways.in_windows || ways.out_windows;
  if (on_gpu && uses_windows_) operation.on_gpu.mover->hold_windows();
  if (form_->roles.reducing()) read_input_scales(sequence);
  if (!ways.slots) {
    form_->lasts = false;
    form_->shape = DirectShape(
        operation.signature, size_, operation.blocks(),
        on_gpu ? gpu_chunk_bytes_ : std::max(window_chunk_bytes, least_window_part * size_));
  }
  return {ways, form_->shape.chunks()};
}

// An operation that may have read what a failed rank has changed never ends by itself: the failure
// reaches this rank too.
DirectLane::Step DirectLane::advance() {
  if (cut_off_) return Step::none;
  if (next_ != nullptr && next_->on_gpu.mover != nullptr && post_next_on_gpu()) return Step::moved;
  if (first_ == next_) return Step::none;
  Bytes bytes{*this};
  const Step step = protocol_.advance(flags_, bytes);
  if (step != Step::done) return step;
  cut_off_ = std::exchange(uses_windows_, false) && flags_.any_stopped();
  if (cut_off_) return Step::none;
  if (first_->on_gpu.mover != nullptr) first_->on_gpu.mover->let_go_of_windows();
  if (transports::Windows* const windows = std::exchange(posted_.windows, nullptr)) {
    windows->ended(posted_.places.in);
    windows->ended(posted_.places.out);
  }
  first_ = first_->next_direct;
  post_more();
  return step;
}

std::uint64_t DirectLane::awaited() const noexcept {
  std::uint64_t bits = 0;
  if (first_ != next_)
    protocol_.for_each_awaited(
        [&](std::size_t rank) { bits |= transports::wake_bit(ranks_[rank]); });
  return bits;
}

void DirectLane::append_awaited(std::vector<int>& ranks) const {
  if (first_ == next_) return;  // it is not posted, or there is none
  for (std::size_t rank = 0; rank < size_; ++rank)
    if (rank != rank_ && protocol_.awaits(flags_, rank)) ranks.push_back(ranks_[rank]);
}

}  // namespace rondo::direct
