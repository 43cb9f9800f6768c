// SPDX-License-Identifier: Apache-2.0
#include "lib/rendezvous/meeting.h"

#include <openssl/rand.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include <rondo/error.h>

#include "base/process.h"
#include "base/text.h"
#include "lib/rendezvous/announcement.h"
#include "lib/rendezvous/listen.h"
#include "lib/rendezvous/rank_zero.h"
#include "lib/settings/environment.h"
#include "lib/settings/exchange.h"
#include "lib/wire/socket.h"

namespace rondo::rendezvous {
namespace {

// The text that the launcher carries: the secret, a blank, and an announcement.
constexpr std::size_t secret_digits = 64;

// A process has one connection to its launcher, which lasts as long as the process. It is never
// destroyed: other threads may still connect when the process ends.
struct OfProcess {
  settings::Exchange& open(settings::ExchangeKind kind, base::TimePoint until) {
    if (!exchange)
      exchange = kind == settings::ExchangeKind::pmix ? settings::open_pmix()
                                                      : settings::open_pmi(until, ranks);
    return *exchange;
  }

  const pid_t process = ::getpid();
  std::mutex mutex;
  std::unique_ptr<settings::Exchange> exchange;
  std::optional<settings::RanksOfExchange> ranks;
  std::shared_ptr<Meeting> meeting;  // rank 0's is there before the others know it
  bool known_to_all = false;
};

OfProcess& of_process() {
  // At its end the process tells the launcher; a forked child does not.
  static OfProcess& one = []() -> OfProcess& {
    std::atexit([] {
      OfProcess& here = of_process();
      const std::unique_lock lock(here.mutex, std::try_to_lock);
      if (lock && here.process == ::getpid()) here.exchange.reset();
    });
    return *std::make_unique<OfProcess>().release();
  }();
  return one;
}

// Locks it. Throws in a forked child, where the lock may be held for ever.
std::unique_lock<std::mutex> enter(OfProcess& here) {
  if (here.process != ::getpid())
    throw Error(
        Errc::rendezvous,
        "a forked child cannot join through the launcher of its parent: set RONDO_RENDEZVOUS and "
        "RONDO_SECRET");
  return std::unique_lock(here.mutex);
}

std::string fresh_secret() {
  std::array<unsigned char, secret_digits / 2> random{};
  if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1)
    throw Error(Errc::system, "no random bytes from OpenSSL for the secret of the job");
  return base::hex(random);
}

std::shared_ptr<Meeting> choose_meeting(const Options& options) {
  auto meeting = std::make_shared<Meeting>();
  Listening listening = listen_everywhere(options);
  meeting->host = base::host_identity();
  meeting->addresses = addresses_of(listening.listeners);
  meeting->listeners = std::move(listening.listeners);
  meeting->secret = fresh_secret();
  return meeting;
}

std::shared_ptr<Meeting> read_meeting(const std::string& text) {
  const auto announcement =
      text.size() > secret_digits
          ? parse_announcement(std::string_view(text).substr(secret_digits + 1))
          : std::nullopt;
  if (!announcement)
    throw Error(Errc::unsupported,
                "the launcher carried something from rank 0 that is not an address "
                "of this version of Rondo: run one version on all ranks");
  auto meeting = std::make_shared<Meeting>();
  meeting->host = announcement->host;
  meeting->addresses = announcement->addresses;
  meeting->secret = text.substr(0, secret_digits);
  return meeting;
}

// Returns the address for messages: one that other hosts can reach.
std::string first_outside(const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses)
    for (const wire::Endpoint& endpoint : wire::parse_endpoint(address))
      if (!endpoint.is_loopback()) return address;
  return addresses.front();
}

}  // namespace

bool is_offered(settings::ExchangeKind kind) {
  return kind == settings::ExchangeKind::pmix
             ? settings::has_pmix()
             : settings::variable("PMI_FD") || settings::variable("PMI_PORT");
}

settings::RanksOfExchange ranks_of_exchange() {
  constexpr milliseconds time{10'000};
  OfProcess& here = of_process();
  const auto lock = enter(here);
  here.open(settings::ExchangeKind::pmi, base::after(base::Clock::now(), time));
  if (!here.ranks) throw Error(Errc::rendezvous, "the launcher's PMI did not say the rank");
  return *here.ranks;
}

void meet_by_launcher(Place& place, const Options& options) {
  OfProcess& here = of_process();
  const auto lock = enter(here);
  if (!here.known_to_all) {
    settings::Exchange& exchange = here.open(place.by_launcher, place.deadline);
    if (place.rank != 0) {
      here.meeting = read_meeting(exchange.take(place.deadline));
    } else {
      if (!here.meeting) here.meeting = choose_meeting(options);
      exchange.give(here.meeting->secret + " " +
                        write_announcement({fresh_job(), here.meeting->host, process_identity(),
                                            here.meeting->addresses}),
                    place.deadline);
    }
    here.known_to_all = true;
  }
  place.meeting = here.meeting;
  place.url = "tcp://" + first_outside(here.meeting->addresses);
  if (place.secret.empty()) place.secret = here.meeting->secret;
}

}  // namespace rondo::rendezvous
