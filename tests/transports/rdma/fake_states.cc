// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/fake_states.h"

#include <algorithm>

namespace rondo::testing {
namespace {

// A change of state, with the attributes it needs and those it may have (InfiniBand Architecture
// Specification 1, table 91).
struct Change {
  ibv_qp_state from, to;
  int needed, allowed;
};
constexpr Change changes[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

}  // namespace

bool is_allowed_change(ibv_qp_state from, ibv_qp_state to, int mask) {
  if ((mask & IBV_QP_STATE) == 0) return false;
  const int rest = mask & ~IBV_QP_STATE;
  if (to == IBV_QPS_ERR || to == IBV_QPS_RESET) return (rest & ~IBV_QP_CUR_STATE) == 0;
  return std::ranges::any_of(changes, [&](const Change& one) {
    return one.from == from && one.to == to && (rest & one.needed) == one.needed &&
           (rest & ~(one.needed | one.allowed)) == 0;
  });
}

bool are_valid(const ibv_qp_attr& wanted, const PortState& port) {
  const ibv_ah_attr& route = wanted.ah_attr;
  switch (wanted.qp_state) {
    case IBV_QPS_RTR:
      if (route.is_global != 0) {
        const auto& gids = port.port.gids;
        if (route.grh.sgid_index >= gids.size() || !gids[route.grh.sgid_index].readable)
          return false;
      } else if (port.port.link_layer == IBV_LINK_LAYER_ETHERNET || route.dlid == 0) {
        return false;
      }
      return wanted.path_mtu >= IBV_MTU_256 && wanted.path_mtu <= port.port.active_mtu &&
             route.port_num == port.number && route.sl < 16 && wanted.rq_psn < packet_numbers &&
             wanted.dest_qp_num < packet_numbers && wanted.max_dest_rd_atomic <= most_reads &&
             wanted.min_rnr_timer < 32;
    case IBV_QPS_RTS:
      return wanted.sq_psn < packet_numbers && wanted.timeout < 32 && wanted.retry_cnt <= 7 &&
             wanted.rnr_retry <= 7 && wanted.max_rd_atomic <= most_reads;
    default:
      return true;
  }
}

}  // namespace rondo::testing
