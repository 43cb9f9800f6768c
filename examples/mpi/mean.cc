// SPDX-License-Identifier: Apache-2.0
//
// In a program that uses MPI, the ranks of Rondo join over MPI. Run it with
//     mpirun -n 4 build/examples/mpi/mean_over_mpi
#include <mpi.h>
#include <rondo/communicator.h>

#include <cstdio>
#include <vector>

#include "examples/mpi/store.h"

namespace {

void run() {
  rondo::Options options;
  MPI_Comm_rank(MPI_COMM_WORLD, &options.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &options.size);
  MpiStore store(MPI_COMM_WORLD);
  options.store = &store;
  // Between hosts RONDO_SECRET must be set as well.
  auto communicator = rondo::Communicator::connect(options);
  std::vector<float> values(1000, static_cast<float>(options.rank));
  communicator.all_reduce(rondo::buffer_of(values), rondo::buffer_of(values), rondo::ReduceOp::mean)
      .wait();
  std::printf("rank %d: %g\n", options.rank, static_cast<double>(values[0]));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    run();
  } catch (const rondo::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return MPI_Finalize();
}
