// SPDX-License-Identifier: Apache-2.0
//
// Passes as objects: several forward passes of a layer wait for backward, in any order.
#include <functional>
#include <optional>
#include <thread>

#include <rondo/error.h>

#include "bn/reference.h"
#include "catch.h"

namespace rondo::testing {
namespace {

// Uneven batches; one rank has none.
constexpr std::size_t pass_channels = 3, pass_spatial = 4, pass_total = 8;
constexpr int pass_size = 3;
constexpr std::size_t pass_samples[pass_size] = {5, 0, 3}, pass_first[pass_size] = {0, 5, 5};

Setup pass_ranks(int size = pass_size) {
  Setup setup;
  setup.size = size;
  return setup;
}

Batch pass_batch(std::uint64_t seed) {
  return draw_batch(pass_total, pass_channels, pass_spatial, seed);
}

const Numbers pass_gamma{0.5, -1.5, 2}, pass_beta{1, 0, -0.25};

// A rank's part of tensors of one shape.
class Mine {
 public:
  explicit Mine(int rank, DType type = DType::f64)
      : rank_(static_cast<std::size_t>(rank)), type_(type) {}
  Tensor of(const Batch& batch) const {
    return {type_, TensorLayout::nchw, batch, pass_first[rank_], pass_samples[rank_]};
  }
  Tensor empty() const { return of(pass_batch(0)); }
  void expect_near(const Tensor& got, const Numbers& wanted, double tolerance,
                   const std::string& what) const {
    Batch batch = pass_batch(0);
    batch.values = wanted;
    got.unpack(batch, pass_first[rank_]);
    expect_near_by_channel(batch, wanted, tolerance, what);
  }

 private:
  std::size_t rank_;
  DType type_;
};

SyncBatchNorm pass_layer(Communicator& c, const std::string& name = "bn", DType type = DType::f64) {
  SyncBatchNorm layer(c, pass_channels, {.name = name, .type = type});
  assign(layer.gamma(), pass_gamma);
  assign(layer.beta(), pass_beta);
  return layer;
}

// Gradients of gamma and beta of one call.
struct Gradients {
  Numbers gamma = Numbers(pass_channels, 7.0), beta = gamma;
  BatchNormGradients here(bool add = false) {
    return {buffer_of(std::span(gamma)), buffer_of(std::span(beta)), add};
  }
  // Sums over ranks.
  void sum(Communicator& c) {
    for (Numbers* numbers : {&gamma, &beta})
      c.all_reduce(buffer_of(std::span(*numbers)), buffer_of(std::span(*numbers)), ReduceOp::sum)
          .wait();
  }
};

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
  Batch h = with_values(x, Reference(x, dy, pass_gamma, pass_beta, 1e-5).y);
  Reference outer{h, dy, pass_gamma, pass_beta, 1e-5};
  Batch dh = with_values(x, outer.dx);
  Reference inner{x, dh, pass_gamma, pass_beta, 1e-5};
};

TEST_CASE("a layer used twice in one graph has the gradients of one process") {
  const Twice wanted;
  const auto [type, tolerance] =
      GENERATE(table<DType, double>({{DType::f64, 1e-11}, {DType::f32, 2e-5}}));
  CHECK_NOTHROW(run_communicators(
      pass_ranks(), "twice", [&, type = type, tolerance = tolerance](Communicator& c, int rank) {
        const Mine mine(rank, type);
        SyncBatchNorm layer = pass_layer(c, "bn", type);
        for (int step = 0; step < 3; ++step) {
          Tensor x = mine.of(wanted.x), h = x, y = x, dy = mine.of(wanted.dy), dh = x, dx = x;
          layer.forward(x.view(), h.view());
          const BatchNormPass inner = layer.take_pass();
          layer.forward(h.view(), y.view());
          const BatchNormPass outer = layer.take_pass();
          Gradients gradients;
          layer.backward(outer, h.view(), dy.view(), dh.view(), gradients.here());
          layer.backward(inner, x.view(), dh.view(), dx.view(), gradients.here(true));
          mine.expect_near(y, wanted.outer.y, tolerance, "y");
          mine.expect_near(dh, wanted.outer.dx, tolerance, "dh");
          mine.expect_near(dx, wanted.inner.dx, tolerance, "dx");
          gradients.sum(c);
          expect_near(gradients.gamma, sum_of(wanted.inner.dgamma, wanted.outer.dgamma),
                      10 * tolerance, "dgamma");
          expect_near(gradients.beta, sum_of(wanted.inner.dbeta, wanted.outer.dbeta),
                      10 * tolerance, "dbeta");
        }
        expect(layer.batches() == 6, "batches");
        expect(numbers(layer.gamma_gradient()) == Numbers(pass_channels),
               "the layer's own gradients");
      }));
}

TEST_CASE("forward inside backward, as activation checkpoints do") {
  const Twice wanted;
  CHECK_NOTHROW(run_communicators(pass_ranks(), "checkpoint", [&](Communicator& c, int rank) {
    const Mine mine(rank);
    SyncBatchNorm layer = pass_layer(c);
    Tensor x = mine.of(wanted.x), h = x, again = x, y = x, dy = mine.of(wanted.dy), dh = x, dx = x;
    layer.forward(x.view(), h.view());  // kept by nobody
    layer.forward(h.view(), y.view());
    const BatchNormPass outer = layer.take_pass();
    Gradients first, second;
    layer.backward(outer, h.view(), dy.view(), dh.view(), first.here());
    layer.forward(x.view(), again.view());
    const BatchNormPass inner = layer.take_pass();
    layer.backward(inner, x.view(), dh.view(), dx.view(), second.here());
    mine.expect_near(again, wanted.h.values, 1e-12, "h again");
    mine.expect_near(dx, wanted.inner.dx, 1e-11, "dx");
    second.sum(c);
    expect_near(second.gamma, wanted.inner.dgamma, 1e-10, "dgamma");
    // The gradients of h cancel in their sum.
    expect(difference_of_scales(second.beta, wanted.inner.dbeta, wanted.inner.dbeta_scale) < 1e-11,
           "dbeta");
    expect(layer.batches() == 3, "batches");
  }));
}

// Passes of different shapes that wait at the same time, with the simple calls in between.
TEST_CASE("passes in any order give what each alone gives") {
  CHECK_NOTHROW(run_communicators(pass_ranks(), "any order", [](Communicator& c, int rank) {
    constexpr std::size_t count = 4;
    std::vector<Tensor> xs, dys;
    std::vector<Reference> wanted;
    std::vector<BatchNormPass> passes;
    SyncBatchNorm layer = pass_layer(c);
    // One rank has no samples, the others i + 1 each.
    const auto split = [&](const Batch& batch, std::size_t i) {
      const int none = static_cast<int>(i % 3), lower = none == 0 ? 1 : 0;
      return Tensor(DType::f64, TensorLayout::nchw, batch, rank == lower ? 0 : i + 1,
                    rank == none ? 0 : i + 1);
    };
    for (std::size_t i = 0; i < count; ++i) {
      const Batch x = draw_batch(2 * (i + 1), pass_channels, i + 2, i),
                  dy = draw_batch(2 * (i + 1), pass_channels, i + 2, 100 + i);
      wanted.emplace_back(x, dy, pass_gamma, pass_beta, 1e-5);
      xs.push_back(split(x, i));
      dys.push_back(split(dy, i));
      Tensor y = xs.back();
      layer.forward(xs.back().view(), y.view());
      passes.push_back(layer.take_pass());
    }
    Tensor simple = xs[0], gradient = xs[0];
    layer.forward(xs[0].view(), simple.view());
    for (const std::size_t i : {2, 0, 3, 1, 0}) {  // one of them twice
      Gradients gradients;
      Tensor dx = xs[i];
      layer.backward(passes[i], xs[i].view(), dys[i].view(), dx.view(), gradients.here());
      gradients.sum(c);
      expect_near(gradients.gamma, wanted[i].dgamma, 1e-11, fmt::format("dgamma {}", i));
      expect_near(gradients.beta, wanted[i].dbeta, 1e-11, fmt::format("dbeta {}", i));
      expect_near({layer.gamma_gradient_sum().begin(), layer.gamma_gradient_sum().end()},
                  wanted[i].dgamma, 1e-11, "sum over ranks");
    }
    // The last forward pass of the simple calls still waits.
    layer.backward(xs[0].view(), dys[0].view(), gradient.view());
    expect_near({layer.gamma_gradient_sum().begin(), layer.gamma_gradient_sum().end()},
                wanted[0].dgamma, 1e-11, "simple");
  }));
}

TEST_CASE("backward uses the gamma of its forward pass and may be repeated") {
  CHECK_NOTHROW(run_communicators(pass_ranks(), "gamma", [](Communicator& c, int rank) {
    const Mine mine(rank);
    SyncBatchNorm layer = pass_layer(c);
    Tensor x = mine.of(pass_batch(1)), y = x, dy = mine.of(pass_batch(2)), once = x, again = x;
    layer.forward(x.view(), y.view());
    const BatchNormPass pass = layer.take_pass();
    Gradients first, second;
    layer.backward(pass, x.view(), dy.view(), once.view(), first.here());
    assign(layer.gamma(), Numbers(pass_channels, 100.0));
    layer.backward(pass, x.view(), dy.view(), again.view(), second.here());
    expect(once.bytes() == again.bytes(), "dx");
    expect(first.gamma == second.gamma && first.beta == second.beta, "gradients");
  }));
}

// The mean of such numbers has digits that one f64 does not hold.
TEST_CASE("a pass keeps all digits of a large mean") {
  Batch x = pass_batch(1);
  for (std::size_t i = 0; i < x.size(); ++i) x.values[i] = 1e8 + normal(9, i);
  const Reference wanted(x, pass_batch(2), pass_gamma, pass_beta, 1e-5);
  CHECK_NOTHROW(run_communicators(pass_ranks(), "large mean", [&](Communicator& c, int rank) {
    const Mine mine(rank);
    SyncBatchNorm layer = pass_layer(c);
    Tensor in = mine.of(x), y = in, dy = mine.of(pass_batch(2)), dx = in;
    layer.forward(in.view(), y.view());
    const BatchNormPass pass = layer.take_pass();
    layer.backward(pass, in.view(), dy.view(), dx.view(), {});
    mine.expect_near(y, wanted.y, 1e-11, "y");
    mine.expect_near(dx, wanted.dx, 1e-11, "dx");
  }));
}

TEST_CASE("ranks that run backward passes in different order are named with their passes") {
  CHECK_NOTHROW(run_communicators(pass_ranks(), "order", [](Communicator& c, int rank) {
    const Mine mine(rank);
    SyncBatchNorm layer = pass_layer(c, "block.bn");
    Tensor x = mine.of(pass_batch(1)), y = x;
    std::vector<BatchNormPass> passes;
    for (int i = 0; i < 2; ++i) {
      layer.forward(x.view(), y.view());
      passes.push_back(layer.take_pass());
    }
    std::string message;
    try {
      layer.backward(passes[rank == 1 ? 0 : 1], x.view(), x.view(), y.view(), {});
    } catch (const Error& error) {
      expect(error.code() == Errc::mismatch, error.what());
      message = error.what();
    }
    expect(message.find("rank 1 at layer block.bn backward step 1; ranks 0, 2 at layer block.bn "
                        "backward step 2") != std::string::npos,
           message);
  }));
}

void refused_pass(const std::string& part, const std::function<void()>& call) {
  std::string message = "nothing was noticed";
  try {
    call();
  } catch (const Error& error) {
    expect(error.code() == Errc::invalid_argument, error.what());
    message = error.what();
  }
  expect(message.find(part) != std::string::npos, part + " in " + message);
}

TEST_CASE("a pass that is empty or does not belong to the layer is refused") {
  CHECK_NOTHROW(run_communicators(pass_ranks(), "refused", [](Communicator& c, int rank) {
    const Mine mine(rank);
    SyncBatchNorm layer = pass_layer(c);
    std::optional<SyncBatchNorm> other(pass_layer(c, "other"));
    Tensor x = mine.of(pass_batch(1)), y = x, changed = mine.of(pass_batch(3));
    Gradients gradients;
    const auto backward = [&](const BatchNormPass& pass) {
      layer.backward(pass, x.view(), x.view(), y.view(), gradients.here());
    };
    refused_pass("layer bn: take_pass without a forward pass", [&] { (void)layer.take_pass(); });
    layer.begin_forward(x.view());
    refused_pass("layer bn: take_pass without a forward pass", [&] { (void)layer.take_pass(); });
    layer.end_forward(y.view());
    BatchNormPass pass = layer.take_pass();
    refused_pass("layer bn: take_pass without a forward pass", [&] { (void)layer.take_pass(); });
    refused_pass("backward without a forward pass in training before it: take_pass() took that",
                 [&] { layer.begin_backward(x.view(), x.view()); });
    BatchNormPass moved = std::move(pass);
    expect(moved && !pass, "moved");  // NOLINT(bugprone-use-after-move)
    refused_pass("layer bn: the pass is empty", [&] { backward(pass); });
    layer.begin_forward(x.view());
    refused_pass("layer bn: begin_backward before end_forward", [&] { backward(moved); });
    layer.end_forward(y.view());
    if (rank != 1)
      refused_pass("layer bn: x is not what the forward pass of step 1 was given", [&] {
        layer.backward(moved, changed.view(), x.view(), y.view(), gradients.here());
      });
    if (rank != 1) {
      Tensor over = x;
      const BatchNormPass evaluated = layer.evaluate_pass(over.view(), over.view());
      refused_pass("layer bn: x is not what the evaluation was given: that pass wrote its output",
                   [&] { layer.backward(evaluated, over.view(), x.view(), y.view(), {}); });
    }
    other->forward(x.view(), y.view());
    BatchNormPass of_other = other->take_pass();
    refused_pass("layer bn: the pass belongs to another layer, layer other",
                 [&] { backward(of_other); });
    other.reset();
    refused_pass(
        "layer bn: the pass belongs to another layer, layer other, which has been destroyed",
        [&] { backward(of_other); });
    Numbers few(2);
    refused_pass("the gradient of beta must be 3 f64", [&] {
      layer.backward(moved, x.view(), x.view(), y.view(), {{}, buffer_of(std::span(few))});
    });
    expect(gradients.gamma == Numbers(pass_channels, 7.0), "nothing was written");
    backward(moved);
  }));
}

TEST_CASE("a layer and its passes may outlive the communicator") {
  CHECK_NOTHROW(run_communicators(pass_ranks(2), "outlive", [](Communicator& c, int rank) {
    Numbers x{1, 2, 3, 4, 5, 6}, y = x;
    const Activations in{x.data(), 2, 1}, out{y.data(), 2, 1};
    std::optional<Communicator> group = c.split(0, rank);
    std::optional<SyncBatchNorm> layer(pass_layer(*group)), under_way(pass_layer(*group, "way"));
    layer->forward(in, out);
    BatchNormPass pass = layer->take_pass();
    under_way->begin_forward(in);
    group.reset();
    const std::string problem =
        fmt::format("rank {}: batch norm layer bn: its communicator has been destroyed", rank);
    refused_pass(problem, [&] { layer->forward(in, out); });
    refused_pass(problem, [&] { layer->evaluate(in, out); });
    refused_pass(problem, [&] { (void)layer->evaluate_pass(in, out); });
    refused_pass(problem, [&] { layer->backward(pass, in, in, out, {}); });
    refused_pass(problem, [&] { layer->backward_parameters(pass, in, in, {}); });
    refused_pass("layer way: its communicator has been destroyed",
                 [&] { under_way->end_forward(out); });
    SyncBatchNorm* const both[] = {&*layer, &*under_way};
    const Activations ins[] = {in, in};
    refused_pass(problem, [&] { SyncBatchNorm::begin_forward(both, ins); });
    expect(layer->batches() == 1 && numbers(layer->gamma()) == pass_gamma, "what it has stays");
    layer.reset();
    pass = {};
  }));
}

TEST_CASE("passes may be dropped by another thread while the layer works") {
  CHECK_NOTHROW(run_communicators(pass_ranks(2), "dropped", [](Communicator& c, int rank) {
    const Mine mine(rank == 0 ? 0 : 2);
    SyncBatchNorm layer = pass_layer(c);
    Tensor x = mine.of(pass_batch(1)), y = x, dx = x;
    for (int i = 0; i < 20; ++i) {
      layer.forward(x.view(), y.view());
      std::thread dropper([pass = layer.take_pass()] {});
      layer.forward(x.view(), y.view());
      const BatchNormPass kept = layer.take_pass();
      layer.backward(kept, x.view(), x.view(), dx.view(), {});
      dropper.join();
    }
  }));
}

}  // namespace
}  // namespace rondo::testing
