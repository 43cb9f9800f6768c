// SPDX-License-Identifier: Apache-2.0
//
// One rank of Rondo, which takes its settings from the environment. With the word "allocate" it
// reduces in place, in memory from Communicator::allocate.
//
//   peer_rondo CONTROL [allocate]
#include <rondo/communicator.h>

#include <iostream>
#include <string_view>

#include "library.h"

namespace {

class Rondo final : public rondo::compare::Library {
 public:
  explicit Rondo(bool allocates)
      : communicator_(rondo::Communicator::connect()), allocates_(allocates) {}

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  std::vector<std::string> algorithms() const override { return {"default"}; }
  bool in_place(std::string_view) const override { return allocates_; }
  std::span<float> allocate(std::string_view, std::size_t count) override {
    if (!allocates_) return {};
    memory_ = communicator_.allocate(count * sizeof(float));
    return {static_cast<float*>(memory_.data()), count};
  }
  void prepare(std::string_view, std::span<float> input, std::span<float> output) override {
    output_ = rondo::buffer_of(output);
    input_ = allocates_ ? output_ : rondo::buffer_of(input);
  }
  void all_reduce() override {
    communicator_.all_reduce(input_, output_, rondo::ReduceOp::sum).wait();
  }
  void barrier() override { communicator_.barrier().wait(); }
  void progress() override {}  // no rank waits for this one when its operations are done

 private:
  rondo::Communicator communicator_;
  const bool allocates_;
  rondo::Memory memory_;
  rondo::Buffer input_;
  rondo::Buffer output_;
};

}  // namespace

int main(int argc, char** argv) {
  const bool allocates = argc == 3 && std::string_view(argv[2]) == "allocate";
  if (argc != 2 && !allocates) {
    std::cerr << "usage: " << argv[0]
              << " CONTROL [allocate] (started by bench/peers/compare.py)\n";
    return 2;
  }
  return rondo::compare::run_rank(argv[1],
                                  [allocates] { return std::make_unique<Rondo>(allocates); });
}
