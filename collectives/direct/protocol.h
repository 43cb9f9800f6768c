// SPDX-License-Identifier: Apache-2.0
//
// The rules of the direct algorithms: when a rank may post, copy into a slot, combine, copy out,
// and leave a call. They know ranks, sequence numbers and counters, and move no bytes. DirectLane
// runs them on shared memory; tests/engine/direct_proof_test.cc runs this very code on a model, in
// every interleaving.
//
// One rank writes each flag. A post's sequence and the counters only grow.
//   post       A ring of depth d has 2d places, which its calls use in turn. A rank posts call i of
//              a ring when it has left call i - d. Then it has seen everybody's post i - d, and
//              each rank posts that after it has left call i - 2d. So nobody reads any more what
//              the place of call i holds. All calls use the ring of posts. A call whose value does
//              not fit into its post uses a ring of values too. A call with chunks is posted when
//              the call before it is left, and the next call when the call with chunks is left.
//   agree      A rank looks at calls in their order. It works with others' memory for call k after
//              it has seen everybody's post k, and all are alike.
//   copy in    Chunk c goes into slot c % slots when everybody has copied out chunk c - slots.
//              Chunks are counted over all calls. It may happen before the ranks agree.
//   combine    A rank combines its part of a chunk that everybody has copied in.
//   copy out   A rank copies out a chunk that everybody has combined. Where the call reduces
//              nothing, everybody must only have copied it in. A rank that takes nothing counts a
//              chunk as copied out when it has combined it. So "copied out" always says "combined".
//   leave      A rank leaves when its own work is done. If any buffer was used where it lies, it
//              waits until everybody has copied out the last chunk.
//
// On a device a step only begins to move bytes, which land later. A rank sets a flag when it has
// seen that the bytes landed, never before: a counter, a post whose value had to be loaded, the end
// of a call. So whoever sees a flag finds the bytes. The steps of one kind land in the order of
// their chunks. The rank starts the next ones meanwhile, by the same rules.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collectives/direct/roles.h"

namespace rondo::direct {

// Counts the chunks that a rank has copied in, combined and copied out.
enum class Counter : std::uint32_t {
  copied_in,   // its input is in its slots, or is read where it lies
  combined,    // its part of them is combined and stored; all at once where nothing is reduced
  copied_out,  // it needs nothing of them any more
};
inline constexpr std::size_t counter_kinds = 3;

// The rings that calls use. Each counts its own calls, from 1.
enum class Ring : std::uint32_t { posts, short_values, long_values };
inline constexpr std::size_t ring_kinds = 3;

// A call as the rules see it on one rank.
struct CallRules {
  std::uint64_t check = 0;   // a hash of the call and its number, which agrees() compares
  std::uint64_t chunks = 0;  // if slots are used
  bool eager = false;        // the value is in the post, or in a ring of values
  Ring ring = Ring::posts;   // where the value is, if eager
  bool reducing = false;
  bool gives = false;  // others read this rank's slot
  bool takes = false;  // this rank copies parts out
  bool early = false;  // its input is in no window, so it goes through slots in any case
};

// All posts together decide these.
struct Agreement {
  Ways ways;
  std::uint64_t chunks = 0;
};

// One lane of one rank. Reentrant. Nothing in it waits, and only what `bytes` throws fails.
//
// Flags, the shared memory:                        Bytes, which moves the bytes:
//   rank(), size(), slots(), depth(ring)             is_ready(): to post the next call
//   posted(rank, sequence): loads, acquire           write_post(sequence, number in its ring)
//   agrees(rank, sequence), after posted()           ring(): of the value of the first call
//   post(sequence, check): stores, release           finish_value(sequence, number in its ring)
//   reached(rank, counter, value): loads, acquire    agree(sequence) -> Agreement
//   publish(counter, value): stores, release         copy_in, combine, copy_out(chunk of the call)
//                                                    landed(counter, chunk), result_landed()
//                                                    may_start(counter)
//
// is_ready() says that others may use the memory of the next call, and that its value is there to
// be posted. finish_value() and the three for chunks may return before their bytes have landed.
// may_start() says that another step of that kind may be started.
// The first call is the oldest that is posted and not left.
template <class Flags>
class Protocol {
 public:
  enum class Step { none, moved, done, refused };

  // Whether a call is in flight that lets no other be posted.
  bool is_alone() const noexcept { return !idle() && !call_.eager; }
  template <class Bytes>
  bool may_post(const Flags& flags, const Bytes& bytes, const CallRules& call) const {
    if (!idle() && !(call_.eager && call.eager)) return false;
    return has_room(flags, Ring::posts) && has_room(flags, call.ring) && bytes.is_ready();
  }
  // Requires may_post().
  template <class Bytes>
  void post(Flags& flags, Bytes& bytes, const CallRules& call) {
    call_ = call;
    if (!call.eager) {
      ways_ = {};
      copied_in_ = combined_ = copied_out_ = {};
      in_cursor_ = out_cursor_ = free_cursor_ = 0;
    }
    const std::uint64_t sequence = ++turns(Ring::posts).posted;
    if (call.ring != Ring::posts) ++turns(call.ring).posted;
    bytes.write_post(sequence, turns(call.ring).posted);
    flags.post(sequence, call.check);
  }

  // Requires a call that is posted and not left. Works on the first one and moves at most one
  // chunk. done: the rank has left it. refused: the post of offender() differs, and no call can go
  // on.
  template <class Bytes>
  Step advance(Flags& flags, Bytes& bytes) {
    bool moved = false;
    if (!agreed_) {
      const Step step = see_posts(flags);
      if (step == Step::refused) return step;
      moved = step == Step::moved;
      if (!agreed_) return (call_.early && copy_in(flags, bytes)) || moved ? Step::moved : step;
      if (call_.eager) {
        bytes.finish_value(first(), turns(bytes.ring()).left + 1);
        const Step step = leave_eager(bytes);
        return step == Step::none ? Step::moved : step;
      }
      const Agreement agreement = bytes.agree(first());
      ways_ = agreement.ways;
      call_.chunks = agreement.chunks;
    } else if (call_.eager) {
      return leave_eager(bytes);
    }
    moved |= copy_out(flags, bytes) || combine(flags, bytes) || copy_in(flags, bytes);
    if (!may_leave(flags)) return moved ? Step::moved : Step::none;
    base_ += call_.chunks;
    return leave(Ring::posts);
  }

  // Whether no call is posted and not left.
  bool idle() const noexcept { return turns_[0].posted == turns_[0].left; }
  std::uint64_t first() const noexcept { return turns_[0].left + 1; }  // sequence of the first call
  std::uint64_t base() const noexcept { return base_; }                // chunks of all calls before
  const Ways& ways() const noexcept { return ways_; }
  // Whether everybody's post of the first call has been seen.
  bool agreed() const noexcept { return agreed_; }
  // The rank whose post of the first call is the only one missing, or size(). cursor: 0 at the
  // first look at a call, then what the look before has left. Requires a call that is posted and
  // not left, and !agreed().
  std::size_t only_missing(const Flags& flags, std::size_t& cursor) const {
    if (flags.posted(seen_, first())) return flags.size();
    if (cursor <= seen_) cursor = seen_ + 1;
    while (cursor < flags.size() && (cursor == flags.rank() || flags.posted(cursor, first())))
      ++cursor;
    return cursor == flags.size() ? seen_ : flags.size();
  }
  std::size_t offender() const noexcept { return seen_; }
  // Whether the first call waits for that rank.
  bool awaits(const Flags& flags, std::size_t rank) const {
    if (!agreed_) return !flags.posted(rank, first());
    if (call_.eager) return false;  // only for its own result
    const std::uint64_t end = base_ + call_.chunks;
    return !flags.reached(rank, Counter::copied_in, end) ||
           !flags.reached(rank, Counter::combined, end) ||
           !flags.reached(rank, Counter::copied_out, end);
  }

  // Calls add(rank) for each rank whose next store may let advance() do something, and perhaps for
  // others. No store of another rank does, so only these must wake this rank. Requires that the
  // last advance() has done nothing, and a call that is posted and not left.
  template <class Add>
  void for_each_awaited(const Add& add) const {
    if (!agreed_) {
      add(seen_);
      if (call_.early) add(free_cursor_);
      return;
    }
    for (const std::size_t cursor : {in_cursor_, out_cursor_, free_cursor_}) add(cursor);
  }

  // All that decides what comes next. The proof uses it to know which states it has visited.
  std::array<std::uint64_t, 17> state() const noexcept {
    const std::uint64_t bits = call_.eager | call_.reducing << 1 | call_.gives << 2 |
                               call_.takes << 3 | call_.early << 4 | ways_.in_windows << 5 |
                               ways_.out_windows << 6 | ways_.slots << 7 | agreed_ << 8;
    const auto both = [](const Turns& turns) { return turns.posted << 8 | turns.left; };
    return {call_.check,
            call_.chunks,
            bits,
            both(turns_[0]),
            both(turns_[1]),
            both(turns_[2]),
            base_,
            seen_,
            copied_in_.started,
            copied_in_.landed,
            combined_.started,
            combined_.landed,
            copied_out_.started,
            copied_out_.landed,
            in_cursor_,
            out_cursor_,
            free_cursor_};
  }

 private:
  // Calls of one ring.
  struct Turns {
    std::uint64_t posted = 0, left = 0;
  };

  // Chunks of the call.
  struct Chunks {
    std::uint64_t started = 0, landed = 0;
    void skip_to(std::uint64_t chunk) noexcept { started = landed = chunk; }
  };

  Turns& turns(Ring ring) noexcept { return turns_[static_cast<std::size_t>(ring)]; }
  bool has_room(const Flags& flags, Ring ring) const noexcept {
    const Turns& turns = turns_[static_cast<std::size_t>(ring)];
    return turns.posted - turns.left < flags.depth(ring);
  }
  Step leave(Ring ring) noexcept {
    ++turns(Ring::posts).left;
    if (ring != Ring::posts) ++turns(ring).left;
    agreed_ = false;
    seen_ = 0;
    return Step::done;
  }

  Step see_posts(Flags& flags) {
    const std::uint64_t sequence = first();
    const std::size_t before = seen_;
    for (; seen_ < flags.size(); ++seen_) {
      if (seen_ == flags.rank()) continue;
      if (!flags.posted(seen_, sequence)) return seen_ != before ? Step::moved : Step::none;
      if (!flags.agrees(seen_, sequence)) return Step::refused;
    }
    agreed_ = true;
    return Step::moved;
  }

  // The value has been finished; its result may still be on its way.
  template <class Bytes>
  Step leave_eager(Bytes& bytes) {
    return bytes.result_landed() ? leave(bytes.ring()) : Step::none;
  }

  // Publishes the next chunk that has landed, one at a time.
  template <class Bytes>
  bool land(Flags& flags, Bytes& bytes, Counter counter, Chunks& chunks) {
    if (chunks.landed == chunks.started || !bytes.landed(counter, chunks.landed)) return false;
    flags.publish(counter, base_ + ++chunks.landed);
    return true;
  }
  void skip(Flags& flags, Counter counter, Chunks& chunks, std::uint64_t to) {
    chunks.skip_to(to);
    flags.publish(counter, base_ + to);
  }

  // Each of these starts at most one step, and sees at most one land.
  template <class Bytes>
  bool copy_in(Flags& flags, Bytes& bytes) {
    if (copied_in_.landed == call_.chunks) return false;
    if (ways_.in_windows || !call_.gives) {
      skip(flags, Counter::copied_in, copied_in_, call_.chunks);
      return true;
    }
    const bool starts = copied_in_.started < call_.chunks && bytes.may_start(Counter::copied_in) &&
                        slot_free(flags, copied_in_.started);
    if (starts) bytes.copy_in(copied_in_.started++);
    return land(flags, bytes, Counter::copied_in, copied_in_) || starts;
  }

  template <class Bytes>
  bool combine(Flags& flags, Bytes& bytes) {
    if (combined_.landed == call_.chunks) return false;
    if (!call_.reducing) {
      skip(flags, Counter::combined, combined_, call_.chunks);
      return true;
    }
    const bool starts = bytes.may_start(Counter::combined) && may_combine(flags);
    if (starts) bytes.combine(combined_.started++);
    return land(flags, bytes, Counter::combined, combined_) || starts;
  }

  // Where inputs are in windows nothing is copied in, and the slot receives the result.
  bool may_combine(Flags& flags) {
    if (combined_.started == call_.chunks) return false;
    if (ways_.in_windows) return slot_free(flags, combined_.started);
    return combined_.started < copied_in_.landed &&
           all_reached(flags, Counter::copied_in, base_ + combined_.started + 1, in_cursor_);
  }

  template <class Bytes>
  bool copy_out(Flags& flags, Bytes& bytes) {
    if (copied_out_.landed == call_.chunks) return false;
    if (ways_.out_windows || !call_.takes) {
      if (copied_out_.landed == combined_.landed) return false;
      skip(flags, Counter::copied_out, copied_out_, combined_.landed);
      return true;
    }
    const bool starts = bytes.may_start(Counter::copied_out) && may_copy_out(flags);
    if (starts) bytes.copy_out(copied_out_.started++);
    return land(flags, bytes, Counter::copied_out, copied_out_) || starts;
  }

  bool may_copy_out(Flags& flags) {
    if (copied_out_.started == call_.chunks) return false;
    const Counter ready = call_.reducing ? Counter::combined : Counter::copied_in;
    const bool waits = call_.reducing || !ways_.in_windows;
    return !waits || all_reached(flags, ready, base_ + copied_out_.started + 1, out_cursor_);
  }

  // Whether nobody needs any more what the chunk's slot held before.
  bool slot_free(Flags& flags, std::uint64_t chunk) {
    const std::uint64_t number = base_ + chunk;
    if (!ways_.slots || number < flags.slots()) return true;
    return all_reached(flags, Counter::copied_out, number - flags.slots() + 1, free_cursor_);
  }

  bool may_leave(Flags& flags) {
    const std::uint64_t all = call_.chunks;
    if (copied_in_.landed < all || combined_.landed < all || copied_out_.landed < all) return false;
    return (!ways_.in_windows && !ways_.out_windows) ||
           all_reached(flags, Counter::copied_out, base_ + all, out_cursor_);
  }

  // cursor: the ranks before it have reached the value, which stays true since counters only grow.
  bool all_reached(Flags& flags, Counter counter, std::uint64_t value, std::size_t& cursor) {
    for (; cursor < flags.size(); ++cursor)
      if (!flags.reached(cursor, counter, value)) return false;
    cursor = 0;
    return true;
  }

  CallRules call_;  // of the newest post; if it is eager, all in flight are
  std::array<Turns, ring_kinds> turns_;
  Ways ways_;
  bool agreed_ = false;  // all posts of the first call agree
  std::uint64_t base_ = 0;
  Chunks copied_in_, combined_, copied_out_;
  std::size_t seen_ = 0;  // ranks whose posts agree, in rank order
  std::size_t in_cursor_ = 0, out_cursor_ = 0, free_cursor_ = 0;
};

}  // namespace rondo::direct
