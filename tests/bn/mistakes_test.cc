// SPDX-License-Identifier: Apache-2.0
//
// Mistakes are named at once, on every rank, with layer, step, ranks, and options that differ.
#include <functional>
#include <optional>

#include "bn/places.h"

namespace rondo::testing {
namespace {

constexpr std::size_t samples = 3;

// One rank's layers bn0 ... bn3, and vectors for all of them.
struct Model {
  explicit Model(Communicator& communicator, int rank) : c(communicator), rank(rank) {
    for (std::size_t i = 0; i < 4; ++i)
      layers.emplace_back(communicator, 4,
                          BatchNormOptions{.name = fmt::format("bn{}", i), .epsilon = 1e-3});
  }
  Activations view(std::vector<float>& values) { return {values.data(), samples, 1}; }
  Activations x() { return view(in); }
  Activations y() { return view(out); }
  void forward(std::size_t i) { passes[i] = layers[i].forward(x(), y()); }
  void backward(std::size_t i) { layers[i].backward(passes[i], x(), x(), y(), {}); }
  void evaluate(std::size_t i) { layers[i].evaluate(x(), y()); }

  Communicator& c;
  int rank;
  std::vector<SyncBatchNorm> layers;
  BatchNormPass passes[4];  // the last of each layer
  std::vector<float> in = std::vector<float>(samples * 4, 2.0F), out = in;
};

// Every rank must get Error(mismatch) with all of these in its message.
void check_named(const std::vector<std::string>& parts, const std::function<void(Model&)>& run) {
  run_on_processor(4, parts[0], [&](Communicator& c, int rank) {
    Model model(c, rank);
    expect_parts(message_of(Errc::mismatch, [&] { run(model); }), parts);
  });
}

TEST_CASE("a rank that is elsewhere is named with where it is") {
  // The rank skips a layer.
  check_named({"batch norm: ranks differ: rank 2 at layer bn2 forward step 2; ranks 0, 1, 3 at "
               "layer bn1 forward step 2"},
              [](Model& m) {
                for (int step = 0; step < 2; ++step)
                  for (std::size_t i = 0; i < 4; ++i)
                    if (m.rank != 2 || step == 0 || i != 1) m.forward(i);
              });
  // The rank runs the other direction.
  check_named({"rank 1 at layer bn2 forward step 1; ranks 0, 2, 3 at layer bn1 backward step 1"},
              [](Model& m) {
                m.forward(0);
                m.forward(1);
                m.rank == 1 ? m.forward(2) : m.backward(1);
              });
  // The rank made its layer anew.
  check_named({"rank 3 at layer bn0 (2nd of this name) forward step 1; ranks 0-2 at layer bn0 "
               "forward step 3"},
              [](Model& m) {
                m.forward(0);
                m.forward(0);
                SyncBatchNorm anew(m.c, 4, {.name = "bn0"});
                (m.rank == 3 ? anew : m.layers[0]).forward(m.x(), m.y());
              });
  // The rank evaluated what others trained.
  check_named({"rank 0 at layer bn3 forward step 1 (it evaluated bn1, bn2 since it last trained); "
               "ranks 1-3 at layer bn1 forward step 1"},
              [](Model& m) {
                m.forward(0);
                for (const std::size_t i : {1, 2}) m.rank == 0 ? m.evaluate(i) : m.forward(i);
                m.forward(3);
              });
  // The layer of the rank has another past.
  check_named({"rank 1 at layer bn0 forward step 2 with statistics ",
               "; ranks 0, 2, 3 at layer bn0 forward step 2 with "},
              [](Model& m) {
                m.forward(0);
                if (m.rank == 1) assign(m.layers[0].buffers().point, Numbers(4, 5.0));
                m.forward(0);
              });
}

TEST_CASE("different numbers of channels are named") {
  for (const int odd : {0, 2})
    run_on_processor(3, "channels", [odd](Communicator& c, int rank) {
      SyncBatchNorm layer(c, rank == odd ? 8 : 4, {.name = "stem.bn"});
      std::vector<float> x(16);
      const Activations all{x.data(), 2, 1};
      expect_parts(
          message_of(Errc::mismatch, [&] { layer.forward(all, all); }),
          {"layer stem.bn forward step 1", "fwd 1 stem.bn", "41 f64", "33 f64", "2 x channels"});
    });
}

TEST_CASE("calls in the wrong order are named and do no harm") {
  run_on_processor(2, "order", [](Communicator& c, int rank) {
    Model m(c, rank);
    SyncBatchNorm& layer = m.layers[0];
    const Activations x = m.x(), y = m.y();
    refused(fmt::format("rank {}: batch norm layer bn0: end_forward without begin_forward", rank),
            [&] { layer.end_forward(y); });
    const BatchNormPass pass = layer.forward(x, y);
    layer.begin_forward(x);
    refused("layer bn0: begin_forward before end_forward", [&] { layer.begin_forward(x); });
    refused("layer bn0: set_options() while a pass is under way",
            [&] { layer.set_options(layer.options()); });
    refused("layer bn0: begin_backward before end_forward",
            [&] { layer.begin_backward(pass, x, x); });
    refused("layer bn0: end_backward without begin_backward", [&] { layer.end_backward(y, {}); });
    refused("y has 2 samples of 1 positions, the input has 3 of 1", [&] {
      layer.end_forward({m.out.data(), 2, 1});
    });
    refused("overlaps the input in part", [&] {
      layer.end_forward({m.in.data() + 1, samples, 1});
    });
    layer.end_forward(y);
    refused("dy has 2 samples of 1 positions, the forward pass had 3 of 1", [&] {
      layer.begin_backward(pass, x, {m.in.data(), 2, 1});
    });
    layer.begin_backward(pass, x, x);
    refused("layer bn0: begin_forward before end_backward", [&] { layer.begin_forward(x); });
    layer.end_backward(y, {});
    refused("layer bn0: end_backward without begin_backward", [&] { layer.end_backward(y, {}); });
    m.forward(0);
    m.backward(0);
  });
}

TEST_CASE("options and arguments that cannot be are refused") {
  run_on_processor(1, "options", [](Communicator& c, int) {
    const auto make = [&](std::size_t channels, BatchNormOptions options) {
      options.name = "bn";
      SyncBatchNorm layer(c, channels, options);
    };
    refused("0 channels", [&] { make(0, {}); });
    refused("type is i32", [&] { make(4, {.type = DType::i32}); });
    refused("epsilon is -1", [&] { make(4, {.epsilon = -1}); });
    refused("epsilon is nan", [&] { make(4, {.epsilon = NAN}); });
    refused("momentum is 1.5", [&] { make(4, {.momentum = 1.5}); });
    refused("threads is -1", [&] { make(4, {.threads = -1}); });
    refused("deadline", [&] { make(4, {.deadline = std::chrono::milliseconds{-1}}); });
    SyncBatchNorm layer(c, 4, {.name = "bn"});
    std::vector<float> few(3), four(4);
    std::vector<std::int32_t> integers(4);
    const Buffer good = buffer_of(std::span(four)), empty;
    const BatchNormPass pass = layer.forward({}, {});
    const auto backward = [&](const Buffer& gamma, const Buffer& beta) {
      layer.backward_parameters(pass, {}, {}, {gamma, beta});
    };
    refused("the gradient of beta must be 4 f64, f32, f16 or bf16 in host memory, not 3 f32",
            [&] { backward(good, buffer_of(std::span(few))); });
    refused("the gradient of gamma must be 4 f64, f32, f16 or bf16 in host memory, not 4 i32",
            [&] { backward(buffer_of(std::span(integers)), good); });
    refused("gamma must be 4 f64, f32, f16 or bf16 in host memory, not 4 f32 at null", [&] {
      layer.bind_parameters({nullptr, 4, DType::f32}, good);
    });
    refused("beta must be 4 f64, f32, f16 or bf16 in host memory, not 0 f32",
            [&] { layer.bind_parameters(good, empty); });
    refused(
        "the running variance must be 4 f64, f32, f16 or bf16 in host memory, not 4 f32 of a GPU",
        [&] {
          layer.bind_statistics(good, {four.data(), 4, DType::f32, 0});
        });
    expect(layer.buffers().gamma.data != four.data() &&
               layer.buffers().running_mean.data != four.data(),
           "nothing was bound");
    SyncBatchNorm unbiased(c, 4, {.name = "unbiased", .bias = false});
    SyncBatchNorm plain(c, 4, {.name = "plain", .affine = false});
    refused("beta must be empty, because the layer has no bias",
            [&] { unbiased.bind_parameters(good, good); });
    refused("gamma must be empty, because the layer has no gamma and beta (affine is false)",
            [&] { plain.bind_parameters(good, empty); });
    refused("momentum is -1", [&] { layer.set_options({.name = "bn", .momentum = -1}); });
    refused("threads is 1025", [&] { layer.set_options({.name = "bn", .threads = 1025}); });
    refused("the deadline is negative",
            [&] { layer.set_options({.name = "bn", .deadline = std::chrono::milliseconds{-1}}); });
    refused("only momentum, threads and deadline of a layer can change",
            [&] { layer.set_options({.name = "bn", .epsilon = 1}); });
    expect(layer.options() == BatchNormOptions{.name = "bn"}, "nothing has changed");
    SyncBatchNorm untracked(c, 4, {.name = "untracked", .track_running = false});
    refused("layer untracked: evaluation needs running statistics",
            [&] { untracked.evaluate({}, {}); });
    refused("x has 2 samples of 1 positions", [&] { layer.begin_forward({nullptr, 2, 1}); });
    refused("2^53", [&] { layer.begin_forward({four.data(), std::size_t{1} << 60, 1}); });
  });
}

TEST_CASE("a rank that never comes is named by the deadline of the layer") {
  run_on_processor(2, "deadline", [](Communicator& c, int rank) {
    if (rank == 1) return wait_until_others_fail(c);
    SyncBatchNorm layer(
        c, 4, {.name = "encoder.block3.layer12.bn7", .deadline = std::chrono::milliseconds{300}});
    std::vector<float> x(8);
    const Activations all{x.data(), 2, 1};
    expect_parts(message_of(Errc::deadline_exceeded, [&] { layer.forward(all, all); }),
                 {"fwd 1 ..ock3.layer12.bn7", "rank 1"});
  });
}

TEST_CASE("a layer may go or move while a pass is under way") {
  run_on_processor(2, "gone", [](Communicator& c, int rank) {
    Model m(c, rank);
    const Activations x = m.x(), y = m.y();
    std::optional<SyncBatchNorm> layer;
    for (const bool backward : {false, true}) {
      layer.emplace(c, 4, BatchNormOptions{.name = "goes"});
      const BatchNormPass pass = layer->forward(x, y);
      backward ? layer->begin_backward(pass, x, x) : layer->begin_forward(x);
      layer.reset();
      m.forward(1);
    }
    // A moved layer continues its pass.
    m.layers[0].begin_forward(x);
    SyncBatchNorm moved = std::move(m.layers[0]);
    const BatchNormPass pass = moved.end_forward(y);
    moved.backward(pass, x, x, y, {});
  });
}

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
        BatchNormOptions options = layer.options();
        options.momentum = rank == 1 ? 0.25 : 0.5;
        layer.set_options(options);
        forward(layer);
      });
}

TEST_CASE("threads and deadline may differ") {
  run_on_processor(2, "may differ", [](Communicator& c, int rank) {
    SyncBatchNorm layer(
        c, few_channels,
        {.name = "bn", .threads = 1 + rank, .deadline = std::chrono::milliseconds{60'000 + rank}});
    forward(layer);
    BatchNormOptions options = layer.options();
    options.threads = 2 - rank;
    options.deadline = std::chrono::milliseconds{60'001 - rank};
    layer.set_options(options);
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
