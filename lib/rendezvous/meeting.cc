// SPDX-License-Identifier: Apache-2.0
#include "lib/rendezvous/meeting.h"

#include <openssl/rand.h>

#include <array>

#include <rondo/error.h>

#include "base/process.h"
#include "base/text.h"
#include "lib/rendezvous/announcement.h"
#include "lib/rendezvous/listen.h"
#include "lib/rendezvous/rank_zero.h"
#include "lib/settings/exchange.h"
#include "lib/wire/socket.h"

namespace rondo::rendezvous {
namespace {

// The text that the launcher carries: the secret, a blank, and an announcement.
constexpr std::size_t secret_digits = 64;

// There is one for this process. Guarded by the lock of its exchange.
struct Carried {
  std::shared_ptr<Meeting> meeting;  // rank 0's is there before the others know it
  bool known_to_all = false;
};

// Never destroyed: another thread may still connect when the process ends.
Carried& carried() {
  static Carried& one = *std::make_unique<Carried>().release();
  return one;
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

void meet_by_launcher(Place& place, const Options& options) {
  settings::OpenExchange open;
  Carried& here = carried();
  if (!here.known_to_all) {
    settings::Exchange& exchange = open.with(place.by_launcher, place.deadline);
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
