// SPDX-License-Identifier: Apache-2.0
//
// One rank of an MPI library, built once for each installed MPI. Run it under the library's mpirun.
//
//   mpirun -n SIZE peer_mpi CONTROL
#include <mpi.h>

#include <iostream>

#include "library.h"

namespace {

// Checks no return values, because MPI's default error handler ends the job with a message.
class Mpi final : public rondo::compare::Library {
 public:
  Mpi() {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~Mpi() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> algorithms() const override { return {"default"}; }
  bool in_place(std::string_view) const override { return false; }
  std::span<float> allocate(std::string_view, std::size_t) override { return {}; }
  void prepare(std::string_view, std::span<float> input, std::span<float> output) override {
    input_ = input;
    output_ = output;
  }
  void all_reduce() override {
    MPI_Allreduce(input_.data(), output_.data(), static_cast<int>(input_.size()), MPI_FLOAT,
                  MPI_SUM, MPI_COMM_WORLD);
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void progress() override {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }

 private:
  int rank_ = 0;
  int size_ = 0;
  std::span<float> input_;
  std::span<float> output_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: mpirun -n SIZE " << argv[0]
              << " CONTROL (started by bench/peers/compare.py)\n";
    return 2;
  }
  return rondo::compare::run_rank(argv[1], [] { return std::make_unique<Mpi>(); });
}
