// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/failures.h"

#include <fmt/format.h>

#include <string_view>

namespace rondo::rdma {
namespace {

struct Meaning {
  std::string_view cause, remedy;
};

constexpr Meaning meaning_of(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return {"the peer's device does not answer (transport retries exceeded)",
              "check the link, the GIDs and the MTU of both ends (rondo info), or do without RDMA "
              "(RONDO_TRANSPORT=shm,tcp)"};
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return {"the peer is not ready to receive (receiver-not-ready retries exceeded)",
              "give all ranks one version of Rondo"};
    case IBV_WC_REM_ACCESS_ERR:
      return {"the peer's device refuses access to its memory (remote access error)",
              "memory must stay registered until all operations on it have ended"};
    case IBV_WC_REM_INV_REQ_ERR:
      return {"the peer's device refuses a request (remote invalid request)",
              "give all ranks one version of Rondo"};
    case IBV_WC_REM_OP_ERR:
      return {"the peer's device failed (remote operation error)", "see the log of its driver"};
    case IBV_WC_LOC_PROT_ERR:
      return {"the device refuses access to memory of this rank (local protection error)",
              "memory must stay registered until all operations on it have ended"};
    case IBV_WC_LOC_LEN_ERR:
      return {"a message is too long (local length error)", "give all ranks one version of Rondo"};
    case IBV_WC_LOC_QP_OP_ERR:
      return {"the device failed (local queue pair error)", "see the log of its driver"};
    case IBV_WC_FATAL_ERR:
      return {"the device failed (fatal error)", "see the log of its driver"};
    default:
      return {"the device reports an error", "see the log of its driver"};
  }
}

}  // namespace

std::string describe_failure(const ibv_wc& completion, const Path& path) {
  const Meaning meaning = meaning_of(completion.status);
  return fmt::format("{} (status {}) on queue pair {}, {}: {}", meaning.cause,
                     static_cast<int>(completion.status), path.queue_pair_number(), path.route(),
                     meaning.remedy);
}

std::string describe_event(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_PORT_ERR:
      return "the port is down";
    case IBV_EVENT_DEVICE_FATAL:
      return "the device failed: see the log of its driver";
    case IBV_EVENT_CQ_ERR:
      return "the completion queue overflowed";
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      return "a queue pair went into the error state";
    default:
      return {};
  }
}

}  // namespace rondo::rdma
