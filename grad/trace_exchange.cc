// SPDX-License-Identifier: Apache-2.0
//
// The message of a rank, in words of u64. First clock_error; for each step: step, began, waited,
// finished; for each bucket: step, bucket, bytes, ready, started, ended. The numbers of steps and
// buckets are all-gathered before.
#include "grad/trace_exchange.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <optional>
#include <span>

#include <rondo/error.h>

namespace rondo::grad {

namespace {

constexpr int round_trips = 16;
constexpr std::size_t step_words = 4, bucket_words = 6;
using Words = std::vector<std::uint64_t>;

struct Counts {
  std::size_t steps = 0, buckets = 0;
  std::size_t words() const { return 1 + steps * step_words + buckets * bucket_words; }
};

std::int64_t now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

OpOptions options_of_trace() {
  OpOptions options;
  options.tag = "save_trace";
  return options;
}

void send_words(Communicator& communicator, std::span<std::uint64_t> words, int peer) {
  communicator.send(buffer_of(words), peer, Trace::message_tag, options_of_trace()).wait();
}

void receive_words(Communicator& communicator, std::span<std::uint64_t> words, int peer) {
  communicator.receive(buffer_of(words), peer, Trace::message_tag, options_of_trace()).wait();
}

std::vector<Counts> gather_counts(Communicator& communicator, const RankTrace& mine) {
  std::array<std::uint64_t, 2> own{mine.steps.size(), mine.buckets.size()};
  Words all(2 * static_cast<std::size_t>(communicator.size()));
  communicator
      .all_gather({own.data(), own.size(), DType::u64}, buffer_of(std::span(all)),
                  options_of_trace())
      .wait();
  std::vector<Counts> counts;
  for (std::size_t rank = 0; rank * 2 < all.size(); ++rank) {
    if (all[rank * 2] > Trace::most_buckets || all[rank * 2 + 1] > Trace::most_buckets)
      throw Error(
          Errc::corrupt,
          fmt::format(
              "save_trace: rank {} announced {} steps and {} buckets, more than can be kept", rank,
              all[rank * 2], all[rank * 2 + 1]));
    counts.push_back(
        {static_cast<std::size_t>(all[rank * 2]), static_cast<std::size_t>(all[rank * 2 + 1])});
  }
  return counts;
}

// Rank 0's side of measure_clock().
void show_clock(Communicator& communicator, int peer) {
  std::array<std::uint64_t, 1> word{};
  for (int i = 0; i < round_trips; ++i) {
    receive_words(communicator, word, peer);
    word[0] = static_cast<std::uint64_t>(now());
    send_words(communicator, word, peer);
  }
}

struct ClockOffset {
  std::int64_t add = 0, error = 0;
};

// Rank 0 reads its clock at some moment of the round trip, at most half of it from the middle.
ClockOffset measure_clock(Communicator& communicator) {
  ClockOffset best;
  std::int64_t fastest = std::numeric_limits<std::int64_t>::max();
  std::array<std::uint64_t, 1> word{};
  for (int i = 0; i < round_trips; ++i) {
    const std::int64_t before = now();
    send_words(communicator, word, 0);
    receive_words(communicator, word, 0);
    const std::int64_t round_trip = now() - before;
    if (round_trip >= fastest) continue;
    fastest = round_trip;
    // Unsigned, because a wrong word from rank 0 may make it wrap.
    const std::uint64_t middle = static_cast<std::uint64_t>(before + round_trip / 2);
    best = {static_cast<std::int64_t>(word[0] - middle), round_trip / 2};
  }
  return best;
}

Words words_of(const RankTrace& trace, const ClockOffset& clock) {
  const auto there = [&](std::int64_t time) {
    return static_cast<std::uint64_t>(time) + static_cast<std::uint64_t>(clock.add);
  };
  Words words{static_cast<std::uint64_t>(clock.error)};
  words.reserve(Counts{trace.steps.size(), trace.buckets.size()}.words());
  for (const TracedStep& each : trace.steps)
    words.insert(words.end(),
                 {each.step, there(each.began), there(each.waited), there(each.finished)});
  for (const TracedBucket& each : trace.buckets)
    words.insert(words.end(), {each.step, each.bucket, each.bytes, there(each.ready),
                               there(each.started), there(each.ended)});
  return words;
}

RankTrace trace_of(const Words& words, const Counts& counts) {
  RankTrace trace;
  std::size_t at = 0;
  const auto next = [&] { return words[at++]; };
  const auto time = [&] { return static_cast<std::int64_t>(words[at++]); };
  trace.clock_error = time();
  trace.steps.resize(counts.steps);
  for (TracedStep& each : trace.steps) each = {next(), time(), time(), time()};
  trace.buckets.resize(counts.buckets);
  for (TracedBucket& each : trace.buckets) each = {next(), next(), next(), time(), time(), time()};
  return trace;
}

}  // namespace

void exchange_traces(Communicator& communicator, const RankTrace& mine,
                     const std::function<void(int, const RankTrace&)>& take) {
  const std::vector<Counts> counts = gather_counts(communicator, mine);
  if (communicator.rank() != 0) {
    Words words = words_of(mine, measure_clock(communicator));
    return send_words(communicator, words, 0);
  }
  take(0, mine);
  for (int peer = 1; peer < communicator.size(); ++peer) {
    show_clock(communicator, peer);
    const Counts& theirs = counts[static_cast<std::size_t>(peer)];
    Words words(theirs.words());
    receive_words(communicator, words, peer);
    take(peer, trace_of(words, theirs));
  }
}

}  // namespace rondo::grad
