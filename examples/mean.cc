// SPDX-License-Identifier: Apache-2.0
//
// The example of the README: every rank gets the mean over all ranks. Run it with
//     rondo run -n 4 build/examples/mean
#include <rondo/communicator.h>

#include <cstdio>
#include <vector>

int main() try {
  // Rank and size from torchrun, mpirun, srun or `rondo run`.
  auto communicator = rondo::Communicator::connect();
  std::vector<float> gradient(1 << 20, static_cast<float>(communicator.rank()));
  const auto buffer = rondo::buffer_of(std::span(gradient));
  communicator.all_reduce(buffer, buffer, rondo::ReduceOp::mean).wait();
  std::printf("rank %d: %g\n", communicator.rank(), static_cast<double>(gradient[0]));
} catch (const rondo::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
