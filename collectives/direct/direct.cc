// SPDX-License-Identifier: Apache-2.0
//
// Writes the posts of this rank and decides from the posts of all.
#include "collectives/direct/direct.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <rondo/error.h>

#include "base/mix.h"

namespace rondo::direct {

namespace {

// The largest value that every rank reads in full. Beyond it the ranks share the work.
constexpr std::size_t most_eager_bytes = std::size_t{16} << 10;
static_assert(most_eager_bytes <= direct_eager_bytes);
// The chunk of buffers in windows, which grows where a rank's part would be less than the second
// number. It bounds the time of one advance().
constexpr std::size_t window_chunk_bytes = std::size_t{512} << 10,
                      least_window_part = std::size_t{32} << 10;

std::uint64_t hash_of(const schedules::Signature& s) noexcept {
  const auto code =
      static_cast<std::uint64_t>(s.operation) | static_cast<std::uint64_t>(s.type) << 8 |
      static_cast<std::uint64_t>(s.op) << 16 | static_cast<std::uint64_t>(s.algorithm) << 24 |
      static_cast<std::uint64_t>(s.root) << 32;
  return base::mix_hash(base::mix_hash(base::mix_hash(base::mix_hash(1, code), s.count),
                                       std::bit_cast<std::uint64_t>(s.scale)),
                        s.plan);
}

}  // namespace

DirectLane::DirectLane(transports::Windows& windows, const DirectOptions& options, Priority lane)
    : windows_(windows),
      lane_(lane),
      rank_(static_cast<std::size_t>(options.rank)),
      size_(windows.ranks().size()),
      in_steps_(options.in_steps),
      flags_(windows, options.rank, lane),
      places_(size_),
      ins_(size_),
      sources_(size_),
      outs_(size_) {}

void DirectLane::begin(engine::DirectOperation& operation) {
  operation.next_direct = nullptr;
  (last_ == nullptr || first_ == nullptr ? first_ : last_->next_direct) = &operation;
  last_ = &operation;
  if (first_ == &operation) post();
}

void DirectLane::post() {
  const CallRules rules = prepare();
  Bytes bytes{*this};
  protocol_.post(flags_, bytes, rules);
}

CallRules DirectLane::prepare() {
  const engine::DirectOperation& operation = *first_;
  const schedules::Signature& s = operation.signature;
  roles_ = Roles(schedules::without_counts(s.operation), s.root, rank_, size_);
  element_ = size_of(s.type);
  shape_ = DirectShape(s, size_, operation.offsets(), direct_slot_bytes(lane_));
  if (signature_hash_ == 0 || s != hashed_) {
    hashed_ = s;
    signature_hash_ = hash_of(s);
  }
  eager_ = roles_.plain() == Collective::barrier || most_in_bytes() <= most_eager_bytes;
  const bool reducing = roles_.reducing();
  reduce_ = reducing ? kernels::find_reduce(s.type, s.op) : nullptr;
  if (in_steps_ && reducing) pair_ = kernels::PairReduction(s.type, s.op, s.scale, size_);
  finish_ = kernels::Finish{s.scale,
                            s.op == ReduceOp::mean && reducing ? static_cast<double>(size_) : 1.0};
  own_ = {};
  CallRules rules;
  rules.check = base::mix_hash(signature_hash_, operation.number);
  rules.chunks = shape_.chunks();
  rules.eager = eager_;
  rules.reducing = reducing;
  if (eager_) return rules;
  if (roles_.may_show_in(operation.in == operation.out))
    own_.in = windows_.find(operation.in, operation.in_bytes);
  if (roles_.gets_out(rank_)) own_.out = windows_.find(operation.out, operation.out_bytes);
  rules.gives = roles_.gives_any();
  rules.takes = roles_.takes_any();
  rules.early = roles_.needs_in(rank_) && own_.in.generation == 0;
  return rules;
}

void DirectLane::write_post(std::uint64_t sequence) {
  const engine::DirectOperation& operation = *first_;
  const std::size_t bytes = operation.in_bytes;
  if (eager_ && bytes != 0) {
    DirectPost& mine = flags_.area(rank_).control().posts[sequence % 2];
    std::memcpy(bytes <= mine.value.size() ? mine.value.data() : flags_.area(rank_).eager(sequence),
                operation.in, bytes);
  }
  write_details(sequence);
}

// Writes only what is new: most calls are like those before.
void DirectLane::write_details(std::uint64_t sequence) {
  DirectDetails& details = flags_.area(rank_).control().details[sequence % 2];
  const engine::Frame frame{first_->signature, 0, 0, 0, 0, 0};
  Told& told = told_[sequence % 2];
  if (!told.known || told.signature != frame.signature) details.header = engine::encode(frame);
  if (!told.known || told.places.in != own_.in) details.in = own_.in;
  if (!told.known || told.places.out != own_.out) details.out = own_.out;
  told = {true, frame.signature, own_};
}

std::optional<engine::Frame> DirectLane::offence() const {
  const DirectControl& control = flags_.area(protocol_.offender()).control();
  const transports::HeaderBytes header = control.details[protocol_.sequence() % 2].header;
  auto frame = engine::decode(header);
  if (frame) frame->number = first_->number;
  return frame;
}

// All ranks decide alike, since they decide from the posts. Maps the windows that are used.
Agreement DirectLane::agree(std::uint64_t sequence) {
  const engine::DirectOperation& operation = *first_;
  // Copies the places once: the decision and the maps must be about the same ones, whatever a peer
  // writes meanwhile.
  for (std::size_t rank = 0; rank < size_; ++rank) {
    const DirectDetails& details = flags_.area(rank).control().details[sequence % 2];
    places_[rank] = {details.in, details.out};
  }
  const Ways ways = roles_.ways([&](std::size_t rank) {
    return Windowed{places_[rank].in.generation != 0, places_[rank].out.generation != 0};
  });
  for (std::size_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const auto open = [&](transports::WindowPlace place, std::size_t length) {
      std::byte* const data = windows_.map(static_cast<int>(rank), place, length);
      if (data == nullptr)
        throw Error(Errc::system, "the memory that rank " + std::to_string(rank) +
                                      " has allocated cannot be mapped: see the limits of this "
                                      "process on memory and maps");
      return data;
    };
    if (ways.in_windows && roles_.needs_in(rank))
      ins_[rank] = open(places_[rank].in, in_bytes(rank));
    if (ways.out_windows && roles_.gets_out(rank))
      outs_[rank] = open(places_[rank].out, operation.signature.count * element_);
  }
  outs_[rank_] = operation.out;
  if (!ways.slots)
    shape_ = DirectShape(operation.signature, size_, operation.offsets(),
                         std::max(window_chunk_bytes, least_window_part * size_));
  return {ways, shape_.chunks()};
}

DirectLane::Step DirectLane::advance() {
  Bytes bytes{*this};
  const Step step = protocol_.advance(flags_, bytes);
  if (step != Step::done) return step;
  first_ = first_->next_direct;
  if (first_ != nullptr) post();
  return step;
}

void DirectLane::append_awaited(std::vector<int>& ranks) const {
  if (first_ == nullptr) return;
  for (std::size_t rank = 0; rank < size_; ++rank)
    if (rank != rank_ && protocol_.awaits(flags_, rank)) ranks.push_back(static_cast<int>(rank));
}

}  // namespace rondo::direct
