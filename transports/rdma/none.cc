// SPDX-License-Identifier: Apache-2.0
//
// Stands for the transport in a build without the headers of libibverbs: a rank has no device.
#include <rondo/error.h>

#include "transports/rdma/absent.h"
#include "transports/rdma/rdma.h"

namespace rondo::rdma {
namespace {

constexpr const char* missing =
    "this build of Rondo has no RDMA: install the headers of libibverbs (Debian: libibverbs-dev) "
    "and build it again";

}  // namespace

Shared::Shared(const Options&) : obstacle_(missing) {}
Shared::Shared(const Options&, std::shared_ptr<Verbs>) : obstacle_(missing) {}
Shared::~Shared() = default;

std::unique_ptr<transports::Transport> make_rdma(const Options&, const Shared& shared) {
  return std::make_unique<Absent>(shared.obstacle());
}

std::unique_ptr<transports::Stream> make_stream(const Options&, const Shared& shared) {
  throw Error(Errc::system, shared.obstacle());
}

std::size_t count_devices() {
  return 0;
}

Report report(const std::vector<std::string>&, int) {
  return {{}, missing};
}

}  // namespace rondo::rdma
