// SPDX-License-Identifier: Apache-2.0
//
// The results of one measurement.
#pragma once

#include <rondo/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/late/arrivals.h"
#include "tools/measure/operation.h"

namespace rondo::tools {

// Times of the iterations of a row in microseconds. That of an iteration is the time of its slowest
// rank, divided by the number of its calls.
struct Times {
  double mean_us = 0, min_us = 0, p50_us = 0, p90_us = 0, p99_us = 0, max_us = 0;
};

// The kinds of ceilings that the percentages of a table compare with: none, bus bandwidth of plain
// TCP sockets, memory traffic of memcpy, bus bandwidth of an all-reduce that does nothing but bring
// data from core to core, bus bandwidth of bare writes of RDMA devices, or memory traffic of copies
// within GPUs.
enum class CeilingOf : unsigned char { none, sockets, memcpy, cores, device, gpu };
std::string_view name_of(CeilingOf what) noexcept;

// One result: an out-of-place or an in-place row.
struct Row {
  Operation operation = Collective::all_reduce;
  std::uint64_t bytes = 0;  // of the larger buffer
  // Elements that the operation is called with; for all_gather, reduce_scatter, gather and scatter
  // those of one block.
  std::uint64_t count = 0;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = -1;
  bool in_place = false;
  std::string algorithm;
  std::uint64_t calls = 1;       // of one iteration: calls in a row, or the window of messages
  std::uint64_t iterations = 0;  // that were timed
  bool cut_short = false;        // the user ended the run before the last iteration
  Times time;
  std::vector<double> times_us;     // of all iterations, in their order; see Conditions::keep_times
  std::optional<Times> latency;     // of a message in one direction: half of its round trip
  std::vector<double> rank_p50_us;  // of each rank's own times; 0: the rank times nothing
  std::optional<Lateness> late;
  // GB/s, from the p50 of time; of messages those of all streams together (Role). 0 for latency.
  double algbw = 0, busbw = 0;
  double rate = 0;     // messages per second, from the p50; 0 where it is not measured
  double traffic = 0;  // bytes that all ranks must load and store (traffic_of)
  double ceiling = 0;  // GB/s to compare the row with; 0: not known
  CeilingOf ceiling_of = CeilingOf::none;
  std::uint64_t wrong = 0;  // elements, over all ranks and timed iterations
};

// Percent of the ceiling; 0 if the ceiling is not known, or if exceeds_sockets().
double percent_of_ceiling(const Row& row);
// Whether the row was so much faster than the plain sockets that these are no ceiling. A shaper may
// let a short row pass as a burst, and slow the longer streams of the sockets.
bool exceeds_sockets(const Row& row);
// "none" where nothing is reduced.
std::string op_name(const Row& row);
// "all_reduce 64 MiB f32 sum, in place"
std::string describe_row(const Row& row);

}  // namespace rondo::tools
