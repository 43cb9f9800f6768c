// SPDX-License-Identifier: Apache-2.0
//
// The all-reduce algorithms of Gloo, for peer_gloo and overlap_gloo.
#pragma once

#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::compare {

// An all-reduce of Gloo on fixed memory, with its own connections.
struct GlooRun {
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::unique_ptr<gloo::BarrierOptions> barrier;
  std::function<void()> run;
};

// Makes GlooRun objects. All ranks make the same ones in the same order, each from one thread.
// Errors throw.
class GlooRuns {
 public:
  // store_path: an empty folder that all ranks share.
  GlooRuns(int rank, int size, const std::string& store_path, const std::string& interface);
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  static std::vector<std::string> algorithms();
  // True when the algorithm has no separate input: it reduces the output in place.
  static bool in_place(std::string_view algorithm);
  GlooRun make(std::string_view algorithm, std::span<float> input, std::span<float> output);

 private:
  const int rank_, size_;
  gloo::rendezvous::FileStore store_;
  std::shared_ptr<gloo::transport::Device> device_;
  int contexts_ = 0;
};

}  // namespace rondo::compare
