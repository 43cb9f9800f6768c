// SPDX-License-Identifier: Apache-2.0
// One rank of Rondo; everything else comes from the environment. Usage: peer_rondo CONTROL
#include <rondo/communicator.h>

#include <iostream>

#include "library.h"

namespace {

class Rondo final : public rondo::compare::Library {
 public:
  Rondo() : communicator_(rondo::Communicator::connect()) {}

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  std::vector<std::string> algorithms() const override { return {"default"}; }
  bool in_place(std::string_view) const override { return false; }
  void prepare(std::string_view, std::span<float> input, std::span<float> output) override {
    input_ = rondo::buffer_of(input);
    output_ = rondo::buffer_of(output);
  }
  void all_reduce() override { communicator_.all_reduce(input_, output_, rondo::ReduceOp::sum).wait(); }
  void barrier() override { communicator_.barrier().wait(); }
  void progress() override {}  // an operation that is done here owes nothing to other ranks

 private:
  rondo::Communicator communicator_;
  rondo::Buffer input_;
  rondo::Buffer output_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " CONTROL (started by bench/peers/compare.py)\n";
    return 2;
  }
  return rondo::compare::run_rank(argv[1], [] { return std::make_unique<Rondo>(); });
}
