// SPDX-License-Identifier: Apache-2.0
//
// If ranks use different layers, or made them differently, they are told in the first step which
// rank differs, and in what.
#include <functional>

#include "bn/places.h"

namespace rondo::testing {
namespace {

constexpr std::size_t few_samples = 3, few_channels = 4;

// Every rank must get Error(mismatch) with this text.
void check_told(const std::string& text, const std::function<void(Communicator&, int)>& step) {
  run_on_processor(3, text, [&](Communicator& c, int rank) {
    refused(Errc::mismatch, text, [&] { step(c, rank); });
  });
}

void forward(SyncBatchNorm& layer) {
  std::vector<double> x(few_samples * few_channels, 2.0), y(x.size());  // room for every type
  layer.forward({x.data(), few_samples, 1}, {y.data(), few_samples, 1});
}

void check_option(const std::string& odd_text, const std::string& usual_text,
                  const BatchNormOptions& odd, const BatchNormOptions& usual = {}) {
  check_told(fmt::format("batch norm: ranks differ: rank 1 at layer bn1 forward step 1 with {}; "
                         "ranks 0, 2 at layer bn1 forward step 1 with {}",
                         odd_text, usual_text),
             [&](Communicator& c, int rank) {
               BatchNormOptions options = rank == 1 ? odd : usual;
               options.name = "bn1";
               SyncBatchNorm layer(c, few_channels, options);
               forward(layer);
             });
}

TEST_CASE("an option that differs is named with the rank and both values") {
  check_option("epsilon 0.001", "epsilon 1e-05", {.epsilon = 1e-3});
  check_option("momentum 0.2", "momentum 0.1", {.momentum = 0.2});
  check_option("momentum none (cumulative average)", "momentum 0.1", {.momentum = std::nullopt});
  check_option("affine false", "affine true", {.affine = false});
  check_option("bias false", "bias true", {.bias = false});
  check_option("layout nhwc", "layout nchw", {.layout = TensorLayout::nhwc});
  check_option("type bf16", "type f32", {.type = DType::bf16});
  check_option("track_running false", "track_running true", {.track_running = false});
  check_option("type f64, epsilon 0", "type f32, epsilon 1e-05",
               {.type = DType::f64, .epsilon = 0});
}

TEST_CASE("a momentum that one rank changed is named") {
  check_told(
      "rank 1 at layer bn1 forward step 2 with momentum 0.25; ranks 0, 2 at layer bn1 "
      "forward step 2 with momentum 0.5",
      [](Communicator& c, int rank) {
        SyncBatchNorm layer(c, few_channels, {.name = "bn1"});
        forward(layer);
        layer.set_momentum(rank == 1 ? 0.25 : 0.5);
        forward(layer);
      });
}

TEST_CASE("threads and deadline may differ") {
  run_on_processor(2, "may differ", [](Communicator& c, int rank) {
    SyncBatchNorm layer(
        c, few_channels,
        {.name = "bn", .threads = 1 + rank, .deadline = std::chrono::milliseconds{60'000 + rank}});
    forward(layer);
    layer.set_threads(2 - rank);
    layer.set_deadline(std::chrono::milliseconds{60'001 - rank});
    expect(layer.options().threads == 2 - rank, "the layer has the new number of threads");
    forward(layer);
  });
}

void check_swapped(const std::string& name, const std::string& text) {
  check_told(text, [&](Communicator& c, int rank) {
    SyncBatchNorm first(c, few_channels, {.name = name}), second(c, few_channels, {.name = name});
    forward(rank == 2 ? second : first);
    forward(rank == 2 ? first : second);
  });
}

TEST_CASE("two layers of one name, or of none, that are swapped on one rank are told apart") {
  check_swapped(
      "bn", "rank 2 at layer bn (2nd of this name) forward step 1; ranks 0, 1 at layer bn forward");
  check_swapped(
      "", "rank 2 at unnamed layer 2 forward step 1; ranks 0, 1 at unnamed layer 1 forward step 1");
}

TEST_CASE("a layer made where another has gone has its number") {
  run_on_processor(2, "numbers", [](Communicator& c, int rank) {
    SyncBatchNorm stays(c, few_channels, {.name = "stays"});
    for (int i = 0; i < 3; ++i) {
      std::optional<SyncBatchNorm> first(std::in_place, c, few_channels),
          second(std::in_place, c, few_channels);
      forward(*first);
      forward(*second);
      // The order of destruction does not matter.
      if (rank == 0) first.reset();
    }
    forward(stays);
  });
}

}  // namespace
}  // namespace rondo::testing
