// SPDX-License-Identifier: Apache-2.0
//
// Carries one text from rank 0 to the other ranks through the launcher that has started them:
// PMI-1 (MPICH's Hydra, srun --mpi=pmi2) or PMIx (Open MPI's mpirun, srun --mpi=pmix).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"

namespace rondo::rendezvous {

// For one thread at a time. A launcher may end the whole job when a process ends that has begun an
// exchange and not destroyed it. A process has one exchange.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Rank 0: gives the text, of up to 4,096 bytes, to the others. Throws Error, as take() does: the
  // launcher refuses, does not answer or has gone away, or the others have not asked for it by
  // `until`. In the last case both may be called again, give() with the same text.
  virtual void give(const std::string& text, base::TimePoint until) = 0;
  virtual std::string take(base::TimePoint until) = 0;
};

enum class ExchangeKind { none, pmi, pmix };
// Whether the environment says that the launcher offers it, and what it needs is here.
bool is_offered(ExchangeKind kind);

struct RanksOfExchange {
  int rank = 0;
  int size = 1;
};
// Hydra's -pmi-port: a process learns its rank over the exchange. Throws Error.
RanksOfExchange ranks_of_exchange();

// ranks: set if PMI itself says them.
std::unique_ptr<Exchange> open_pmi(base::TimePoint until, std::optional<RanksOfExchange>& ranks);
bool has_pmix();
// PMIx_Init(), which it calls, has no deadline.
std::unique_ptr<Exchange> open_pmix();

}  // namespace rondo::rendezvous
