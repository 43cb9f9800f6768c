// SPDX-License-Identifier: Apache-2.0
#include "engine/direct_model.h"

#include <stdexcept>

#include "base/mix.h"

namespace rondo::testing {

using direct::Counter;
using direct::ResultPlaces;
using direct::Windowed;

namespace {

bool is_on_gpu(Run run) {
  return static_cast<std::size_t>(run) >= rank_runs;
}

std::uint8_t bit(std::size_t part) {
  return static_cast<std::uint8_t>(1U << part);
}

// The parts of each chunk of its output that a rank must have at the end; bits.
std::uint8_t wanted(const direct::Roles& roles, std::size_t root, std::size_t rank,
                    std::size_t size) {
  const auto all = static_cast<std::uint8_t>((1U << size) - 1);
  switch (roles.plain()) {
    case Collective::broadcast:
      return 1;
    case Collective::reduce:
    case Collective::gather:
      return rank == root ? all : 0;
    case Collective::scatter:
    case Collective::reduce_scatter:
      return bit(rank);
    default:
      return all;
  }
}

// Hashes small numbers, many of them in one word.
class Digest {
 public:
  template <unsigned bits>
  void add(std::uint64_t number) {
    if constexpr (bits < 64)
      if (number >> bits != 0) throw std::out_of_range("a number of the model has grown too large");
    if (filled_ + bits > 64) flush();
    word_ |= number << filled_;
    filled_ += bits;
  }
  std::uint64_t hash() {
    flush();
    return hash_;
  }

 private:
  void flush() {
    hash_ = base::mix_hash(hash_, word_);
    word_ = filled_ = 0;
  }
  std::uint64_t hash_ = 1, word_ = 0;
  unsigned filled_ = 0;
};

}  // namespace

bool Actor::posted(std::size_t rank, std::uint64_t sequence) {
  if (is(Break::all_have_posted)) return true;
  return answer([&] { return post_of(rank, sequence).sequence == sequence ? 1U : 0U; },
                [](std::uint64_t) { return true; }) != 0;
}

bool Actor::agrees(std::size_t rank, std::uint64_t sequence) {
  if (is(Break::all_agree)) return true;
  const auto load = [&] {
    const ModelPost& theirs = post_of(rank, sequence);
    check(theirs.call == call_tag(), "compares itself with another call's post");
    return theirs.check == post_of(rank_, sequence).check ? 1U : 0U;
  };
  return answer(load, [](std::uint64_t) { return true; }) != 0;
}

void Actor::write_post(std::uint64_t sequence, std::uint64_t number) {
  if (!is(Break::flag_before_post)) fill_post(sequence, number);
}

void Actor::fill_post(std::uint64_t sequence, std::uint64_t number) {
  if (!act_on_bytes()) return;
  const ModelCall& next = next_call();
  const direct::Roles roles = roles_of(next);
  const bool kept = roles.may_show_in(next.in_place);
  const Windowed own = next.windowed[rank_];
  ModelPost& mine = post_of(rank_, sequence);
  mine.check = rules().check;
  mine.call = static_cast<std::uint8_t>(self_.posted + 1);
  mine.windowed = {kept && own.in, roles.gets_out(rank_) && own.out};
  mine.gpu_slots = next.gpu_slots[rank_] != 0;
  if (next.chunks == 0)
    value_of(rank_, next.ring, number) = is_ready(rank_, mine.call) ? mine.call : 0;
}

void Actor::post(std::uint64_t sequence, std::uint64_t) {
  moving_ = false;
  if (act()) post_of(rank_, sequence).sequence = sequence;
  if (is(Break::flag_before_post)) fill_post(sequence, sequence);
}

bool Actor::reached(std::size_t rank, Counter counter, std::uint64_t value) {
  if ((is(Break::all_copied_in) && counter == Counter::copied_in) ||
      (is(Break::all_combined) && counter == Counter::combined) ||
      (is(Break::all_copied_out) && counter == Counter::copied_out))
    return true;
  const auto load = [&] {
    return world_.areas[rank].counters[static_cast<std::size_t>(counter)] >= value ? 1U : 0U;
  };
  return answer(load, [&](std::uint64_t far) {
           return rank != rank_ && (far == 0 || scenario_.every_load_alone);
         }) != 0;
}

void Actor::publish(Counter counter, std::uint64_t value) {
  moving_ = false;
  if (!act()) return;
  if ((is(Break::lost_copied_in) && counter == Counter::copied_in) ||
      (is(Break::lost_combined) && counter == Counter::combined) ||
      (is(Break::lost_copied_out) && counter == Counter::copied_out))
    return;
  std::uint64_t& mine = world_.areas[rank_].counters[static_cast<std::size_t>(counter)];
  check(mine <= value, "takes a counter back");
  mine = value;
}

void Actor::finish_value(std::uint64_t, std::uint64_t number) {
  if (!act_on_bytes()) return;
  const direct::Roles roles = this->roles();
  const bool needs_all = roles.reducing() && wanted(roles, call().root, rank_, size()) != 0;
  for (std::size_t peer = 0; peer < size(); ++peer) {
    if (peer == rank_ || (!needs_all && (roles.reducing() || !roles.takes_from(peer)))) continue;
    check(value_of(peer, call().ring, number) == call_tag(), "reads the value of another call");
  }
  gpu().storing = call_tag();
}

bool Actor::result_landed() {
  if (!scenario_.late || is(Break::early_end)) return true;
  return answer([&] { return gpu().stored == call_tag() ? 1U : 0U; },
                [&](std::uint64_t stored) { return stored == 0 || scenario_.every_load_alone; }) !=
         0;
}

bool Actor::landed(Counter counter, std::uint64_t chunk) {
  if (!scenario_.late || (is(Break::early_copied_in) && counter == Counter::copied_in) ||
      (is(Break::early_combined) && counter == Counter::combined) ||
      (is(Break::early_copied_out) && counter == Counter::copied_out))
    return true;
  const auto load = [&] { return gpu().done[static_cast<std::size_t>(counter)] > chunk ? 1U : 0U; };
  return answer(load,
                [&](std::uint64_t done) { return done == 0 || scenario_.every_load_alone; }) != 0;
}

direct::Agreement Actor::agree(std::uint64_t sequence) {
  std::array<Windowed, most_model_ranks> told{};
  bool gpu_slots = true;
  for (std::size_t rank = 0; rank < size(); ++rank) {
    const auto load = [&] {
      const ModelPost& theirs = post_of(rank, sequence);
      check(theirs.call == call_tag(), "reads the places of another call's buffers");
      return (theirs.windowed.in ? 1U : 0U) | (theirs.windowed.out ? 2U : 0U);
    };
    const std::uint64_t bits = answer(load, [&](std::uint64_t) { return rank != rank_; });
    told[rank] = {(bits & 1) != 0, (bits & 2) != 0};
    // It does not change while the post stays, which the loads show.
    gpu_slots &= post_of(rank, sequence).gpu_slots;
  }
  direct::Ways ways = roles().ways([&](std::size_t rank) { return told[rank]; });
  self_.in_gpu_slots = ways.slots && gpu_slots;
  const bool any_gpu_slots = call().gpu_slots != decltype(call().gpu_slots){};
  if (ways.slots && any_gpu_slots && !gpu_slots) ways = {};
  return {ways, chunks(ways)};
}

void Actor::read_in(std::size_t owner, std::uint64_t chunk, std::size_t part) {
  check((owner == rank_ && !on_gpu_) || in_this_call(owner),
        "reads the input of a rank that has left the call");
  check(is_ready(owner, call_tag()), "uses a buffer that its owner still needs");
  check((world_.areas[owner].in[chunk] & bit(part)) != 0, "reads an input that is overwritten");
}

void Actor::read_slot(std::size_t owner, std::uint64_t chunk, std::size_t part, bool result) {
  const Tag wanted_tag{call_tag(), static_cast<std::uint8_t>(chunk), result};
  check(slot(owner, chunk, part) == wanted_tag, "reads a slot that holds something else");
}

void Actor::read_given(std::size_t owner, std::uint64_t chunk, std::size_t part) {
  if (ways().in_windows)
    read_in(owner, chunk, part);
  else
    read_slot(owner, chunk, part, false);
}

void Actor::write_out(std::size_t owner, std::uint64_t chunk, std::size_t part, bool stays) {
  check(is_ready(owner, call_tag()), "uses a buffer that its owner still needs");
  check((owner == rank_ && !on_gpu_) || in_this_call(owner),
        "writes the output of a rank that is not in this call");
  ModelArea& area = world_.areas[owner];
  check((area.out[chunk] & bit(part)) == 0, "writes a part of an output twice");
  area.out[chunk] |= bit(part);
  if (call().in_place && !stays) area.in[chunk] &= static_cast<std::uint8_t>(~bit(part));
}

void Actor::copy_in(std::uint64_t chunk) {
  start(Counter::copied_in, chunk);
}

void Actor::combine(std::uint64_t chunk) {
  start(Counter::combined, chunk);
}

void Actor::copy_out(std::uint64_t chunk) {
  start(Counter::copied_out, chunk);
}

void Actor::start(Counter kind, std::uint64_t chunk) {
  if (!act_on_bytes()) return;
  if (!scenario_.late) return do_step(kind, chunk);
  ModelGpu& gpu = this->gpu();
  if (gpu.call != call_tag()) {
    check(gpu.started == gpu.done, "starts a call while its GPU is at the one before");
    gpu.call = call_tag();
    gpu.started = gpu.done = {};
  }
  gpu.ways = self_.protocol.ways();
  gpu.in_gpu_slots = self_.in_gpu_slots;
  gpu.base = self_.protocol.base();
  gpu.started[static_cast<std::size_t>(kind)] = static_cast<std::uint8_t>(chunk + 1);
}

void Actor::do_step(Counter kind, std::uint64_t chunk) {
  switch (kind) {
    case Counter::copied_in:
      return do_copy_in(chunk);
    case Counter::combined:
      return do_combine(chunk);
    case Counter::copied_out:
      return do_copy_out(chunk);
  }
}

// The steps of one kind are done in their order.
void Actor::do_on_gpu(Run run) {
  ModelGpu& gpu = this->gpu();
  if (run == Run::load) {
    ++gpu.loaded;
  } else if (run == Run::store) {
    gpu.stored = gpu.storing;
  } else {
    check(gpu.call == call_tag(), "ends a call while its GPU is still at it");
    const auto kind = static_cast<std::size_t>(run) - static_cast<std::size_t>(Run::copy_in);
    on_gpu_ = true;
    if (violation_ == nullptr) do_step(static_cast<Counter>(kind), gpu.done[kind]);
    ++gpu.done[kind];
  }
}

void Actor::do_copy_in(std::uint64_t chunk) {
  for (std::size_t part = 0; part < roles().parts(); ++part) {
    if (!roles().gives(part)) continue;
    read_in(rank_, chunk, part);
    slot(rank_, chunk, part) = {call_tag(), static_cast<std::uint8_t>(chunk), false};
  }
}

void Actor::do_combine(std::uint64_t chunk) {
  for (std::size_t peer = 0; peer < size(); ++peer) {
    if (peer == rank_)
      read_in(rank_, chunk, rank_);
    else
      read_given(peer, chunk, rank_);
  }
  const ResultPlaces places = roles().result_places(ways());
  const auto to_slot = [&] {
    slot(rank_, chunk, rank_) = {call_tag(), static_cast<std::uint8_t>(chunk), true};
  };
  switch (places.first) {
    case ResultPlaces::First::own_out:
      write_out(rank_, chunk, rank_, false);
      break;
    case ResultPlaces::First::root_out:
      write_out(call().root, chunk, rank_, false);
      break;
    case ResultPlaces::First::slot:
      to_slot();
      break;
  }
  if (places.slot) to_slot();
  for (std::size_t peer = 0; peer < size() && places.all_outs; ++peer)
    if (peer != rank_) write_out(peer, chunk, rank_, false);
}

void Actor::do_copy_out(std::uint64_t chunk) {
  const direct::Roles roles = this->roles();
  for (std::size_t peer = 0; peer < size(); ++peer) {
    if (!roles.takes_from(peer)) continue;
    const std::size_t theirs = roles.part_of(peer), part = roles.part_taken(peer);
    if (peer == rank_)
      read_in(rank_, chunk, part);
    else if (roles.reducing())
      read_slot(peer, chunk, part, true);
    else
      read_given(peer, chunk, part);
    const bool scatter = roles.plain() == Collective::scatter;
    write_out(rank_, chunk, scatter ? rank_ : theirs, peer == rank_);
  }
}

direct::CallRules Actor::rules() const {
  const ModelCall& next = next_call();
  const direct::Roles roles = roles_of(next);
  direct::CallRules rules;
  rules.check = static_cast<std::uint64_t>(self_.posted + 1) << 8 | next.differs[rank_];
  rules.chunks = next.chunks;
  rules.eager = next.chunks == 0;
  rules.ring = next.ring;
  rules.reducing = roles.reducing();
  if (rules.eager) return rules;
  rules.gives = roles.gives_any();
  rules.takes = roles.takes_any();
  rules.early = roles.needs_in(rank_) &&
                !(roles.may_show_in(next.in_place) && next.windowed[rank_].in) &&
                (next.gpu_slots[rank_] == 0 || is(Break::early_choice));
  return rules;
}

void Actor::leave() {
  for (std::size_t rank = 0; rank < size(); ++rank) {
    const ModelRank& other = world_.ranks[rank];
    check(rank == rank_ || other.posted > self_.calls,
          "ends a call that another rank has not begun");
    check(call().differs[rank] == call().differs[rank_],
          "ends a call that another rank differs in");
  }
  check(!scenario_.late || call().chunks != 0 || gpu().stored == call_tag(),
        "ends a call whose output is incomplete");
  ModelArea& area = world_.areas[rank_];
  const std::uint64_t chunks = this->chunks(self_.protocol.ways());
  for (std::uint64_t chunk = 0; chunk < chunks; ++chunk)
    check(area.out[chunk] == wanted(roles(), call().root, rank_, size()),
          "ends a call whose output is incomplete");
  ++self_.calls;
  if (!is(Break::kept_choice)) self_.in_gpu_slots = false;
  area.in.fill(0xff);
  area.out.fill(0);
}

bool Actor::can(Run run) const {
  const ModelGpu& gpu = this->gpu();
  switch (run) {
    case Run::advance:
      return self_.posted > self_.calls;
    case Run::post:
      if (self_.posted == scenario_.calls.size()) return false;
      return is(Break::with_chunks) || self_.protocol.may_post(*this, *this, rules());
    case Run::load:
      return gpu.loaded == self_.posted && gpu.loaded < scenario_.calls.size();
    case Run::store:
      return gpu.stored != gpu.storing;
    default:
      const auto kind = static_cast<std::size_t>(run) - static_cast<std::size_t>(Run::copy_in);
      return gpu.done[kind] < gpu.started[kind];
  }
}

bool Actor::run(Run run) {
  if (run == Run::post) {
    self_.protocol.post(*this, *this, rules());
    if (!stopped_) ++self_.posted;
    return !stopped_;
  }
  const Step step = self_.protocol.advance(*this, *this);
  if (stopped_) return false;
  if (step == Step::refused) self_.refused = true;
  if (step == Step::done) leave();
  return true;
}

bool possible(const Scenario& scenario, World& world, std::size_t rank, Run run) {
  ModelRank& self = world.ranks[rank];
  if (is_on_gpu(run)) return scenario.late && Actor(scenario, world, rank, self, false).can(run);
  if (finished(scenario, self)) return false;
  return self.accesses != 0 ? self.run == run : Actor(scenario, world, rank, self, false).can(run);
}

const char* step(const Scenario& scenario, World& world, std::size_t rank, Run run, bool whole) {
  ModelRank self = world.ranks[rank];
  Actor actor(scenario, world, rank, self, whole);
  if (is_on_gpu(run)) {
    actor.do_on_gpu(run);
    return actor.violation();
  }
  const bool ended = actor.run(run);
  ModelRank& real = world.ranks[rank];
  if (ended) {
    self.answers = self.accesses = 0;
    real = self;
  } else {
    real.answers = actor.answers();
    real.accesses = actor.accesses();
    real.run = run;
  }
  return actor.violation();
}

bool finished(const Scenario& scenario, const ModelRank& rank) {
  return rank.refused || rank.calls == scenario.calls.size();
}

std::uint64_t hash_of(const Scenario& scenario, const World& world) {
  Digest digest;
  for (std::size_t i = 0; i < scenario.ranks; ++i) {
    const ModelRank& rank = world.ranks[i];
    for (const std::uint64_t number : rank.protocol.state()) digest.add<16>(number);
    digest.add<64>(rank.answers);
    digest.add<8>(rank.accesses);
    digest.add<8>(rank.calls);
    digest.add<8>(rank.posted);
    digest.add<8>(rank.refused | (rank.accesses != 0 && rank.run == Run::advance) << 1 |
                  rank.in_gpu_slots << 2);
    if (scenario.late) {
      const ModelGpu& gpu = world.gpus[i];
      digest.add<8>(gpu.call);
      digest.add<8>(gpu.ways.in_windows | gpu.ways.out_windows << 1 | gpu.ways.slots << 2);
      digest.add<8>(gpu.base << 1 | gpu.in_gpu_slots);
      for (const std::uint8_t chunk : gpu.started) digest.add<4>(chunk);
      for (const std::uint8_t chunk : gpu.done) digest.add<4>(chunk);
      digest.add<8>(gpu.loaded);
      digest.add<8>(gpu.storing);
      digest.add<8>(gpu.stored);
    }
    const ModelArea& area = world.areas[i];
    for (const auto& ring : area.values)
      for (const std::uint8_t call : ring) digest.add<8>(call);
    for (const ModelPost& post : area.posts) {
      digest.add<8>(post.sequence);
      digest.add<16>(post.check);
      digest.add<8>(post.call);
      digest.add<8>(post.windowed.in | post.windowed.out << 1 | post.gpu_slots << 2);
    }
    for (const std::uint64_t counter : area.counters) digest.add<8>(counter);
    for (const ModelArea::Slots* const slots : {&area.slots, &area.gpu_slots})
      for (std::size_t slot = 0; slot < scenario.slots; ++slot)
        for (const Tag& tag : (*slots)[slot]) {
          digest.add<4>(tag.call);
          digest.add<4>(tag.chunk << 1 | tag.result);
        }
    for (std::size_t chunk = 0; chunk < most_model_chunks; ++chunk) {
      digest.add<8>(area.in[chunk]);
      digest.add<8>(area.out[chunk]);
    }
  }
  return digest.hash();
}

}  // namespace rondo::testing
