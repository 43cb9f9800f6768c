// SPDX-License-Identifier: Apache-2.0
//
// Runs of all ranks, moved by hand in an order drawn by a seed. Staged runs must give the bits of
// runs that work in their buffers, however late the copies to and from staging memory are.
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "base/traits.h"
#include "catch.h"
#include "collectives/operation/run.h"
#include "collectives/schedules/algorithms.h"
#include "support/draw.h"

using namespace rondo;
using operation::Run;
using schedules::Algorithm;

namespace {

using Bytes = std::vector<std::byte>;

struct Shape {
  Collective operation = Collective::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  int size = 2;
  std::size_t count = 0;  // of the smaller buffer
  std::size_t segment = 1;
  std::uint32_t depth = 1;
  bool in_place = false;
};

constexpr int root = 1;

class Rank {
 public:
  Rank(const Shape& shape, int rank, bool staged)
      : program_(shape.operation, shape.algorithm,
                 base::traits_of(shape.operation).rooted() ? root : 0, rank, shape.size,
                 shape.depth) {
    const base::Traits& traits = base::traits_of(shape.operation);
    const auto n = static_cast<std::size_t>(shape.size);
    const std::size_t whole = traits.counts_one_block() ? shape.count * n : shape.count;
    out_.resize((traits.scatters() && !shape.in_place ? shape.count : whole) * sizeof(float));
    in_.resize((traits.gathers() ? shape.count : whole) * sizeof(float));
    testing::Draw draw(static_cast<std::uint64_t>(rank) + 1);
    for (std::size_t at = 0; at < in_.size(); at += sizeof(float)) {
      const float value = static_cast<float>(draw(2'000'001)) / 3.0F - 300'000.0F;
      std::memcpy(in_.data() + at, &value, sizeof value);
    }
    const std::size_t own = static_cast<std::size_t>(rank) * shape.count * sizeof(float);
    std::byte *in = in_.data(), *out = out_.data();
    if (shape.in_place && base::holds_some(traits.in, rank == root)) {
      in = out + (traits.gathers() ? own : 0);
      std::memcpy(in, in_.data(), in_.size());
      if (traits.scatters()) out += own;
    }
    result_ = traits.scatters() ? out : out_.data();
    result_bytes_ = base::holds_some(traits.out, rank == root)
                        ? (traits.scatters() ? shape.count * sizeof(float) : out_.size())
                        : 0;
    schedules::Call call;
    call.signature = {.operation = shape.operation,
                      .type = DType::f32,
                      .op = ReduceOp::mean,
                      .algorithm = shape.algorithm,
                      .root = root,
                      .count = shape.count,
                      .on_device = staged};
    call.in = in;
    call.out = out;
    call.in_bytes = call.out_bytes = 1;
    call.segment_elements = shape.segment;
    call.depth = shape.depth;
    call_in_ = in;
    call_out_ = out;
    schedules::Progress::Room room;
    run.begin(program_, call, rank, shape.size, room);
    staging_.resize(run.staging_bytes_needed());
    if (!staging_.empty()) run.give_staging(staging_.data());
  }

  Bytes result() const { return {result_, result_ + result_bytes_}; }

  // Each does one copy that may be made now; false when there is none.
  bool load() {
    if (!run.staged() || run.segments_opened() == run.segments_openable()) return false;
    copies_.clear();
    run.append_loads(run.segments_opened(), copies_);
    for (const Run::Copy& copy : copies_)
      std::memcpy(copy.staging, call_in_ + copy.offset, copy.bytes);
    run.loaded();
    return true;
  }
  bool store() {
    if (!run.staged() || run.segments_stored() == run.segments_done()) return false;
    copies_.clear();
    run.append_stores(run.segments_stored(), copies_);
    for (const Run::Copy& copy : copies_)
      std::memcpy(call_out_ + copy.offset, copy.staging, copy.bytes);
    run.stored();
    return true;
  }

  Run run;

 private:
  const schedules::Program program_;
  Bytes in_, out_, staging_;
  const std::byte* call_in_ = nullptr;
  std::byte* call_out_ = nullptr;
  const std::byte* result_ = nullptr;
  std::size_t result_bytes_ = 0;
  std::vector<Run::Copy> copies_;
};

class World {
 public:
  World(const Shape& shape, bool staged) : size_(shape.size) {
    for (int rank = 0; rank < size_; ++rank)
      ranks_.push_back(std::make_unique<Rank>(shape, rank, staged));
    links_.resize(static_cast<std::size_t>(size_ * size_));
  }

  // The results by rank. Throws when nothing can move although a rank is not done.
  std::vector<Bytes> run(std::uint64_t seed) {
    testing::Draw draw(seed);
    for (int idle = 0; idle < 2;) {
      // A pass over all that could move. Most passes leave most of it for later.
      const bool all = idle != 0;
      bool moved = false;
      for (int rank = 0; rank < size_; ++rank) moved = move(rank, draw, all) || moved;
      idle = moved ? 0 : idle + 1;
    }
    std::vector<Bytes> results;
    for (const auto& rank : ranks_) {
      if (!rank->run.complete()) throw std::runtime_error("nothing moves any more");
      results.push_back(rank->result());
    }
    return results;
  }

 private:
  std::deque<Bytes>& link(int from, int to) {
    return links_[static_cast<std::size_t>(from * size_ + to)];
  }

  bool move(int number, testing::Draw& draw, bool all) {
    Rank& rank = *ranks_[static_cast<std::size_t>(number)];
    const auto chosen = [&] { return all || draw(4) == 0; };
    bool moved = chosen() && rank.load();
    const auto peers = static_cast<int>(rank.run.program().peers().size());
    for (int peer = 0; peer < peers; ++peer) {
      if (chosen()) moved = send(rank.run, number, peer) || moved;
      if (chosen()) moved = receive(rank.run, number, peer) || moved;
    }
    return (chosen() && rank.store()) || moved;
  }

  bool send(Run& run, int number, int peer) {
    if (run.peer(peer).sends.done()) return false;
    const auto outgoing = run.sendable(peer);
    if (!outgoing) return false;
    link(number, run.program().peer(peer).rank)
        .emplace_back(outgoing->payload.begin(), outgoing->payload.end());
    const schedules::FramePlace place = run.send_started(peer);
    run.payload_released(place);
    run.send_finished(place);
    return true;
  }

  bool receive(Run& run, int number, int peer) {
    std::deque<Bytes>& frames = link(run.program().peer(peer).rank, number);
    if (run.peer(peer).receives.done() || frames.empty()) return false;
    const auto place = run.receivable(peer);
    if (!place) return false;
    if (place->destination != nullptr)
      std::memcpy(place->destination, frames.front().data(), frames.front().size());
    else if (!frames.front().empty())
      run.consume(peer, frames.front(), 1);
    frames.pop_front();
    run.received(peer);
    return true;
  }

  const int size_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::deque<Bytes>> links_;
};

}  // namespace

TEST_CASE("a staged run gives the bits of a run in its buffers") {
  std::uint64_t seed = 0;
  for (const int size : {2, 3, 5, 8})
    for (const Collective operation :
         {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::all_gather,
          Collective::reduce_scatter, Collective::gather, Collective::scatter,
          Collective::all_to_all})
      for (int a = 0; a < schedules::algorithm_count; ++a)
        for (const bool in_place : {false, true}) {
          const auto algorithm = static_cast<Algorithm>(a);
          if (algorithm == Algorithm::direct || algorithm == Algorithm::two_level ||
              !schedules::supports(algorithm, operation))
            continue;
          const bool cuts_blocks = operation == Collective::all_to_all;
          const Shape shape{operation,
                            algorithm,
                            size,
                            cuts_blocks ? static_cast<std::size_t>(size) * 7 : 53,
                            ++seed % 2 == 0 ? std::size_t{5} : std::size_t{17},
                            static_cast<std::uint32_t>(1 + seed % 4),
                            in_place};
          INFO(name_of(operation) << ", " << schedules::name_of(algorithm) << ", " << size
                                  << " ranks, seed " << seed << (in_place ? ", in place" : ""));
          const std::vector<Bytes> expected = World(shape, false).run(seed);
          CHECK(World(shape, true).run(seed + 1000) == expected);
        }
}
