// SPDX-License-Identifier: Apache-2.0
//
// Passes as objects: several forward passes of a layer wait for backward, in any order.
#include <thread>

#include "bn/places.h"

namespace rondo::testing {
namespace {

constexpr std::size_t pass_channels = 3, pass_spatial = 4;

Batch pass_batch(std::uint64_t seed) {
  return draw_batch(8, pass_channels, pass_spatial, seed);
}

const Numbers some_gamma{0.5, -1.5, 2}, some_beta{1, 0, -0.25};

SyncBatchNorm pass_layer(Rank& rank, const std::string& name = "bn", DType type = DType::f64) {
  SyncBatchNorm layer = rank.layer(pass_channels, {.name = name, .type = type});
  rank.assign(layer.buffers().gamma, some_gamma);
  rank.assign(layer.buffers().beta, some_beta);
  return layer;
}

Step pass_step(Rank& rank, const Batch& x, const Batch& dy, DType type = DType::f64) {
  return {rank, type, x, dy, uneven(rank.number)};
}

Reference pass_reference(const Batch& x, const Batch& dy) {
  return {x, dy, some_gamma, some_beta, 1e-5};
}

Batch with_values(Batch batch, const Numbers& values) {
  batch.values = values;
  return batch;
}

Numbers sum_of(Numbers a, const Numbers& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// h = bn(x), y = bn(h) in one process.
struct Twice {
  Batch x = pass_batch(1), dy = pass_batch(2);
  Batch h = with_values(x, pass_reference(x, dy).y);
  Reference outer = pass_reference(h, dy);
  Batch dh = with_values(x, outer.dx);
  Reference inner = pass_reference(x, dh);
};

TEST_CASE("a layer used twice in one graph has the gradients of one process", "[places]") {
  const Twice wanted;
  const Place place = each_place();
  for (const auto& [type, tolerance] : {std::pair(DType::f64, 1e-11), std::pair(DType::f32, 2e-5)})
    run_on(place, 3, "twice", [&, type = type, tolerance = tolerance](Rank& rank) {
      SyncBatchNorm layer = pass_layer(rank, "bn", type);
      for (int round = 0; round < 3; ++round) {
        // first: x to h; then: h to y
        const Share share = uneven(rank.number);
        Step first(rank, type, wanted.x, wanted.x, share),
            then(rank, type, wanted.x, wanted.dy, share);
        first.pass = layer.forward(first.x.view(), then.x.view());
        then.forward(layer);
        Gradients gradients(rank, pass_channels);
        layer.backward(then.pass, then.x.view(), then.dy.view(), first.dy.view(), gradients.here());
        first.backward(layer, gradients.here(true));
        then.y.expect_near(wanted.outer.y, tolerance, "y");
        first.dy.expect_near(wanted.outer.dx, tolerance, "dh");
        first.dx.expect_near(wanted.inner.dx, tolerance, "dx");
        expect_near(gradients.sum(gradients.gamma),
                    sum_of(wanted.inner.dgamma, wanted.outer.dgamma), 10 * tolerance, "dgamma");
        expect_near(gradients.sum(gradients.beta), sum_of(wanted.inner.dbeta, wanted.outer.dbeta),
                    10 * tolerance, "dbeta");
      }
      expect(layer.batches() == 6, "batches");
    });
}

TEST_CASE("forward inside backward, as activation checkpoints do", "[places]") {
  const Twice wanted;
  run_on(each_place(), 3, "checkpoint", [&](Rank& rank) {
    SyncBatchNorm layer = pass_layer(rank);
    Step first = pass_step(rank, wanted.x, wanted.x), then = pass_step(rank, wanted.x, wanted.dy);
    layer.forward(first.x.view(), then.x.view());  // nobody keeps this pass
    then.forward(layer);
    Gradients of_outer(rank, pass_channels), of_inner(rank, pass_channels);
    layer.backward(then.pass, then.x.view(), then.dy.view(), first.dy.view(), of_outer.here());
    first.forward(layer);
    first.backward(layer, of_inner.here());
    first.y.expect_near(wanted.h.values, 1e-12, "h again");
    first.dx.expect_near(wanted.inner.dx, 1e-11, "dx");
    expect_near(of_inner.sum(of_inner.gamma), wanted.inner.dgamma, 1e-10, "dgamma");
    // The gradients of h cancel in their sum.
    expect(difference_of_scales(of_inner.sum(of_inner.beta), wanted.inner.dbeta,
                                wanted.inner.dbeta_scale) < 1e-11,
           "dbeta");
    expect(layer.batches() == 3, "batches");
  });
}

// Passes of different shapes that wait at the same time.
TEST_CASE("passes in any order give what each alone gives", "[places]") {
  run_on(each_place(), 3, "any order", [](Rank& rank) {
    constexpr std::size_t count = 4;
    std::vector<Step> steps;
    std::vector<Reference> wanted;
    SyncBatchNorm layer = pass_layer(rank);
    for (std::size_t i = 0; i < count; ++i) {
      const Batch x = draw_batch(2 * (i + 1), pass_channels, i + 2, i),
                  dy = draw_batch(2 * (i + 1), pass_channels, i + 2, 100 + i);
      wanted.push_back(pass_reference(x, dy));
      // One rank has no samples, the others i + 1 each.
      const int none = static_cast<int>(i % 3), lower = none == 0 ? 1 : 0;
      const Share share{rank.number == lower ? 0 : i + 1, rank.number == none ? 0 : i + 1};
      steps.emplace_back(rank, DType::f64, x, dy, share);
      steps[i].forward(layer);
    }
    for (const std::size_t i : {2, 0, 3, 1, 0}) {  // one of them twice
      Gradients gradients(rank, pass_channels), again(rank, pass_channels);
      steps[i].backward(layer, gradients.here());
      steps[i].dx.expect_near(wanted[i].dx, 1e-11, fmt::format("dx {}", i));
      expect_near(gradients.sum(gradients.gamma), wanted[i].dgamma, 1e-11,
                  fmt::format("dgamma {}", i));
      expect_near(gradients.sum(gradients.beta), wanted[i].dbeta, 1e-11,
                  fmt::format("dbeta {}", i));
      layer.backward_parameters(steps[i].pass, steps[i].x.view(), steps[i].dy.view(), again.here());
      expect(again.are(gradients.gamma.values(), gradients.beta.values()), "without dx");
    }
  });
}

TEST_CASE("backward uses the gamma of its forward pass and may be repeated", "[places]") {
  run_on(each_place(), 3, "gamma", [](Rank& rank) {
    SyncBatchNorm layer = pass_layer(rank);
    Step step = pass_step(rank, pass_batch(1), pass_batch(2));
    step.forward(layer);
    Gradients first(rank, pass_channels), second(rank, pass_channels);
    step.backward(layer, first.here());
    const auto once = step.dx.bytes();
    rank.assign(layer.buffers().gamma, Numbers(pass_channels, 100.0));
    step.backward(layer, second.here());
    expect(once == step.dx.bytes(), "dx");
    expect(first.are(second.gamma.values(), second.beta.values()), "gradients");
  });
}

TEST_CASE("ranks that run backward passes in different order are named with their passes") {
  run_on(Place::processor, 3, "order", [](Rank& rank) {
    SyncBatchNorm layer = pass_layer(rank, "block.bn");
    const Step first = pass_step(rank, pass_batch(1), pass_batch(1)),
               second = pass_step(rank, pass_batch(1), pass_batch(1));
    first.forward(layer);
    second.forward(layer);
    refused(
        Errc::mismatch,
        "rank 1 at layer block.bn backward step 1; ranks 0, 2 at layer block.bn backward step 2",
        [&] { (rank.number == 1 ? first : second).backward(layer); });
  });
}

TEST_CASE("a pass that is empty or does not belong to the layer is refused") {
  run_on(Place::processor, 3, "refused", [](Rank& rank) {
    SyncBatchNorm layer = pass_layer(rank);
    std::optional<SyncBatchNorm> other(pass_layer(rank, "other"));
    const Step step = pass_step(rank, pass_batch(1), pass_batch(3));
    const Activations x = step.x.view(), y = step.y.view(), changed = step.dy.view();
    Gradients gradients(rank, pass_channels);
    const auto backward = [&](const BatchNormPass& pass) {
      layer.backward(pass, x, x, y, gradients.here());
    };
    refused("layer bn: the pass is empty", [&] { backward({}); });
    BatchNormPass pass = layer.forward(x, y);
    BatchNormPass moved = std::move(pass);
    expect(moved && !pass, "moved");  // NOLINT(bugprone-use-after-move)
    refused("layer bn: the pass is empty", [&] { backward(pass); });
    if (rank.number != 1)
      refused("layer bn: x is not what the forward pass of step 1 was given",
              [&] { layer.backward(moved, changed, x, y, gradients.here()); });
    BatchNormPass of_other = other->forward(x, y);
    refused("layer bn: the pass belongs to another layer, layer other",
            [&] { backward(of_other); });
    other.reset();
    refused("layer bn: the pass belongs to another layer, layer other, which has been destroyed",
            [&] { backward(of_other); });
    Numbers few(2);
    refused("the gradient of beta must be 3 f64", [&] {
      layer.backward(moved, x, x, y, {{}, buffer_of(std::span(few))});
    });
    expect(gradients.gamma.values() == Numbers(pass_channels, 7.0), "nothing was written");
    backward(moved);
  });
}

TEST_CASE("a layer and its passes may outlive the communicator") {
  run_on_processor(2, "outlive", [](Communicator& c, int number) {
    Numbers x{1, 2, 3, 4, 5, 6}, y = x;
    const Activations in{x.data(), 2, 1}, out{y.data(), 2, 1};
    std::optional<Communicator> group = c.split(0, number);
    std::optional<Rank> rank(std::in_place, *group, Place::processor);
    std::optional<SyncBatchNorm> layer(pass_layer(*rank)), under_way(pass_layer(*rank, "way"));
    BatchNormPass pass = layer->forward(in, out);
    under_way->begin_forward(in);
    rank.reset();
    group.reset();
    const std::string problem =
        fmt::format("rank {}: batch norm layer bn: its communicator has been destroyed", number);
    refused(problem, [&] { layer->forward(in, out); });
    refused(problem, [&] { layer->evaluate(in, out); });
    refused(problem, [&] { layer->backward(pass, in, in, out, {}); });
    refused(problem, [&] { layer->backward_parameters(pass, in, in, {}); });
    refused("layer way: its communicator has been destroyed", [&] { under_way->end_forward(out); });
    expect(layer->batches() == 1 && numbers(layer->buffers().gamma) == some_gamma,
           "what it has stays");
    layer.reset();
    pass = {};
  });
}

TEST_CASE("another thread may drop passes while the layer works and after it", "[places]") {
  run_on(each_place(), 2, "dropped", [](Rank& rank) {
    std::optional<SyncBatchNorm> layer(pass_layer(rank));
    const Share share = uneven(rank.number == 0 ? 0 : 2);
    const Step step(rank, DType::f64, pass_batch(1), pass_batch(1), share);
    for (int i = 0; i < 20; ++i) {
      std::thread dropper([pass = layer->forward(step.x.view(), step.y.view())] {});
      step.forward(*layer);
      step.backward(*layer);
      dropper.join();
    }
    BatchNormPass last = layer->forward(step.x.view(), step.y.view());
    layer.reset();
    std::thread([dropped = std::move(last)] {}).join();
    rank.settle();
  });
}

}  // namespace
}  // namespace rondo::testing
