// SPDX-License-Identifier: Apache-2.0
//
// Carries one text from rank 0 to the other ranks through the launcher that has started them:
// PMI-1 (MPICH's Hydra, srun --mpi=pmi2) or PMIx (Open MPI's mpirun, srun --mpi=pmix).
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"

namespace rondo::settings {

// A process has one exchange, used by one thread at a time. If a process ends without having
// destroyed it, the launcher may end the whole job.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Rank 0 gives a text of up to 4,096 bytes, and the others take it. Both throw Error if the
  // launcher refuses, does not answer or has gone away, or if the other ranks have not come by
  // `until`. In the last case both may be called again, give() with the same text.
  virtual void give(const std::string& text, base::TimePoint until) = 0;
  virtual std::string take(base::TimePoint until) = 0;
};

enum class ExchangeKind { none, pmi, pmix };
// Whether the launcher offers it, by its variables, and this process has what it needs.
bool is_offered(ExchangeKind kind);

struct RanksOfExchange {
  int rank = 0;
  int size = 1;
};
// The exchange of this process, which lasts as long as the process. The object holds its lock.
class OpenExchange {
 public:
  // Throws Error in a forked child, where the lock may be held for ever.
  OpenExchange();
  // Connects to the launcher at the first call.
  Exchange& with(ExchangeKind kind, base::TimePoint until);
  const std::optional<RanksOfExchange>& ranks() const noexcept;  // set if PMI itself says them

 private:
  std::unique_lock<std::mutex> lock_;
};
// For Hydra's -pmi-port, where a process learns its rank over the exchange. Throws Error.
RanksOfExchange ranks_of_exchange();

// ranks: set if PMI itself says them.
std::unique_ptr<Exchange> open_pmi(base::TimePoint until, std::optional<RanksOfExchange>& ranks);
bool has_pmix();
// Calls PMIx_Init(), which has no deadline.
std::unique_ptr<Exchange> open_pmix();

}  // namespace rondo::settings
