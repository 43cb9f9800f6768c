// SPDX-License-Identifier: Apache-2.0
#include "grad/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <rondo/error.h>

#include "device/keep.h"
#include "grad/failure.h"
#include "grad/gradient_options.h"

namespace rondo::grad {

namespace {

constexpr std::chrono::milliseconds settle_time{10'000};

// All ranks need the same, but one rank alone may fail to get it.
template <class Make>
auto made(Communicator& communicator, Make make) {
  try {
    return make();
  } catch (const std::exception& error) {
    tell_all(communicator,
             fmt::format("rank {}: gradient buckets: {}", communicator.rank(), error.what()));
    throw;
  }
}

std::unique_ptr<Storage> make_storage(const Setup& setup) {
  return std::make_unique<Storage>(setup.communicator, device_of(setup.parameters), setup.layout,
                                   setup.options.wire);
}

std::string title_of(std::uint64_t number, const std::vector<Parameter>& parameters) {
  std::string text = fmt::format("gradient buckets {} ({} parameters", number, parameters.size());
  if (!parameters.empty()) text += fmt::format(", first '{}'", parameters[0].name);
  return text + ')';
}

}  // namespace

Setup::Setup(Communicator& its_communicator, std::vector<Parameter> its_parameters,
             GradientOptions its_options)
    : communicator(its_communicator),
      parameters(checked(communicator, std::move(its_parameters), its_options)),
      options(checked(communicator, std::move(its_options), device_of(parameters))),
      layout(make_layout(parameters, reverse_order(parameters.size()), options.first_bucket_bytes,
                         options.bucket_bytes)),
      memory(made(communicator, [&] { return make_storage(*this); })),
      storage(*memory),
      number(agreed_number(communicator, options)),
      title(title_of(number, parameters)),
      passes(made(communicator, [&] { return std::make_unique<Passes>(*this); })) {}

Setup::~Setup() {
  communicator.release_bulk(this);
  const bool bounded = options.deadline.count() > 0;
  if (passes->settle(bounded ? std::min(options.deadline, settle_time) : settle_time)) return;
  device::keep_until_exit(std::move(passes));
  device::keep_until_exit(std::move(memory));
}

void Setup::refuse(const std::string& what) const {
  throw Error(Errc::invalid_argument,
              fmt::format("gradient buckets on rank {}: {}", communicator.rank(), what));
}

void Setup::refuse_overflow(std::size_t parameter) const {
  refuse(fmt::format(
      "the gradient of '{}' has a finite element above 65504, which f16 cannot hold: let gradients "
      "travel as bf16 (GradientOptions::wire), or make the loss smaller by a scale",
      parameters[parameter].name));
}

void Setup::check_index(std::string_view call, std::size_t parameter) const {
  if (parameter >= parameters.size())
    refuse(fmt::format("{}({}): there is no such parameter; the model has {}, numbered from 0",
                       call, parameter, parameters.size()));
}

Buffer Setup::gradient(std::size_t parameter) const {
  const GradientPlace& place = layout.places[parameter];
  const DType type = parameters[parameter].type;
  return {storage.gradients(place.arena) + place.offset, place.bytes / size_of(type), type,
          storage.device()};
}

OpOptions Setup::operation_options(std::string_view tag) const {
  OpOptions operation;
  operation.deadline = options.deadline;
  operation.tag = tag;
  operation.owner = this;
  return operation;
}

}  // namespace rondo::grad
