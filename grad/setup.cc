// SPDX-License-Identifier: Apache-2.0
//
// Making buckets: each rank looks at its own parameters and options, then all compare them.
#include "grad/setup.h"

#include <fmt/format.h>
#include <rondo/agreement.h>
#include <rondo/error.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <limits>
#include <span>
#include <utility>

#include "base/mix.h"
#include "device/keep.h"
#include "grad/device/launches.h"
#include "training/parameter_check.h"

namespace rondo::grad {

namespace {

constexpr std::string_view averaging_names[] = {"mean", "sum", "weighted"};

[[noreturn]] void refuse_making(const std::string& what) {
  throw Error(Errc::invalid_argument, fmt::format("gradient buckets: {}", what));
}

std::string place_of(int device) {
  return device < 0 ? "in host memory" : fmt::format("on GPU {}", device);
}

int device_of(std::span<const Parameter> parameters) noexcept {
  return parameters.empty() || parameters[0].device < 0 ? -1 : parameters[0].device;
}

void check_gradients(std::span<const Parameter> parameters) {
  training::check_list(parameters);
  std::size_t bytes = 0;
  for (const Parameter& parameter : parameters) {
    if (place_of(parameter.device) != place_of(parameters[0].device))
      refuse_making(fmt::format(
          "parameter '{}' is {}, but '{}' is {}: the gradients of one GradientBuckets must all be "
          "in host memory, or all on one GPU",
          parameter.name, place_of(parameter.device), parameters[0].name,
          place_of(parameters[0].device)));
    constexpr DType types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
    if (std::find(std::begin(types), std::end(types), parameter.type) == std::end(types))
      refuse_making(fmt::format("parameter '{}' is {}, but gradients must be f64, f32, f16 or bf16",
                                parameter.name, name_of(parameter.type)));
    const std::size_t own = element_count(parameter) * size_of(parameter.type);
    if (own > std::numeric_limits<std::size_t>::max() - bytes)
      refuse_making("all gradients together have more bytes than 64 bits can count");
    bytes += own;
  }
}

void check_options(const GradientOptions& options) {
  if (static_cast<std::size_t>(options.averaging) >= std::size(averaging_names))
    refuse_making(fmt::format("averaging is {}, but it must be mean, sum or weighted",
                              static_cast<int>(options.averaging)));
  if (options.wire && *options.wire != DType::f16 && *options.wire != DType::bf16)
    refuse_making(
        fmt::format("the wire type is {}, but it must be f16 or bf16", name_of(*options.wire)));
  if (options.deadline.count() < 0)
    refuse_making(
        fmt::format("the deadline is {} ms, but it cannot be negative", options.deadline.count()));
}

void check_gpu(int device) {
  try {
    if (device >= 0) (void)BucketKernels(device);
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("gradient buckets: gradients are on GPU {}: {}", device, error.what()));
  }
}

std::string text_of(const GradientOptions& options, bool on_gpu) {
  return fmt::format(
      "with first_bucket_bytes {}, bucket_bytes {}, averaging {}, wire {}{}{}, "
      "gradients {}",
      options.first_bucket_bytes, options.bucket_bytes,
      averaging_names[static_cast<std::size_t>(options.averaging)],
      options.wire ? name_of(*options.wire) : "none", options.find_unused ? ", find_unused" : "",
      options.rebuild ? ", rebuild" : "", on_gpu ? "on a GPU" : "in host memory");
}

// Returns the parameters if all ranks have the same, their types and devices can be averaged, and
// no rank has invalid options. Collective; otherwise throws Error on every rank.
std::vector<Parameter> checked(Communicator& communicator, std::vector<Parameter> parameters,
                               const GradientOptions& options) {
  training::check_lists(communicator, parameters, [&] {
    check_gradients(parameters);
    check_options(options);
    check_gpu(device_of(parameters));
  });
  return parameters;
}

GradientOptions completed(GradientOptions options) {
  for (std::size_t* cap : {&options.first_bucket_bytes, &options.bucket_bytes})
    *cap = std::max(cap_unit, *cap / cap_unit * cap_unit);
  if (!options.warn)
    options.warn = [](const std::string& text) {
      std::fprintf(stderr, "rondo: %s\n", text.c_str());
    };
  return options;
}

// Returns a number that is the same on all ranks and that no other buckets made by rank 0's process
// have, if all ranks have the same options, and gradients in host memory on all ranks or on GPUs on
// all. Collective; otherwise throws Error on every rank.
std::uint64_t agreed_number(Communicator& communicator, const GradientOptions& options,
                            bool on_gpu) {
  static std::atomic<std::uint64_t> made{0};
  const std::uint64_t own = ++made;
  const std::string text = text_of(options, on_gpu);
  // A sum over ranks: only rank 0's number counts.
  std::array<double, 1 + agreement_elements> sums{
      communicator.rank() == 0 ? static_cast<double>(own) : 0.0};
  const auto same = std::span(sums).last<agreement_elements>();
  put_agreement(same, base::hash_text(text));
  const Buffer buffer = buffer_of(std::span<double>(sums));
  const OpOptions operation{.deadline = options.deadline, .tag = "gradient options"};
  communicator.all_reduce(buffer, buffer, ReduceOp::sum, operation).wait();
  if (!agreed(same, communicator.size()))
    throw_disagreement(communicator, "gradient buckets", text, Priority::bulk);
  return static_cast<std::uint64_t>(sums[0]);
}

// All ranks need the same, but one rank alone may fail to get it.
template <class Make>
auto made(Communicator& communicator, Make make) {
  try {
    return make();
  } catch (const std::exception& error) {
    communicator.abort(Errc::aborted, fmt::format("rank {}: gradient buckets: {}",
                                                  communicator.rank(), error.what()));
    throw;
  }
}

std::vector<ArenaMemory> make_memory(const Setup& setup) {
  std::vector<ArenaMemory> memory;
  for (const Arena& arena : setup.layout.arenas) {
    ArenaMemory& made = memory.emplace_back();
    made.wire_type = arena.type;
    made.gradients = setup.communicator.allocate(arena.bytes, setup.device);
    if (!setup.options.wire || arena.type != DType::f32 || arena.bytes == 0) continue;
    made.wire_type = *setup.options.wire;
    made.wire = setup.communicator.allocate(
        arena.bytes / size_of(arena.type) * size_of(made.wire_type), setup.device);
  }
  return memory;
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
      device(device_of(parameters)),
      options(completed(std::move(its_options))),
      number(agreed_number(communicator, options, device >= 0)),
      layout(made(communicator,
                  [&] {
                    return make_layout(parameters, reverse_order(parameters.size()),
                                       options.first_bucket_bytes, options.bucket_bytes);
                  })),
      memory(made(communicator,
                  [&] { return std::make_unique<std::vector<ArenaMemory>>(make_memory(*this)); })),
      title(title_of(number, parameters)),
      passes(made(communicator, [&] { return std::make_unique<Passes>(*this); })) {}

Setup::~Setup() {
  constexpr std::chrono::milliseconds most{10'000};
  lib::release_bulk(communicator, this);
  if (passes->settle(options.deadline.count() > 0 ? std::min(options.deadline, most) : most))
    return;
  device::keep_until_exit(std::move(passes));
  device::keep_until_exit(std::move(memory));
}

void Setup::refuse(const std::string& what) const {
  throw Error(Errc::invalid_argument,
              fmt::format("gradient buckets on rank {}: {}", communicator.rank(), what));
}

void Setup::check_index(std::string_view call, std::size_t parameter) const {
  if (parameter >= parameters.size())
    refuse(fmt::format("{}({}): there is no such parameter; the model has {}, numbered from 0",
                       call, parameter, parameters.size()));
}

Buffer Setup::gradient(std::size_t parameter) const {
  const GradientPlace& place = layout.places[parameter];
  const DType type = parameters[parameter].type;
  return {view_at(place.arena, place.offset), place.bytes / size_of(type), type, device};
}

Buffer Setup::travelling(std::size_t bucket) const noexcept {
  const BucketRange& range = layout.buckets[bucket];
  return {travelling_at(range.arena, range.offset),
          range.bytes / size_of(layout.arenas[range.arena].type), (*memory)[range.arena].wire_type,
          device};
}

std::byte* Setup::travelling_at(std::size_t arena, std::size_t offset) const noexcept {
  if (!has_wire(arena)) return view_at(arena, offset);
  const ArenaMemory& own = (*memory)[arena];
  return static_cast<std::byte*>(own.wire.data()) +
         offset / size_of(layout.arenas[arena].type) * size_of(own.wire_type);
}

OwnOptions Setup::operation_options(std::string_view tag) const {
  return {{.deadline = options.deadline, .tag = tag}, lib::AsOwner(this)};
}

}  // namespace rondo::grad
