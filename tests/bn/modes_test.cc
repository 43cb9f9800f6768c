// SPDX-License-Identifier: Apache-2.0
//
// Evaluation, averages, layers without optional parts, empty batches, groups, several layers at
// once, threads.
#include <optional>

#include "bn/reference.h"
#include "catch.h"

namespace rondo::testing {
namespace {

constexpr std::size_t mode_channels = 6;

Setup mode_ranks(int size) {
  Setup setup;
  setup.size = size;
  return setup;
}

// One rank's part of a step: its own samples of a batch that is drawn for all ranks.
struct Share {
  Share(std::uint64_t seed, int rank, std::size_t samples, std::size_t spatial = 5,
        DType type = DType::f64)
      : x(type, TensorLayout::nchw, draw_batch(4 * samples, mode_channels, spatial, seed),
          static_cast<std::size_t>(rank) * samples, samples),
        dy(type, TensorLayout::nchw, draw_batch(4 * samples, mode_channels, spatial, seed + 1000),
           static_cast<std::size_t>(rank) * samples, samples),
        y(x),
        dx(x) {}
  Tensor x, dy, y, dx;
};

TEST_CASE("running statistics: momentum, cumulative, and a checkpoint in between") {
  CHECK_NOTHROW(run_communicators(mode_ranks(2), "running", [](Communicator& c, int rank) {
    const auto options = [](std::optional<double> momentum) {
      return BatchNormOptions{.name = "bn", .type = DType::f64, .momentum = momentum};
    };
    SyncBatchNorm quarter(c, mode_channels, options(0.25)),
        cumulative(c, mode_channels, options(std::nullopt));
    std::optional<SyncBatchNorm> resumed;
    Numbers mean(mode_channels), variance(mode_channels, 1.0), mean_sum(mode_channels),
        variance_sum(mode_channels);
    for (std::uint64_t step = 1; step <= 5; ++step) {
      Share share(step, rank, 3);
      for (SyncBatchNorm* layer : {&quarter, &cumulative})
        layer->forward(share.x.view(), share.y.view());
      if (resumed) resumed->forward(share.x.view(), share.y.view());
      const auto n = static_cast<double>(quarter.count());
      for (std::size_t i = 0; i < mode_channels; ++i) {
        const double unbiased = quarter.variance()[i] * n / (n - 1);
        mean[i] = 0.75 * mean[i] + 0.25 * quarter.mean()[i];
        variance[i] = 0.75 * variance[i] + 0.25 * unbiased;
        mean_sum[i] += quarter.mean()[i];
        variance_sum[i] += unbiased;
      }
      if (step == 2) {
        resumed.emplace(c, mode_channels, options(std::nullopt));
        assign(resumed->running_mean(), numbers(cumulative.running_mean()));
        assign(resumed->running_variance(), numbers(cumulative.running_variance()));
        resumed->set_batches(cumulative.batches());
      }
    }
    for (Numbers* sum : {&mean_sum, &variance_sum})
      for (double& value : *sum) value /= 5;
    expect_near(numbers(quarter.running_mean()), mean, 1e-14, "momentum, mean");
    expect_near(numbers(quarter.running_variance()), variance, 1e-14, "momentum, variance");
    expect_near(numbers(cumulative.running_mean()), mean_sum, 1e-14, "cumulative, mean");
    expect_near(numbers(cumulative.running_variance()), variance_sum, 1e-14,
                "cumulative, variance");
    expect_near(numbers(resumed->running_mean()), mean_sum, 1e-14, "resumed, mean");
    expect(resumed->batches() == 5 && cumulative.batches() == 5, "batches");
  }));
}

// Copies what a checkpoint holds: parameters() and batches().
void restore(SyncBatchNorm& to, SyncBatchNorm& from) {
  const std::vector<Parameter> have = from.parameters(), want = to.parameters();
  for (std::size_t i = 0; i < have.size(); ++i)
    std::memcpy(want[i].value, have[i].value, element_count(have[i]) * size_of(have[i].type));
  to.set_batches(from.batches());
}

TEST_CASE("a run resumed from a checkpoint goes on with the same bits") {
  for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    CHECK_NOTHROW(run_communicators(mode_ranks(2), "resumed", [type](Communicator& c, int rank) {
      SyncBatchNorm whole(c, mode_channels, {.name = "whole", .type = type});
      std::optional<SyncBatchNorm> resumed;
      for (std::uint64_t step = 1; step <= 4; ++step) {
        Share share(step, rank, 6, 5, type), other = share;
        whole.forward(share.x.view(), share.y.view());
        whole.backward(share.x.view(), share.dy.view(), share.dx.view());
        if (resumed) {
          resumed->forward(other.x.view(), other.y.view());
          resumed->backward(other.x.view(), other.dy.view(), other.dx.view());
          const std::string what = fmt::format("{} step {}", name_of(type), step);
          expect(std::ranges::equal(whole.mean(), resumed->mean()), what + ", mean");
          expect(std::ranges::equal(whole.variance(), resumed->variance()), what + ", variance");
          expect(numbers(whole.point()) == numbers(resumed->point()), what + ", point");
          expect(std::ranges::equal(whole.gamma_gradient_sum(), resumed->gamma_gradient_sum()),
                 what + ", dgamma");
          expect(share.y.bytes() == other.y.bytes() && share.dx.bytes() == other.dx.bytes(),
                 what + ", y, dx");
        }
        if (step == 2) {
          resumed.emplace(c, mode_channels, BatchNormOptions{.name = "resumed", .type = type});
          restore(*resumed, whole);
        }
      }
      expect(numbers(whole.running_mean()) == numbers(resumed->running_mean()), "running mean");
      expect(numbers(whole.running_variance()) == numbers(resumed->running_variance()),
             "running variance");
    }));
  }
}

TEST_CASE("evaluation uses running statistics and no communication") {
  CHECK_NOTHROW(run_communicators(mode_ranks(2), "evaluation", [](Communicator& c, int rank) {
    SyncBatchNorm layer(c, mode_channels, {.name = "bn", .type = DType::f64});
    Share share(1, rank, 4);
    layer.forward(share.x.view(), share.y.view());
    const std::uint64_t before = c.statistics().operations;
    // Only one of the ranks evaluates.
    if (rank == 1) {
      const Batch x = draw_batch(2, mode_channels, 5, 9);
      Tensor in(DType::f64, TensorLayout::nchw, x, 0, 2);
      layer.evaluate(in.view(), in.view());
      Batch y = x, wanted = x;
      in.unpack(y, 0);
      const Numbers mean = numbers(layer.running_mean()),
                    variance = numbers(layer.running_variance());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t channel = i / 5 % mode_channels;
        wanted.values[i] = (x.values[i] - mean[channel]) / std::sqrt(variance[channel] + 1e-5);
      }
      expect_near(y.values, wanted.values, 1e-14, "evaluation");
      layer.evaluate({}, {});
    }
    expect(c.statistics().operations == before, "communication");
    expect(layer.batches() == 1, "batches");
    layer.backward(share.x.view(), share.dy.view(), share.dx.view());
  }));
}

TEST_CASE("evaluation between the parts of a pass does not disturb it") {
  CHECK_NOTHROW(run_communicators(mode_ranks(2), "between", [](Communicator& c, int rank) {
    for (const bool tracks : {true, false}) {
      SyncBatchNorm plain(c, mode_channels, {.name = "plain", .type = DType::f64});
      SyncBatchNorm layer(c, mode_channels,
                          {.name = "bn", .type = DType::f64, .track_running = tracks});
      Share wanted(1, rank, 4), share(1, rank, 4), other(2, rank, 3);
      plain.forward(wanted.x.view(), wanted.y.view());
      plain.backward(wanted.x.view(), wanted.dy.view(), wanted.dx.view());
      layer.begin_forward(share.x.view());
      layer.evaluate(other.x.view(), other.y.view());
      layer.end_forward(share.y.view());
      layer.begin_backward(share.x.view(), share.dy.view());
      layer.evaluate(other.x.view(), other.y.view());
      layer.end_backward(share.dx.view());
      expect(share.y.bytes() == wanted.y.bytes() && share.dx.bytes() == wanted.dx.bytes(), "bits");
    }
  }));
}

TEST_CASE("without running statistics evaluation takes those of its own batch") {
  CHECK_NOTHROW(run_communicators(mode_ranks(2), "own batch", [](Communicator& c, int rank) {
    SyncBatchNorm layer(c, mode_channels,
                        {.name = "bn", .type = DType::f64, .track_running = false});
    const Batch x = draw_batch(4, mode_channels, 5, 30 + static_cast<std::uint64_t>(rank));
    const Reference reference(x, x, Numbers(mode_channels, 1.0), Numbers(mode_channels), 1e-5);
    Tensor in(DType::f64, TensorLayout::nchw, x, 0, 4), out = in;
    layer.evaluate(in.view(), out.view());
    Batch y = x;
    out.unpack(y, 0);
    expect_near(y.values, reference.y, 1e-13, "own batch");
  }));
}

TEST_CASE("a layer without gamma and beta") {
  CHECK_NOTHROW(run_communicators(mode_ranks(2), "not affine", [](Communicator& c, int rank) {
    SyncBatchNorm plain(c, mode_channels, {.name = "plain", .type = DType::f64, .affine = false});
    SyncBatchNorm affine(c, mode_channels, {.name = "affine", .type = DType::f64});
    Share one(1, rank, 4), other(1, rank, 4);
    plain.forward(one.x.view(), one.y.view());
    plain.backward(one.x.view(), one.dy.view(), one.dx.view());
    affine.forward(other.x.view(), other.y.view());
    affine.backward(other.x.view(), other.dy.view(), other.dx.view());
    expect(one.y.bytes() == other.y.bytes() && one.dx.bytes() == other.dx.bytes(),
           "as with 1 and 0");
    expect(plain.gamma().count == 0 && plain.beta_gradient().count == 0 &&
               plain.gamma_gradient_sum().empty(),
           "empty");
    plain.bind_gradients({nullptr, 0, DType::f64}, {nullptr, 0, DType::f64});
    const auto names = [](SyncBatchNorm& layer) {
      std::string all;
      for (const Parameter& parameter : layer.parameters()) all += parameter.name + " ";
      return all;
    };
    expect(names(plain) == "plain.running_mean plain.running_var plain.point ", names(plain));
    expect(names(affine) ==
               "affine.weight affine.bias affine.running_mean affine.running_var affine.point ",
           names(affine));
  }));
}

TEST_CASE("gradients are added to where they are bound") {
  CHECK_NOTHROW(run_communicators(mode_ranks(1), "bound", [](Communicator& c, int) {
    SyncBatchNorm layer(c, mode_channels, {.name = "bn"});
    Share share(1, 0, 4, 5, DType::f32);
    layer.forward(share.x.view(), share.y.view());
    layer.backward(share.x.view(), share.dy.view(), share.dx.view());
    const Numbers once = numbers(layer.gamma_gradient());
    std::vector<float> gamma(mode_channels, 100.0F), beta(mode_channels);
    layer.bind_gradients(buffer_of(std::span(gamma)), buffer_of(std::span(beta)));
    layer.forward(share.x.view(), share.y.view());
    layer.backward(share.x.view(), share.dy.view(), share.dx.view());
    Numbers wanted = once;
    for (double& value : wanted) value += 100;
    expect_near(numbers(layer.gamma_gradient()), wanted, 1e-6, "gamma");
    expect(layer.gamma_gradient().data == gamma.data(), "bound");
  }));
}

TEST_CASE("batches of nothing and of one") {
  CHECK_NOTHROW(run_communicators(mode_ranks(3), "few", [](Communicator& c, int rank) {
    SyncBatchNorm layer(c, mode_channels, {.name = "bn", .type = DType::f64});
    assign(layer.beta(), Numbers(mode_channels, 0.5));
    // No rank has samples: nothing changes, and training continues.
    for (int i = 0; i < 2; ++i) {
      layer.forward({}, {});
      layer.backward({}, {}, {});
    }
    expect(layer.count() == 0 && layer.batches() == 0 &&
               numbers(layer.running_variance()) == Numbers(mode_channels, 1.0),
           "nothing");
    expect(numbers(layer.beta_gradient()) == Numbers(mode_channels) &&
               layer.beta_gradient_sum()[0] == 0,
           "gradients");
    // One sample on one rank is its own mean, so the output is beta. One element has no variance,
    // so the running variance stays.
    Numbers x(mode_channels, 3.25), y(mode_channels), dx(mode_channels, 7.0);
    const std::size_t samples = rank == 1 ? 1 : 0;
    const auto view = [&](Numbers& values) {
      return Activations{samples > 0 ? values.data() : nullptr, samples, 1};
    };
    layer.forward(view(x), view(y));
    expect(layer.count() == 1 && layer.batches() == 1, "one");
    if (rank == 1) expect_near(y, Numbers(mode_channels, 0.5), 1e-15, "beta");
    expect_near(numbers(layer.running_mean()), Numbers(mode_channels, 0.325), 1e-15,
                "running mean");
    expect(numbers(layer.running_variance()) == Numbers(mode_channels, 1.0), "running variance");
    layer.backward(view(x), view(y), view(dx));
    if (rank == 1) expect_near(dx, Numbers(mode_channels), 1e-12, "dx");
    // Ranks without samples have the same sums.
    expect(layer.beta_gradient_sum()[2] == 0.5, "sum of dy");
    Share share(3, rank, 2);
    layer.forward(share.x.view(), share.y.view());
    expect(layer.count() == 3 * 2 * 5, "as ever");
  }));
}

TEST_CASE("groups have statistics of their own") {
  CHECK_NOTHROW(run_communicators(mode_ranks(4), "groups", [](Communicator& c, int rank) {
    auto group = c.split(rank / 2, rank);
    SyncBatchNorm layer(*group, 1, {.name = "bn", .type = DType::f64});
    double x[2] = {static_cast<double>(rank), static_cast<double>(rank)}, y[2];
    layer.forward({x, 2, 1}, {y, 2, 1});
    expect(layer.count() == 4 && layer.mean()[0] == (rank < 2 ? 0.5 : 2.5) &&
               layer.variance()[0] == 0.25,
           "statistics");
  }));
}

TEST_CASE("several layers in one call give what each alone gives, in one collective") {
  CHECK_NOTHROW(run_communicators(mode_ranks(3), "together", [](Communicator& c, int rank) {
    constexpr std::size_t count = 3;
    std::vector<SyncBatchNorm> alone, together;
    std::vector<SyncBatchNorm*> list;
    for (std::size_t i = 0; i < count; ++i) {
      const BatchNormOptions options{.name = fmt::format("bn{}", i), .type = DType::f64};
      alone.emplace_back(c, mode_channels, options);
      together.emplace_back(c, mode_channels, options);
    }
    for (SyncBatchNorm& layer : together) list.push_back(&layer);
    for (std::uint64_t step = 0; step < 3; ++step) {
      std::vector<Share> one, all;
      std::vector<Activations> xs, ys, dys, dxs;
      for (std::size_t i = 0; i < count; ++i) {
        one.emplace_back(10 * step + i, rank, i + 1);
        all.emplace_back(10 * step + i, rank, i + 1);
      }
      for (Share& share : all) {
        xs.push_back(share.x.view());
        ys.push_back(share.y.view());
        dys.push_back(share.dy.view());
        dxs.push_back(share.dx.view());
      }
      for (std::size_t i = 0; i < count; ++i) {
        alone[i].forward(one[i].x.view(), one[i].y.view());
        alone[i].backward(one[i].x.view(), one[i].dy.view(), one[i].dx.view());
      }
      const std::uint64_t before = c.statistics().operations;
      SyncBatchNorm::begin_forward(list, xs);
      SyncBatchNorm::end_forward(list, ys);
      SyncBatchNorm::begin_backward(list, xs, dys);
      SyncBatchNorm::end_backward(list, dxs);
      expect(c.statistics().operations - before == 2, "collectives");
      for (std::size_t i = 0; i < count; ++i) {
        expect(all[i].y.bytes() == one[i].y.bytes(), "y");
        expect(all[i].dx.bytes() == one[i].dx.bytes(), "dx");
        expect(numbers(together[i].gamma_gradient()) == numbers(alone[i].gamma_gradient()),
               "dgamma");
      }
    }
  }));
}

TEST_CASE("the bits do not depend on threads, on memory in place, or on what else is under way") {
  CHECK_NOTHROW(run_communicators(mode_ranks(2), "bits", [](Communicator& c, int rank) {
    for (const TensorLayout layout : {TensorLayout::nchw, TensorLayout::nhwc}) {
      const auto options = [&](int threads) {
        return BatchNormOptions{.name = "bn", .layout = layout, .threads = threads};
      };
      SyncBatchNorm one(c, mode_channels, options(1)), many(c, mode_channels, options(5)),
          in_place(c, mode_channels, options(2));
      // Large enough for several tasks.
      Share a(1, rank, 2, 60'001, DType::f32), b = a, d = a;
      std::vector<float> bucket(100'000, 1.0F);
      Work work =
          c.all_reduce(buffer_of(std::span(bucket)), buffer_of(std::span(bucket)), ReduceOp::sum);
      one.forward(a.x.view(), a.y.view());
      one.backward(a.x.view(), a.dy.view(), a.dx.view());
      work.wait();
      many.begin_forward(b.x.view());
      many.end_forward(b.y.view());
      many.begin_backward(b.x.view(), b.dy.view());
      many.end_backward(b.dx.view());
      in_place.forward(d.x.view(), d.y.view());
      in_place.backward(d.x.view(), d.dy.view(), d.dy.view());
      SyncBatchNorm again(c, mode_channels, options(1));
      again.forward(d.x.view(), d.x.view());
      expect(a.y.bytes() == b.y.bytes() && a.dx.bytes() == b.dx.bytes(), "threads");
      expect(a.dx.bytes() == d.dy.bytes() && a.y.bytes() == d.x.bytes(), "in place");
      expect(numbers(one.gamma_gradient()) == numbers(many.gamma_gradient()), "gradients");
    }
  }));
}

// Returns the bits of rank 0 after three steps of three ranks, which all must have the same.
Numbers bits_of(Over over, const std::string& algorithm, bool reproducible) {
  Setup setup = mode_ranks(3);
  setup.over = over;
  setup.options.reproducible = reproducible;
  setup.options.algorithm = algorithm;
  std::vector<Numbers> ends(3);
  CHECK_NOTHROW(run_communicators(setup, "same bits", [&](Communicator& c, int rank) {
    SyncBatchNorm layer(c, mode_channels, {.name = "bn", .type = DType::f64});
    Numbers& end = ends[static_cast<std::size_t>(rank)];
    for (std::uint64_t step = 0; step < 3; ++step) {
      Share share(step, rank, 3);
      layer.forward(share.x.view(), share.y.view());
      layer.backward(share.x.view(), share.dy.view(), share.dx.view());
      end.insert(end.end(), layer.mean().begin(), layer.mean().end());
      end.insert(end.end(), layer.variance().begin(), layer.variance().end());
      end.insert(end.end(), layer.gamma_gradient_sum().begin(), layer.gamma_gradient_sum().end());
    }
  }));
  CHECK((!ends[0].empty() && ends[1] == ends[0] && ends[2] == ends[0]));
  return ends[0];
}

TEST_CASE("ranks end with the same bits; reproducible ones over every transport and algorithm") {
  const Numbers wanted = bits_of(Over::mem, "", true);
  for (const Over over : {Over::mem, Over::tcp, Over::shm}) {
    for (const char* algorithm : {"", "star", "chain"}) {
      INFO(name_of(over) << ' ' << algorithm);
      CHECK((bits_of(over, algorithm, true) == wanted));
    }
    CHECK(difference(bits_of(over, "", false), wanted) < 1e-12);
  }
}

}  // namespace
}  // namespace rondo::testing
