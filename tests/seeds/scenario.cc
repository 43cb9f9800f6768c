// SPDX-License-Identifier: Apache-2.0
#include "seeds/scenario.h"

#include <algorithm>
#include <deque>

#include "collectives/schedules/schedule.h"
#include "support/draw.h"

namespace rondo::testing {

namespace {

mem::MemFaults draw_faults(Draw& draw, int size, Scenario::Kind kind) {
  const auto n = static_cast<std::uint64_t>(size);
  mem::MemFaults faults;
  faults.capacity = draw.one_of<std::size_t>({30, 100, 400, 4096, 4096, 65536, 65536});
  faults.queue = 1 + draw(4);
  faults.delay = static_cast<std::uint32_t>(draw(2) * draw(12));
  faults.stall = static_cast<std::uint32_t>(draw(2) * draw(12));
  faults.split = draw(2) * draw(200);
  faults.grants = static_cast<std::uint32_t>(draw(2) * draw(6));
  faults.late = static_cast<std::uint32_t>(draw(30));
  const int from = static_cast<int>(draw(n)),
            to = static_cast<int>((static_cast<std::uint64_t>(from) + 1 + draw(n - 1)) % n);
  const transports::Lane lane = draw(4) == 0 ? transports::Lane::urgent : transports::Lane::bulk;
  if (kind == Scenario::Kind::cut || kind == Scenario::Kind::closed)
    faults.cuts = {{from, to, lane, draw(draw.one_of<std::uint64_t>({1, 300, 3000, 20'000})),
                    kind == Scenario::Kind::closed}};
  if (kind == Scenario::Kind::flipped)
    faults.flips = {{from, to, lane, draw(draw.one_of<std::uint64_t>({1, 5, 40})), draw(2) == 0,
                     draw(1 << 20)}};
  return faults;
}

Case draw_call(Draw& draw, int size, const std::string& algorithm, std::uint64_t most_elements) {
  Case call;
  const auto wanted = schedules::parse_algorithm(algorithm);
  do {
    call.operation = some_operation(draw(collective_count));
  } while (wanted && !schedules::supports(*wanted, call.operation));
  call.type = static_cast<DType>(draw(dtype_count));
  do {
    call.op = static_cast<ReduceOp>(draw(reduce_op_count));
  } while (!supports(call.type, call.op));
  call.count = draw(std::min(draw.one_of<std::uint64_t>({2, 20, 300, 3000}), most_elements));
  call.root = static_cast<int>(draw(static_cast<std::uint64_t>(size)));
  call.in_place = draw(2) == 0;
  call.priority = draw(4) == 0 ? Priority::urgent : Priority::bulk;
  return call;
}

// Returns the cause in "all_reduce #3 (...): cause". The part before it may differ between ranks.
std::string cause_of(const std::string& message) {
  const std::size_t end = message.find("): ");
  return end == std::string::npos ? message : message.substr(end + 3);
}

Ending end_of(Trial& trial) {
  Ending ending;
  try {
    trial.work().wait();
    ending.wrong = trial.problem();
  } catch (const Error& error) {
    ending.code = error.code();
    ending.message = error.what();
    ending.wrong = trial.damage();
  }
  return ending;
}

bool may_end_with(Scenario::Kind kind, std::error_code code) {
  switch (kind) {
    case Scenario::Kind::slow:
      return false;
    case Scenario::Kind::cut:
    case Scenario::Kind::closed:
      // A rank that others have lost may have left in order meanwhile.
      return code == Errc::peer_lost || code == Errc::peer_left;
    case Scenario::Kind::flipped:
      return code == Errc::corrupt || code == Errc::mismatch;
  }
  return false;
}

}  // namespace

Scenario::Scenario(std::uint64_t number) : seed(number), kind(static_cast<Kind>(number % 4)) {
  Draw draw(seed);
  setup.size = 2 + static_cast<int>(draw(4));
  setup.seed = seed;
  setup.options.algorithm =
      draw.one_of<const char*>({"", "ring", "tree", "star", "doubling", "chain"});
  setup.options.segment_bytes = draw.one_of<std::size_t>({0, 16, 100, 1000});
  setup.options.depth = draw.one_of<int>({0, 1, 2, 4, 8});
  setup.options.checksum = kind == Kind::flipped || draw(3) == 0;
  setup.faults = draw_faults(draw, setup.size, kind);
  in_flight = 1 + draw(6);
  const std::uint64_t calls_wanted = 1 + draw(12);
  // Many tiny frames over narrow links take long on a busy machine, and test nothing more.
  const std::uint64_t most_elements =
      setup.options.segment_bytes == 16 ? 100 : 10 * setup.faults.capacity;
  for (std::uint64_t i = 0; i < calls_wanted; ++i)
    calls.push_back(draw_call(draw, setup.size, setup.options.algorithm, most_elements));
}

std::string Scenario::describe() const {
  static constexpr const char* kinds[] = {"slow", "cut", "closed", "flipped"};
  const mem::MemFaults& f = setup.faults;
  std::string text = "seed " + std::to_string(seed) + ": " + kinds[static_cast<int>(kind)] + ", " +
                     std::to_string(setup.size) + " ranks, algorithm '" + setup.options.algorithm +
                     "', segment " + std::to_string(setup.options.segment_bytes) + ", depth " +
                     std::to_string(setup.options.depth) + ", in flight " +
                     std::to_string(in_flight) + ", capacity " + std::to_string(f.capacity) +
                     ", queue " + std::to_string(f.queue) + ", delay " + std::to_string(f.delay) +
                     ", stall " + std::to_string(f.stall) + ", split " + std::to_string(f.split) +
                     ", grants " + std::to_string(f.grants) + ", late " + std::to_string(f.late);
  const auto route = [](const auto& fault) {
    return std::to_string(fault.from) + "->" + std::to_string(fault.to) +
           (fault.lane == transports::Lane::urgent ? " urgent" : " bulk");
  };
  for (const auto& cut : f.cuts)
    text += ", cut " + route(cut) + " after " + std::to_string(cut.bytes);
  for (const auto& flip : f.flips)
    text += ", flip " + route(flip) + " frame " + std::to_string(flip.frame) +
            (flip.header ? " header" : " payload");
  for (std::size_t i = 0; i < calls.size(); ++i)
    text += "\n  call " + std::to_string(i) + ": " + testing::describe(calls[i]);
  return text;
}

Endings play(const Scenario& scenario) {
  Endings endings(static_cast<std::size_t>(scenario.setup.size));
  run_communicators(scenario.setup, scenario.describe(), [&](Communicator& communicator, int rank) {
    std::vector<Ending>& mine = endings[static_cast<std::size_t>(rank)];
    std::deque<Trial> trials;
    const auto finish_first = [&] {
      mine.push_back(end_of(trials.front()));
      trials.pop_front();
    };
    for (const Case& call : scenario.calls) {
      if (trials.size() == scenario.in_flight) finish_first();
      trials.emplace_back(call, rank, communicator.size()).start(communicator);
    }
    while (!trials.empty()) finish_first();
  });
  return endings;
}

std::string judge(const Scenario& scenario, const Endings& endings) {
  std::string cause;
  for (std::size_t rank = 0; rank < endings.size(); ++rank)
    for (std::size_t i = 0; i < scenario.calls.size(); ++i) {
      const Ending& ending = endings[rank][i];
      const std::string where =
          "rank " + std::to_string(rank) + ", call " + std::to_string(i) + ": ";
      if (!ending.wrong.empty()) return where + ending.wrong;
      if (!ending.code) continue;
      if (!may_end_with(scenario.kind, ending.code))
        return where + "must not end with: " + ending.message;
      if (cause.empty()) cause = cause_of(ending.message);
      if (cause != cause_of(ending.message))
        return where + "another cause, '" + cause_of(ending.message) + "', than '" + cause + "'";
    }
  // A rank that has seen a call fail takes no part in its later calls, so no rank may finish those.
  for (std::size_t failed = 0; failed < scenario.calls.size(); ++failed)
    for (std::size_t later = failed + scenario.in_flight; later < scenario.calls.size(); ++later) {
      const auto fails = [](std::size_t call) {
        return [call](const auto& rank) { return static_cast<bool>(rank[call].code); };
      };
      if (std::any_of(endings.begin(), endings.end(), fails(failed)) &&
          !std::all_of(endings.begin(), endings.end(), fails(later)))
        return "call " + std::to_string(later) + " ended well on a rank, although call " +
               std::to_string(failed) + " failed";
    }
  return {};
}

}  // namespace rondo::testing
