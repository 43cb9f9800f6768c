// SPDX-License-Identifier: Apache-2.0
//
// The transport between ranks that are threads of one process, for tests: it does everything that a
// network may do to a program, on a seed. It is also the example for whoever writes a new transport
// (docs/reference/transports.md): read pipe.h, link.h and mem.cc in this order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transports/transport.h"

namespace rondo::mem {

// Lists what goes wrong. Delays, stalls and pieces are drawn for each directed link from a random
// stream of its own, indexed by the number of the frame or the position of the byte and never by
// time: a seed repeats as far as threads do.
struct MemFaults {
  // Bytes that a link holds in each direction, from 1: less than a frame makes every frame queue
  // and trickle.
  std::size_t capacity = std::size_t{256} << 10;
  // Frames that a link takes over before it answers full, from 1.
  std::size_t queue = 4;

  // Whether ranks also reach each other's memory (Windows): what Transport::allocate gives, and
  // nothing else.
  bool windows = false;

  // Frames for which a receiver grants the memory to its sender (Sink::expected, with `ahead` from
  // 0 to grants - 1), which then writes their payload itself, as an RDMA writer does: before the
  // header has come, and before the frames in front of it. At most 1024; 0: all bytes go through
  // the link. Routes with a cut, or with a flip still to come, use no grant.
  std::uint32_t grants = 0;
  // A granted payload is written 0 to `late` progress calls of its sender after send().
  std::uint32_t late = 0;

  // A frame stays invisible for 0 to `delay` progress calls of its receiver.
  std::uint32_t delay = 0;
  // For 0 to `stall` progress calls of its sender a frame is refused as full, or taken over and not
  // moved (a coin decides).
  std::uint32_t stall = 0;
  // Payload and headers arrive in pieces of 1 to `split` bytes, which cut elements anywhere; 0: as
  // large as they come.
  std::size_t split = 0;

  // The link breaks, in both directions, when `bytes` bytes (headers included) have gone from
  // `from` to `to`; if clean, at the first end of a frame from there on, and as though the peer had
  // closed it in order.
  struct Cut {
    int from = 0, to = 0;
    transports::Lane lane = transports::Lane::bulk;
    std::uint64_t bytes = 0;
    bool clean = false;
  };
  std::vector<Cut> cuts;

  // One bit arrives wrong: of the header of frame number `frame` (from 0), or of the payload of the
  // first frame from there on that has one. The bit is taken modulo the bits there are.
  struct Flip {
    int from = 0, to = 0;
    transports::Lane lane = transports::Lane::bulk;
    std::uint64_t frame = 0;
    bool header = false;
    std::uint64_t bit = 0;
  };
  std::vector<Flip> flips;
};

// The network that the ranks of one communicator share. It outlives its endpoints. Reentrant:
// endpoints may be made and used by different threads at once.
class MemFabric {
 public:
  // Throws Error(invalid_argument) for faults that name ranks or amounts which cannot be.
  explicit MemFabric(int size, MemFaults faults = {}, std::uint64_t seed = 0);
  MemFabric(const MemFabric&) = delete;
  MemFabric& operator=(const MemFabric&) = delete;
  ~MemFabric();

  // The transport of a rank; once for each rank, or Error(invalid_argument).
  std::unique_ptr<transports::Transport> endpoint(int rank);

  // Holds back what `from` sends to `to` in this lane, until release(): it fills the link and does
  // not arrive. What `to` is just reading still does. Granted memory is written all the same. Both
  // are thread-safe, and throw Error(invalid_argument) for ranks that cannot be.
  void hold(int from, int to, transports::Lane lane);
  void release(int from, int to, transports::Lane lane);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace rondo::mem
