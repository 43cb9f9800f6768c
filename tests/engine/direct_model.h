// SPDX-License-Identifier: Apache-2.0
//
// A model of ranks that share memory, for the proof of collectives/direct/protocol.h: the flags are
// plain numbers, and a slot, a post or a buffer holds a tag that says what lies there. A rank's run
// of the protocol, one post() or advance(), can stop after each access and go on later. For that,
// step() starts the run again, answers the accesses already made from a record, makes one more, and
// drops what follows.
//
// One access is a load of another rank's flag, a store of a flag, or the bytes moved between two
// such. Three simplifications lose no interleaving that matters:
//   - A rank's load of its own counter is no access: nobody else writes it.
//   - A load that finds a counter far enough is made together with the access that follows: the
//     counter only grows (checked), so it would find the same later.
//   - All bytes moved between two accesses move at once: they decide nothing, and a rank that might
//     touch them meanwhile could do so just before or just after as well.
// A load that does not find what it looks for is a step of its own, and so is each load of a post.
//
// In a scenario that is `late`, each rank has a GPU, which does by itself what the rank has
// started, at any later time: see ModelGpu. It does a step at once. If it did a part of it sooner
// or later, and that mattered, then doing the whole step at that time would show it too.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/direct/protocol.h"

namespace rondo::testing {

inline constexpr std::size_t most_model_ranks = 3, most_model_slots = 3, most_model_chunks = 5,
                             most_model_depth = 3;

// One call of all ranks. Where no slot is used the chunks are half as many.
struct ModelCall {
  Collective operation = Collective::all_reduce;
  std::uint32_t chunks = 0;  // 0: the value is in the post
  std::uint32_t root = 0;
  bool in_place = false;
  std::array<direct::Windowed, most_model_ranks> windowed{};
  std::array<std::uint8_t, most_model_ranks> differs{};  // ranks whose call is another one
  direct::Ring ring = direct::Ring::posts;               // where a value lies
  // Ranks that have slots in memory of their GPUs. If all have them, these are used, and chunks are
  // half as many. Otherwise the call uses no windows unless it uses no slots.
  std::array<std::uint8_t, most_model_ranks> gpu_slots{};
};

// The rule that is broken on purpose, to see that the proof notices.
enum class Break {
  nothing,
  one_slot_less,     // the protocol believes in one slot more than there is
  endless_slots,     // it never waits for a slot
  one_place_less,    // a ring of posts has one place less than twice its depth
  one_value_less,    // a ring of values likewise
  endless_posts,     // a rank posts however many calls are under way
  endless_values,    // likewise with values
  with_chunks,       // values are posted beside calls with chunks
  all_have_posted,   // it believes that all have posted
  all_agree,         // it believes that all posts agree
  all_copied_in,     // it believes that everybody is past any chunk
  all_combined,      // likewise
  all_copied_out,    // likewise
  flag_before_post,  // a post's flag is stored before its bytes
  lost_copied_in,    // a counter is not published
  lost_combined,     // likewise
  lost_copied_out,   // likewise
  early_copied_in,   // a counter is published when the step is started, before it has landed
  early_combined,    // likewise
  early_copied_out,  // likewise
  early_post,        // a call is posted before its memory may be used and its value is there
  early_end,         // a call with a value ends before its result has landed
  early_choice,      // a rank copies in before it knows which slots the ranks use
  kept_choice,       // it believes that they are those of the call before
};

struct Scenario {
  std::string name;
  std::size_t ranks = 2, slots = 2;
  std::vector<ModelCall> calls;
  Break broken = Break::nothing;
  bool every_load_alone = false;  // the second simplification is not made
  std::array<std::uint64_t, direct::ring_kinds> depth{1, 1, 1};  // of the rings
  bool late = false;  // bytes land at any time after they were started
};

// Names the contents of a part of a slot.
struct Tag {
  std::uint8_t call = 0;  // from 1; 0: nothing
  std::uint8_t chunk = 0;
  std::uint8_t result = 0;  // not an input
  bool operator==(const Tag&) const = default;
};

class Actor;

struct ModelPost {
  std::uint64_t sequence = 0, check = 0;
  std::uint8_t call = 0;  // whose places lie here
  direct::Windowed windowed;
  bool gpu_slots = false;
};

// The two runs of the protocol. A rank that may do both chooses: a program may start a call as soon
// as it is possible, or wait for those before it. The others are what its GPU does.
enum class Run { post, advance, copy_in, combine, copy_out, load, store };
inline constexpr std::size_t run_kinds = 7, rank_runs = 2;

// A rank's protocol as it was when the current run began, and the accesses that the run has made.
struct ModelRank {
  direct::Protocol<Actor> protocol;
  std::uint64_t answers = 0;  // two bits each
  std::uint8_t accesses = 0;
  Run run = Run::post;                 // the current one
  std::uint8_t posted = 0, calls = 0;  // calls that are posted, and that are done
  bool refused = false;
  bool in_gpu_slots = false;  // the first call uses slots of GPUs
};

struct ModelArea {
  std::array<ModelPost, 2 * most_model_depth> posts;
  // By ring: which call's value lies in each place.
  std::array<std::array<std::uint8_t, 2 * most_model_depth>, direct::ring_kinds> values{};
  std::array<std::uint64_t, direct::counter_kinds> counters{};
  using Slots = std::array<std::array<Tag, most_model_ranks>, most_model_slots>;
  Slots slots{}, gpu_slots{};
  // For each chunk of the current call, a bit for each part. in: the part still is the caller's
  // input. out: the part of the output has been written.
  std::array<std::uint8_t, most_model_chunks> in, out{};

  ModelArea() { in.fill(0xff); }
};

// Steps that a rank has given its GPU, started and done. Calls count from 1.
struct ModelGpu {
  std::uint8_t call = 0;  // whose chunks these are
  direct::Ways ways;
  bool in_gpu_slots = false;
  std::uint64_t base = 0;  // chunks of all calls before it
  std::array<std::uint8_t, direct::counter_kinds> started{}, done{};  // chunks, by Counter
  std::uint8_t loaded = 0;               // the newest call whose memory is ready, with its value
  std::uint8_t storing = 0, stored = 0;  // the newest call whose result is on its way, has landed
};

struct World {
  std::array<ModelRank, most_model_ranks> ranks;
  std::array<ModelGpu, most_model_ranks> gpus;
  std::array<ModelArea, most_model_ranks> areas;
};

// One rank's view of the world for one run: the Flags and Bytes of its protocol.
class Actor {
 public:
  Actor(const Scenario& scenario, World& world, std::size_t rank, ModelRank& self, bool unbounded)
      : scenario_(scenario), world_(world), rank_(rank), self_(self), unbounded_(unbounded) {}

  // The violation that the rank saw or did, or null.
  const char* violation() const noexcept { return violation_; }
  // Whether the rank can begin that run now.
  bool can(Run run) const;
  // Runs the protocol. False: it stopped before its end.
  bool run(Run run);
  // Lets the GPU do one step. Requires can().
  void do_on_gpu(Run run);
  std::uint64_t answers() const noexcept { return answers_; }
  std::uint8_t accesses() const noexcept { return at_; }

  // Flags.
  std::size_t rank() const noexcept { return rank_; }
  std::size_t size() const noexcept { return scenario_.ranks; }
  std::uint64_t slots() const noexcept {
    return is(Break::endless_slots) ? 1000 : scenario_.slots + is(Break::one_slot_less);
  }
  std::uint64_t depth(direct::Ring ring) const noexcept {
    const bool endless =
        is(ring == direct::Ring::posts ? Break::endless_posts : Break::endless_values);
    return endless ? 1000 : scenario_.depth[static_cast<std::size_t>(ring)];
  }
  bool posted(std::size_t rank, std::uint64_t sequence);
  bool agrees(std::size_t rank, std::uint64_t sequence);
  void post(std::uint64_t sequence, std::uint64_t check);
  bool reached(std::size_t rank, direct::Counter counter, std::uint64_t value);
  void publish(direct::Counter counter, std::uint64_t value);

  // Bytes.
  bool is_ready() const noexcept {
    return is(Break::early_post) || is_ready(rank_, self_.posted + std::size_t{1});
  }
  static constexpr bool may_start(direct::Counter) noexcept { return true; }
  bool landed(direct::Counter counter, std::uint64_t chunk);
  bool result_landed();
  void write_post(std::uint64_t sequence, std::uint64_t number);
  direct::Ring ring() const noexcept { return call().ring; }
  void finish_value(std::uint64_t sequence, std::uint64_t number);
  direct::Agreement agree(std::uint64_t sequence);
  void copy_in(std::uint64_t chunk);
  void combine(std::uint64_t chunk);
  void copy_out(std::uint64_t chunk);

 private:
  using Step = direct::Protocol<Actor>::Step;

  bool is(Break broken) const noexcept { return scenario_.broken == broken; }
  ModelGpu& gpu() const noexcept { return world_.gpus[rank_]; }
  bool is_ready(std::size_t rank, std::size_t call) const noexcept {
    return !scenario_.late || world_.gpus[rank].loaded >= call;
  }
  // The first call that is not done, and the one after the newest that is posted.
  const ModelCall& call() const noexcept { return scenario_.calls[self_.calls]; }
  const ModelCall& next_call() const noexcept { return scenario_.calls[self_.posted]; }
  direct::Roles roles() const noexcept { return roles_of(call()); }
  direct::Roles roles_of(const ModelCall& call) const noexcept {
    return {call.operation, call.root, rank_, scenario_.ranks};
  }
  std::uint8_t call_tag() const noexcept { return static_cast<std::uint8_t>(self_.calls + 1); }
  ModelPost& post_of(std::size_t rank, std::uint64_t sequence) noexcept {
    return world_.areas[rank]
        .posts[sequence % (2 * scenario_.depth[0] - is(Break::one_place_less))];
  }
  std::uint8_t& value_of(std::size_t rank, direct::Ring ring, std::uint64_t number) noexcept {
    const auto index = static_cast<std::size_t>(ring);
    return world_.areas[rank]
        .values[index][number % (2 * scenario_.depth[index] - is(Break::one_value_less))];
  }
  std::uint64_t chunks(const direct::Ways& ways) const noexcept {
    return ways.slots && !self_.in_gpu_slots ? call().chunks : (call().chunks + 1) / 2;
  }
  direct::CallRules rules() const;  // of next_call()
  void fill_post(std::uint64_t sequence, std::uint64_t number);
  Tag& slot(std::size_t rank, std::uint64_t chunk, std::size_t part) noexcept {
    ModelArea& area = world_.areas[rank];
    const bool on_gpu = on_gpu_ ? gpu().in_gpu_slots : self_.in_gpu_slots;
    return (on_gpu ? area.gpu_slots : area.slots)[(base() + chunk) % scenario_.slots][part];
  }
  // Belongs to the step that is done: on a GPU it may be one of an earlier time.
  std::uint64_t base() const noexcept { return on_gpu_ ? gpu().base : self_.protocol.base(); }
  const direct::Ways& ways() const noexcept { return on_gpu_ ? gpu().ways : self_.protocol.ways(); }
  void check(bool holds, const char* otherwise) noexcept {
    if (!holds && violation_ == nullptr) violation_ = otherwise;
  }

  // Whether the access that comes next was made before, is made now, or comes later.
  enum class When { before, now, later };
  When next() noexcept {
    if (at_ < self_.accesses) return When::before;
    if (!acted_ || unbounded_) return When::now;
    stopped_ = true;
    return When::later;
  }
  void note(std::uint64_t answer) noexcept {
    check(at_ < 32, "the model's record is too short");
    answers_ |= answer << (2 * at_++);
  }
  // A load, which load() makes, with a result of two bits. alone(result): whether it is a step of
  // its own.
  template <class Load, class Alone>
  std::uint64_t answer(const Load& load, const Alone& alone) {
    moving_ = false;
    const When when = next();
    if (when == When::later) return 0;
    const std::uint64_t value = when == When::before ? self_.answers >> (2 * at_) & 3 : load();
    if (when == When::now && alone(value)) acted_ = true;
    note(value);
    return value;
  }
  // For a store or bytes that are moved: whether to do it now.
  bool act() noexcept {
    const When when = next();
    if (when == When::later) return false;
    note(0);
    if (when == When::before) return false;
    acted_ = true;
    return true;
  }
  bool act_on_bytes() noexcept {
    if (!moving_) moves_now_ = act();
    moving_ = true;
    return moves_now_;
  }

  // Whether others may touch that rank's buffers now.
  bool in_this_call(std::size_t rank) const noexcept {
    const ModelRank& other = world_.ranks[rank];
    return other.calls == self_.calls && other.posted > other.calls;
  }
  // Does a step of copy_in(), combine() or copy_out(), now or on the GPU.
  void do_step(direct::Counter kind, std::uint64_t chunk);
  void start(direct::Counter kind, std::uint64_t chunk);
  void do_copy_in(std::uint64_t chunk);
  void do_combine(std::uint64_t chunk);
  void do_copy_out(std::uint64_t chunk);
  void read_in(std::size_t owner, std::uint64_t chunk, std::size_t part);
  void read_slot(std::size_t owner, std::uint64_t chunk, std::size_t part, bool result);
  void read_given(std::size_t owner, std::uint64_t chunk, std::size_t part);
  void write_out(std::size_t owner, std::uint64_t chunk, std::size_t part, bool stays);
  void leave();

  const Scenario& scenario_;
  World& world_;
  std::size_t rank_;
  ModelRank& self_;
  const bool unbounded_;
  const char* violation_ = nullptr;
  std::uint64_t answers_ = 0;
  std::uint8_t at_ = 0;
  bool acted_ = false, stopped_ = false, moving_ = false, moves_now_ = false, on_gpu_ = false;
};

// Whether the rank can go on with that run, or begin it.
bool possible(const Scenario& scenario, World& world, std::size_t rank, Run run);
// Lets a rank make its next access or, if `whole`, go to the end of the run. Requires possible().
// Returns what is wrong, or null.
const char* step(const Scenario& scenario, World& world, std::size_t rank, Run run, bool whole);
bool finished(const Scenario& scenario, const ModelRank& rank);
std::uint64_t hash_of(const Scenario& scenario, const World& world);

}  // namespace rondo::testing
