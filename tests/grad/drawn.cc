// SPDX-License-Identifier: Apache-2.0
#include "grad/drawn.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rondo::testing {

namespace {

constexpr Averaging averagings[] = {Averaging::mean, Averaging::sum, Averaging::weighted};

Model drawn_model(Draw& draw) {
  constexpr DType types[] = {DType::f64, DType::f32, DType::f32, DType::f16, DType::bf16};
  std::vector<Tensor> tensors(draw(12));
  for (Tensor& tensor : tensors) tensor = {draw(8) == 0 ? 0 : draw(400), draw.one_of(types)};
  return Model(tensors);
}

// The value that this rank leaves in a gradient that it does not give.
constexpr double rest(int rank) {
  return rank + 0.5;
}

// Returns what an element of a gradient must be if some rank has given it.
double sum_of(const Drawn& drawn, const std::vector<double>& shares, std::size_t step,
              std::size_t parameter, std::size_t element) {
  double sum = 0;
  for (int r = 0; r < drawn.size; ++r)
    if (!drawn.unused(step, r, parameter))
      sum += shares[static_cast<std::size_t>(r)] * drawn.model.value(step, r, parameter, element);
  return sum;
}

bool is_used(const Drawn& drawn, const std::vector<double>& shares, std::size_t step,
             std::size_t parameter) {
  bool used = std::ranges::all_of(shares, [](double share) { return share == 0; }) ||
              !(drawn.options.find_unused || drawn.any_hint(step));
  for (int r = 0; r < drawn.size; ++r)
    used = used || (shares[static_cast<std::size_t>(r)] > 0 && !drawn.unused(step, r, parameter));
  return used;
}

}  // namespace

Drawn::Drawn(std::uint64_t its_seed) : seed(its_seed), draw(seed), model(drawn_model(draw)) {
  size = 1 + static_cast<int>(draw(5));
  options.averaging = draw.one_of(averagings);
  options.first_bucket_bytes = 64 * (1 + draw(4));
  options.bucket_bytes = 64 * (1 + draw(60));
  options.find_unused = draw(3) == 0;
  options.rebuild = draw(3) != 0;
  norms = draw(2) == 0;
  options.warn = [](const std::string&) {};
  unused_in = draw(4);
  if (draw(3) == 0) options.wire = draw(2) == 0 ? DType::f16 : DType::bf16;
  copies = draw(2) == 0;
  on_stream = draw(2) == 0;
}

Drawn Drawn::exact(std::uint64_t seed, int size) {
  Drawn drawn(seed);
  Draw& draw = drawn.draw;
  drawn.is_exact = true;
  drawn.size = size;
  drawn.steps = 1 + draw(3);
  const std::size_t count = draw.one_of<std::size_t>({10, 3001, 60'000});
  drawn.model = Model(std::vector<Tensor>(1 + draw(4), {count}), 16);
  GradientOptions& options = drawn.options;
  options.averaging = Averaging::sum;
  options.first_bucket_bytes = options.bucket_bytes = draw.one_of({4096, 100'000});
  options.wire.reset();
  if (draw(2) == 0) options.wire = draw.one_of({DType::bf16, DType::f16});
  drawn.unused_in = draw(3);
  return drawn;
}

double Drawn::weight(std::size_t step, int rank) const {
  constexpr double weights[] = {1, 1, 2, 5, 0};
  return is_exact ? 1 : weights[mixed(seed, step, static_cast<std::uint64_t>(rank)) % 5];
}

bool Drawn::unused(std::size_t step, int rank, std::size_t parameter) const {
  if (unused_in == 0 || step % unused_in != 0) return false;
  const std::uint64_t everywhere = mixed(seed + step, parameter, 99) % 4;
  return everywhere == 0 ||
         mixed(seed + step, parameter, static_cast<std::uint64_t>(rank)) % 4 == 0;
}

std::vector<double> Drawn::shares(std::size_t step) const {
  std::vector<double> shares;
  double sum = 0, active = 0;
  for (int rank = 0; rank < size; ++rank) {
    sum += shares.emplace_back(weight(step, rank));
    active += shares.back() > 0 ? 1 : 0;
  }
  for (double& share : shares) {
    if (options.averaging != Averaging::weighted) share = share > 0 ? 1 : 0;
    if (active > 0 && options.averaging != Averaging::sum)
      share /= options.averaging == Averaging::mean ? active : sum;
  }
  return shares;
}

bool Drawn::any_hint(std::size_t step) const {
  for (int rank = 0; rank < size; ++rank)
    for (std::size_t i = 0; i < model.size(); ++i)
      if (unused(step, rank, i)) return true;
  return false;
}

void run_drawn_step(Trainer& trainer, const Drawn& drawn, std::size_t step, int rank) {
  const Model& model = drawn.model;
  Draw draw(drawn.seed, step * 8 + static_cast<std::uint64_t>(rank) + 1);
  std::vector<std::size_t> hints, order;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const bool unused = drawn.unused(step, rank, i);
    if (!unused) order.push_back(i);
    if (unused && (!drawn.options.find_unused || draw(2) == 0)) hints.push_back(i);
  }
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw(i)]);
  if (mixed(drawn.seed, step) % 3 == 0) trainer.zero();
  for (std::size_t i = 0; i < model.size(); ++i) {
    Bytes rests(model.bytes(i));
    fill(model.view(rests, i), rest(rank));
    trainer.write(i, rests);
  }
  trainer.begin({.weight = drawn.weight(step, rank), .unused = hints});
  for (const std::size_t i : order) trainer.give(i, model.gradient(step, rank, i), drawn.copies);
  trainer.finish(drawn.on_stream);
}

void check_drawn_norm(Trainer& trainer, const Drawn& drawn, std::size_t step) {
  if (!drawn.is_exact || !drawn.norms) return;
  const std::vector<double> shares = drawn.shares(step);
  double squares = 0;  // f64 adds them exactly
  for (std::size_t i = 0; i < drawn.model.size(); ++i)
    for (std::size_t j = 0; is_used(drawn, shares, step, i) && j < drawn.model.count(i); ++j)
      squares += std::pow(sum_of(drawn, shares, step, i, j), 2);
  expect(trainer.buckets.norm() == std::sqrt(squares), "a norm is wrong");
}

void check_drawn_step(Trainer& trainer, const Drawn& drawn, std::size_t step, int rank) {
  const std::vector<double> shares = drawn.shares(step);
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (std::size_t i = 0; i < drawn.model.size(); ++i) {
    const bool used = is_used(drawn, shares, step, i);
    Bytes bytes = trainer.read(i);
    const Buffer view = drawn.model.view(bytes, i);
    const bool wire = drawn.options.wire && view.type == DType::f32;
    const DType type = wire ? *drawn.options.wire : view.type;
    const double exactness = drawn.is_exact       ? 0
                             : type == DType::f64 ? 1e-14
                             : type == DType::f32 ? 1e-6
                             : type == DType::f16 ? 1e-2
                                                  : 8e-2;
    for (std::size_t j = 0; j < view.count; ++j) {
      const double is = element_of(view, j);
      const double wanted = used                          ? sum_of(drawn, shares, step, i, j)
                            : drawn.unused(step, rank, i) ? rest(rank)
                                                          : drawn.model.value(step, rank, i, j);
      expect(used ? std::abs(is - wanted) <= exactness * all : is == wanted, [&] {
        return "step " + std::to_string(step) + ", p" + std::to_string(i) + ", element " +
               std::to_string(j) + ": " + std::to_string(is) + ", not " + std::to_string(wanted);
      });
    }
  }
}

}  // namespace rondo::testing
