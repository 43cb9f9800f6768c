// SPDX-License-Identifier: Apache-2.0
#include "equivalence/job.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rondo::testing {
namespace {

template <class T>
Tensors tensors_of(const std::vector<Parameter>& parameters) {
  Tensors all;
  for (const Parameter& parameter : parameters) {
    const T* const values = static_cast<const T*>(parameter.value);
    const std::size_t count = element_count(parameter);
    all.push_back({parameter.name,
                   {values, values + count},
                   std::string(reinterpret_cast<const char*>(values), count * sizeof(T))});
  }
  return all;
}

}  // namespace

template <class T>
Tensors train_job(Communicator& communicator, const Job& job) {
  train::TrainerOptions options;
  options.network.channels = {4, 8, 8};
  options.network.norms = job.norms;
  options.bucket_bytes = job.bucket_bytes;
  options.clip = job.clip;
  train::Trainer<T> trainer(communicator, options);
  const std::size_t together = std::accumulate(job.split.begin(), job.split.end(), std::size_t{0});
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const std::size_t before =
      std::accumulate(job.split.begin(), job.split.begin() + communicator.rank(), std::size_t{0});
  const train::Digits digits(train::Digits::Set::training, 40 * together, job.seed);
  const train::Schedule schedule{0.05, job.steps / 10, job.steps};
  train::Batch<T> batch;
  for (std::size_t step = 0; step < job.steps; ++step) {
    batch.clear();
    for (std::size_t i = 0; i < job.split[rank]; ++i)
      batch.add(digits, (step * together + before + i) % digits.count());
    trainer.step(batch, together, schedule.rate(step));
  }
  const std::size_t buckets = trainer.buckets().statistics().size();
  expect(buckets >= job.least_buckets,
         std::to_string(buckets) + " buckets, so that nothing is shown of them");
  std::vector<Parameter> all = trainer.network().parameters();
  if (job.norms != train::NormMode::local)
    for (const Parameter& buffer : trainer.network().buffers()) all.push_back(buffer);
  return tensors_of<T>(all);
}

template <class T>
Tensors train_ranks(const Job& job, Setup setup) {
  setup.size = static_cast<int>(job.split.size());
  std::vector<Tensors> by_rank(job.split.size());
  run_communicators(
      setup, "train",
      [&](Communicator& communicator, int rank) {
        by_rank[static_cast<std::size_t>(rank)] = train_job<T>(communicator, job);
      },
      std::chrono::seconds{300});
  for (const Tensors& tensors : by_rank)
    expect(same_bits(tensors, by_rank[0]), "the ranks ended with different parameters");
  return by_rank[0];
}

Difference difference(const Tensors& a, const Tensors& b) {
  Difference largest;
  expect(a.size() == b.size(), "not the same tensors");
  for (std::size_t i = 0; i < a.size(); ++i) {
    expect(a[i].name == b[i].name && a[i].values.size() == b[i].values.size(),
           "not the same tensors");
    if (a[i].name.ends_with(".point")) continue;
    double most = 0, apart = 0;
    for (std::size_t k = 0; k < a[i].values.size(); ++k) {
      expect(std::isfinite(a[i].values[k]) && std::isfinite(b[i].values[k]),
             a[i].name + " is not finite");
      most = std::max(most, std::abs(a[i].values[k]));
      apart = std::max(apart, std::abs(a[i].values[k] - b[i].values[k]));
    }
    if (apart > largest.relative * most) largest = {apart / most, a[i].name};
  }
  return largest;
}

bool same_bits(const Tensors& a, const Tensors& b) {
  return std::ranges::equal(a, b, {}, &Tensor::bits, &Tensor::bits);
}

template Tensors train_job<float>(Communicator&, const Job&);
template Tensors train_job<double>(Communicator&, const Job&);
template Tensors train_ranks<float>(const Job&, Setup);
template Tensors train_ranks<double>(const Job&, Setup);

}  // namespace rondo::testing
