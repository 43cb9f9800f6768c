// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>

#include <rondo/error.h>

#include "lib/rendezvous/rendezvous.h"
#include "lib/rendezvous/user_directory.h"
#include "lib/settings/environment.h"
#include "lib/settings/launcher.h"
#include "lib/settings/settings.h"
#include "lib/settings/url.h"

namespace rondo::rendezvous {
namespace {

constexpr std::string_view no_url = "env://";

// Makes a file name from a launcher's name for a job.
std::string file_name(const std::string& job, int size) {
  std::string name = "job-" + job.substr(0, 150) + "-" + std::to_string(size);
  std::ranges::replace_if(
      name,
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '.' && c != '_'; },
      '_');
  return name;
}

[[noreturn]] void ask_for_rendezvous(const Place& place,
                                     const std::optional<settings::Launcher>& launcher) {
  const std::string what = "rank " + std::to_string(place.rank) + " of " +
                           std::to_string(place.size) + " does not know where the ranks meet: ";
  const std::string remedy =
      "set RONDO_RENDEZVOUS=tcp://HOST:PORT on all ranks, where HOST is the host of rank 0";
  if (!launcher)
    throw Error(Errc::invalid_argument,
                what + remedy + ", or RONDO_RENDEZVOUS=file:///PATH on one host");
  throw Error(Errc::invalid_argument, what + launcher->name + " runs ranks on several hosts; " +
                                          remedy + ", and RONDO_SECRET to the same text (" +
                                          launcher->carry_by + ")");
}

void resolve_ranks(Place& place, const Options& options,
                   const settings::EnvironmentRanks& environment) {
  place.rank = options.rank >= 0 ? options.rank : environment.rank;
  place.size = options.size > 0 ? options.size : environment.size;
  const bool as_environment = place.rank == environment.rank && place.size == environment.size;
  place.source = as_environment && !environment.source.empty() ? environment.source : "options";
  if (place.rank < 0 && place.size == 0) {
    place.rank = 0;
    place.size = 1;
    place.source = "alone";
  }
  if (place.rank < 0)
    throw Error(Errc::invalid_argument, "this process is one of " + std::to_string(place.size) +
                                            " ranks, but it does not know which one: set its rank "
                                            "too (Options::rank or RONDO_RANK)");
  if (place.size == 0)
    throw Error(Errc::invalid_argument, "this is rank " + std::to_string(place.rank) +
                                            ", but the number of ranks is not known: set the size "
                                            "too (Options::size or RONDO_SIZE)");
  if (place.rank >= place.size)
    throw Error(Errc::invalid_argument,
                "rank " + std::to_string(place.rank) + " of " + std::to_string(place.size) +
                    " does not exist: ranks go from 0 to " + std::to_string(place.size - 1));
}

// Gives a secret to ranks that have none: one that only processes of one user on one host know.
void lend_secret(Place& place, std::string_view name) {
  if (!place.secret.empty()) return;
  place.secret = user_secret(name);
  place.this_host_only = true;
}

void resolve_url(Place& place, const Options& options,
                 const std::optional<settings::Launcher>& launcher) {
  if (!options.rendezvous.empty() && options.rendezvous != no_url) {
    place.url = options.rendezvous;
  } else if (const auto url = settings::variable("RONDO_RENDEZVOUS"); url && *url != no_url) {
    place.url = *url;
  } else if (launcher && launcher->exchange != settings::ExchangeKind::none &&
             place.rank == launcher->rank && place.size == launcher->size &&
             (launcher->url.empty() || place.secret.empty())) {
    place.by_launcher = launcher->exchange;
    return;
  } else if (launcher && !launcher->url.empty()) {
    place.url = launcher->url;
    place.from_several_hosts = launcher->several_hosts || launcher->local_size == 0;
    if (launcher->several_hosts && place.secret.empty())
      throw Error(Errc::authentication,
                  launcher->name +
                      " runs ranks on several hosts, which needs a job secret: set RONDO_SECRET to "
                      "the same text on all ranks (" +
                      launcher->carry_by + ")");
  } else if (launcher && !launcher->url_problem.empty()) {
    throw Error(Errc::invalid_argument, launcher->url_problem);
  } else if (launcher && !launcher->several_hosts && !launcher->job.empty()) {
    const std::string name = file_name(launcher->job, place.size);
    place.url = "file://" + user_directory() + "/" + name;
    lend_secret(place, name);
    return;
  } else {
    ask_for_rendezvous(place, launcher);
  }
  const settings::RendezvousUrl parsed = settings::parse_rendezvous(place.url, "the rendezvous");
  // Ranks may write one address in several ways, but its port in one way.
  lend_secret(place, parsed.kind == settings::RendezvousUrl::Kind::file
                         ? parsed.path
                         : "port " + std::to_string(parsed.port));
}

// A bad value of the variable is reported later, with all other settings, when other ranks can be
// told.
milliseconds time_to_join(const Options& options) {
  if (options.connect_deadline.count() > 0) return options.connect_deadline;
  try {
    return settings::seconds_variable("RONDO_CONNECT_DEADLINE")
        .value_or(settings::default_connect_deadline);
  } catch (const Error&) {
    return settings::default_connect_deadline;
  }
}

}  // namespace

Place resolve_place(const Options& options) {
  if (options.rank < -1)
    throw Error(Errc::invalid_argument, "Options::rank is " + std::to_string(options.rank) +
                                            ": it must be 0 or more, or -1 for the launcher's");
  if (options.size < 0)
    throw Error(Errc::invalid_argument, "Options::size is " + std::to_string(options.size) +
                                            ": it must be 1 or more, or 0 for the launcher's");
  const settings::EnvironmentRanks environment = settings::ranks_from_environment(options);
  Place place;
  place.deadline = base::after(base::Clock::now(), time_to_join(options));
  resolve_ranks(place, options, environment);
  place.secret = options.secret.empty() ? settings::secret_from_environment() : options.secret;
  if (place.size > 1 && options.store == nullptr) resolve_url(place, options, environment.launcher);
  if (place.size > 1 && options.store != nullptr) lend_secret(place, "store");
  return place;
}

}  // namespace rondo::rendezvous
