// SPDX-License-Identifier: Apache-2.0
//
// How a connection learns what it may send: the arithmetic, with a simulated link.
#include "transports/tcp/bulk_pace.h"

#include <algorithm>

#include "catch.h"

namespace rondo::testing {
namespace {

constexpr microseconds least_rtt{100};

double seconds(nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

// A sender that always has more, on a link with a queue in front of it. The sender may fill the
// queue up to `window` bytes.
struct Played {
  double link = 125e6, window = 600e3, queue = 0, acked = 0;
  microseconds acknowledgements_wait{0};  // how long they wait in a queue at the peer
  bool busy = true;                       // the sender has more
  tcp::BulkPace pace;
  std::uint64_t rate = tcp::BulkPace::unlimited;
  base::TimePoint now{std::chrono::hours{1}};

  void step() {
    constexpr microseconds step{500};
    now += step;
    const double allowed =
        rate == tcp::BulkPace::unlimited ? window : static_cast<double>(rate) * seconds(step);
    if (busy) queue += std::min(allowed, window - queue);
    const double sent = std::min(queue, link * seconds(step));
    queue -= sent;
    acked += sent;
  }
  void run(milliseconds time) {
    for (const base::TimePoint end = now + time; now < end;) {
      for (int i = 0; i < 10; ++i) step();
      const microseconds waits(static_cast<std::int64_t>(queue / link * 1e6));
      rate = pace.look({now, least_rtt + waits + acknowledgements_wait, least_rtt,
                        static_cast<std::uint64_t>(acked),
                        std::chrono::duration_cast<microseconds>(now.time_since_epoch()), busy});
    }
  }
  bool held_to(double share) const {
    return rate != tcp::BulkPace::unlimited &&
           static_cast<double>(rate) > (tcp::BulkPace::part - 0.02) * share &&
           static_cast<double>(rate) < (tcp::BulkPace::part + 0.01) * share;
  }
  // The part of the next `time` in which a small frame would have waited for over a millisecond.
  double queued_part(milliseconds time) {
    int with = 0, looks = 0;
    for (const base::TimePoint end = now + time; now < end; ++looks) {
      run(milliseconds{5});
      with += queue > link * 1e-3;
    }
    return static_cast<double>(with) / looks;
  }
};

}  // namespace

TEST_CASE("a connection alone on a link is held a little below it, and the queue is gone") {
  Played played;
  played.run(milliseconds{100});
  CHECK(played.held_to(125e6));
  CHECK(played.queue < 125e6 * 1e-3);
  CHECK(played.queued_part(milliseconds{20'000}) < 0.05);
  const double before = played.acked;
  played.run(milliseconds{20'000});
  CHECK(played.acked - before > (tcp::BulkPace::part - 0.01) * 20 * 125e6);
}

TEST_CASE("it finds out that there is more, and that there is less") {
  Played played;
  played.run(milliseconds{2'000});
  played.link = 250e6;
  played.run(milliseconds{60'000});
  CHECK((played.held_to(250e6) || played.rate == tcp::BulkPace::unlimited));
  played.link = 60e6;
  played.run(milliseconds{10'000});
  CHECK((played.held_to(60e6) || played.rate == tcp::BulkPace::unlimited));
  CHECK(played.queued_part(milliseconds{10'000}) < 0.2);
}

TEST_CASE("small frames that take much of the link have it, and give it back") {
  Played played;
  played.run(milliseconds{1'000});
  // Small frames come as fast as they are answered. While this connection measures, they are slow
  // and take little of the link.
  for (int i = 0; i < 4'000; ++i) {
    played.link = played.rate == tcp::BulkPace::unlimited ? 124e6 : 105e6;
    played.run(milliseconds{5});
  }
  int with = 0;
  for (int i = 0; i < 2'000; ++i) {
    played.link = played.rate == tcp::BulkPace::unlimited ? 124e6 : 105e6;
    played.run(milliseconds{5});
    with += played.queue > played.link * 1e-3;
  }
  CHECK(with < 2'000 * 0.4);
  played.link = 125e6;
  played.run(milliseconds{20'000});
  CHECK((played.held_to(125e6) || played.rate == tcp::BulkPace::unlimited));
}

TEST_CASE("acknowledgements that wait for something else do not slow it down") {
  Played played;
  played.run(milliseconds{1'000});
  played.acknowledgements_wait = milliseconds{5};
  const double before = played.acked;
  played.run(milliseconds{20'000});
  CHECK(played.acked - before > (tcp::BulkPace::part - 0.03) * 20 * 125e6);
}

TEST_CASE("a peer that does not read for seconds is not taken for a link that takes seconds") {
  Played played;
  played.run(milliseconds{20});
  for (int i = 0; i < 3; ++i) {
    played.now += std::chrono::seconds{10};  // nothing is acknowledged
    for (int looks = 0; looks < 200; ++looks) {
      played.run(milliseconds{5});
      REQUIRE(played.rate >= 25'000'000);
    }
  }
  played.run(milliseconds{20'000});
  CHECK((played.held_to(125e6) || played.rate == tcp::BulkPace::unlimited));
}

TEST_CASE("who never has more to send than the network takes is never held") {
  Played played;
  played.busy = false;
  played.acknowledgements_wait = milliseconds{5};
  for (int i = 0; i < 1000; ++i) {
    played.queue = 50e3;
    played.run(milliseconds{5});
    REQUIRE(played.rate == tcp::BulkPace::unlimited);
  }
}

}  // namespace rondo::testing
