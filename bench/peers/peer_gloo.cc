// SPDX-License-Identifier: Apache-2.0
//
// One rank of Gloo over TCP. STORE is an empty folder that all ranks share.
//
//   peer_gloo CONTROL RANK SIZE STORE INTERFACE
#include <iostream>
#include <map>

#include "gloo_runs.h"
#include "library.h"

namespace {

using rondo::compare::GlooRun;
using rondo::compare::GlooRuns;

class Gloo final : public rondo::compare::Library {
 public:
  Gloo(int rank, int size, const std::string& store_path, const std::string& interface)
      : runs_(rank, size, store_path, interface) {}

  int rank() const override { return runs_.rank(); }
  int size() const override { return runs_.size(); }
  std::vector<std::string> algorithms() const override { return GlooRuns::algorithms(); }
  bool in_place(std::string_view algorithm) const override { return GlooRuns::in_place(algorithm); }
  std::span<float> allocate(std::string_view, std::size_t) override { return {}; }

  // Every algorithm gets its own connections for every size. Gloo's older algorithms shrink the
  // send buffers of their connections, and a later algorithm on the same connections would wait for
  // an acknowledgement every 64 KiB.
  void prepare(std::string_view algorithm, std::span<float> input,
               std::span<float> output) override {
    std::map<std::string, GlooRun, std::less<>> old;
    if (output.data() != output_ || output.size() != count_) old.swap(made_);
    output_ = output.data();
    count_ = output.size();
    auto place = made_.find(algorithm);
    if (place == made_.end())
      place = made_.emplace(algorithm, runs_.make(algorithm, input, output)).first;
    current_ = &place->second;
    barrier();  // all ranks are here, so no rank uses the old connections any more
  }

  void all_reduce() override { current_->run(); }
  void barrier() override { gloo::barrier(*current_->barrier); }
  void progress() override {}  // Gloo has its own thread for this

 private:
  GlooRuns runs_;
  const float* output_ = nullptr;
  std::size_t count_ = 0;
  std::map<std::string, GlooRun, std::less<>> made_;
  GlooRun* current_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: " << argv[0]
              << " CONTROL RANK SIZE STORE INTERFACE (started by bench/peers/compare.py)\n";
    return 2;
  }
  return rondo::compare::run_rank(argv[1], [argv] {
    return std::make_unique<Gloo>(std::stoi(argv[2]), std::stoi(argv[3]), argv[4], argv[5]);
  });
}
