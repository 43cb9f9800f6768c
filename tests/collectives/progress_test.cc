// SPDX-License-Identifier: Apache-2.0
//
// Breaks the rules of a step one by one and requires that the checker finds each. So the checker
// proves the rules, and not only the schedules.
#include "collectives/schedules/progress.h"

#include <string>

#include "catch.h"
#include "collectives/proof/check.h"
#include "tests/collectives/all_schedules.h"

using namespace rondo;
using Catch::Matchers::Contains;
using schedules::FramePlace;
using schedules::Overwrites;
using schedules::Progress;

namespace {

bool in_window(const Progress& progress, const FramePlace& place) {
  return place.segment < progress.base() + progress.window();
}

bool is_next(const Progress& progress, const FramePlace& place) {
  const schedules::ProgramStep& step = progress.step(place);
  return progress.reached(place.segment, step.slice) == step.chain;
}

// A token does not wait for the steps before it, and steps behind it do not wait for the token.
struct NoFences : Progress {
  bool may_receive(const FramePlace& place, Overwrites overwrites) const noexcept {
    return in_window(*this, place) && is_next(*this, place) && !must_spare(place, overwrites);
  }
  bool may_send(const FramePlace& place) const noexcept {
    return step(place).writes() ? Progress::may_send(place)
                                : in_window(*this, place) && is_next(*this, place);
  }
};

// A frame is written over memory from which a link still reads.
struct NoSparing : Progress {
  bool may_receive(const FramePlace& place, Overwrites) const noexcept { return may_begin(place); }
};

// A frame waits only for values that steps have written: an operation in place loses its input.
struct NoSparedInputs : Progress {
  bool may_receive(const FramePlace& place, Overwrites overwrites) const noexcept {
    return Progress::may_receive(
        place, overwrites == Overwrites::value_and_input ? Overwrites::value : overwrites);
  }
};

// A frame is received before the earlier steps of its slice have run.
struct NoChains : Progress {
  bool may_receive(const FramePlace& place, Overwrites overwrites) const noexcept {
    return in_window(*this, place) && !must_spare(place, overwrites);
  }
};

// A step that receives and sends may send before it has received.
struct SendsEarly : Progress {
  bool may_send(const FramePlace& place) const noexcept {
    return in_window(*this, place) &&
           reached(place.segment, step(place).slice) >= step(place).chain;
  }
};

// A step that only sends may do so before the earlier steps of its slice have run.
struct SendsAnyTime : Progress {
  bool may_send(const FramePlace& place) const noexcept {
    return step(place).writes() ? Progress::may_send(place) : in_window(*this, place);
  }
};

// Only the oldest segment may receive, although the frame order of a link alternates between
// segments.
struct NarrowWindow : Progress {
  bool may_receive(const FramePlace& place, Overwrites overwrites) const noexcept {
    return place.segment == base() && Progress::may_receive(place, overwrites);
  }
};

// The first problem that the checker finds in any algorithm, or empty.
template <class Rules>
std::string first_problem(const proof::CheckOptions& options) {
  std::string problem;
  for_each_pair([&](schedules::Algorithm algorithm, Collective operation) {
    for (int size = 2; size <= 6 && problem.empty(); ++size)
      problem = proof::Check<Rules>(all_schedules(algorithm, operation, size), options)
                    .run(operation, 0)
                    .problem;
  });
  return problem;
}

}  // namespace

TEST_CASE("the checker finds every rule of a step that is broken") {
  const proof::CheckOptions copying{6, 3, 1}, holding{6, 3, 1, true, true};
  CHECK(first_problem<Progress>(copying) == "");
  CHECK_THAT(first_problem<NoFences>(copying), Contains("has begun"));
  CHECK_THAT(first_problem<SendsEarly>(copying), Contains("memory where the engine looks"));
  CHECK_THAT(first_problem<SendsAnyTime>(copying), Contains("memory where the engine looks"));
  CHECK_THAT(first_problem<NoChains>(copying), Contains("memory where the engine looks"));
  CHECK_THAT(first_problem<NarrowWindow>(copying), Contains("deadlock"));
  CHECK_THAT(first_problem<NoSparing>(holding), Contains("from which a link still reads"));
  CHECK_THAT(first_problem<NoSparedInputs>(holding), Contains("from which a link still reads"));
}
