// SPDX-License-Identifier: Apache-2.0
//
// _core.Sampler: rondo::ShardedSampler for rondo.torch.ShardedSampler.

#include <pybind11/stl.h>
#include <rondo/sampler.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "python/core/module.h"

namespace rondo::python {

namespace {

std::unique_ptr<ShardedSampler> make(std::size_t samples, int rank, int size, bool shuffle,
                                     std::uint64_t seed, bool drop_last, bool uneven) {
  const Remainder remainder =
      uneven ? Remainder::uneven : (drop_last ? Remainder::drop : Remainder::pad);
  return std::make_unique<ShardedSampler>(samples, rank, size,
                                          SamplerOptions{shuffle, seed, remainder});
}

void resume(ShardedSampler& sampler, std::uint64_t epoch, std::uint64_t taken) {
  sampler.resume({epoch, taken});
}

std::pair<std::uint64_t, std::uint64_t> position(const ShardedSampler& sampler) {
  return {sampler.position().epoch, sampler.position().taken};
}

// The next samples of the rank, and how many of them are padding: the last ones.
std::pair<std::vector<std::size_t>, std::size_t> next(ShardedSampler& sampler, std::size_t most) {
  std::vector<std::size_t> indices;
  std::size_t padding = 0;
  const Unlocked unlocked;  // the first call of an epoch shuffles the whole data set
  for (const Sample& each : sampler.next(most)) {
    indices.push_back(each.index);
    padding += each.weight == 0 ? 1 : 0;
  }
  return {std::move(indices), padding};
}

}  // namespace

void define_sampler(py::module_& module) {
  py::class_<ShardedSampler>(module, "Sampler")
      .def(py::init(&make))
      .def("resume", &resume)
      .def("position", &position)
      .def("size", &ShardedSampler::size)
      .def("next", &next);
}

}  // namespace rondo::python
