// SPDX-License-Identifier: Apache-2.0
//
// Runs drawn steps over links that delay and split frames.
#include "grad/drawn.h"
#include "catch.h"
#include "support/effort.h"

namespace rondo::testing {
namespace {

TEST_CASE("drawn steps give what one process would have", "[devices]") {
  const Device device = GENERATE(from_range(devices()));
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    if (!drawn(seed, std::max(effort(), 10))) continue;
    const Drawn steps(seed);
    Setup setup = ranks(steps.size);
    setup.seed = seed;
    setup.faults.windows = seed % 2 == 0;
    setup.faults.capacity = 300 + seed % 7 * 1000;
    setup.faults.delay = 20;
    setup.faults.split = 1 + seed % 5 * 50;
    INFO("seed " << seed);
    run_each(setup, [&](Communicator& c, int rank) {
      Trainer trainer(c, device, steps.model, steps.options);
      for (std::size_t step = 0; step < steps.steps; ++step) {
        run_drawn_step(trainer, steps, step, rank);
        check_drawn_step(trainer, steps, step, rank);
      }
      c.barrier().wait();  // ends the operations that only a stream has joined
    });
  }
}

}  // namespace
}  // namespace rondo::testing
