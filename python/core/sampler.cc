// SPDX-License-Identifier: Apache-2.0
//
// _core.Sampler: rondo::ShardedSampler for rondo.torch.ShardedSampler.
#include <pybind11/stl.h>
#include <rondo/sampler.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "python/core/module.h"

namespace rondo::python {

namespace {

// Makes a sampler that goes on in this epoch, after `taken` samples.
std::unique_ptr<ShardedSampler> make(std::size_t samples, int rank, int size, bool shuffle,
                                     std::uint64_t seed, bool drop_last, bool uneven,
                                     std::uint64_t epoch, std::uint64_t taken) {
  const Remainder remainder =
      uneven ? Remainder::uneven : (drop_last ? Remainder::drop : Remainder::pad);
  auto sampler = std::make_unique<ShardedSampler>(samples, rank, size,
                                                  SamplerOptions{shuffle, seed, remainder});
  sampler->resume({epoch, taken});
  return sampler;
}

// The next samples of the rank, this many at most.
std::vector<std::size_t> next(ShardedSampler& sampler, std::size_t most) {
  std::vector<std::size_t> indices;
  const Unlocked unlocked;  // the first call of an epoch shuffles the whole data set
  for (const Sample& each : sampler.next(most)) indices.push_back(each.index);
  return indices;
}

}  // namespace

void define_sampler(py::module_& module) {
  py::class_<ShardedSampler>(module, "Sampler")
      .def(py::init(&make))
      .def("size", &ShardedSampler::size)
      .def("next", &next);
}

}  // namespace rondo::python
