// SPDX-License-Identifier: Apache-2.0
//
// A proof of the protocol of the direct algorithms for two and three ranks. It tries every order in
// which the ranks can access shared memory (direct_model.h), and visits each state that can be
// reached once. For the calls listed here it shows that
//   - what a rank reads, in a post, a slot or a window, is what it expects there;
//   - nobody touches the buffers of a rank that has left the call, and every output is complete;
//   - no rank ends a call before all have begun it, nor one in which they differ;
//   - the ranks never wait for each other in a circle;
//   - a rank that sleeps until a rank that it awaits has stored something misses nothing.
// A hash of 64 bits stands for each visited state. Among a million states two share a hash with a
// probability of about 1 in 40 million; the hashes are the same in every run.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "catch.h"
#include "engine/direct_model.h"

using namespace rondo;
using namespace rondo::testing;

namespace {

// Open addressing; half of the places stay empty.
class VisitedStates {
 public:
  VisitedStates() : places_(1024) {}
  std::size_t count() const { return count_; }
  // False when the hash was there already.
  bool add(std::uint64_t hash) {
    hash += hash == 0;
    std::uint64_t& place = find(hash);
    if (place == hash) return false;
    place = hash;
    if (++count_ * 2 > places_.size()) grow();
    return true;
  }

 private:
  std::uint64_t& find(std::uint64_t hash) {
    std::size_t at = hash & (places_.size() - 1);
    while (places_[at] != 0 && places_[at] != hash) at = (at + 1) & (places_.size() - 1);
    return places_[at];
  }
  void grow() {
    std::vector<std::uint64_t> before(2 * places_.size());
    before.swap(places_);
    for (const std::uint64_t hash : before)
      if (hash != 0) find(hash) = hash;
  }

  std::vector<std::uint64_t> places_;
  std::size_t count_ = 0;
};

struct Result {
  std::size_t states = 0;
  std::size_t ends = 0;   // states in which all ranks are done, or have refused
  std::string violation;  // empty: none
};

class Explorer {
 public:
  explicit Explorer(const Scenario& scenario) : scenario_(scenario) {}

  // Depth first. It stops at the first violation.
  Result run() {
    enter({});
    while (!path_.empty() && result_.violation.empty()) {
      Place& place = path_.back();
      if (place.next == runs() * scenario_.ranks) {
        path_.pop_back();
        continue;
      }
      const std::size_t rank = place.next / runs();
      const Run run = static_cast<Run>(place.next++ % runs());
      if (!possible(scenario_, place.world, rank, run)) continue;
      World world = place.world;
      if (const char* const violation = step(scenario_, world, rank, run, false))
        result_.violation = "rank " + std::to_string(rank) + " " + violation + told_path();
      else
        enter(world);
    }
    result_.states = visited_.count();
    return result_;
  }

 private:
  struct Place {
    World world;
    std::size_t next = 0;  // runs() * rank, plus the number of its next run
  };
  std::size_t runs() const { return scenario_.late ? run_kinds : rank_runs; }

  void enter(const World& world) {
    if (!visited_.add(hash_of(scenario_, world))) return;
    path_.push_back({world});
    bool all_finished = true, at_rest = true;
    for (std::size_t i = 0; i < scenario_.ranks; ++i) {
      all_finished &= finished(scenario_, world.ranks[i]);
      at_rest &= world.ranks[i].accesses == 0;
    }
    if (all_finished) {
      ++result_.ends;
      check_end(world);
    } else if (at_rest && stuck(world)) {
      result_.violation = "the ranks wait for each other" + told_path();
    }
    for (std::size_t rank = 0; at_rest && rank < scenario_.ranks; ++rank)
      if (oversleeps(world, rank))
        result_.violation = "rank " + std::to_string(rank) + " oversleeps" + told_path();
  }

  World after(World world, std::size_t rank, Run run) const {
    step(scenario_, world, rank, run, true);
    return world;
  }
  bool moves(const World& world, std::size_t rank) const {
    return hash_of(scenario_, after(world, rank, Run::advance)) != hash_of(scenario_, world);
  }

  // Whether the rank can do nothing until another rank has made a run, and does not await that one.
  bool oversleeps(const World& world, std::size_t rank) const {
    const ModelRank& self = world.ranks[rank];
    if (finished(scenario_, self) || self.posted == self.calls || moves(world, rank)) return false;
    std::array<bool, most_model_ranks> awaited{};
    self.protocol.for_each_awaited([&](std::size_t other) { awaited[other] = true; });
    for (std::size_t other = 0; other < scenario_.ranks; ++other) {
      if (other == rank || awaited[other]) continue;
      for (const Run run : {Run::post, Run::advance}) {
        World asked = world;
        if (possible(scenario_, asked, other, run) && moves(after(world, other, run), rank))
          return true;
      }
    }
    return false;
  }

  // Whether no rank changes anything when it goes to the end of a run, and ranks post only when no
  // call of theirs is under way: a program may wait for each call before it starts the next. It is
  // enough to ask when each rank is before its first access: ranks that only look in a circle come
  // there too.
  bool stuck(const World& world) const {
    const std::uint64_t before = hash_of(scenario_, world);
    for (std::size_t rank = 0; rank < scenario_.ranks; ++rank) {
      if (is_busy_on_gpu(world, rank)) return false;
      if (finished(scenario_, world.ranks[rank])) continue;
      const bool waits = world.ranks[rank].posted > world.ranks[rank].calls;
      if (hash_of(scenario_, after(world, rank, waits ? Run::advance : Run::post)) != before)
        return false;
    }
    return true;
  }

  bool is_busy_on_gpu(World world, std::size_t rank) const {
    for (std::size_t run = rank_runs; run < runs(); ++run)
      if (possible(scenario_, world, rank, static_cast<Run>(run))) return true;
    return false;
  }

  // Where calls differ all ranks see it, and nobody has gone beyond.
  void check_end(const World& world) {
    std::size_t last = 0;
    for (; last < scenario_.calls.size(); ++last) {
      const auto& differs = scenario_.calls[last].differs;
      bool same = true;
      for (std::size_t i = 1; i < scenario_.ranks; ++i) same &= differs[i] == differs[0];
      if (!same) break;
    }
    const bool refused = last < scenario_.calls.size();
    for (std::size_t i = 0; i < scenario_.ranks; ++i)
      if (world.ranks[i].refused != refused || world.ranks[i].calls != last)
        result_.violation = "rank " + std::to_string(i) + " ends wrongly" + told_path();
  }

  // Names the ranks whose steps led here: "0x3 1p" are three of rank 0 and a part of a post of
  // rank 1. "1i" is a copy in on the GPU of rank 1; c: it combines, o: it copies out, l: it loads a
  // value, s: it stores a result.
  std::string told_path() const {
    std::string text = " after";
    for (std::size_t at = 0; at < path_.size() && path_[at].next != 0;) {
      std::size_t end = at;
      while (end < path_.size() && path_[end].next == path_[at].next) ++end;
      const std::size_t step = path_[at].next - 1;
      text += " " + std::to_string(step / runs());
      if (const char letter = "p icols"[step % runs()]; letter != ' ') text += letter;
      if (end - at > 1) text += "x" + std::to_string(end - at);
      at = end;
    }
    return text;
  }

  const Scenario& scenario_;
  VisitedStates visited_;
  std::vector<Place> path_;
  Result result_;
};

using Where = std::array<direct::Windowed, most_model_ranks>;
constexpr direct::Windowed both{true, true}, in_only{true, false}, out_only{false, true};
constexpr Where elsewhere{}, windows{both, both, both}, inputs{in_only, in_only, in_only},
    outputs{out_only, out_only, out_only}, some{both, {}, both};
constexpr std::pair<const char*, Where> wheres[] = {{"elsewhere", elsewhere},
                                                    {"in windows", windows},
                                                    {"inputs in windows", inputs},
                                                    {"outputs in windows", outputs},
                                                    {"some in windows", some}};

constexpr Collective with_chunks[] = {Collective::all_reduce,     Collective::reduce,
                                      Collective::broadcast,      Collective::all_gather,
                                      Collective::gather,         Collective::scatter,
                                      Collective::reduce_scatter, Collective::all_to_all};

ModelCall value(std::uint32_t root = 0, direct::Ring ring = direct::Ring::posts) {
  return {Collective::reduce, 0, root, true, {}, {}, ring};
}

class Proof {
 public:
  void prove(const Scenario& scenario) {
    INFO(scenario.name);
    const Result result = Explorer(scenario).run();
    CHECK(result.violation == "");
    CHECK(result.ends != 0);
    states_ += result.states;
    ++scenarios_;
  }
  // Prints and returns how much was explored.
  std::size_t states(const char* what) const {
    std::printf("direct protocol, %s: %zu states in %zu scenarios\n", what, states_, scenarios_);
    return states_;
  }

 private:
  std::size_t states_ = 0, scenarios_ = 0;
};

std::string name_for(Collective operation, const char* where, bool in_place) {
  return std::string(name_of(operation)) + ", buffers " + where + (in_place ? ", in place" : "");
}

// Calls that show one broken rule, and the violation that they end in.
struct Mutant {
  Break broken;
  std::vector<ModelCall> calls;
  const char* finding;
  std::uint64_t depth = 1;  // of the ring of posts
};

}  // namespace

// Two ranks leave time to try each load as a step of its own too. That shows that the second
// simplification of the model loses nothing.
TEST_CASE("two ranks keep the protocol of direct algorithms in every interleaving") {
  Proof proof;
  for (const Collective operation : with_chunks)
    for (const auto& [where, windowed] : wheres)
      for (const bool in_place : {false, true})
        for (const bool alone : {false, true})
          proof.prove({name_for(operation, where, in_place),
                       2,
                       2,
                       {{operation, 5, 0, in_place, windowed, {}},
                        value(1),
                        {operation, 4, 1, in_place, windows, {}},
                        {operation, 3, 1, in_place, windowed, {}}},
                       Break::nothing,
                       alone});
  CHECK(proof.states("2 ranks") > 200'000);
}

TEST_CASE("three ranks keep the protocol of direct algorithms in every interleaving") {
  Proof proof;
  for (const Collective operation : with_chunks)
    for (const auto& [where, windowed] : wheres) {
      // Only these two store into the outputs of others. For the rest only inputs matter, and two
      // of the five places are like others.
      const bool reduces = operation == Collective::all_reduce || operation == Collective::reduce;
      if (!reduces && (where == wheres[2].first || where == wheres[3].first)) continue;
      const bool in_place = operation != Collective::all_to_all;
      proof.prove({name_for(operation, where, in_place),
                   3,
                   1,
                   {{operation, 2, 0, in_place, windowed, {}},
                    value(1),
                    {operation, 2, 1, in_place, windows, {}},
                    {operation, 1, 1, in_place, windowed, {}}}});
    }
  CHECK(proof.states("3 ranks") > 1'000'000);
}

// Values in posts and beside them, calls with chunks between them, and rings of every depth up to
// three. The rows are long enough that each place is used at least twice.
TEST_CASE("ranks keep the protocol when several values are under way") {
  using direct::Ring;
  const ModelCall in_post = value(), beside = value(1, Ring::short_values),
                  large = value(0, Ring::long_values),
                  everywhere{Collective::all_gather, 0, 0, false, {}, {}},
                  chunk{Collective::all_reduce, 1, 0, true, elsewhere, {}},
                  show{Collective::broadcast, 1, 1, false, windows, {}};
  const std::vector<ModelCall> rows[] = {
      {in_post, everywhere, in_post, in_post, in_post, in_post, in_post, in_post, in_post},
      {beside, in_post, beside, in_post, in_post, beside, in_post, beside, beside},
      {large, in_post, beside, large, beside, in_post, large, beside},
      {in_post, in_post, chunk, in_post, beside, in_post, show, in_post, in_post}};
  Proof proof;
  for (const std::size_t ranks : {2, 3})
    for (std::uint64_t depth = 1; depth <= (ranks == 2 ? 3 : 2); ++depth)
      for (std::size_t i = 0; i < std::size(rows); ++i) {
        Scenario scenario{"row " + std::to_string(i), ranks, 2, rows[i]};
        if (ranks == 3) scenario.calls.resize(6);
        scenario.depth = {depth, std::max<std::uint64_t>(1, depth - 1), 1};
        proof.prove(scenario);
      }
  CHECK(proof.states("rows of values") > 100'000);
}

TEST_CASE("a call in a row that differs is seen by all ranks, and nobody ends it") {
  Proof proof;
  for (const std::size_t ranks : {2, 3})
    for (const direct::Ring ring : {direct::Ring::posts, direct::Ring::short_values}) {
      ModelCall wrong = value(0, ring);
      wrong.differs[ranks - 1] = 1;
      Scenario scenario{"a row", ranks, 2, {value(), value(), wrong, value(), value()}};
      scenario.depth = {2, 1, 1};
      proof.prove(scenario);
    }
  CHECK(proof.states("rows that differ") > 1000);
}

// A rank that neither gives nor takes runs ahead of the others.
TEST_CASE("ranks keep the protocol when several roots follow each other") {
  Proof proof;
  for (const std::size_t ranks : {2, 3})
    for (const Where& where : {elsewhere, some}) {
      const auto root = static_cast<std::uint32_t>(ranks - 1);
      proof.prove({"roots",
                   ranks,
                   2,
                   {{Collective::broadcast, 3, 0, false, where, {}},
                    {Collective::gather, 2, 1, false, where, {}},
                    {Collective::reduce, 2, root, true, where, {}},
                    {Collective::scatter, 2, 0, false, where, {}},
                    value()}});
    }
  CHECK(proof.states("roots") > 50'000);
}

TEST_CASE("more chunks than slots keep the protocol with three ranks") {
  Proof proof;
  proof.prove({"all_reduce", 3, 2, {{Collective::all_reduce, 3, 0, true, elsewhere, {}}, value()}});
  CHECK(proof.states("3 ranks, 2 slots") > 100'000);
}

// Steps that the ranks start land at any later time, as on a GPU.
TEST_CASE("ranks keep the protocol of direct algorithms whenever bytes land") {
  Proof proof;
  for (const Collective operation : with_chunks)
    for (const auto& [where, windowed] : wheres)
      for (const bool in_place : {false, true}) {
        Scenario scenario{name_for(operation, where, in_place),
                          2,
                          1,
                          {{operation, 3, 0, in_place, windowed, {}},
                           value(1),
                           {operation, 1, 1, in_place, windows, {}}}};
        scenario.late = true;
        proof.prove(scenario);
      }
  for (const Where& where : {elsewhere, windows}) {
    Scenario scenario{
        "three ranks", 3, 1, {value(), {Collective::all_reduce, 1, 0, true, where, {}}}};
    scenario.late = true;
    proof.prove(scenario);
  }
  CHECK(proof.states("bytes that land late") > 100'000);
}

// A call uses slots of GPUs where all ranks have them, else slots in host memory. Each rank has
// them after its own time.
TEST_CASE("ranks keep the protocol when they change to slots of GPUs and back") {
  Proof proof;
  for (const std::size_t ranks : {2, 3})
    for (const Collective operation : with_chunks)
      for (const auto& [where, windowed] : wheres)
        for (const bool late : {false, true}) {
          if (ranks == 3 && (late || operation != Collective::all_reduce)) continue;
          const ModelCall host{operation, 2, 0, true, windowed, {}};
          ModelCall some_have = host, gpu = host;
          some_have.gpu_slots[0] = 1;
          gpu.gpu_slots = {1, 1, 1};
          gpu.chunks = late || ranks == 3 ? 2 : 5;
          Scenario scenario{name_for(operation, where, true), ranks, 1, {some_have, gpu, host}};
          if (ranks == 3) scenario.calls = {some_have, gpu};
          scenario.late = late;
          proof.prove(scenario);
        }
  CHECK(proof.states("slots of GPUs") > 100'000);
}

TEST_CASE("a rank whose direct call differs is seen by all ranks, and nobody ends it") {
  Proof proof;
  for (const std::size_t ranks : {2, 3})
    for (std::size_t differing = 0; differing < ranks; ++differing)
      for (const std::uint32_t chunks : {0, 3}) {
        ModelCall wrong{Collective::all_reduce, chunks, 0, true, {}, {}};
        wrong.differs[differing] = 1;
        proof.prove({"rank " + std::to_string(differing) + " differs",
                     ranks,
                     2,
                     {value(), wrong, value()}});
      }
  CHECK(proof.states("calls that differ") > 1000);
}

TEST_CASE("the proof of the direct protocol finds rules that are broken") {
  const ModelCall reduce{Collective::all_reduce, 3, 0, false, elsewhere, {}},
      gather{Collective::all_gather, 3, 0, false, elsewhere, {}},
      short_gather{Collective::all_gather, 1, 0, false, elsewhere, {}},
      reduce_windows{Collective::all_reduce, 2, 0, false, windows, {}},
      gather_windows{Collective::all_gather, 2, 0, false, windows, {}};
  const ModelCall beside = value(0, direct::Ring::short_values);
  ModelCall differs = value();
  differs.differs[1] = 1;
  ModelCall on_gpu = reduce, some_on_gpu = reduce;
  on_gpu.gpu_slots = {1, 1, 1};
  some_on_gpu.gpu_slots = {1, 0, 0};
  const char* const another_value = "reads the value of another call";
  const char* const another_post = "compares itself with another call's post";
  const char* const another_chunk = "reads a slot that holds something else";
  const char* const circle = "the ranks wait for each other";
  const Mutant mutants[] = {
      {Break::one_slot_less, {gather}, another_chunk},
      {Break::endless_slots, {gather}, another_chunk},
      {Break::endless_slots, {reduce}, another_chunk},
      {Break::one_place_less, {value(), value(), value()}, circle},
      {Break::one_place_less, {short_gather, value()}, "places of another call's buffers"},
      {Break::endless_posts, {value(), value(), value(), value()}, circle},
      {Break::one_value_less, {beside, beside, beside}, another_value},
      {Break::endless_values, {beside, beside, beside, beside}, another_value, 3},
      {Break::with_chunks, {short_gather, value()}, another_value},
      {Break::all_have_posted, {value()}, another_post},
      {Break::all_have_posted, {gather_windows}, another_post},
      {Break::flag_before_post, {value()}, another_post},
      {Break::all_agree, {differs}, "ends a call that another rank differs in"},
      {Break::all_copied_in, {reduce}, another_chunk},
      {Break::all_copied_in, {gather}, another_chunk},
      {Break::all_combined, {reduce}, another_chunk},
      {Break::all_copied_out, {gather}, another_chunk},
      {Break::all_copied_out, {reduce}, another_chunk},
      {Break::all_copied_out, {reduce_windows}, "a call whose output is incomplete"},
      {Break::all_copied_out, {gather_windows}, "the input of a rank that has left the call"},
      {Break::lost_copied_in, {reduce}, circle},
      {Break::lost_combined, {reduce}, circle},
      {Break::lost_copied_out, {gather}, circle},
      {Break::lost_copied_out, {gather_windows}, circle},
      {Break::early_copied_in, {reduce}, another_chunk},
      {Break::early_copied_in, {gather}, another_chunk},
      {Break::early_combined, {reduce}, another_chunk},
      {Break::early_combined, {reduce_windows}, "a call whose output is incomplete"},
      {Break::early_copied_out, {reduce}, "a call whose output is incomplete"},
      {Break::early_copied_out, {gather}, "a call whose output is incomplete"},
      {Break::early_copied_out, {gather_windows}, "a call whose output is incomplete"},
      {Break::early_post, {value()}, another_value},
      {Break::early_post, {gather_windows}, "uses a buffer that its owner still needs"},
      {Break::early_end, {value()}, "a call whose output is incomplete"},
      {Break::early_choice, {on_gpu}, another_chunk},
      {Break::kept_choice, {on_gpu, some_on_gpu}, another_chunk},
  };
  for (const std::size_t ranks : {2, 3})
    for (const Mutant& mutant : mutants) {
      Scenario scenario{"mutant", ranks, 2, mutant.calls, mutant.broken};
      scenario.depth[0] = mutant.depth;
      scenario.late = mutant.broken >= Break::early_copied_in && mutant.broken <= Break::early_end;
      const Result result = Explorer(scenario).run();
      INFO("broken rule " << static_cast<int>(mutant.broken) << ", " << ranks
                          << " ranks: " << result.violation);
      CHECK(result.violation.find(mutant.finding) != std::string::npos);
    }
}
