// SPDX-License-Identifier: Apache-2.0
//
// connect_deadline was applied up to three times (joining, sharing memory, measuring). connect()
// failed at once when the deadline meant "for ever", and a name lookup ignored it.
#include <dlfcn.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <future>

#include "base/process.h"
#include "base/thread.h"
#include "catch.h"
#include "lib/connect.h"
#include "lib/played_rank.h"
#include "lib/record.h"
#include "lib/settings/settings.h"
#include "lib/wire/name_lookup.h"
#include "transports/shm/shm.h"

using namespace rondo;
using namespace rondo::tests;
using Catch::Contains;

namespace {

constexpr const char* slow_name = "slow.test.rondo.invalid";

// An event descriptor. The lookup of the slow name blocks until it is readable. It stays open to
// the end of the process, because a thread whose lookup has been given up may still look at it.
int gate() {
  static const int event = ::eventfd(0, EFD_CLOEXEC);
  return event;
}

}  // namespace

// Replaces the system's function, and calls that for every other name.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** list) {
  using Call = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto system_call = reinterpret_cast<Call>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool asks = hints == nullptr || (hints->ai_flags & AI_NUMERICHOST) == 0;
  if (asks && node != nullptr && std::string_view(node) == slow_name) {
    pollfd entry{gate(), POLLIN, 0};
    ::poll(&entry, 1, 60'000);
    node = "127.0.0.1";
  }
  return system_call(node, service, hints, list);
}

TEST_CASE("a deadline beyond the clock means never", "[deadline]") {
  const base::TimePoint now = base::Clock::now();
  CHECK(base::after(now, milliseconds::max()) == base::TimePoint::max());
  CHECK(base::after(base::TimePoint::max(), milliseconds{1000}) == base::TimePoint::max());
  CHECK(base::after(base::TimePoint::max() - milliseconds{1}, milliseconds{1000}) ==
        base::TimePoint::max());
  CHECK(base::after(now, milliseconds{1000}) == now + milliseconds{1000});
  CHECK(base::after(now, milliseconds{-1000}) == now - milliseconds{1000});
}

TEST_CASE("connect_deadline may be for ever", "[deadline]") {
  const auto outcomes =
      join_all(all_places(3, free_url(), "secret"), with_deadline(milliseconds::max()));
  CHECK(what_is_wrong(outcomes) == "");

  const std::string url = free_url();
  std::vector<std::future<float>> sums;
  for (int rank = 0; rank < 2; ++rank)
    sums.push_back(std::async(std::launch::async, [&, rank] {
      Options options = with_deadline(milliseconds::max());
      options.rank = rank;
      options.size = 2;
      options.rendezvous = url;
      options.transports = {"tcp"};
      options.measure = true;
      auto communicator = Communicator::connect(options);
      std::vector<float> one{1};
      communicator.all_reduce(buffer_of(std::span(one)), buffer_of(std::span(one)), ReduceOp::sum)
          .wait();
      return one[0];
    }));
  for (auto& sum : sums) CHECK(sum.get() == 2);
}

TEST_CASE("joining and sharing memory have one deadline together", "[deadline]") {
  constexpr milliseconds limit{10'000}, late{5000};
  const std::uint16_t port = free_port();
  const std::string url = "tcp://127.0.0.1:" + std::to_string(port);
  const base::TimePoint start = base::Clock::now();
  std::promise<void> given_up;
  // Rank 1 joins late, when a stranger that says nothing has been turned away. Then it shares no
  // memory.
  auto other = std::async(std::launch::async, [&] {
    lib::TransportList listening;
    listening.push_back(
        shm::make_shm({.rank = 1, .size = 2, .secret = "secret", .host = base::host_identity()}));
    wire::Stream stranger = connected(port);
    wire::wait_for(stranger.descriptor(), POLLIN, base::after(start, milliseconds{30'000}));
    stranger.read();
    if (!stranger.ended()) return std::string("the stranger was not turned away");
    Options same = with_deadline(limit);
    same.transports = {"shm"};
    const transports::Blob record = lib::write_record(settings::with_environment(same), {},
                                                      listening, lib::CostSource::defaults, {});
    const Outcome joined =
        join_one(place_of(1, 2, url, "secret"), with_deadline(milliseconds{60'000}), record);
    if (!joined.joined) return joined.message;
    given_up.get_future().wait();
    return std::string();
  });
  Options options = with_deadline(limit);
  options.rank = 0;
  options.size = 2;
  options.rendezvous = url;
  options.secret = "secret";
  options.transports = {"shm"};
  CHECK_THROWS_WITH(Communicator::connect(options),
                    Contains("until the deadline for joining") && Contains("rank 1"));
  CHECK(base::Clock::now() - start < late + limit - milliseconds{500});
  given_up.set_value();
  CHECK(other.get() == "");
}

TEST_CASE("a name that resolves slowly is given up at the deadline", "[deadline]") {
  const std::uint16_t port = free_port();
  for (const int rank : {0, 1}) {
    rendezvous::Place place =
        place_of(rank, 2, std::string("tcp://") + slow_name + ":" + std::to_string(port));
    auto outcome = std::async(
        std::launch::async, [&] { return join_one(place, with_deadline(milliseconds{1500}), {}); });
    // The resolver takes far longer: 60 s, or until the gate opens.
    REQUIRE(outcome.wait_for(milliseconds{30'000}) == std::future_status::ready);
    const Outcome result = outcome.get();
    CHECK_FALSE(result.joined);
    CHECK_THAT(result.message, Contains("has not answered for the name 'slow.test.rondo.invalid'"));
  }
  // The lookup threads that were left behind end once the gate is open.
  const std::uint64_t one = 1;
  REQUIRE(::write(gate(), &one, sizeof one) == sizeof one);
  std::string why;
  CHECK(wire::resolve(slow_name, port, base::after(base::Clock::now(), milliseconds{30'000}), why)
            .size() == 1);
}
