// SPDX-License-Identifier: Apache-2.0
//
// Mistakes are named at once, on every rank, with layer, step and ranks.
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
  void forward(std::size_t i) { layers[i].forward(x(), y()); }
  void backward(std::size_t i) { layers[i].backward(x(), x(), y()); }
  void evaluate(std::size_t i) { layers[i].evaluate(x(), y()); }

  Communicator& c;
  int rank;
  std::vector<SyncBatchNorm> layers;
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
                if (m.rank == 1) assign(m.layers[0].point(), Numbers(4, 5.0));
                m.forward(0);
              });
}

TEST_CASE("lists of layers that differ are named by the first layer that does") {
  check_named({"rank 1 at layer bn2 (2 of 3 in one call, 4 channels) forward step 1; ranks 0, 2, 3 "
               "at layer bn1 (2 of 3 in one call, 4 channels) forward step 1"},
              [](Model& m) {
                SyncBatchNorm* const usual[] = {&m.layers[0], &m.layers[1], &m.layers[3]};
                SyncBatchNorm* const odd[] = {&m.layers[0], &m.layers[2], &m.layers[3]};
                const Activations xs[] = {m.x(), m.x(), m.x()}, ys[] = {m.y(), m.y(), m.y()};
                SyncBatchNorm::begin_forward(m.rank == 1 ? odd : usual, xs);
                SyncBatchNorm::end_forward(m.rank == 1 ? odd : usual, ys);
              });
  // The numbers of channels differ, although their sum does not.
  check_named({"rank 2 at layer narrow (1 of 2 in one call, 4 channels)",
               "ranks 0, 1, 3 at layer narrow (1 of 2 in one call, 2 channels)"},
              [](Model& m) {
                SyncBatchNorm narrow(m.c, m.rank == 2 ? 4 : 2, {.name = "narrow"});
                SyncBatchNorm wide(m.c, m.rank == 2 ? 2 : 4, {.name = "wide"});
                SyncBatchNorm* const layers[] = {&narrow, &wide};
                const Activations xs[] = {m.x(), m.x()}, ys[] = {m.y(), m.y()};
                SyncBatchNorm::begin_forward(layers, xs);
                SyncBatchNorm::end_forward(layers, ys);
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
    SyncBatchNorm &a = m.layers[0], &b = m.layers[1];
    const Activations x = m.x(), y = m.y();
    refused(fmt::format("rank {}: batch norm layer bn0: end_forward without begin_forward", rank),
            [&] { a.end_forward(y); });
    refused("layer bn0: backward without a forward", [&] { a.begin_backward(x, x); });
    a.begin_forward(x);
    refused("layer bn0: begin_forward before end_forward", [&] { a.begin_forward(x); });
    refused("layer bn0: begin_backward before end_forward", [&] { a.begin_backward(x, x); });
    refused("layer bn0: end_backward without begin_backward", [&] { a.end_backward(y); });
    refused("y has 2 samples of 1 positions, the input has 3 of 1", [&] {
      a.end_forward({m.out.data(), 2, 1});
    });
    refused("overlaps the input in part", [&] { a.end_forward({m.in.data() + 1, samples, 1}); });
    a.end_forward(y);
    refused("dy has 2 samples of 1 positions, the forward pass had 3 of 1", [&] {
      a.begin_backward(x, {m.in.data(), 2, 1});
    });
    a.backward(x, x, y);
    refused("layer bn0: backward without a forward", [&] { a.begin_backward(x, x); });

    SyncBatchNorm* const both[] = {&a, &b};
    SyncBatchNorm* const turned[] = {&b, &a};
    SyncBatchNorm* const twice[] = {&a, &a};
    const Activations xs[] = {x, x}, ys[] = {y, y};
    refused("layer bn0: it appears twice", [&] { SyncBatchNorm::begin_forward(twice, xs); });
    refused("there are 2 layers, but activations for 1",
            [&] { SyncBatchNorm::begin_forward(both, std::span(xs).first(1)); });
    refused("no layers", [&] { SyncBatchNorm::begin_forward({}, {}); });
    SyncBatchNorm::begin_forward(both, xs);
    refused("other layers, or another order", [&] { SyncBatchNorm::end_forward(turned, ys); });
    refused("other layers, or another order", [&] { a.end_forward(y); });
    SyncBatchNorm::end_forward(both, ys);

    auto other = c.split(0, rank);
    SyncBatchNorm elsewhere(*other, 4, {.name = "elsewhere"});
    SyncBatchNorm* const mixed[] = {&a, &elsewhere};
    refused("layer elsewhere: its communicator is not that of layer bn0",
            [&] { SyncBatchNorm::begin_forward(mixed, xs); });
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
    refused("the gradient of beta must be 4 f64, f32, f16 or bf16 in host memory, not 3 f32",
            [&] { layer.bind_gradients(good, buffer_of(std::span(few))); });
    refused("the gradient of gamma must be 4 f64, f32, f16 or bf16 in host memory, not 4 i32",
            [&] { layer.bind_gradients(buffer_of(std::span(integers)), good); });
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
    expect(layer.gamma().data != four.data() && layer.running_mean().data != four.data() &&
               layer.gamma_gradient().data != four.data(),
           "nothing was bound");
    SyncBatchNorm unbiased(c, 4, {.name = "unbiased", .bias = false});
    SyncBatchNorm plain(c, 4, {.name = "plain", .affine = false});
    refused("beta must be empty, because the layer has no bias",
            [&] { unbiased.bind_parameters(good, good); });
    refused("gamma must be empty, because the layer has no gamma and beta (affine is false)",
            [&] { plain.bind_parameters(good, empty); });
    refused("momentum is -1", [&] { layer.set_momentum(-1); });
    refused("threads is 1025", [&] { layer.set_threads(1025); });
    refused("the deadline is negative", [&] { layer.set_deadline(std::chrono::milliseconds{-1}); });
    refused("x has 2 samples of 1 positions", [&] { layer.begin_forward({nullptr, 2, 1}); });
    refused("2^53", [&] { layer.begin_forward({four.data(), std::size_t{1} << 60, 1}); });
  });
}

TEST_CASE("a rank that never comes is named by the deadline of the layer") {
  run_on_processor(2, "deadline", [](Communicator& c, int rank) {
    if (rank == 1) return wait_until_others_fail(c);
    SyncBatchNorm layer(c, 4, {.name = "encoder.block3.layer12.bn7"});
    layer.set_deadline(std::chrono::milliseconds{300});
    std::vector<float> x(8);
    const Activations all{x.data(), 2, 1};
    expect_parts(message_of(Errc::deadline_exceeded, [&] { layer.forward(all, all); }),
                 {"fwd 1 ..ock3.layer12.bn7", "rank 1"});
  });
}

TEST_CASE("layers may go while a pass is under way") {
  run_on_processor(2, "gone", [](Communicator& c, int rank) {
    Model m(c, rank);
    const Activations xs[] = {m.x(), m.x(), m.x()}, ys[] = {m.y(), m.y(), m.y()};
    for (const std::size_t goes : {0, 2}) {
      std::vector<std::optional<SyncBatchNorm>> layers(3);
      std::vector<SyncBatchNorm*> list;
      for (auto& layer : layers) {
        layer.emplace(c, 4, BatchNormOptions{.name = "goes"});
        list.push_back(&*layer);
      }
      SyncBatchNorm::begin_forward(list, xs);
      layers[goes].reset();
      refused("end_forward without begin_forward", [&] { layers[1]->end_forward(ys[1]); });
      layers[1]->forward(xs[1], ys[1]);
    }
    // A moved layer continues its pass.
    m.layers[0].begin_forward(m.x());
    SyncBatchNorm moved = std::move(m.layers[0]);
    moved.end_forward(m.y());
    moved.backward(m.x(), m.x(), m.y());
  });
}

}  // namespace
}  // namespace rondo::testing
