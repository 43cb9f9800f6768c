// SPDX-License-Identifier: Apache-2.0
#include "lib/settings/exchange.h"

#include <unistd.h>

#include <cstdlib>

#include <rondo/error.h>

#include "lib/settings/environment.h"

namespace rondo::settings {
namespace {

// Never destroyed: other threads may still connect when the process ends.
struct OfProcess {
  const pid_t process = ::getpid();
  std::mutex mutex;
  std::unique_ptr<Exchange> exchange;
  std::optional<RanksOfExchange> ranks;
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

}  // namespace

OpenExchange::OpenExchange() {
  OfProcess& here = of_process();
  if (here.process != ::getpid())
    throw Error(
        Errc::rendezvous,
        "a forked child cannot join through the launcher of its parent: set RONDO_RENDEZVOUS and "
        "RONDO_SECRET");
  lock_ = std::unique_lock(here.mutex);
}

Exchange& OpenExchange::with(ExchangeKind kind, base::TimePoint until) {
  OfProcess& here = of_process();
  if (!here.exchange)
    here.exchange = kind == ExchangeKind::pmix ? open_pmix() : open_pmi(until, here.ranks);
  return *here.exchange;
}

const std::optional<RanksOfExchange>& OpenExchange::ranks() const noexcept {
  return of_process().ranks;
}

bool is_offered(ExchangeKind kind) {
  return kind == ExchangeKind::pmix ? has_pmix() : variable("PMI_FD") || variable("PMI_PORT");
}

RanksOfExchange ranks_of_exchange() {
  constexpr milliseconds time{10'000};
  OpenExchange open;
  open.with(ExchangeKind::pmi, base::after(base::Clock::now(), time));
  if (!open.ranks()) throw Error(Errc::rendezvous, "the launcher's PMI did not say the rank");
  return *open.ranks();
}

}  // namespace rondo::settings
